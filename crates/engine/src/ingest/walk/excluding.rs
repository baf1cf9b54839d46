//! What the walk leaves out without a look at it: what patterns match, and mounts that may hang.
//!
//! A directory's list says what kind of item a name is. Where it does not, and a pattern depends on
//! that, the item is looked at first; so it is in shares, where what is left out is looked through
//! for stubs.

use super::parent::ParentDirectory;
use super::{Item, Walk};
use crate::ingest::mount_points::{Mount, MountPoints, Mounted};
use crate::ingest::source_tree::ArrangedSource;
use crate::tree::path;
use onefold_format::node::{Entry, EntryKind, Totals};
use onefold_types::Result;
use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// The mounts around a source.
pub(super) struct Mounts {
    points: MountPoints,
    /// Where the source is, without links on the way.
    real_path: Vec<u8>,
}

impl Mounts {
    /// Those that may be met below a source, if it is known where that is. Of an earlier source the
    /// list is known.
    pub(super) fn below(source: &ArrangedSource, earlier: Option<Self>) -> Option<Self> {
        let real_path = source.path.canonicalize().ok()?.into_os_string().into_encoded_bytes();
        let points = earlier.map_or_else(MountPoints::load, |earlier| earlier.points);
        Some(Self { points, real_path })
    }

    fn at(&self, below: &[u8]) -> Option<Mount> {
        self.points.at(&path::join(&self.real_path, below.strip_prefix(b"/").unwrap_or(below)))
    }
}

impl Walk<'_> {
    /// Whether patterns match an item, as far as its kind is known; `None` if it must be looked at.
    pub(super) fn matches_unseen(&self, tree_path: &[u8], kind: FileType) -> Option<bool> {
        let selection = self.context.selection;
        if selection.cold.is_some() || selection.part.is_some() {
            return None;
        }
        if selection.excludes.is_empty() {
            return Some(false);
        }
        let other = self.other_path(tree_path);
        let is_unknown = kind == FileType::Unknown;
        match is_unknown && selection.excludes.depend_on_kind(tree_path, other.as_deref()) {
            true => None,
            false => Some(self.matches(tree_path, kind == FileType::Directory)),
        }
    }

    /// Whether patterns match an item.
    pub(super) fn matches(&self, tree_path: &[u8], is_directory: bool) -> bool {
        let excludes = &self.context.selection.excludes;
        if excludes.is_empty() {
            return false;
        }
        let other = self.other_path(tree_path);
        excludes.matches_either(tree_path, other.as_deref(), is_directory)
    }

    fn other_path(&self, tree_path: &[u8]) -> Option<Vec<u8>> {
        self.other_form.as_ref().map(|(length, above)| {
            let below = tree_path.get(*length..).unwrap_or_default();
            path::join(above, below.strip_prefix(b"/").unwrap_or(below))
        })
    }

    /// Counts an item that patterns match.
    pub(super) fn note_matched(&mut self, tree_path: &[u8], size_bytes: u64) {
        self.left_out.matched_items += 1;
        self.left_out.matched_bytes += size_bytes;
        self.context.job.observer.item(&path::display(tree_path), "excluded");
    }

    /// Whether what shows this is left out. A mounted share is part of what it lies on.
    pub(super) fn leaves_out(&self, mounted: Mounted) -> bool {
        match mounted {
            Mounted::Snapshots => true,
            Mounted::Share => false,
            Mounted::Foreign => self.context.selection.one_file_system,
        }
    }

    /// What another file system is mounted on, of those that are left out.
    pub(super) fn left_out_mount(&self, tree_path: &[u8], kind: FileType) -> Option<Mount> {
        if !matches!(kind, FileType::Directory | FileType::Unknown) {
            return None;
        }
        let below = tree_path.get(self.source_path_bytes..).unwrap_or_default();
        let mount = self.mounts.as_ref()?.at(below)?;
        (mount.device != self.device && self.leaves_out(mount.mounted)).then_some(mount)
    }

    /// Whether an item on this device is one that something is mounted on that is left out.
    pub(super) fn leaves_out_mount(&mut self, device: u64, tree_path: &[u8]) -> bool {
        let is_left_out = self.is_mount_left_out(device);
        if let (true, Some((_, mounted))) = (is_left_out, self.mounted) {
            self.note_mount(mounted, tree_path);
        }
        is_left_out
    }

    pub(super) fn is_mount_left_out(&mut self, device: u64) -> bool {
        if device == self.device {
            return false;
        }
        let mounted = match self.mounted {
            Some((known, mounted)) if known == device => mounted,
            _ => MountPoints::load().mounted(device),
        };
        self.mounted = Some((device, mounted));
        self.leaves_out(mounted)
    }

    /// Whether an item on this device that is no directory is left out, because another file system
    /// is mounted on it. What is below cannot be seen, and what is seen is not what has this name.
    pub(super) fn leaves_out_item(
        &mut self,
        directory: &OwnedFd,
        name: &OsStr,
        tree_path: &[u8],
        device: u64,
    ) -> bool {
        if device == self.device || !self.context.selection.one_file_system {
            return false;
        }
        // Overlays show files with numbers of other devices, on which nothing is mounted.
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let known = rustix::fs::statx(directory, name, flags, StatxFlags::empty());
        let is_told =
            |known: &Statx| known.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
        let is_mount = match known.ok().filter(is_told) {
            Some(known) => known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            // A kernel before 5.8.
            None => {
                let below = tree_path.get(self.source_path_bytes..).unwrap_or_default();
                self.mounts.as_ref().is_some_and(|mounts| mounts.at(below).is_some())
            }
        };
        is_mount && self.leaves_out_mount(device, tree_path)
    }

    /// Counts a mount that is left out.
    pub(super) fn note_mount(&mut self, mounted: Mounted, tree_path: &[u8]) {
        if mounted != Mounted::Snapshots {
            self.left_out.mounts += 1;
            return;
        }
        self.left_out.snapshot_mounts += 1;
        let what = "left out: snapshots are mounted there";
        self.context.job.observer.item(&path::display(tree_path), what);
    }

    /// Keeps a mount point, empty, with the attributes that the parent snapshot knows of it.
    pub(super) fn keep_mount_point(
        &mut self,
        mounted: Mounted,
        name: &OsStr,
        tree_path: &[u8],
        parent: &mut ParentDirectory,
    ) -> Result<()> {
        self.note_mount(mounted, tree_path);
        let known = self.known(parent, name.as_bytes()).map(|(known, _)| known);
        let known = known.filter(|known| known.kind == EntryKind::Directory);
        let unknown = || Entry {
            name: name.as_bytes().to_vec(),
            kind: EntryKind::Directory,
            mode: 0o755,
            links: 1,
            ..Entry::default()
        };
        let before = known.unwrap_or_else(unknown);
        let (content, totals) = (None, Totals::default());
        self.send(Item::Enter(Entry { content, totals, ..before }))?;
        self.send(Item::Leave { listed: None })
    }
}

/// The size of a file that is left out, for the count; nothing of what is no file.
pub(super) fn size_of_matched(directory: &OwnedFd, name: &OsStr, kind: FileType) -> u64 {
    if kind != FileType::RegularFile {
        return 0;
    }
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}
