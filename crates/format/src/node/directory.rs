//! Directories as nodes: entries with all their metadata, in columns.
//!
//! ```text
//! leaf:  varint entries, then one column after the other over all entries:
//!        names (counted), kinds (u8), modes, uids, gids, link counts, mtimes (seconds as signed
//!        difference to the entry before, nanoseconds), ctimes (same), inodes (signed difference),
//!        devices, sizes, flags (u8: 1 sparse, 2 has content, 4 listed whole, 8 only leads to
//!        sources, 16 attributes are missing)
//!        then for each entry that has them, in order: content reference, link target, device
//!        number, totals (entries, bytes, chunks), chunks of a file whose content is a map
//!        extended attributes: varint entries with some; for each: varint entry, varint pairs,
//!        (counted name, counted value)
//!        user names, group names: varint count, (varint id, counted name)
//! map:   varint parts; for each: reference, counted first name, varint entries, varint bytes,
//!        varint chunks
//! ```
//!
//! Columns put like values side by side, which is what makes a directory small once compressed.
//! Names are sorted bytewise, without repeats; a decoder refuses "", ".", "..", "/" and NUL in
//! them, so that no tree can name a path outside itself (R54).

use super::{Reference, decode_reference, encode_reference};
use crate::wire::{Reader, Writer};
use onefold_types::{Error, ErrorKind, Result, limits};
use serde::{Deserialize, Serialize};

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum EntryKind {
    /// A regular file.
    #[default]
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl EntryKind {
    /// Whether it is a device, a pipe or a socket.
    #[must_use]
    pub fn is_special(self) -> bool {
        match self {
            Self::File | Self::Directory | Self::Symlink => false,
            Self::CharacterDevice | Self::BlockDevice | Self::Fifo | Self::Socket => true,
        }
    }
}

const KINDS: [EntryKind; 7] = [
    EntryKind::File,
    EntryKind::Directory,
    EntryKind::Symlink,
    EntryKind::CharacterDevice,
    EntryKind::BlockDevice,
    EntryKind::Fifo,
    EntryKind::Socket,
];

/// The index of a kind in [`KINDS`].
const fn code_of(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::File => 0,
        EntryKind::Directory => 1,
        EntryKind::Symlink => 2,
        EntryKind::CharacterDevice => 3,
        EntryKind::BlockDevice => 4,
        EntryKind::Fifo => 5,
        EntryKind::Socket => 6,
    }
}

/// What a directory's list of names proves about names that are not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Listing {
    /// Nothing: something was left out, could not be read, or is on another file system.
    #[default]
    Partial,
    /// That they were not there: every name in the directory was read and is in the snapshot.
    Whole,
    /// Nothing: the directory only leads to sources and was not read.
    Above,
}

/// A point in time, as file systems keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds, below one second.
    pub nanoseconds: u32,
}

/// What lies below a directory, itself not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// The number of entries.
    pub entries: u64,
    /// The sizes of all files.
    pub bytes: u64,
    /// The data chunks of all files.
    pub chunks: u64,
}

/// A directory entry: everything that restoring needs, and what tells a changed file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The name, any bytes but '/' and NUL.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits, set-id and sticky bits.
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Number of hard links when it was read.
    pub links: u64,
    /// When its content last changed.
    pub modified: Time,
    /// When its inode last changed: tells a changed file, cannot be restored.
    pub changed: Time,
    /// Inode number: tells a replaced file and hard links.
    pub inode: u64,
    /// The file system it was on.
    pub device: u64,
    /// Bytes in a file; 0 for all others.
    pub size: u64,
    /// Whether the file took fewer blocks than its size.
    pub sparse: bool,
    /// Data chunks of a file, repeated ones counted, holes not.
    pub chunks: u64,
    /// The content of a file that is not empty, or of a directory.
    pub content: Option<Reference>,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
    /// The number of a device.
    pub device_number: u64,
    /// Sums over a directory.
    pub totals: Totals,
    /// Extended attributes, sorted by name; access control lists are among them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the source had extended attributes that could not be saved.
    pub lacks_attributes: bool,
    /// What the list of a directory's names proves; `Partial` for all others.
    pub listing: Listing,
}

/// The name behind a numeric user or group.
pub type Owner = (u32, Vec<u8>);

