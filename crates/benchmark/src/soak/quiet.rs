//! What is done while no command runs: doubts are settled, snapshots restored and compared, garbage
//! and full devices looked after, and at the end everything once more.

use super::command::Plan;
use super::device;
use super::judge;
use super::process::{Disturbance, Finished};
use super::random::Random;
use super::store::{Attempt, Hold, Snapshot};
use super::truth::{self, Tree};
use super::{Soak, TICK};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io, mem, thread};

/// Attempts of a collection on a device that is full.
const RELIEFS: usize = 3;
/// Snapshots that are restored when all is at rest.
const RESTORED: usize = 3;

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

impl Soak {
    /// All is at rest: settles every store and looks closer at one.
    pub(super) fn rest(&mut self) -> io::Result<()> {
        for index in 0..self.stores.len() {
            if self.stores[index].spoilt {
                self.renew(index)?;
            }
            self.settle(index)?;
        }
        let mut random = Random::new(self.seed, super::AT_REST + self.chosen);
        let index = random.below(self.stores.len());
        let mut ids = self.stores[index].ids(|one| one.hidden == Some(false));
        while ids.len() > RESTORED {
            ids.remove(random.below(ids.len()));
        }
        self.verify(index, &ids)?;
        for full in 0..self.stores.len() {
            let store = &self.stores[full];
            let tight = store.device.as_ref().is_some_and(|device| device.free() < 1 << 20);
            if store.device.is_some() && (store.full || tight) && random.chance(60) {
                self.relieve(full)?;
            }
        }
        if random.chance(25) {
            self.collect_all(index)?;
        }
        if !self.leaves_out("keys") && random.chance(25) {
            self.duel(&mut random)?;
        }
        if !self.leaves_out("damage") {
            let trials = if self.tiny { 1 } else { random.skewed(1, 6) };
            for _ in 0..trials {
                let healthy = !self.stores[index].spoilt;
                if healthy && self.violations.len() < self.violations_max {
                    self.trial(index, &mut random)?;
                }
            }
        }
        Ok(())
    }

