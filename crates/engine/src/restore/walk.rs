//! The walk over the snapshot: selects, makes directories, hands files and other items on.
//!
//! The walk is depth first with its own stack, so that depth costs no stack of the thread. A
//! directory is made when it is selected, or, if only something below it is, with that. What a
//! directory is to have is set only after everything in it is written, children first.

use super::fetch::Workspace;
use super::identity::Claims;
use super::item::{self, Decision};
use super::leaving::Leaving;
use super::links::Links;
use super::metadata::{Attributes, OwnerMap};
use super::output::OutputFile;
use super::shared::Shared;
use super::surplus::{Listed, Surplus, SurplusReport, listing_of};
use super::target::{self, Directory, is_type};
use super::unfinished::is_unfinished;
use super::window::{Window, WindowShare};
use super::{Delete, Overwrite, RestoreOptions, RestoreReport};
use crate::job::Job;
use crate::placement::Guide;
use crate::repository::Repository;
use crate::tree::directory_cursor::names_rise;
use crate::tree::{TreeReader, path};
use onefold_format::node::{DirectoryPart, Entry, EntryKind, Listing, Node, Reference, Totals};
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, ErrorKind, Result, bug, limits};
use rustix::fs::{FileType, Stat};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One restore while it runs.
pub struct Restorer<'a> {
    /// The node of the restored directory.
    pub(super) root: Option<Reference>,
    pub(super) target: Arc<Directory>,
    /// Directories that links have led to, by device and inode.
    pub(super) led_to_before: HashSet<(u64, u64)>,
    pub(super) repository: &'a Arc<Repository>,
    pub(super) options: &'a RestoreOptions,
    pub(super) job: &'a Job,
    pub(super) reader: TreeReader,
    pub(super) shared: Shared,
    pub(super) window: Window,
    share: WindowShare,
    pub(super) workspace: Workspace,
    /// The files of the window.
    pub(super) outputs: Vec<Arc<OutputFile>>,
    /// The file being planned, and its number in the window if it has one.
    pub(super) current: Option<(Arc<OutputFile>, Option<u32>)>,
    /// Files that wait for another try, and whether that is under way.
    pub(super) again: Vec<Arc<OutputFile>>,
    pub(super) is_another_try: bool,
    pub(super) links: Links,
    pub(super) claims: Claims,
    pub(super) leaving: Vec<Leaving>,
    pub(super) containers: HashSet<ContainerId>,
    pub(super) report: RestoreReport,
    pub(super) files_planned: u64,
    surplus: Option<Surplus<'a>>,
    /// That there are too few open files, say.
    exhausted: Option<Error>,
    pub(super) owners: OwnerMap,
    stack: Vec<Level>,
    path: Vec<u8>,
    /// Where chunks are likely to be, and the place in the snapshot of the next one.
    pub(super) guide: Guide,
    pub(super) place: u64,
}

/// A directory on the way down.
struct Level {
    name: Vec<u8>,
    state: DirectoryState,
    entry: Entry,
    attributes: Attributes,
    set_attributes: bool,
    entries: std::vec::IntoIter<Entry>,
    parts: std::vec::IntoIter<DirectoryPart>,
    last_name: Vec<u8>,
    path_length: usize,
    /// The place in the snapshot behind its chunks.
    place_end: u64,
    /// Whether everything in it is selected.
    included: bool,
    /// Whether all of its entries could be read.
    whole: bool,
    /// What it says is below it, if that is known, and what was met there.
    stated: Option<Totals>,
    met: Totals,
    /// What its names prove.
    listing: Listing,
    /// Whether it is, or is in, another mount than the source that it is part of.
    is_mounted: bool,
    /// Names that are there, but not in the snapshot as far as it was read.
    listed: Listed,
    /// Its place in the target, if a link led to it.
    led_to: Option<Vec<u8>>,
}

#[derive(Clone)]
enum DirectoryState {
    /// To be made once something in it is selected.
    Wanted,
    Open(Arc<Directory>),
    /// It cannot or must not be made.
    Blocked,
    /// The overwrite rule leaves alone what is in its place.
    LeftAlone,
}

