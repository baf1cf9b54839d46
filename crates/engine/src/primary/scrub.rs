//! Reads back what is stored of a share, a slice in each run (ATC'12, "data scrubbing").
//!
//! # Algorithm
//! What the share's manifests say that are current ([`turns::current`]: the newest, or one for each
//! partition) is walked as one tree, in the order of its paths, from where the last run ended;
//! behind the last path the first one follows. Of a path that several hold the newest tells. Every
//! chunk of each file is read from the device and verified, until the slice is full: so many runs
//! as a slice fits into the whole read everything.
//! A file that is damaged is written down in the share's problems, by its path, and told; one that
//! was read from its first byte to its last is taken out of them, and so is one that is not in the
//! manifests any more. Earlier manifests, which a run of `optimize` sometimes keeps until the next
//! one, are not read.
//!
//! ```text
//! .onefold-share/scrub:   1 <offset> <fingerprint of the content, hexadecimal>\n<path>
//! ```
//! The next run begins at this offset of this file, if it has this content still; else at its
//! start. What is in front of the offset is whole. Anything else there is taken for nothing.
//!
//! # Quarantine
//! A container of which something was damaged is read whole, and put into quarantine if it is
//! damaged, as `check` does: the next backup, and the next run of `optimize`, store anew what can
//! be read of it. All that are in quarantine are read whole before, whoever put them there, and
//! those that were brought back are taken out. What is in second copies is stored anew by the next
//! run of `optimize` ([`super::second_copies`]), and so are copies that are damaged themselves.
//!
//! # What goes on
//! What is damaged, or what the device does not give, is a problem of one file. A run ends for what
//! concerns all: an interruption, no more memory or files, a store that is not there.
//!
//! Concurrency: holds the share's job lock, so that its manifests stay.

use super::changed_below::ChangedBelow;
use super::problems::MORE;
use super::second_copies;
use super::share::Share;
use super::turns;
use crate::chunks::ChunkReader;
use crate::container::whole::WholeReader;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList, quarantine};
use crate::tree::{FileReader, TreeReader, path};
use onefold_format::layout;
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Result, limits};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is read at once.
const READ_BYTES: usize = limits::MIB;
/// The smallest slice: small shares are read whole.
const SLICE_MIN_BYTES: u64 = 8 << 20;
/// Damaged files of a run that are written down; others are told, and that there are more.
pub const WRITTEN_DOWN_MAX: usize = 1000;
/// Of the form of what is written down.
const CURSOR_VERSION: &str = "1";

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    /// Files read to their ends.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes that the manifests have.
    pub bytes_total: u64,
    /// Files and directories that are damaged.
    pub damaged: u64,
    /// Files and directories that the device did not give.
    pub unreadable: u64,
    /// Problems that were taken out because what they tell of is whole, or not there any more.
    pub cleared: u64,
    /// Containers that were put into quarantine.
    pub quarantined: u64,
    /// Containers that were taken out of quarantine: they are whole again.
    pub healed: u64,
}

/// Entries in the order of their names; of directories what is in them, the newest first.
type Together = std::vec::IntoIter<(Entry, Vec<Reference>)>;

/// Where a run ends and the next begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Cursor {
    path: Vec<u8>,
    offset: u64,
    content: String,
}

impl Cursor {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut words = line.split(' ');
        if words.next() != Some(CURSOR_VERSION) {
            return None;
        }
        let offset = words.next()?.parse().ok()?;
        let content = words.next()?.to_owned();
        Some(Self { path: bytes[end + 1..].to_vec(), offset, content })
    }

    fn encode(&self) -> Vec<u8> {
        let line = format!("{CURSOR_VERSION} {} {}\n", self.offset, self.content);
        [line.as_bytes(), &self.path].concat()
    }
}

