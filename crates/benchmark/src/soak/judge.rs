//! What a command changes in what is known, when it begins and when it ends, and whether it did
//! what it had to.
//!
//! A command that got a signal may have done its work or not; one that was only stopped for a while
//! must do it. A reader of what others may forget or hide at the same time may fail, but what it
//! delivers must be right.

use super::command::{Seen, Subject};
use super::process::{Finished, Running};
use super::store::{Attempt, Hold, Password, Snapshot, Store};
use super::truth::{self, Entry, Tree};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

/// The exit codes that are documented.
const CODES: [i32; 8] = [0, 1, 3, 10, 11, 12, 13, 130];

/// What was found about a command.
#[derive(Debug, Default)]
pub struct Judgement {
    /// What must not be.
    pub complaints: Vec<String>,
    /// Things to be counted.
    pub counts: Vec<(&'static str, u64)>,
}

impl Judgement {
    fn unless(&mut self, right: bool, complaint: impl FnOnce() -> String) {
        if !right {
            self.complaints.push(complaint());
        }
    }
}

impl Store {
    /// A command begins.
    pub fn begin(&mut self, number: u64, moment: u64, subject: &Subject) {
        if let Some(reach) = subject.reach() {
            self.reach(reach, number, moment);
        }
        match subject {
            Subject::Forget { ids, for_good: true } => self.doubt(ids, number, moment),
            Subject::Forget { ids, for_good: false } => self.cover(ids, number, moment),
            Subject::Undelete { id } => self.cover(std::slice::from_ref(id), number, moment),
            Subject::Restore { in_place: Some(name), .. } => {
                self.in_place.insert(name.clone(), true);
            }
            Subject::Hold { id, .. } => self.begin_hold(id, number, moment),
            Subject::Rotate => self.begin_rotation(number, moment),
            Subject::KeyRemove(index) => self.touch_password(*index, moment),
            Subject::KeyChange(index, file) => {
                self.touch_password(*index, moment);
                // Beside a rotation neither need work afterwards.
                if let Some(old) = self.passwords.get(*index).filter(|_| self.rotating.is_empty()) {
                    self.changes.push((old.file.clone(), PathBuf::from(file)));
                }
            }
            _ => {}
        }
    }

    fn touch_password(&mut self, index: usize, moment: u64) {
        if let Some(password) = self.passwords.get_mut(index) {
            password.sure = false;
            password.touched = moment;
        }
    }

    /// A command has ended.
    pub fn end(
        &mut self,
        running: &Running,
        finished: &Finished,
        moment: u64,
    ) -> io::Result<Judgement> {
        let mut judgement = Judgement::default();
        judgement.complaints.extend(general(running, finished));
        let full = finished.error_kinds().iter().any(|kind| kind == "no-space");
        self.full |= full;
        let excuse = self.excuse(running, finished, full);
        let all_right = finished.code == Some(0) || excuse;
        match &running.plan.subject {
            Subject::Save { .. } => self.end_save(running, finished, excuse, &mut judgement),
            Subject::SaveNothing { truth } => {
                judgement.unless(finished.code == Some(1) || excuse, || {
                    format!("the command failed, and the backup ended with {}", finished.how())
                });
                let attempt = Attempt { truth: Arc::clone(truth), failed: true };
                self.attempts.insert(running.number, attempt);
            }
            Subject::Forget { .. } | Subject::Undelete { .. } => {
                self.end_forget(running, finished, excuse, moment, &mut judgement);
            }
            Subject::Collect { .. } => {
                let kept = finished.code == Some(3);
                judgement.unless(all_right || kept, || failed(finished));
            }
            Subject::Hold { id, hold } => {
                let sure = self.is_undisputed(id, running.number, running.moment);
                judgement.unless(all_right || !sure, || failed(finished));
                self.end_hold(*hold, running.number, moment, finished.code == Some(0));
            }
            Subject::Rotate => {
                judgement.unless(all_right, || failed(finished));
                self.end_rotation(running.number, moment);
            }
            Subject::Check => {
                let problems = finished.messages("problem");
                judgement.unless(all_right && problems.is_empty(), || {
                    format!("{}; {problems:?}", failed(finished))
                });
            }
            Subject::KeyAdd { .. } | Subject::KeyRemove(_) | Subject::KeyChange(..) => {
                self.end_key(running, finished, moment);
                let excuse = self.may_have_rotated(running);
                judgement.unless(all_right || excuse, || failed(finished));
            }
            _ => self.end_look(running, finished, all_right, &mut judgement)?,
        }
        Ok(judgement)
    }

