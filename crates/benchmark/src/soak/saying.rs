//! What is said about snapshots, and rotations of keys, as the harness knows them.
//!
//! A snapshot that `hold` was told to keep, and that nobody has begun to release, must not be
//! forgotten for good by anybody, whatever began before: of a hold and a forgetting one fails.
//! While a hold or a release runs, and after one that did not say what it did, it is not known
//! whether the snapshot is held; the list settles that when all is at rest.
//!
//! A rotation removes all other passwords, and whoever opened the store before it may end with
//! `keys-changed`.

use super::process::{Finished, Running};
use super::store::{Hold, Reach, Store};

impl Store {
    /// A command that holds or releases a snapshot begins.
    pub fn begin_hold(&mut self, id: &str, number: u64, moment: u64) {
        let Some(snapshot) = self.snapshots.get_mut(id) else { return };
        snapshot.hold = Hold::Unsure;
        snapshot.touched = moment;
        // What chooses snapshots by itself may choose it from now on.
        for (other, reach) in &self.reaches {
            match reach {
                Reach::AnyForGood | Reach::HiddenForGood => snapshot.doubts.insert(*other),
                Reach::AnyHidden => snapshot.covers.insert(*other),
            };
        }
        self.holding.insert(number, id.to_owned());
    }

    /// Such a command has ended.
    pub fn end_hold(&mut self, hold: bool, number: u64, moment: u64, is_done: bool) {
        let Some(id) = self.holding.remove(&number) else { return };
        let is_alone = self.holding.values().all(|other| *other != id);
        let Some(snapshot) = self.snapshots.get_mut(&id) else { return };
        snapshot.touched = moment;
        if is_done && is_alone && !self.unsure_holds.contains(&id) {
            snapshot.hold = if hold { Hold::Held } else { Hold::Free };
        } else {
            self.unsure_holds.insert(id);
        }
    }

    /// A rotation of the keys by the first password begins.
    pub fn begin_rotation(&mut self, number: u64, moment: u64) {
        self.rotating.insert(number);
        self.rotations += 1;
        self.rotated = Some(moment);
        self.changes.clear();
        for password in self.passwords.iter_mut().skip(1) {
            password.sure = false;
            password.touched = moment;
        }
    }

    /// A rotation of the keys has ended.
    pub fn end_rotation(&mut self, number: u64, moment: u64) {
        self.rotating.remove(&number);
        self.rotated = Some(moment);
    }

    /// Whether keys may have been rotated while a command ran.
    pub fn may_have_rotated(&self, running: &Running) -> bool {
        !self.rotating.is_empty() || self.rotated.is_some_and(|moment| moment >= running.moment)
    }

    /// Whether a command ended because keys were rotated meanwhile.
    pub fn met_a_rotation(&self, running: &Running, finished: &Finished) -> bool {
        let told = ["keys-changed", "wrong-password"];
        let is_told = finished.error_kinds().iter().any(|kind| told.contains(&kind.as_str()));
        is_told && self.may_have_rotated(running)
    }
}