/// Entries of one directory, sorted by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirectoryLeaf {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Names of the users in it, sorted by number.
    pub users: Vec<Owner>,
    /// Names of the groups in it, sorted by number.
    pub groups: Vec<Owner>,
}

/// One leaf of a large directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryPart {
    /// The leaf.
    pub leaf: Reference,
    /// The name of its first entry.
    pub first_name: Vec<u8>,
    /// Sums over it.
    pub totals: Totals,
}

/// The leaves of a large directory, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirectoryMap {
    /// The leaves.
    pub parts: Vec<DirectoryPart>,
}

const FLAG_SPARSE: u8 = 1;
const FLAG_CONTENT: u8 = 2;
const FLAG_WHOLE: u8 = 4;
const FLAG_ABOVE: u8 = 8;
const FLAG_LACKS_ATTRIBUTES: u8 = 16;
const FLAGS: u8 = FLAG_SPARSE | FLAG_CONTENT | FLAG_WHOLE | FLAG_ABOVE | FLAG_LACKS_ATTRIBUTES;

/// The flags of an entry.
fn flags_of(entry: &Entry) -> u8 {
    let listing = match entry.listing {
        Listing::Partial => 0,
        Listing::Whole => FLAG_WHOLE,
        Listing::Above => FLAG_ABOVE,
    };
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    listing
        | flag(entry.sparse, FLAG_SPARSE)
        | flag(entry.content.is_some(), FLAG_CONTENT)
        | flag(entry.lacks_attributes, FLAG_LACKS_ATTRIBUTES)
}

pub(super) fn encode_leaf(leaf: &DirectoryLeaf, writer: &mut Writer) {
    let entries = &leaf.entries;
    writer.varint(entries.len() as u64);
    entries.iter().for_each(|entry| writer.counted(&entry.name));
    for entry in entries {
        writer.u8(code_of(entry.kind));
    }
    entries.iter().for_each(|entry| writer.varint(u64::from(entry.mode)));
    entries.iter().for_each(|entry| writer.varint(u64::from(entry.uid)));
    entries.iter().for_each(|entry| writer.varint(u64::from(entry.gid)));
    entries.iter().for_each(|entry| writer.varint(entry.links));
    encode_times(entries.iter().map(|entry| entry.modified), writer);
    encode_times(entries.iter().map(|entry| entry.changed), writer);
    let mut last = 0;
    for entry in entries {
        writer.signed(entry.inode.wrapping_sub(last) as i64);
        last = entry.inode;
    }
    entries.iter().for_each(|entry| writer.varint(entry.device));
    entries.iter().for_each(|entry| writer.varint(entry.size));
    entries.iter().for_each(|entry| writer.u8(flags_of(entry)));
    entries.iter().filter_map(|entry| entry.content.as_ref()).for_each(|content| {
        encode_reference(content, writer);
    });
    for entry in entries {
        match entry.kind {
            EntryKind::Symlink => writer.counted(&entry.target),
            EntryKind::CharacterDevice | EntryKind::BlockDevice => {
                writer.varint(entry.device_number);
            }
            EntryKind::Directory => encode_totals(entry.totals, writer),
            EntryKind::File if is_mapped(entry) => writer.varint(entry.chunks),
            _ => {}
        }
    }
    let with_xattrs = entries.iter().enumerate().filter(|(_, entry)| !entry.xattrs.is_empty());
    writer.varint(with_xattrs.clone().count() as u64);
    for (position, entry) in with_xattrs {
        writer.varint(position as u64);
        writer.varint(entry.xattrs.len() as u64);
        for (name, value) in &entry.xattrs {
            writer.counted(name);
            writer.counted(value);
        }
    }
    for owners in [&leaf.users, &leaf.groups] {
        writer.varint(owners.len() as u64);
        for (id, name) in owners {
            writer.varint(u64::from(*id));
            writer.counted(name);
        }
    }
}