    /// A command has ended that only reads.
    fn end_look(
        &mut self,
        running: &Running,
        finished: &Finished,
        all_right: bool,
        judgement: &mut Judgement,
    ) -> io::Result<()> {
        let begin = running.moment;
        match &running.plan.subject {
            Subject::Look { needs } => {
                let sure = needs.iter().all(|id| self.is_sure(id, begin));
                judgement.unless(all_right || !sure, || failed(finished));
            }
            Subject::List { of, lines } => {
                judgement.unless(all_right || !self.is_sure(&of.id, begin), || failed(finished));
                if finished.code == Some(0) {
                    judgement.complaints.extend(listed(&of.truth, &finished.messages(lines)));
                }
            }
            Subject::Compare { one, other } => {
                let sure = self.is_sure(&one.id, begin) && self.is_sure(&other.id, begin);
                judgement.unless(all_right || !sure, || failed(finished));
                if finished.code == Some(0) {
                    judgement.complaints.extend(compared(one, other, finished));
                }
            }
            Subject::Dump { id, bytes } => {
                judgement.unless(all_right || !self.is_sure(id, begin), || failed(finished));
                let wrong = finished.code == Some(0) && finished.output != *bytes;
                judgement.unless(!wrong, || format!("{} other bytes", finished.output.len()));
            }
            Subject::Restore { of, target, in_place } => {
                // What the snapshot cannot know to have been absent is kept, and told.
                let kept = in_place.is_some() && finished.code == Some(3);
                let all_right = all_right || kept;
                judgement.unless(all_right || !self.is_sure(&of.id, begin), || failed(finished));
                let mut found = truth::scan(Path::new(target))?;
                if in_place.is_some() {
                    leave_out_what_is_beside(of, &mut found);
                }
                restored(of, found, finished, kept, judgement);
                match in_place {
                    Some(name) => drop(self.in_place.insert(name.clone(), false)),
                    None => remove(Path::new(target))?,
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether there is a reason for a command not to have succeeded.
    fn excuse(&self, running: &Running, finished: &Finished, full: bool) -> bool {
        let password = self.passwords.get(running.plan.password);
        let changed = password.is_some_and(|one| !one.sure || one.touched > running.moment);
        finished.disturbed
            || self.met_a_rotation(running, finished)
            || (full && self.device.is_some())
            || (matches!(finished.code, Some(1 | 12)) && changed)
    }

    fn end_save(
        &mut self,
        running: &Running,
        finished: &Finished,
        excuse: bool,
        judgement: &mut Judgement,
    ) {
        let Subject::Save { truth, may_skip, stream, needs, hold } = &running.plan.subject else {
            return;
        };
        let saved = matches!(finished.code, Some(0 | 3));
        let summary = finished.message("summary").filter(|_| saved).unwrap_or_default();
        match summary["snapshot"].as_str() {
            Some(id) => {
                judgement.unless(finished.code == Some(0), || failed(finished));
                judgement.counts.push(("snapshots made", 1));
                judgement
                    .counts
                    .push(("backups that started over", summary["restarts"].as_u64().unwrap_or(0)));
                self.add(id, snapshot(truth, running.number, Hold::of(*hold), running.moment));
            }
            None if saved => judgement.unless(*may_skip || excuse, || {
                "it ended well, and its summary names no snapshot".to_owned()
            }),
            None => {
                let sure = needs.iter().all(|id| self.is_sure(id, running.moment));
                let fenced = *stream && finished.error_kinds().iter().any(|kind| kind == "fenced");
                judgement.counts.push(("streams and copies fenced", u64::from(fenced)));
                judgement.unless(excuse || fenced || !sure, || failed(finished));
                let (truth, failed) = (Arc::clone(truth), !finished.disturbed);
                self.attempts.insert(running.number, Attempt { truth, failed });
            }
        }
    }

    fn end_forget(
        &mut self,
        running: &Running,
        finished: &Finished,
        excuse: bool,
        moment: u64,
        judgement: &mut Judgement,
    ) {
        let (number, begin) = (running.number, running.moment);
        let undisputed =
            |ids: &[String]| ids.iter().all(|id| self.is_undisputed(id, number, begin));
        if finished.code != Some(0) {
            // What it did is not known: the doubts stay.
            let sure = match &running.plan.subject {
                Subject::Forget { ids, for_good } => {
                    let hidden = |id: &String| self.snapshots.get(id).and_then(|one| one.hidden);
                    let seen = ids.iter().all(|id| hidden(id) == Some(false));
                    undisputed(ids) && (seen || *for_good)
                }
                Subject::Undelete { id } => undisputed(std::slice::from_ref(id)),
                _ => false,
            };
            judgement.unless(excuse || !sure, || failed(finished));
            return;
        }
        match &running.plan.subject {
            Subject::Forget { ids, for_good } => {
                let summary = finished.message("summary").unwrap_or_default();
                let told = strings(&summary["forgotten"]);
                let all = ids.iter().all(|id| told.contains(id));
                judgement.unless(all, || format!("it forgot {told:?} only"));
                let is_held = |id: &&String| {
                    self.snapshots.get(*id).is_some_and(|one| one.hold == Hold::Held)
                };
                let held = told.iter().find(is_held).filter(|_| *for_good);
                judgement.unless(held.is_none(), || format!("it forgot {held:?}, which is held"));
                match for_good {
                    true => self.forgot(&told, number, moment),
                    false => self.covered(&told, true, number, begin, moment),
                }
            }
            Subject::Undelete { id } => {
                self.covered(std::slice::from_ref(id), false, number, begin, moment);
            }
            _ => {}
        }
    }

    fn end_key(&mut self, running: &Running, finished: &Finished, moment: u64) {
        let told = |kind| finished.message(kind).filter(|_| finished.code == Some(0));
        let key = |line: Value| line["key"].as_str().map(str::to_owned);
        // What was added beside a rotation may not hold the new keys.
        let sure = !self.may_have_rotated(running);
        match &running.plan.subject {
            Subject::KeyAdd { file } => {
                if let Some(line) = told("key_added") {
                    let (file, key) = (PathBuf::from(file), key(line));
                    self.passwords.push(Password { file, key, sure, touched: moment });
                }
            }
            Subject::KeyRemove(index) => self.touch_password(*index, moment),
            Subject::KeyChange(index, file) => {
                self.touch_password(*index, moment);
                if let Some(line) = told("key_changed") {
                    let (file, key) = (PathBuf::from(file), key(line));
                    self.changes.retain(|(_, new)| *new != file);
                    self.passwords.push(Password { file, key, sure, touched: moment });
                }
            }
            _ => {}
        }
    }
}

/// A snapshot about which nothing is in doubt yet.
pub fn snapshot(truth: &Arc<Tree>, made_by: u64, hold: Hold, touched: u64) -> Snapshot {
    Snapshot {
        truth: Arc::clone(truth),
        made_by,
        hidden: Some(false),
        hold,
        doubts: BTreeSet::new(),
        covers: BTreeSet::new(),
        touched,
    }
}

/// What holds for every command.
pub fn general(running: &Running, finished: &Finished) -> Vec<String> {
    let mut complaints = Vec::new();
    if finished.errors.contains("panicked") {
        complaints.push(format!("it panicked: {}", finished.words()));
    }
    match (finished.code, finished.signal) {
        (Some(130), _) if !finished.disturbed => {
            complaints.push("nobody interrupted it, and it says that somebody did".to_owned());
        }
        (Some(code), _) if !CODES.contains(&code) => {
            complaints
                .push(format!("the exit code {code} is not documented: {}", finished.words()));
        }
        (None, signal) => {
            let sent = running.signals.iter().any(|one| Some(one.as_raw()) == signal);
            if !sent {
                complaints.push(format!("it was ended by {}, which nobody sent", finished.how()));
            }
        }
        _ => {}
    }
    let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    if !finished.disturbed
        && let Some(line) = finished.errors.lines().find(|line| !is_json(line))
    {
        complaints.push(format!("a line is not JSON: {line}"));
    }
    complaints
}

/// How a command failed, in its own words.
pub fn failed(finished: &Finished) -> String {
    format!("it ended with {}: {}", finished.how(), finished.words())
}

fn strings(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// The path of a line, as the tree has it.
fn path(line: &Value) -> String {
    line["path"].as_str().unwrap_or_default().trim_start_matches('/').to_owned()
}

/// Whether a list names the paths of a tree.
fn listed(truth: &Tree, lines: &[Value]) -> Option<String> {
    let found: BTreeSet<String> = lines.iter().map(path).collect();
    let wanted: BTreeSet<String> = truth.keys().cloned().collect();
    let mut wrong = found.symmetric_difference(&wanted).take(6).peekable();
    wrong.peek()?;
    Some(format!("the list is wrong about {}", wrong.cloned().collect::<Vec<_>>().join(", ")))
}

/// Whether a comparison tells what is added, removed and changed.
fn compared(one: &Seen, other: &Seen, finished: &Finished) -> Option<String> {
    let lines = finished.messages("change");
    let found: BTreeMap<String, String> = lines
        .iter()
        .map(|line| (path(line), line["modifier"].as_str().unwrap_or_default().to_owned()))
        .collect();
    let mut wanted = BTreeMap::new();
    for (path, entry) in &*one.truth {
        let letter = match (entry, other.truth.get(path)) {
            (_, None) => "-",
            (Entry::Directory, Some(Entry::Directory)) => continue,
            (Entry::File(one), Some(Entry::File(two))) if one.digest == two.digest => continue,
            (Entry::Link(one), Some(Entry::Link(two))) if one == two => continue,
            (Entry::File(_), Some(Entry::File(_))) | (Entry::Link(_), Some(Entry::Link(_))) => "M",
            _ => "T",
        };
        wanted.insert(path.clone(), letter.to_owned());
    }
    let added = other.truth.keys().filter(|path| !one.truth.contains_key(*path));
    wanted.extend(added.map(|path| (path.clone(), "+".to_owned())));
    let wrong = wanted.iter().find(|(path, letter)| found.get(*path) != Some(*letter));
    let extra = found.iter().find(|(path, _)| !wanted.contains_key(*path));
    wrong.or(extra).map(|(path, letter)| {
        format!("the comparison is wrong about {path}, {letter} (told: {:?})", found.get(path))
    })
}

/// Compares what was restored; with `kept`, other things may lie beside it.
fn restored(
    of: &Seen,
    mut found: Tree,
    finished: &Finished,
    kept: bool,
    judgement: &mut Judgement,
) {
    if kept {
        let count = found.len();
        found.retain(|path, _| of.truth.contains_key(path));
        judgement.unless(found.len() < count, || "what was kept is not there".to_owned());
        judgement.counts.push(("restores that kept something", 1));
    }
    if kept || finished.code == Some(0) {
        let told = truth::differences(&of.truth, &found);
        judgement.complaints.extend(told.map(|told| format!("restored, but {told}")));
        let bytes = found.values().map(|entry| match entry {
            Entry::File(content) => content.length,
            _ => 0,
        });
        judgement.counts.extend([("restores compared", 1), ("bytes compared", bytes.sum())]);
        return;
    }
    // Whatever stopped it: nothing may look complete that is not.
    for (path, entry) in &*of.truth {
        if let (Entry::File(wanted), Some(Entry::File(there))) = (entry, found.get(path)) {
            let looks_whole = wanted.length == there.length && wanted.modified == there.modified;
            let half = looks_whole && wanted.digest != there.digest;
            judgement.unless(!half, || format!("{path} looks complete and is not"));
        }
    }
    judgement.counts.push(("restores cut short", 1));
}

/// Nothing is deleted beside the sources, which lie side by side.
fn leave_out_what_is_beside(of: &Seen, found: &mut Tree) {
    let sources: BTreeSet<&str> = of.truth.keys().map(|path| source_of(path)).collect();
    found.retain(|path, _| sources.contains(source_of(path)));
}

/// The source that a path lies in, or the topmost directory of one that lies in none.
fn source_of(path: &str) -> &str {
    const SOURCES: &str = "/sources/";
    let before = path.find(SOURCES).map_or(0, |at| at + SOURCES.len());
    let end = path[before..].find('/').map_or(path.len(), |length| before + length);
    &path[..end]
}

/// Removes a directory, if it is there.
pub fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
