//! What `backup` tells of sources that give less than they seem to: links, devices, and directories
//! with nothing in them.

use crate::context::Context;
use crate::size::{counted, human};
use onefold_engine::ingest::left_out::Emptied;
use onefold_engine::ingest::{BackupReport, Source, source_tree};
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Said of a backup that found nothing.
pub const GAVE_NOTHING: &str = "nothing was found in what was to be saved, so the exit code is 3; \
                                is something not mounted? --allow-empty says that this is meant";

/// The sources that are neither files nor directories, each with what it is.
#[derive(Default)]
pub struct Named {
    bare: Vec<(String, &'static str)>,
    /// How many are read as streams.
    streams: u64,
}

impl Named {
    /// Those of a backup.
    pub fn of(source: &Source) -> Self {
        let Source::Paths { paths, selection } = source else {
            return Self { bare: Vec::new(), streams: 1 };
        };
        let mut named = Self::default();
        let leading = |path: &&PathBuf| source_tree::leads_on(path);
        for path in paths.iter().filter(|path| !leading(path)) {
            let Some(kind) = path.symlink_metadata().ok().and_then(|found| what(&found)) else {
                continue;
            };
            // Few are of these kinds, so each may be compared with all.
            let is_same = |other: &PathBuf| other.components().eq(path.components());
            if paths.iter().filter(leading).any(is_same) {
                continue;
            }
            match selection.read_special && is_read(path) {
                true => named.streams += 1,
                false => named.bare.push((path.display().to_string(), kind)),
            }
        }
        named
    }

    /// Says what is saved of them.
    pub fn warn(&self, context: &Context) {
        for (path, kind) in &self.bare {
            let way = match *kind {
                LINK => format!("give '{path}/' to save the directory that it leads to"),
                SOCKET => "a socket holds nothing".to_owned(),
                _ => "--read-special saves what can be read from it".to_owned(),
            };
            context.output.warning(&format!(
                "'{path}' is a {kind}, and is saved as that, without what is behind it; {way}"
            ));
        }
    }

    /// Whether nothing but the sources themselves was found.
    pub fn gave_nothing(&self, report: &BackupReport) -> bool {
        let found = &report.summary;
        // Of a source with a mark the mark is saved, and an empty file of a stream of nothing.
        let streams = if found.bytes == 0 { self.streams } else { 0 };
        found.files <= report.left_out.marked_sources.len() as u64 + streams
            && found.others <= self.bare.len() as u64
    }
}

const LINK: &str = "symbolic link";
const SOCKET: &str = "socket";

/// Whether a device or pipe that is named, or that a link leads to, can be read.
fn is_read(path: &Path) -> bool {
    let kind = path.metadata().ok().and_then(|found| what(&found));
    kind.is_some_and(|kind| kind != SOCKET)
}

fn what(found: &Metadata) -> Option<&'static str> {
    let file_type = found.file_type();
    if file_type.is_symlink() {
        Some(LINK)
    } else if file_type.is_block_device() {
        Some("block device")
    } else if file_type.is_char_device() {
        Some("character device")
    } else if file_type.is_fifo() {
        Some("pipe")
    } else if file_type.is_socket() {
        Some(SOCKET)
    } else {
        None
    }
}

/// Says which directories have nothing in them any more, and which sources bear a mark.
pub fn warn_of_emptied(context: &Context, report: &BackupReport, allow_empty: bool) {
    for path in &report.left_out.marked_sources {
        context.output.warning(&format!(
            "the source '{path}' bears a mark itself, so all that is in it was left out"
        ));
    }
    let is_meant = |emptied: &&Emptied| allow_empty && emptied.entries == 0;
    for emptied in report.left_out.emptied.iter().filter(|emptied| !is_meant(emptied)) {
        let now = match emptied.left {
            0 => "is empty".to_owned(),
            left => format!("holds {}", counted(left, "item")),
        };
        let before = match emptied.entries {
            0 => String::new(),
            entries => format!(
                ", and held {} with {} in the snapshot before",
                counted(entries, "item"),
                human(emptied.bytes)
            ),
        };
        context
            .output
            .warning(&format!("'{}' {now}{before}: is something not mounted?", emptied.path));
    }
}