/// Runs a restore.
pub fn run(
    repository: &Arc<Repository>,
    root: &Entry,
    options: &RestoreOptions,
    job: &Job,
) -> Result<RestoreReport> {
    let (target, created) = target::open(options)?;
    let surplus = match options.delete != Delete::Nothing && target.exists() {
        true => {
            let listing = listing_of(root, b"/", options);
            Some(Surplus::new(repository, listing, options, job)?)
        }
        false => None,
    };
    let now_ns = repository.environment().clock.now_ns();
    let shared = Shared::new(job, options.without, now_ns);
    let reader = TreeReader::open(repository)?;
    let guide = Guide::new(reader.chunks(), options.placed);
    if let Some(placed) = options.placed.filter(|_| options.reach.is_some()) {
        guide.read_sections(reader.chunks(), (placed, root), options.threads);
    }
    let mut restorer = Restorer {
        repository,
        options,
        job,
        reader,
        owners: OwnerMap::new(shared.applier.is_privileged() && !options.without.owner_names),
        shared,
        window: Window::default(),
        root: root.content,
        target: Arc::clone(&target),
        led_to_before: HashSet::new(),
        share: WindowShare::take(repository),
        workspace: Workspace::new(options.reach),
        outputs: Vec::new(),
        current: None,
        again: Vec::new(),
        is_another_try: false,
        links: Links::default(),
        claims: Claims::default(),
        leaving: Vec::new(),
        containers: HashSet::new(),
        report: RestoreReport::default(),
        files_planned: 0,
        surplus,
        exhausted: None,
        stack: Vec::new(),
        path: b"/".to_vec(),
        guide,
        place: options.placed.map_or(0, |placed| placed.first_chunk),
    };
    job.progress.set_totals(root.totals.entries, root.totals.bytes.max(root.size));
    let result = restorer.all(root, target, created);
    if result.is_err() {
        restorer.abandon_all();
    }
    result?;
    let mut report = restorer.report;
    report.surplus = restorer.surplus.map_or_else(SurplusReport::default, |it| it.report());
    report.owners_elsewhere = restorer.owners.elsewhere();
    report.containers = restorer.containers.len() as u64;
    report.errors += restorer.shared.applier.errors();
    report.unkept = restorer.shared.applier.unkept().clone();
    report.bytes_written += restorer.shared.bytes_written.load(Ordering::Relaxed);
    Ok(report)
}