pub(super) fn decode_leaf(reader: &mut Reader<'_>) -> Result<DirectoryLeaf> {
    // Name (at least its length and one byte), kind and eleven further columns.
    let count = reader.count(14)?;
    let mut entries: Vec<Entry> = Vec::with_capacity(count);
    for _ in 0..count {
        let name = decode_name(reader)?;
        if entries.last().is_some_and(|last| last.name >= name) {
            return Err(reader.damaged("directory entries are not in order"));
        }
        entries.push(Entry { name, ..Entry::default() });
    }
    for entry in &mut entries {
        let kind = reader.u8()?;
        entry.kind = *KINDS
            .get(usize::from(kind))
            .ok_or_else(|| newer(format!("a directory entry of kind {kind}")))?;
    }
    decode_numbers(&mut entries, reader)?;
    decode_contents(&mut entries, reader)?;
    decode_xattrs(&mut entries, reader)?;
    let users = decode_owners(reader)?;
    let groups = decode_owners(reader)?;
    Ok(DirectoryLeaf { entries, users, groups })
}

fn decode_numbers(entries: &mut [Entry], reader: &mut Reader<'_>) -> Result<()> {
    for entry in entries.iter_mut() {
        entry.mode = reader.varint_u32()?;
    }
    for entry in entries.iter_mut() {
        entry.uid = reader.varint_u32()?;
    }
    for entry in entries.iter_mut() {
        entry.gid = reader.varint_u32()?;
    }
    for entry in entries.iter_mut() {
        entry.links = reader.varint()?;
    }
    decode_times(entries.iter_mut().map(|entry| &mut entry.modified), reader)?;
    decode_times(entries.iter_mut().map(|entry| &mut entry.changed), reader)?;
    let mut inode = 0u64;
    for entry in entries.iter_mut() {
        inode = inode.wrapping_add(reader.signed()? as u64);
        entry.inode = inode;
    }
    for entry in entries.iter_mut() {
        entry.device = reader.varint()?;
    }
    for entry in entries.iter_mut() {
        entry.size = reader.varint()?;
    }
    Ok(())
}

fn decode_contents(entries: &mut [Entry], reader: &mut Reader<'_>) -> Result<()> {
    let flags = reader.raw(entries.len())?;
    for (entry, flags) in entries.iter_mut().zip(flags) {
        // Written back without what it means, an unknown flag would be lost.
        if flags & !FLAGS != 0 {
            return Err(newer(format!("a directory entry with flags {flags:#x}")));
        }
        entry.sparse = flags & FLAG_SPARSE != 0;
        entry.lacks_attributes = flags & FLAG_LACKS_ATTRIBUTES != 0;
        entry.listing = match (flags & FLAG_WHOLE != 0, flags & FLAG_ABOVE != 0) {
            (false, false) => Listing::Partial,
            (true, false) => Listing::Whole,
            (false, true) => Listing::Above,
            (true, true) => return Err(reader.damaged("a directory is listed whole and not read")),
        };
        if entry.listing != Listing::Partial && entry.kind != EntryKind::Directory {
            return Err(reader.damaged("an entry that is no directory has a list of names"));
        }
        if flags & FLAG_CONTENT != 0 {
            entry.content = Some(decode_reference(reader)?);
        }
    }
    for entry in entries.iter_mut() {
        match entry.kind {
            EntryKind::Symlink => {
                entry.target = reader.counted(limits::SYMLINK_TARGET_MAX_BYTES)?.to_vec();
            }
            EntryKind::CharacterDevice | EntryKind::BlockDevice => {
                entry.device_number = reader.varint()?;
            }
            EntryKind::Directory => entry.totals = decode_totals(reader)?,
            EntryKind::File if is_mapped(entry) => entry.chunks = reader.varint()?,
            EntryKind::File => entry.chunks = u64::from(entry.content.is_some()),
            _ => {}
        }
        let holds_content = matches!(entry.kind, EntryKind::File | EntryKind::Directory);
        if entry.content.is_some() && !holds_content {
            return Err(reader.damaged("an entry that is no file has content"));
        }
        if entry.kind == EntryKind::File && entry.content.is_some() != (entry.size > 0) {
            return Err(reader.damaged("a file's size and content disagree"));
        }
    }
    Ok(())
}

/// What is only met in a node that opened as its own fingerprint: nothing has rotten.
fn newer(what: String) -> Error {
    Error::new(ErrorKind::NewerFormat, format!("{what} is not known; use a newer onefold"))
}

