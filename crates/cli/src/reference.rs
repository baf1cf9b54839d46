//! From what the user wrote to snapshots and paths in them.

use crate::clocks;
use crate::output::Output;
use onefold_engine::Repository;
use onefold_engine::placement::PlacedItem;
use onefold_engine::retention::candidate;
use onefold_engine::session::outcome;
use onefold_engine::session::{Snapshot, SnapshotList, tombstones};
use onefold_engine::tree::{TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_policy::retention::Candidate;
use onefold_policy::selection::{self, SnapshotFilter, SnapshotReference};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::Arc;

/// `SNAPSHOT` or `SNAPSHOT:PATH`; the path may be any bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The snapshot.
    pub snapshot: SnapshotReference,
    /// The path in it; empty for all of it.
    pub path: Vec<u8>,
}

impl Location {
    /// Parses what the user wrote.
    pub fn parse(text: &OsString) -> Result<Self> {
        let bytes = text.as_bytes();
        // No reference contains a colon, so colons in the path do no harm.
        let colon = bytes.iter().position(|byte| *byte == b':');
        let (snapshot, path) = match colon {
            Some(position) => (&bytes[..position], &bytes[position + 1..]),
            None => (bytes, &bytes[bytes.len()..]),
        };
        Ok(Self {
            snapshot: SnapshotReference::from_str(&String::from_utf8_lossy(snapshot))?,
            path: path.to_vec(),
        })
    }
}

/// The only one of all that has a name with this beginning; `noun` says what they are.
pub fn the_one<T, I: Display>(
    mut all: Vec<T>,
    noun: &str,
    beginning: &str,
    id_of: impl Fn(&T) -> I,
) -> Result<T> {
    all.retain(|one| !beginning.is_empty() && id_of(one).to_string().starts_with(beginning));
    match (all.pop(), all.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => {
            Err(Error::new(ErrorKind::NotFound, format!("there is no {noun} '{beginning}'")))
        }
        (_, more) => {
            Err(Error::invalid(format!("'{beginning}' begins the names of {} {noun}s", more + 1)))
        }
    }
}

/// What a reader ran into, unless its snapshot has been forgotten for good meanwhile: then what is
/// missing was collected, and nothing is damaged (protocol, R1).
pub fn unless_forgotten<T>(repository: &Repository, id: SessionId, result: Result<T>) -> Result<T> {
    match result {
        Err(error) if error.is_lost() && tombstones::is_forgotten(repository, id)? => {
            Err(outcome::forgotten(id))
        }
        other => other,
    }
}

/// All snapshots of a store, to be looked up.
pub struct Snapshots {
    /// The list.
    pub list: SnapshotList,
    output: Arc<Output>,
    now_ns: i64,
}

impl Snapshots {
    /// Lists the snapshots; what does not add up becomes warnings.
    pub fn load(repository: &Repository, output: &Arc<Output>) -> Result<Self> {
        Self::of(SnapshotList::load(repository), repository, output)
    }

    /// Lists the snapshots by their own records, without checkpoints, which a command that forgets
    /// does not believe.
    pub fn load_unaided(repository: &Repository, output: &Arc<Output>) -> Result<Self> {
        Self::of(SnapshotList::load_unaided(repository), repository, output)
    }

    fn of(
        list: Result<SnapshotList>,
        repository: &Repository,
        output: &Arc<Output>,
    ) -> Result<Self> {
        let list = list.context(|| "listing snapshots")?;
        for problem in &list.problems {
            output.warning(problem);
        }
        let now_ns = repository.environment().clock.now_ns();
        Ok(Self { list, output: Arc::clone(output), now_ns })
    }

    /// Warns of snapshots of which a clock was wrong, as far as their dates show.
    pub fn warn_of_clocks(&self, filter: &SnapshotFilter) {
        clocks::warn(&self.output, &self.selected(filter), self.now_ns);
    }

    /// Warns of a snapshot that lacks something, where its files are taken out.
    pub fn warn_if_partial(&self, snapshot: &Snapshot) {
        if snapshot.is_partial() {
            self.output.warning(&format!(
                "snapshot {} is partial: some of the source could not be read when it was saved; \
                 what is missing in it may be in an earlier one, which 'onefold find' tells",
                snapshot.id.short()
            ));
        }
    }

    /// The snapshots that are not hidden and pass the filter, oldest first.
    #[must_use]
    pub fn selected(&self, filter: &SnapshotFilter) -> Vec<&Snapshot> {
        self.list.visible().filter(|snapshot| filter.matches(&candidate(snapshot))).collect()
    }

    /// The snapshot that a reference means; a hidden one is refused.
    pub fn resolve(
        &self,
        reference: &SnapshotReference,
        filter: &SnapshotFilter,
    ) -> Result<&Snapshot> {
        let visible: Vec<Candidate> = self.list.visible().map(candidate).collect();
        match selection::resolve(reference, &visible, filter) {
            Ok(id) => {
                if matches!(reference, SnapshotReference::Latest { .. }) {
                    clocks::warn_of_latest(&self.output, &self.selected(filter), self.now_ns);
                }
                self.get(id)
            }
            Err(error) => match self.manifest(reference) {
                Some(manifest) => Ok(manifest),
                None => Err(self.explain_hidden(reference).unwrap_or(error)),
            },
        }
    }