/// Reads a slice of a share's current manifests back: this share of their bytes, above 0 and at
/// most 1.
///
/// Errors: `Unavailable` if another job is at work in it. What was read counts even so.
pub fn scrub(
    repository: &Arc<Repository>,
    share: &Share,
    slice: f64,
    job: &Job,
) -> Result<ScrubReport> {
    share.refuse_other_store(repository)?;
    let _lock = share.lock_job()?;
    ChangedBelow::look(repository, share, job)?;
    let list = SnapshotList::load(repository)?;
    let manifests = list.manifests(share.id).filter(|one| share.has_made(one));
    let manifests: Vec<Snapshot> = manifests.cloned().collect();
    let manifests = turns::current(&manifests);
    if manifests.is_empty() {
        return Ok(ScrubReport::default());
    }
    let bytes = manifests.iter().map(|one| one.record.summary.bytes);
    let bytes_total = bytes.fold(0, u64::saturating_add);
    let slice = (bytes_total as f64 * slice.clamp(0.0, 1.0)).ceil() as u64;
    let mut report = ScrubReport { bytes_total, ..ScrubReport::default() };
    heal(repository, job, &mut report)?;
    let tree = Arc::new(TreeReader::new(ChunkReader::apart(repository)?));
    let copies = second_copies::of_addresses(repository, share.id, &share.marks())?;
    let copies = copies.last().map(|(_, root)| *root);
    let roots: Vec<Reference> = manifests.iter().map(|one| one.record.root).chain(copies).collect();
    let from = Cursor::decode(&share.scrub_cursor()?).unwrap_or_default();
    let mut run = Run {
        known: known_problems(&tree, &roots, share)?,
        tree,
        job,
        left_bytes: slice.max(SLICE_MIN_BYTES),
        cursor: from.clone(),
        settled: BTreeSet::new(),
        found: Vec::new(),
        report,
    };
    let walked = run.walk(&roots, &from, None).and_then(|is_at_end| match is_at_end {
        true if !from.path.is_empty() => {
            run.walk(&roots, &Cursor::default(), Some(&from.path)).map(drop)
        }
        _ => Ok(()),
    });
    // What was read counts, also if something failed behind it.
    run.settle(share)?;
    share.set_scrub_cursor(&run.cursor.encode())?;
    let damaged = run.tree.chunks().damaged();
    set_aside(repository, damaged, job, &mut run.report)?;
    walked.map(|()| run.report)
}

/// Takes out of quarantine what is whole again: somebody has brought it back, or the device gives
/// what it did not give.
fn heal(repository: &Arc<Repository>, job: &Job, report: &mut ScrubReport) -> Result<()> {
    let mut whole = WholeReader::new()?;
    for id in quarantine::load_ids(repository)? {
        job.interrupt.check()?;
        if !quarantine::is_newer(repository, id)? && read_whole(repository, id, &mut whole)?.is_ok()
        {
            quarantine::remove(repository, id, &mut Vec::new())?;
            report.healed += 1;
        }
    }
    Ok(())
}

