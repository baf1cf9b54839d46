//! A store as the harness sees it: what it must hold, and how sure that is.
//!
//! What a command changes is unsure from its start until an end that says what it did: a snapshot
//! has *doubts* while commands may forget it for good, and *covers* while commands may hide it or
//! bring it back. Only what was beyond doubt from the start of a reader to its end must be
//! readable. When nothing runs, the list of snapshots settles all doubts.

use super::device::Device;
use super::truth::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A snapshot that exists, or may.
#[derive(Debug)]
pub struct Snapshot {
    /// What it holds.
    pub truth: Arc<Tree>,
    /// The number of the command that made it.
    pub made_by: u64,
    /// Whether it is hidden; absent if that is not known.
    pub hidden: Option<bool>,
    /// Whether it is kept from being forgotten.
    pub hold: Hold,
    /// Commands that may forget it for good, or have.
    pub doubts: BTreeSet<u64>,
    /// Commands that may hide it or bring it back.
    pub covers: BTreeSet<u64>,
    /// When a doubt or a cover came or went last.
    pub touched: u64,
}

/// Whether a snapshot is kept from being forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is not.
    Free,
    /// It is.
    Held,
    /// A command that changes it runs, or did not say what it did.
    Unsure,
}

impl Hold {
    /// What a line of a list says.
    pub fn of(held: bool) -> Hold {
        if held { Hold::Held } else { Hold::Free }
    }
}

/// How far the commands reach that choose snapshots by themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// They may forget any snapshot for good.
    AnyForGood,
    /// They may hide any snapshot.
    AnyHidden,
    /// They may forget for good what is hidden.
    HiddenForGood,
}

/// A password.
#[derive(Debug)]
pub struct Password {
    /// The file that holds it.
    pub file: PathBuf,
    /// The id of its key; unknown for the first.
    pub key: Option<String>,
    /// Whether it opens the store beyond doubt.
    pub sure: bool,
    /// When that changed last.
    pub touched: u64,
}

/// Something that was to become a snapshot, and may have.
#[derive(Debug)]
pub struct Attempt {
    /// What it would hold.
    pub truth: Arc<Tree>,
    /// Whether the command said that it failed.
    pub failed: bool,
}

/// A store, and what it must hold.
#[derive(Debug)]
pub struct Store {
    /// Its name in the log.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// The options it is made with.
    pub options: Vec<String>,
    /// The device it lies on, if that is a small one.
    pub device: Option<Device>,
    /// Whether it has passwords.
    pub encrypted: bool,
    /// Whether the source of thousands of tiny files goes there.
    pub takes_dust: bool,
    /// The passwords; the first is never touched.
    pub passwords: Vec<Password>,
    /// Snapshots by id.
    pub snapshots: BTreeMap<String, Snapshot>,
    /// Commands that choose snapshots by themselves and run, or ended without saying what they did.
    pub reaches: BTreeMap<u64, Reach>,
    /// Ids that were forgotten for good.
    pub forgotten: BTreeSet<String>,
    /// What commands that did not end as they should may have made, by their numbers.
    pub attempts: BTreeMap<u64, Attempt>,
    /// Directories that are restored into again and again, and whether that is being done.
    pub in_place: BTreeMap<String, bool>,
    /// Passwords that were being replaced, and those that were to replace them: one of both works.
    pub changes: Vec<(PathBuf, PathBuf)>,
    /// Ids that were hidden before their makers were heard.
    pub hidden_early: BTreeSet<String>,
    /// Commands that hold or release a snapshot and run.
    pub holding: BTreeMap<u64, String>,
    /// Snapshots of which it is not known whether they are held.
    pub unsure_holds: BTreeSet<String>,
    /// Rotations of the keys that run.
    pub rotating: BTreeSet<u64>,
    /// When a rotation began or ended last.
    pub rotated: Option<u64>,
    /// How many rotations were begun.
    pub rotations: usize,
    /// Whether a command found the device full lately.
    pub full: bool,
    /// Whether something was found: what follows from it is not told again.
    pub spoilt: bool,
}

impl Store {
    /// The global options of a command on this store. `password` is an index.
    pub fn access(&self, path: &Path, password: usize) -> Vec<String> {
        let mut arguments = vec!["-r".to_owned(), path.display().to_string(), "--json".to_owned()];
        if self.encrypted
            && let Some(password) = self.passwords.get(password)
        {
            let file = password.file.display().to_string();
            arguments.extend(["--password-file".to_owned(), file]);
        }
        arguments
    }