fn decode_xattrs(entries: &mut [Entry], reader: &mut Reader<'_>) -> Result<()> {
    let with_xattrs = reader.count(4)?;
    for _ in 0..with_xattrs {
        let position = reader.varint_max(u64::from(u32::MAX))? as usize;
        let pairs = reader.count(2)?;
        let mut xattrs = Vec::with_capacity(pairs);
        for _ in 0..pairs {
            let name = reader.counted(limits::XATTRS_MAX_BYTES)?.to_vec();
            xattrs.push((name, reader.counted(limits::XATTRS_MAX_BYTES)?.to_vec()));
        }
        let entry = entries
            .get_mut(position)
            .ok_or_else(|| reader.damaged("attributes belong to no entry"))?;
        entry.xattrs = xattrs;
    }
    Ok(())
}

fn decode_owners(reader: &mut Reader<'_>) -> Result<Vec<Owner>> {
    let count = reader.count(2)?;
    (0..count)
        .map(|_| Ok((reader.varint_u32()?, reader.counted(limits::NAME_MAX_BYTES)?.to_vec())))
        .collect()
}

fn decode_name(reader: &mut Reader<'_>) -> Result<Vec<u8>> {
    let name = reader.counted(limits::NAME_MAX_BYTES)?;
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(reader.damaged("a directory entry has an impossible name"));
    }
    Ok(name.to_vec())
}

pub(super) fn encode_map(map: &DirectoryMap, writer: &mut Writer) {
    writer.varint(map.parts.len() as u64);
    for part in &map.parts {
        encode_reference(&part.leaf, writer);
        writer.counted(&part.first_name);
        encode_totals(part.totals, writer);
    }
}

pub(super) fn decode_map(reader: &mut Reader<'_>) -> Result<DirectoryMap> {
    let count = reader.count(38)?;
    let mut parts: Vec<DirectoryPart> = Vec::with_capacity(count);
    for _ in 0..count {
        let leaf = decode_reference(reader)?;
        let first_name = decode_name(reader)?;
        if parts.last().is_some_and(|last| last.first_name >= first_name) {
            return Err(reader.damaged("the parts of a directory are not in order"));
        }
        parts.push(DirectoryPart { leaf, first_name, totals: decode_totals(reader)? });
    }
    Ok(DirectoryMap { parts })
}

fn encode_totals(totals: Totals, writer: &mut Writer) {
    writer.varint(totals.entries);
    writer.varint(totals.bytes);
    writer.varint(totals.chunks);
}

/// Whether a file has more than one chunk, or holes.
fn is_mapped(entry: &Entry) -> bool {
    entry.content.is_some_and(|content| content.level.is_node())
}

fn decode_totals(reader: &mut Reader<'_>) -> Result<Totals> {
    Ok(Totals { entries: reader.varint()?, bytes: reader.varint()?, chunks: reader.varint()? })
}

fn encode_times(times: impl Iterator<Item = Time> + Clone, writer: &mut Writer) {
    let mut last = 0i64;
    for time in times.clone() {
        writer.signed(time.seconds.wrapping_sub(last));
        last = time.seconds;
    }
    times.for_each(|time| writer.varint(u64::from(time.nanoseconds)));
}

fn decode_times<'a>(
    times: impl Iterator<Item = &'a mut Time>,
    reader: &mut Reader<'_>,
) -> Result<()> {
    let mut last = 0i64;
    let mut times: Vec<&mut Time> = times.collect();
    for time in &mut times {
        last = last.wrapping_add(reader.signed()?);
        time.seconds = last;
    }
    for time in &mut times {
        time.nanoseconds = reader.varint_max(999_999_999)? as u32;
    }
    Ok(())
}

impl Totals {
    /// Adds other totals. Whoever has written a node may have written any number: sums saturate,
    /// and a check compares them.
    pub fn add_totals(&mut self, other: &Self) {
        self.entries = self.entries.saturating_add(other.entries);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.chunks = self.chunks.saturating_add(other.chunks);
    }

    /// Adds what `entry` contributes to the directory that holds it.
    pub fn add(&mut self, entry: &Entry) {
        self.entries = self.entries.saturating_add(entry.totals.entries).saturating_add(1);
        self.bytes = self.bytes.saturating_add(entry.totals.bytes).saturating_add(entry.size);
        self.chunks = self.chunks.saturating_add(entry.totals.chunks).saturating_add(entry.chunks);
    }
}