/// Puts those containers into quarantine that are damaged.
fn set_aside(
    repository: &Arc<Repository>,
    mut suspects: BTreeSet<ContainerId>,
    job: &Job,
    report: &mut ScrubReport,
) -> Result<()> {
    let known = quarantine::load_ids(repository)?;
    suspects.retain(|id| !known.contains(id));
    let mut whole = WholeReader::new()?;
    for id in suspects {
        job.interrupt.check()?;
        match read_whole(repository, id, &mut whole)? {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                quarantine::record(repository, id, &error.to_string(), &mut Vec::new())?;
                report.quarantined += 1;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads a container whole; what is wrong with it.
fn read_whole(
    repository: &Arc<Repository>,
    id: ContainerId,
    whole: &mut WholeReader,
) -> Result<Result<()>> {
    let key = Key::new(layout::container(id))?;
    let bases = ChunkReader::apart(repository)?;
    let read = repository.store().size(&key);
    match read.and_then(|bytes| whole.sound(repository, id, bytes, &bases)) {
        Ok(_) => Ok(Ok(())),
        Err(error) if error.is_unreadable() => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// What each problem that is written down tells of: the path in the manifests, if it is there;
/// `None` if it is not there any more. Of lines that are not listed nothing is known.
fn known_problems(
    tree: &TreeReader,
    roots: &[Reference],
    share: &Share,
) -> Result<BTreeMap<String, Option<Vec<u8>>>> {
    let mut known = BTreeMap::new();
    for line in share.problems()? {
        if !line.starts_with('/') || ChangedBelow::is_line(&line) {
            continue;
        }
        let mut found = Some(None);
        // Names may have colons: the longest that there is.
        for (end, _) in line.rmatch_indices(": ") {
            let path = path::unescaped(&line[..end]);
            match is_there(tree, roots, &path) {
                Ok(true) => {
                    found = Some(Some(path));
                    break;
                }
                Ok(false) => {}
                Err(_) => {
                    // It cannot be told whether it is there.
                    found = None;
                    break;
                }
            }
        }
        if let Some(found) = found {
            known.insert(line, found);
        }
    }
    Ok(known)
}

/// Whether one of the trees has a path.
fn is_there(tree: &TreeReader, roots: &[Reference], path: &[u8]) -> Result<bool> {
    for root in roots {
        match tree.resolve(*root, path) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

struct Run<'a> {
    tree: Arc<TreeReader>,
    job: &'a Job,
    left_bytes: u64,
    cursor: Cursor,
    /// What was written down before.
    known: BTreeMap<String, Option<Vec<u8>>>,
    /// Paths of which what was written down before does not hold any more.
    settled: BTreeSet<Vec<u8>>,
    /// What is damaged.
    found: Vec<String>,
    report: ScrubReport,
}

impl Run<'_> {
    /// Reads files from one path on, up to another one; whether it came to the end.
    fn walk(&mut self, roots: &[Reference], from: &Cursor, until: Option<&[u8]>) -> Result<bool> {
        let mut open = vec![(Vec::new(), self.entries(b"/", roots)?)];
        loop {
            let is_too_deep = open.len() >= limits::DEPTH_MAX;
            let Some((above, entries)) = open.last_mut() else {
                self.cursor = Cursor::default();
                return Ok(true);
            };
            self.job.interrupt.check()?;
            let Some((entry, contents)) = entries.next() else {
                open.pop();
                continue;
            };
            let path = path::join(above, &entry.name);
            let order = order_up_to(&path, &from.path, open.len());
            if order == Ordering::Less {
                continue;
            }
            if until.is_some_and(|until| compare(&path, until) != Ordering::Less) {
                return Ok(true);
            }
            match (entry.kind, entry.content) {
                (EntryKind::Directory, Some(_)) if !is_too_deep => {
                    let entries = self.entries(&path, &contents)?;
                    open.push((path, entries));
                }
                (EntryKind::File, Some(content)) => {
                    let content = content.fingerprint.to_string();
                    let is_same = path == from.path && content == from.content;
                    let offset = if is_same { from.offset } else { 0 };
                    self.cursor = Cursor { path, offset, content };
                    if self.left_bytes == 0 || !self.file(&entry)? {
                        return Ok(false);
                    }
                }
                _ => {}
            }
        }
    }

    /// What several directories of one path, the newest first, have together; nothing of one that
    /// is damaged.
    fn entries(&mut self, path: &[u8], contents: &[Reference]) -> Result<Together> {
        let mut together: BTreeMap<Vec<u8>, (Entry, Vec<Reference>)> = BTreeMap::new();
        for content in contents {
            let entries = match self.tree.entries(*content) {
                Ok(entries) => entries,
                Err(error) => {
                    self.damaged(path, error)?;
                    continue;
                }
            };
            for entry in entries {
                let content = entry.content;
                let is_directory = entry.kind == EntryKind::Directory;
                let name = entry.name.clone();
                let (newest, contents) = together.entry(name).or_insert((entry, Vec::new()));
                let is_known = content.is_none_or(|content| contents.contains(&content));
                if is_directory && newest.kind == EntryKind::Directory && !is_known {
                    contents.extend(content);
                }
            }
        }
        Ok(together.into_values().collect::<Vec<_>>().into_iter())
    }

    /// Reads a file from the cursor on; whether to go on behind it. The beginning of a file is
    /// whole if the cursor is in it.
    fn file(&mut self, entry: &Entry) -> Result<bool> {
        let path = self.cursor.path.clone();
        self.job.progress.set_current(&path::display(&path));
        match self.read(entry) {
            Ok(true) => {
                self.report.files += 1;
                self.job.progress.add(1, 0);
                self.settle_path(&path);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                self.damaged(&path, error)?;
                Ok(true)
            }
        }
    }

    /// Reads a file from the cursor on; whether it came to its end.
    fn read(&mut self, entry: &Entry) -> Result<bool> {
        let reader = FileReader::open(Arc::clone(&self.tree), entry)?.without_second_copies();
        let mut buffer = vec![0; READ_BYTES];
        while let Some(offset) = reader.next_data(self.cursor.offset)? {
            self.cursor.offset = offset;
            self.job.interrupt.check()?;
            if self.left_bytes == 0 {
                return Ok(false);
            }
            let read = reader.read_at(offset, &mut buffer)? as u64;
            self.cursor.offset += read;
            self.left_bytes = self.left_bytes.saturating_sub(read);
            self.report.bytes += read;
            self.job.progress.add(0, read);
        }
        Ok(true)
    }

    /// Writes down what is damaged, or what the device does not give; anything else that goes wrong
    /// ends the run.
    fn damaged(&mut self, path: &[u8], error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Io => self.report.unreadable += 1,
            _ if error.is_lost() => self.report.damaged += 1,
            _ => return Err(error),
        }
        let shown = path::display(path);
        match self.found.len() {
            ..WRITTEN_DOWN_MAX => self.found.push(format!("{shown}: {error}")),
            WRITTEN_DOWN_MAX => self.found.push(MORE.to_owned()),
            _ => {}
        }
        self.settle_path(path);
        self.job.observer.problem(&shown, &error);
        Ok(())
    }

    fn settle_path(&mut self, path: &[u8]) {
        if self.known.values().flatten().any(|known| known == path) {
            self.settled.insert(path.to_vec());
        }
    }

    /// Brings what is written down up to date.
    fn settle(&mut self, share: &Share) -> Result<()> {
        let (known, settled) = (&self.known, &self.settled);
        let mut gone = BTreeSet::new();
        let mut stays = |line: &str| match known.get(line) {
            None => true,
            Some(Some(path)) if !settled.contains(path) => true,
            Some(_) => {
                gone.insert(line.to_owned());
                false
            }
        };
        share.settle_problems(&mut stays, &self.found)?;
        self.report.cleared = gone.iter().filter(|line| !self.found.contains(line)).count() as u64;
        Ok(())
    }
}

/// The order in which a walk meets two paths.
fn compare(path: &[u8], other: &[u8]) -> Ordering {
    path::components(path).cmp(path::components(other))
}

/// The same with so many components of the other one: a directory is in front of a path only if
/// all in it is.
fn order_up_to(path: &[u8], other: &[u8], components: usize) -> Ordering {
    path::components(path).cmp(path::components(other).take(components))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_what_was_written_and_anything_else_is_none() {
        let path = b"/a\nb/\xff c".to_vec();
        let cursor = Cursor { path, offset: 77, content: "ab12".to_owned() };
        assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
        for odd in [&b""[..], b"\n", b"2 7 ab\n/a", b"1 x ab\n/a", b"1 7\n/a", b"1 7 ab"] {
            assert_eq!(Cursor::decode(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn directories_on_the_way_to_the_cursor_are_entered() {
        let at = b"/b/m/x";
        for (path, components, order) in [
            (&b"/a"[..], 1, Ordering::Less),
            (b"/b", 1, Ordering::Equal),
            (b"/b/m", 2, Ordering::Equal),
            (b"/b/l", 2, Ordering::Less),
            (b"/b/m/w", 3, Ordering::Less),
            (b"/b.c", 1, Ordering::Greater),
        ] {
            assert_eq!(order_up_to(path, at, components), order, "{path:?}");
        }
        // A slash is no byte of a name: `b.c` comes behind all in `b`.
        assert_eq!(compare(b"/b/z", b"/b.c"), Ordering::Less);
    }

    #[test]
    fn paths_that_were_shown_are_found_again() {
        for path in [&b"/plain: name"[..], b"/\xff\n", b"/back\\slash", b"/x\\"] {
            assert_eq!(path::unescaped(&path::display(path)), path);
        }
    }
}