impl Restorer<'_> {
    fn all(&mut self, root: &Entry, target: Arc<Directory>, created: bool) -> Result<()> {
        let is_directory = root.kind == EntryKind::Directory;
        // A file restored alone is an only entry of a directory that has no attributes.
        let attributes = self.owners.attributes(root);
        let listing = listing_of(root, b"/", self.options);
        let is_listed = is_directory && self.options.include.is_empty();
        let is_saved = is_directory && !root.name.is_empty() && listing != Listing::Above;
        let level = Level {
            name: Vec::new(),
            listed: self.list(&target, is_listed, listing, false),
            state: DirectoryState::Open(target),
            entry: Entry::default(),
            attributes,
            listing,
            is_mounted: false,
            set_attributes: created && is_saved,
            entries: Vec::new().into_iter(),
            parts: Vec::new().into_iter(),
            last_name: Vec::new(),
            path_length: 0,
            place_end: u64::MAX,
            included: self.options.include.is_empty() || !is_directory,
            whole: is_directory,
            stated: (is_directory && !root.name.is_empty()).then_some(root.totals),
            met: Totals::default(),
            led_to: None,
        };
        self.stack.push(level);
        match (is_directory, root.content) {
            (true, Some(content)) => self.load(content, true),
            (true, None) => {}
            (false, _) if root.name.is_empty() => {
                return Err(Error::invalid("the item to restore has no name"));
            }
            (false, _) => self.item(root.clone())?,
        }
        while let Some(level) = self.stack.last_mut() {
            self.job.interrupt.check()?;
            if let Some(error) = self.exhausted.take() {
                return Err(error);
            }
            if let Some(entry) = level.entries.next() {
                self.item(entry)?;
            } else if let Some(part) = level.parts.next() {
                self.load(part.leaf, false);
            } else {
                self.leave();
            }
            if self.is_full() {
                self.run_window()?;
            }
        }
        self.run_window()?;
        self.exhausted.take().map_or(Ok(()), Err)?;
        if !self.options.dry_run {
            self.write_out();
        }
        Ok(())
    }

    /// Whether the window has used its share of memory; a file or directory counts as several
    /// chunks.
    pub(super) fn is_full(&self) -> bool {
        let items = self.outputs.len() + self.leaving.len() + self.links.deferred.len();
        self.window.cost() + items * 8 >= self.share.chunks_max
    }

    /// Tells of an item that could not be restored; ends the restore soon if nothing is wrong with
    /// the item, and others would fare no better.
    pub(super) fn problem(&mut self, item: &str, error: &Error) {
        if error.kind() == ErrorKind::Exhausted {
            let told = || Error::new(ErrorKind::Exhausted, format!("{item}: {error}"));
            self.exhausted.get_or_insert_with(told);
            return;
        }
        self.report.errors += 1;
        self.job.observer.problem(item, error);
    }

    /// The path being worked on, for messages.
    pub(super) fn here(&self) -> String {
        path::display(&self.path)
    }

    /// Reads the entries of a directory, or of a part of one, into the lowest level.
    fn load(&mut self, reference: Reference, is_top: bool) {
        let node = self.reader.node(reference);
        let Some(level) = self.stack.last_mut() else {
            return;
        };
        let error = match node {
            Ok(Node::DirectoryLeaf(leaf)) => match names_rise(&leaf, &mut level.last_name) {
                Ok(()) => {
                    self.owners.learn(&leaf.users, &leaf.groups);
                    level.entries = leaf.entries.into_iter();
                    return;
                }
                Err(error) => error,
            },
            Ok(Node::DirectoryMap(map)) if is_top => {
                level.parts = map.parts.into_iter();
                return;
            }
            Ok(_) => Error::damaged(format!("node {} is no directory", reference.fingerprint)),
            Err(error) => error,
        };
        level.whole = false;
        let item = self.here();
        // Only damage is a loss: with more open files, say, they could be read.
        let what = match error.is_lost() {
            true => "entries of the directory are lost",
            false => "entries of the directory could not be read from the store",
        };
        self.problem(&item, &error.context(what));
    }

    fn item(&mut self, entry: Entry) -> Result<()> {
        let Some(level) = self.stack.last_mut() else {
            return Err(bug!("an item is in no directory"));
        };
        level.met.add(&entry);
        if let DirectoryState::Open(directory) = &level.state {
            level.listed.meet(directory, &entry.name);
        }
        // Places are advice: a chunk that is not where a wrong one says is looked for.
        let place_end = self.place.saturating_add(entry.chunks).saturating_add(entry.totals.chunks);
        let above_included = level.included;
        let path_length = self.path.len();
        if !self.path.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&entry.name);
        let is_directory = entry.kind == EntryKind::Directory;
        let selected = |patterns: &crate::patterns::Patterns| {
            !patterns.is_empty() && patterns.matches(&self.path, is_directory)
        };
        // Asked in any case: patterns count what they match.
        let included = selected(&self.options.include) || above_included;
        let out = selected(&self.options.exclude)
            || (!included && !is_directory)
            || (self.options.without.special && entry.kind.is_special());
        let mut result = Ok(());
        if out {
            // Passed over.
        } else if is_directory {
            if self.descend(entry, path_length, included, place_end) {
                // The path stays until the level is left.
                return Ok(());
            }
        } else if entry.kind == EntryKind::File {
            result = self.file(entry);
        } else {
            result = self.other(&entry);
        }
        self.path.truncate(path_length);
        self.place = place_end;
        result
    }

    /// Goes down into a directory; `false` if there is no way.
    fn descend(
        &mut self,
        entry: Entry,
        path_length: usize,
        included: bool,
        place_end: u64,
    ) -> bool {
        if self.stack.len() > limits::DEPTH_MAX {
            let error = Error::new(ErrorKind::LimitExceeded, "it is nested too deep");
            let item = self.here();
            self.problem(&item, &error);
            return false;
        }
        let content = entry.content;
        self.stack.push(Level {
            name: entry.name.clone(),
            state: DirectoryState::Wanted,
            attributes: self.owners.attributes(&entry),
            stated: Some(entry.totals),
            listing: listing_of(&entry, &self.path, self.options),
            is_mounted: false,
            entry,
            set_attributes: false,
            entries: Vec::new().into_iter(),
            parts: Vec::new().into_iter(),
            last_name: Vec::new(),
            path_length,
            place_end,
            included,
            whole: true,
            met: Totals::default(),
            listed: Listed::default(),
            led_to: None,
        });
        self.job.progress.set_current(&self.here());
        if included && self.directory().is_none() {
            let is_left_alone = |level: &Level| matches!(level.state, DirectoryState::LeftAlone);
            let is_skipped = self.stack.iter().any(is_left_alone);
            let below = self.stack.pop().map_or(0, |level| level.entry.totals.entries);
            self.report.files_skipped += if is_skipped { below } else { 0 };
            return false;
        }
        if let Some(content) = content {
            self.load(content, true);
        }
        true
    }

    /// The directory of the lowest level; it and those above are made if need be.
    pub(super) fn directory(&mut self) -> Option<Arc<Directory>> {
        let mut above = None;
        for position in 0..self.stack.len() {
            match self.stack[position].state.clone() {
                DirectoryState::Open(directory) => above = Some(directory),
                DirectoryState::Blocked => return None,
                DirectoryState::LeftAlone => {
                    self.report.files_skipped += 1;
                    return None;
                }
                DirectoryState::Wanted => {
                    let parent = above.take()?;
                    match self.make_directory(&parent, position) {
                        Ok(Some(directory)) => {
                            self.stack[position].state =
                                DirectoryState::Open(Arc::clone(&directory));
                            above = Some(directory);
                        }
                        Ok(None) => {
                            let Level { name, entry, included, .. } = &self.stack[position];
                            let below = included.then_some(entry.totals.entries);
                            let item = parent.display_of(name);
                            self.stack[position].state = DirectoryState::LeftAlone;
                            self.leave_alone(&item, below);
                            return None;
                        }
                        Err(error) => {
                            let item = parent.display_of(&self.stack[position].name);
                            self.problem(&item, &error);
                            self.stack[position].state = DirectoryState::Blocked;
                            return None;
                        }
                    }
                }
            }
        }
        above
    }

    fn make_directory(
        &mut self,
        parent: &Arc<Directory>,
        position: usize,
    ) -> Result<Option<Arc<Directory>>> {
        let name = self.stack[position].name.clone();
        let existing = self.existing(parent, &name)?;
        let (overwrite, listing) = (self.options.overwrite, self.stack[position].listing);
        let decision = item::decide(&self.stack[position].entry, existing.as_ref(), overwrite);
        let mut is_mounted = position > 0 && self.stack[position - 1].is_mounted;
        let made = match (decision, &existing) {
            (_, Some(stat))
                if listing == Listing::Above || self.is_link_at_source(position, stat) =>
            {
                let directory = parent.enter_or_follow(&name, stat)?;
                if self.is_spared(directory.identity()) {
                    return Err(refuse_store());
                }
                is_mounted |= self.surplus.is_some()
                    && listing != Listing::Above
                    && directory.is_mounted()?;
                directory
            }
            (Decision::Skip, _) => return Ok(None),
            (_, Some(stat)) if self.is_spared((stat.st_dev, stat.st_ino)) => {
                return Err(refuse_store());
            }
            (Decision::Compare | Decision::Keep, Some(stat)) => {
                let directory = parent.enter(&name)?;
                self.let_in(&directory, stat)?;
                is_mounted |= self.surplus.is_some() && parent.is_mount(&name, stat)?;
                directory
            }
            (_, Some(stat)) => {
                self.remove_existing(parent, &name, stat)?;
                self.new_directory(parent, &name)?
            }
            (_, None) => self.new_directory(parent, &name)?,
        };
        let is_link = existing.as_ref().is_some_and(|stat| is_type(stat, FileType::Symlink));
        let above = position.checked_sub(1).and_then(|above| self.stack[above].led_to.as_ref());
        let led_to = match made.exists() && is_link {
            true => self.place_in_target(&made)?,
            false => above.map(|above| path::join(above, &name)),
        };
        self.report.directories += 1;
        self.job.progress.add(1, 0);
        let proves = match self.is_shared(&made, led_to.as_deref()) {
            true => Listing::Above,
            false => listing,
        };
        let listed = self.list(&made, self.stack[position].included, proves, is_mounted);
        let keeps =
            listing == Listing::Above || matches!(overwrite, Overwrite::Never | Overwrite::IfNewer);
        let level = &mut self.stack[position];
        (level.listed, level.is_mounted, level.led_to) = (listed, is_mounted, led_to);
        level.set_attributes = made.fresh || !keeps || existing.as_ref().is_some_and(is_unfinished);
        Ok(Some(made))
    }

    /// Where in the target the lowest level is, if a link led there.
    pub(super) fn led_to(&self) -> Option<&Vec<u8>> {
        self.stack.last().and_then(|level| level.led_to.as_ref())
    }

    /// Whether a link stands in the place of a source, which was named by it.
    fn is_link_at_source(&self, position: usize, stat: &Stat) -> bool {
        let above = position.checked_sub(1).and_then(|above| self.stack.get(above));
        is_type(stat, FileType::Symlink) && above.is_some_and(|it| it.listing == Listing::Above)
    }

    /// Whether this is the directory in which nothing is changed.
    fn is_spared(&self, identity: (u64, u64)) -> bool {
        self.options.spared == Some(identity)
    }

    /// Removes an item of another kind that is in the way.
    pub(super) fn remove_existing(
        &mut self,
        parent: &Arc<Directory>,
        name: &[u8],
        stat: &Stat,
    ) -> Result<()> {
        if is_type(stat, FileType::Directory)
            && let Some(surplus) = &mut self.surplus
        {
            let item = parent.path_of(name);
            let removed = surplus.remove_in_the_way(parent, name, stat, &item);
            self.tell_of_surplus();
            return removed;
        }
        match (self.options.dry_run, is_type(stat, FileType::Directory)) {
            (true, _) => Ok(()),
            (false, false) => parent.unlink(name),
            (false, true) => parent
                .remove_directory(name)
                .context(|| "a directory is in the way (deleting is not asked for)"),
        }
    }

    /// The names in a directory that is wanted, for finding what is not in the snapshot.
    fn list(
        &mut self,
        directory: &Directory,
        is_wanted: bool,
        listing: Listing,
        is_mounted: bool,
    ) -> Listed {
        let Some(surplus) = self.surplus.as_mut().filter(|_| is_wanted) else {
            return Listed::default();
        };
        let listed = surplus.list(directory, listing, is_mounted);
        self.tell_of_surplus();
        listed
    }

    fn tell_of_surplus(&mut self) {
        let problems = self.surplus.as_mut().map(Surplus::take_problems).unwrap_or_default();
        problems.iter().for_each(|(item, error)| self.problem(item, error));
    }

    /// Leaves the lowest level: deletes what is not in the snapshot, notes the attributes.
    fn leave(&mut self) {
        let Some(mut level) = self.stack.pop() else {
            return;
        };
        if level.whole && level.stated.is_some_and(|stated| stated != level.met) {
            let (met, stated) = (level.met.entries, level.stated.map_or(0, |it| it.entries));
            let item = self.here();
            let what = format!("{met} items were met in it and below, and it names {stated}");
            self.problem(&item, &Error::damaged(what));
            level.whole = false;
        }
        if let DirectoryState::Open(directory) = &level.state {
            if let Some(surplus) = self.surplus.as_mut().filter(|_| level.whole) {
                surplus.clear(directory, &level.listed, &self.path);
                self.tell_of_surplus();
            }
            if level.set_attributes && !self.options.dry_run {
                self.leaving.push(Leaving {
                    directory: Arc::clone(directory),
                    attributes: level.attributes,
                });
            }
        }
        self.path.truncate(level.path_length.max(1));
        self.place = level.place_end;
    }
}

fn refuse_store() -> Error {
    Error::invalid("this is the directory of the store: nothing is restored into it")
}