    /// The ids of the snapshots that are wanted, oldest first.
    pub fn ids(&self, wanted: impl Fn(&Snapshot) -> bool) -> Vec<String> {
        let mut found: Vec<(&String, &Snapshot)> =
            self.snapshots.iter().filter(|(_, snapshot)| wanted(snapshot)).collect();
        found.sort_by_key(|(_, snapshot)| snapshot.made_by);
        found.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// Whether a snapshot has been live and visible since a moment, beyond doubt.
    pub fn is_sure(&self, id: &str, since: u64) -> bool {
        let is_seen = |one: &Snapshot| one.hidden == Some(false) && one.doubts.is_empty();
        self.is_undisputed(id, 0, since) && self.snapshots.get(id).is_some_and(is_seen)
    }

    /// Whether nobody but one command has touched a snapshot since a moment.
    pub fn is_undisputed(&self, id: &str, number: u64, since: u64) -> bool {
        self.snapshots.get(id).is_some_and(|snapshot| {
            let others = snapshot.doubts.iter().chain(&snapshot.covers).any(|one| *one != number);
            !others && snapshot.touched <= since
        })
    }

    /// Takes in a snapshot that was made.
    pub fn add(&mut self, id: &str, snapshot: Snapshot) {
        if self.forgotten.contains(id) {
            return;
        }
        let mut snapshot = snapshot;
        for (number, reach) in &self.reaches {
            match reach {
                Reach::AnyForGood => snapshot.doubts.insert(*number),
                Reach::AnyHidden => snapshot.covers.insert(*number),
                Reach::HiddenForGood => continue,
            };
        }
        if self.hidden_early.contains(id) {
            snapshot.hidden = None;
        }
        self.snapshots.insert(id.to_owned(), snapshot);
    }

    /// A command that may forget these for good begins.
    pub fn doubt(&mut self, ids: &[String], number: u64, moment: u64) {
        for id in ids {
            if let Some(snapshot) = self.snapshots.get_mut(id) {
                snapshot.doubts.insert(number);
                snapshot.touched = moment;
            }
        }
    }

    /// A command that may hide these or bring them back begins. What it hides others may then
    /// forget.
    pub fn cover(&mut self, ids: &[String], number: u64, moment: u64) {
        let takers = self.reaches.iter().filter(|(_, reach)| **reach == Reach::HiddenForGood);
        let takers: Vec<u64> = takers.map(|(number, _)| *number).collect();
        for id in ids {
            if let Some(snapshot) = self.snapshots.get_mut(id) {
                snapshot.covers.insert(number);
                snapshot.doubts.extend(&takers);
                snapshot.touched = moment;
            }
        }
    }

    /// A command that chooses by itself begins.
    pub fn reach(&mut self, reach: Reach, number: u64, moment: u64) {
        self.reaches.insert(number, reach);
        let any = self.ids(|snapshot| snapshot.hold != Hold::Held);
        match reach {
            Reach::AnyForGood => self.doubt(&any, number, moment),
            Reach::AnyHidden => self.cover(&any, number, moment),
            Reach::HiddenForGood => {
                let hidden = self.ids(|one| one.hidden != Some(false) || !one.covers.is_empty());
                self.doubt(&hidden, number, moment);
            }
        }
    }

    /// A command has said whom it has forgotten for good, and nobody else.
    pub fn forgot(&mut self, ids: &[String], number: u64, moment: u64) {
        self.reaches.remove(&number);
        for snapshot in self.snapshots.values_mut() {
            if snapshot.doubts.remove(&number) {
                snapshot.touched = moment;
            }
        }
        for id in ids {
            self.snapshots.remove(id);
            self.forgotten.insert(id.clone());
        }
    }

    /// A command has said whom it has hidden or brought back, and nobody else. If another one was
    /// at it at the same time, nobody knows who was last.
    pub fn covered(&mut self, ids: &[String], hidden: bool, number: u64, begin: u64, moment: u64) {
        self.reaches.remove(&number);
        let unheard = ids.iter().filter(|id| !self.snapshots.contains_key(*id)).cloned();
        self.hidden_early.extend(unheard);
        for (id, snapshot) in &mut self.snapshots {
            if !snapshot.covers.remove(&number) {
                continue;
            }
            let alone = snapshot.covers.is_empty() && snapshot.touched <= begin;
            let changed = ids.contains(id);
            if changed || !alone {
                snapshot.hidden = alone.then_some(hidden);
            }
            snapshot.touched = moment;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        let snapshot = || Snapshot {
            truth: Arc::default(),
            made_by: 1,
            hidden: Some(false),
            hold: Hold::Free,
            doubts: BTreeSet::new(),
            covers: BTreeSet::new(),
            touched: 1,
        };
        let mut store = Store {
            name: "s".to_owned(),
            path: PathBuf::new(),
            options: Vec::new(),
            device: None,
            encrypted: false,
            takes_dust: false,
            passwords: Vec::new(),
            snapshots: BTreeMap::new(),
            reaches: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            attempts: BTreeMap::new(),
            in_place: BTreeMap::new(),
            changes: Vec::new(),
            hidden_early: BTreeSet::new(),
            holding: BTreeMap::new(),
            unsure_holds: BTreeSet::new(),
            rotating: BTreeSet::new(),
            rotated: None,
            rotations: 0,
            full: false,
            spoilt: false,
        };
        store.add("a", snapshot());
        store.add("b", snapshot());
        store
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_a_command_may_forget_is_unsure_until_it_says() {
        let mut store = store();
        store.reach(Reach::AnyForGood, 5, 10);
        assert!(!store.is_sure("a", 20));
        store.forgot(&names(&["b"]), 5, 11);
        assert!(store.is_sure("a", 11) && !store.is_sure("a", 10));
        assert!(store.forgotten.contains("b") && !store.snapshots.contains_key("b"));
    }

    #[test]
    fn two_that_hide_at_the_same_time_leave_it_unsure() {
        let mut store = store();
        store.cover(&names(&["a", "b"]), 5, 10);
        store.covered(&names(&["a"]), true, 5, 10, 12);
        assert_eq!(store.snapshots["a"].hidden, Some(true));
        assert!(store.is_sure("b", 12));
        store.cover(&names(&["a"]), 6, 13);
        store.cover(&names(&["a"]), 7, 14);
        store.covered(&names(&["a"]), false, 6, 13, 15);
        store.covered(&names(&["a"]), true, 7, 14, 16);
        assert_eq!(store.snapshots["a"].hidden, None);
    }

    #[test]
    fn what_is_hidden_beside_a_command_that_forgets_the_hidden_is_in_doubt() {
        let mut store = store();
        store.reach(Reach::HiddenForGood, 5, 10);
        assert!(store.is_sure("a", 10));
        store.cover(&names(&["a"]), 6, 11);
        store.covered(&names(&["a"]), true, 6, 11, 12);
        assert!(store.snapshots["a"].doubts.contains(&5));
    }
}