    /// The end: what is hidden comes back, everything is restored, no garbage is left.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        for index in 0..self.stores.len() {
            if self.stores[index].spoilt {
                continue;
            }
            self.settle(index)?;
            if self.stores[index].device.is_some() {
                self.relieve(index)?;
            }
            for id in self.stores[index].ids(|one| one.hidden == Some(true)) {
                let finished = self.on("undelete", index, &["undelete", &id])?;
                self.expect(index, finished.code == Some(0), "undelete", &finished)?;
                if let Some(snapshot) = self.stores[index].snapshots.get_mut(&id) {
                    snapshot.hidden = Some(false);
                }
            }
            self.settle(index)?;
            let all = self.stores[index].ids(|_| true);
            self.verify(index, &all)?;
            self.collect_all(index)?;
            self.verify(index, &all)?;
        }
        Ok(())
    }

    /// Runs a command on a store with its first password.
    fn on(&mut self, kind: &'static str, index: usize, arguments: &[&str]) -> io::Result<Finished> {
        let store = &self.stores[index];
        let mut all = store.access(&store.path, 0);
        all.extend(words(arguments));
        self.run_now(kind, all)
    }

    fn expect(
        &mut self,
        index: usize,
        right: bool,
        what: &str,
        finished: &Finished,
    ) -> io::Result<()> {
        if right || self.stores[index].spoilt {
            return Ok(());
        }
        let name = &self.stores[index].name;
        let line = format!(
            "{} at rest, {what} on store '{name}': {}",
            self.number,
            judge::failed(finished)
        );
        self.violation(Some(index), &line)
    }

    /// Begins a store anew after something was found.
    fn renew(&mut self, index: usize) -> io::Result<()> {
        let store = &mut self.stores[index];
        judge::remove(&store.path)?;
        if let Some(device) = &store.device {
            let _absent = fs::remove_file(device.path.join("ballast"));
        }
        store.passwords.truncate(1);
        store.snapshots.clear();
        store.forgotten.clear();
        store.hidden_early.clear();
        store.reaches.clear();
        store.holding.clear();
        store.unsure_holds.clear();
        store.rotating.clear();
        store.rotations = 0;
        store.attempts.clear();
        store.changes.clear();
        (store.full, store.spoilt) = (false, false);
        self.initialize(index)
    }

    /// The list of snapshots settles what was in doubt, and must agree with what was not.
    fn settle(&mut self, index: usize) -> io::Result<()> {
        self.settle_passwords(index)?;
        let finished = self.on("snapshots", index, &["snapshots", "--all"])?;
        self.expect(index, finished.code == Some(0), "a list of snapshots", &finished)?;
        if finished.code != Some(0) {
            return Ok(());
        }
        let listed: BTreeMap<String, Value> = finished
            .messages("snapshot")
            .into_iter()
            .map(|line| (line["id"].as_str().unwrap_or_default().to_owned(), line))
            .collect();
        self.moment += 1;
        let mut wrong = Vec::new();
        let (moment, store) = (self.moment, &mut self.stores[index]);
        store.reaches.clear();
        store.hidden_early.clear();
        store.holding.clear();
        store.unsure_holds.clear();
        store.rotating.clear();
        for (id, mut snapshot) in mem::take(&mut store.snapshots) {
            let Some(line) = listed.get(&id) else {
                let is_held = snapshot.hold == Hold::Held;
                if snapshot.doubts.is_empty() || is_held {
                    let held = if is_held { ", which was held," } else { "" };
                    let number = snapshot.made_by;
                    wrong.push(format!("snapshot {id}{held} made by {number}, is gone"));
                }
                store.forgotten.insert(id);
                continue;
            };
            let hidden = line["hidden"].as_bool();
            if snapshot.covers.is_empty() && snapshot.hidden.is_some() && snapshot.hidden != hidden
            {
                wrong.push(format!(
                    "snapshot {id}: hidden is {hidden:?}, not {:?}",
                    snapshot.hidden
                ));
            }
            let hold = Hold::of(line["hold"].as_bool().unwrap_or(false));
            if snapshot.hold != Hold::Unsure && snapshot.hold != hold {
                wrong.push(format!("snapshot {id}: {hold:?}, not {:?}", snapshot.hold));
            }
            snapshot.hold = hold;
            snapshot.hidden = hidden;
            snapshot.doubts.clear();
            snapshot.covers.clear();
            snapshot.touched = moment;
            store.snapshots.insert(id, snapshot);
        }
        let attempts = mem::take(&mut store.attempts);
        for (id, line) in listed {
            if store.forgotten.contains(&id) {
                wrong.push(format!("snapshot {id} was forgotten for good, and is there again"));
                continue;
            }
            let Entry::Vacant(place) = store.snapshots.entry(id) else { continue };
            match adopted(&line, &attempts, moment) {
                Ok(snapshot) => {
                    place.insert(snapshot);
                }
                Err(reason) => wrong.push(format!("snapshot {}: {reason}", place.key())),
            }
        }
        for line in wrong {
            let line = format!("store '{}': {line}", self.stores[index].name);
            self.violation(Some(index), &line)?;
        }
        Ok(())
    }

    /// Of a password that was being replaced and the new one, one must open the store.
    fn settle_passwords(&mut self, index: usize) -> io::Result<()> {
        for (old, new) in mem::take(&mut self.stores[index].changes) {
            let mut opened = false;
            for file in [old, new] {
                let store = &self.stores[index];
                let mut arguments = words(&["-r", &store.path.display().to_string(), "--json"]);
                arguments.extend(words(&["--password-file", &file.display().to_string()]));
                arguments.extend(words(&["cat", "config"]));
                opened |= self.run_now("cat config", arguments)?.code == Some(0);
            }
            if !opened {
                let line = "neither the old password nor the new one opens the store";
                self.violation(Some(index), line)?;
            }
        }
        Ok(())
    }

    /// Restores snapshots and compares them.
    fn verify(&mut self, index: usize, ids: &[String]) -> io::Result<()> {
        for id in ids {
            let store = &self.stores[index];
            let Some(snapshot) = store.snapshots.get(id) else { continue };
            if store.spoilt {
                return Ok(());
            }
            let (truth, made_by) = (Arc::clone(&snapshot.truth), snapshot.made_by);
            let access = store.access(&store.path, 0);
            let (finished, found) = self.restored(access, id)?;
            let told = truth::differences(&truth, &found);
            if finished.code != Some(0) || told.is_some() {
                let line = format!(
                    "snapshot {id}, made by {made_by}, at rest: {}; {}",
                    judge::failed(&finished),
                    told.unwrap_or_default()
                );
                self.violation(Some(index), &line)?;
            }
        }
        Ok(())
    }

    /// Restores a snapshot and tells what was found.
    pub(super) fn restored(
        &mut self,
        access: Vec<String>,
        id: &str,
    ) -> io::Result<(Finished, Tree)> {
        let target = self.place.work.join("restored/at-rest");
        judge::remove(&target)?;
        let mut arguments = access;
        arguments.extend(words(&["restore", id, "--target", &target.display().to_string()]));
        let finished = self.run_now("restore at rest", arguments)?;
        let found = truth::scan(&target)?;
        judge::remove(&target)?;
        self.journal.count("restores compared", 1);
        Ok((finished, found))
    }

    /// One collection alone must leave no garbage, and a check must find nothing.
    fn collect_all(&mut self, index: usize) -> io::Result<()> {
        let store = &self.stores[index];
        if store.snapshots.is_empty() && store.forgotten.is_empty() {
            // A collection takes containers without any record of a snapshot for a loss.
            return Ok(());
        }
        let arguments = ["gc", "--space-goal", "all", "--wait", "0s"];
        let finished = self.on("gc at rest", index, &arguments)?;
        let told = finished.error_kinds().iter().any(|kind| kind == "no-space");
        let full = told || finished.code == Some(3);
        if full && self.stores[index].device.is_some() {
            return self.relieve(index);
        }
        self.expect(index, finished.code == Some(0), "gc", &finished)?;
        let finished =
            self.on("gc --dry-run", index, &["gc", "--dry-run", "--space-goal", "all"])?;
        let summary = finished.message("summary").unwrap_or_default();
        let unused: u64 = summary["classes"]
            .as_array()
            .map_or(1, |all| all.iter().filter_map(|one| one["bytes_unused"].as_u64()).sum());
        let clean = unused == 0 && summary["deleted_containers"] == 0;
        if !self.stores[index].spoilt && !clean {
            let line = format!("garbage is left after a collection: {unused} bytes; {summary}");
            self.violation(Some(index), &line)?;
        }
        let finished = self.on("check at rest", index, &["check", "--read-data"])?;
        let clean = finished.code == Some(0) && finished.messages("problem").is_empty();
        let told = String::from_utf8_lossy(&finished.output).into_owned();
        self.expect(index, clean, &format!("check ({told})"), &finished)
    }

    /// A device is full: forgetting and collecting, in turns, must make room.
    fn relieve(&mut self, index: usize) -> io::Result<()> {
        self.journal.count("full devices relieved", 1);
        let mut ids = self.stores[index].ids(|one| one.hold == Hold::Free);
        ids.pop();
        let free = self.stores[index].device.as_ref().map_or(0, device::Device::free);
        self.log(&format!("full device, {free} bytes free"));
        if !ids.is_empty() {
            let mut arguments = vec!["forget", "--final"];
            arguments.extend(ids.iter().map(String::as_str));
            let mut finished = self.on("forget on a full device", index, &arguments)?;
            for _ in 0..RELIEFS {
                // Forgetting leaves a part of the reserve to the collection that it asks for.
                if finished.code == Some(0) {
                    break;
                }
                let collects = ["gc", "--space-goal", "all", "--wait", "0s"];
                self.on("gc on a full device", index, &collects)?;
                finished = self.on("forget on a full device", index, &arguments)?;
            }
            self.expect(index, finished.code == Some(0), "forget", &finished)?;
            self.moment += 1;
            let (moment, number) = (self.moment, self.number);
            match finished.code {
                Some(0) => self.stores[index].forgot(&ids, number, moment),
                _ => self.stores[index].doubt(&ids, number, moment),
            }
        }
        for left in (0..RELIEFS).rev() {
            let arguments = ["gc", "--space-goal", "all", "--wait", "0s"];
            let finished = self.on("gc on a full device", index, &arguments)?;
            let store = &self.stores[index];
            let empty = store.snapshots.is_empty() && store.forgotten.is_empty();
            // With 3 it freed what it could.
            if matches!(finished.code, Some(0 | 3)) || empty {
                break;
            }
            self.expect(index, left > 0, "the last of some collections", &finished)?;
        }
        self.settle(index)?;
        self.stores[index].full = false;
        let ids = self.stores[index].ids(|one| one.hidden == Some(false));
        self.verify(index, &ids)
    }

    /// Two passwords remove each other at the same time: one must be left.
    fn duel(&mut self, random: &mut Random) -> io::Result<()> {
        let path = self.place.work.join("duel");
        judge::remove(&path)?;
        let base = words(&["-r", &path.display().to_string(), "--json", "--password-file"]);
        let of = |file: &Path, rest: &[&str]| {
            let mut all = base.clone();
            all.push(file.display().to_string());
            all.extend(words(rest));
            all
        };
        let files = ["first", "second"].map(|name| self.place.work.join("passwords").join(name));
        fs::write(&files[0], "the first password\n")?;
        fs::write(&files[1], "the second password\n")?;
        self.run_now("init", of(&files[0], &["init"]))?;
        let second = files[1].display().to_string();
        self.run_now("key add", of(&files[0], &["key", "add", "--new-password-file", &second]))?;
        let listed = self.run_now("key list", of(&files[1], &["key", "list"]))?.messages("key");
        let mut pair = Vec::new();
        for file in &files {
            let is_first = *file == files[0];
            let key = listed.iter().find(|line| line["current"].as_bool() == Some(is_first));
            // The list was made with the second password: what is not current is the first's.
            let key = key.and_then(|line| line["key"].as_str()).unwrap_or_default();
            let mut plan = Plan::plain("key remove, a duel", of(file, &["key", "remove", key]));
            let after = random.moment(self.journal.typical("key list").mul_f64(1.2));
            plan.disturbance = Disturbance::Freeze { after, commands: 1, then: None };
            self.number += 1;
            self.log(&format!("{} begins: {} {:?}", self.number, plan.line(), plan.disturbance));
            pair.push(self.place.start(self.number, self.moment, plan)?);
        }
        let began = std::time::Instant::now();
        while !pair.is_empty() {
            // Both stopped: both go on.
            let stuck = began.elapsed() > Duration::from_millis(400);
            let (mut left, ended) = (Vec::new(), 2 - pair.len() as u64);
            for mut running in pair {
                running.disturb(ended, stuck);
                match running.poll()? {
                    Some(finished) => self.journal.ended("key remove, a duel", &finished.how()),
                    None => left.push(running),
                }
            }
            pair = left;
            thread::sleep(TICK);
        }
        let mut opens = 0;
        for file in &files {
            opens += u32::from(
                self.run_now("cat config", of(file, &["cat", "config"]))?.code == Some(0),
            );
        }
        self.journal.count("duels of keys", 1);
        match opens {
            0 => self.violation(None, "two passwords removed each other, and none is left"),
            _ => judge::remove(&path),
        }
    }
}

/// A snapshot that a command made before it could say so.
fn adopted(
    line: &Value,
    attempts: &BTreeMap<u64, Attempt>,
    moment: u64,
) -> Result<Snapshot, String> {
    let tags = line["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let number = tags.filter_map(|tag| tag.strip_prefix('c')?.parse::<u64>().ok()).next();
    let number = number.ok_or_else(|| "nobody made it".to_owned())?;
    let attempt = attempts.get(&number).ok_or_else(|| format!("{number} did not make it"))?;
    if attempt.failed {
        return Err(format!("{number} said that it failed, and made it all the same"));
    }
    let hold = Hold::of(line["hold"].as_bool().unwrap_or(false));
    let mut snapshot = judge::snapshot(&attempt.truth, number, hold, moment);
    snapshot.hidden = line["hidden"].as_bool();
    Ok(snapshot)
}