    /// The snapshot that a reference means, whether it is hidden or not.
    pub fn resolve_any(&self, reference: &SnapshotReference) -> Result<&Snapshot> {
        let all: Vec<Candidate> = self.list.snapshots.iter().map(candidate).collect();
        self.get(selection::resolve(reference, &all, &SnapshotFilter::default())?)
    }

    fn get(&self, id: SessionId) -> Result<&Snapshot> {
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no snapshot {id}"));
        self.list.get(id).ok_or_else(missing)
    }

    /// The only manifest of a share whose name begins so: its files can be had like a snapshot's.
    fn manifest(&self, reference: &SnapshotReference) -> Option<&Snapshot> {
        let SnapshotReference::Name(name) = reference else {
            return None;
        };
        let is_it =
            |one: &&Snapshot| one.is_manifest() && one.id.to_string().starts_with(name.as_str());
        let mut found = self.list.snapshots.iter().filter(is_it);
        found.next().filter(|_| found.next().is_none())
    }

    /// Says that what was named is hidden, if that is why it was not found.
    fn explain_hidden(&self, reference: &SnapshotReference) -> Option<Error> {
        let SnapshotReference::Name(name) = reference else {
            return None;
        };
        let is_it = |snapshot: &&Snapshot| snapshot.id.to_string().starts_with(name);
        if self.list.visible().any(|snapshot| is_it(&snapshot)) {
            return None;
        }
        let hidden = self.list.snapshots.iter().find(is_it)?;
        Some(Error::new(
            ErrorKind::NotFound,
            format!(
                "snapshot {} is hidden by forget; bring it back with 'onefold undelete {}'",
                hidden.id.short(),
                hidden.id.short()
            ),
        ))
    }

    /// The entry that a location means, and its snapshot.
    pub fn locate(
        &self,
        repository: &Arc<Repository>,
        location: &Location,
        filter: &SnapshotFilter,
    ) -> Result<(&Snapshot, Entry)> {
        let snapshot = self.resolve(&location.snapshot, filter)?;
        let (entry, _) = placed(repository, snapshot, &location.path)?;
        Ok((snapshot, entry))
    }
}

/// Where what is restored into a directory begins, if no path is asked for: with what the sources
/// were given relative to.
#[must_use]
pub fn base(repository: &Arc<Repository>, snapshot: &Snapshot, path: &[u8]) -> Option<Vec<u8>> {
    let mut bases = bases(snapshot).into_iter().filter(|_| path.is_empty());
    bases.find(|base| resolve(repository, snapshot, base).is_ok())
}

/// What the sources were given relative to: as it is written, and as it may be if it is no text.
#[must_use]
pub fn bases(snapshot: &Snapshot) -> Vec<Vec<u8>> {
    let base = snapshot.record.base.as_deref();
    let spelled = base.map(|base| base.as_bytes().to_vec());
    spelled.into_iter().chain(base.map(path::unescaped)).collect()
}

/// The entry at a path of a snapshot, and where it stands in the snapshot's placement.
pub fn placed(
    repository: &Arc<Repository>,
    snapshot: &Snapshot,
    path: &[u8],
) -> Result<(Entry, Option<PlacedItem>)> {
    let (mut entry, first_chunk) = resolve(repository, snapshot, path)
        .context(|| format!("snapshot {}", snapshot.id.short()))?;
    if entry.name.is_empty() {
        // The root has no entry of its own that says it.
        entry.listing = snapshot.record.listing;
    }
    let placement = snapshot.record.placement;
    let placed = placement.map(|placement| PlacedItem { placement, first_chunk });
    Ok((entry, placed))
}

/// What lies at a path of a snapshot, which may also be written as its sources were: relative to
/// the working directory.
fn resolve(
    repository: &Arc<Repository>,
    snapshot: &Snapshot,
    wanted: &[u8],
) -> Result<(Entry, u64)> {
    let reader = TreeReader::open(repository)?;
    let root = snapshot.record.root;
    let relative = wanted.strip_prefix(b"/").unwrap_or(wanted);
    reader.resolve_place(root, wanted).or_else(|error| {
        let mut bases = bases(snapshot).into_iter().filter(|_| error.kind() == ErrorKind::NotFound);
        let found =
            bases.find_map(|base| reader.resolve_place(root, &path::join(&base, relative)).ok());
        found.ok_or(error)
    })
}

/// The directory behind an entry.
pub fn directory_of(entry: &Entry, location: &Location) -> Result<Reference> {
    match (entry.kind, entry.content) {
        (EntryKind::Directory, Some(reference)) => Ok(reference),
        _ => Err(Error::invalid(format!(
            "'{}' is not a directory",
            String::from_utf8_lossy(&location.path)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn parsed(text: &str) -> Option<(String, Vec<u8>)> {
        let location = Location::parse(&OsString::from(text)).ok()?;
        Some((location.snapshot.to_string(), location.path))
    }

    #[test]
    fn locations_are_split_at_the_first_colon() {
        let expected = |snapshot: &str, path: &str| Some((snapshot.into(), path.into()));
        assert_eq!(parsed("latest"), expected("latest", ""));
        assert_eq!(parsed("latest~2:/a:b"), expected("latest~2", "/a:b"));
        assert_eq!(parsed("1a2b:"), expected("1a2b", ""));
        assert_eq!(parsed("/a:b"), None);
        assert_eq!(parsed(""), None);
    }

    #[test]
    fn paths_may_be_any_bytes() {
        let text = OsString::from_vec(b"latest:/\xff".to_vec());
        assert_eq!(Location::parse(&text).unwrap().path, b"/\xff");
    }
}
