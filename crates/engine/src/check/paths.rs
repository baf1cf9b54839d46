//! Damage in terms of a snapshot: every path that cannot be restored whole.
//!
//! Walks down from the root into those subtrees only that the first walk found not whole; with the
//! facts still known, this costs no more than the directories on the way. A report lists so many
//! paths and no more, so the walk ends with the last line; how many there are is counted by
//! distinct directory, since equal ones may stand in any number of places. The work is thus bounded
//! by what is stored, however the directories refer to each other, and it can be interrupted.

use super::resolver::FoundNode;
use super::trees::{State, Trees};
use super::{CheckReport, DamagedPath, LINES_MAX};
use crate::tree::path;
use onefold_format::node::{Entry, EntryKind, Node, Reference};
use onefold_types::{Result, SessionId, limits};
use std::collections::HashMap;

/// Something on the way down.
enum Step {
    /// A directory's node, or a leaf of it.
    Node(Reference),
    /// The entries of a leaf.
    Entries(std::vec::IntoIter<Entry>),
}

/// What the next step of a directory shows.
enum Found {
    /// Nothing, so far.
    Nothing,
    /// Something is wrong with the directory itself.
    Here(String),
    /// An entry: what is wrong with it, if anything is, and its directory if that is not whole.
    Entry(Box<Entry>, Option<String>, Option<Reference>),
}

/// A directory on the way: its steps, what it is reached by, and damaged paths counted so far.
struct Level {
    path: Vec<u8>,
    steps: Vec<Step>,
    key: u128,
    damaged: u64,
}

impl Level {
    fn new(path: Vec<u8>, directory: Reference) -> Self {
        let key = directory.fingerprint.half();
        Self { path, steps: vec![Step::Node(directory)], key, damaged: 0 }
    }

    /// Takes a step; `None` after the last one.
    fn step(&mut self, trees: &mut Trees<'_>) -> Result<Option<Found>> {
        let Some(step) = self.steps.pop() else { return Ok(None) };
        Ok(Some(match step {
            Step::Node(reference) => match trees.resolver.node(reference)? {
                FoundNode::Node(Node::DirectoryLeaf(leaf), _) => {
                    self.steps.push(Step::Entries(leaf.entries.into_iter()));
                    Found::Nothing
                }
                FoundNode::Node(Node::DirectoryMap(map), _) => {
                    let leaves = map.parts.iter().rev();
                    self.steps.extend(leaves.map(|part| Step::Node(part.leaf)));
                    let reason = trees.reason(reference).map(ToOwned::to_owned);
                    reason.map_or(Found::Nothing, Found::Here)
                }
                FoundNode::Node(..) => Found::Here("it is no directory".to_owned()),
                FoundNode::Lost(problem, _) | FoundNode::Wrong(problem) => Found::Here(problem),
                FoundNode::Unknown => Found::Nothing,
            },
            Step::Entries(mut entries) => {
                let Some(entry) = entries.next() else { return Ok(Some(Found::Nothing)) };
                self.steps.push(Step::Entries(entries));
                let problem = match trees.entry_state(&entry)? {
                    State::Whole => return Ok(Some(Found::Nothing)),
                    State::Broken(problem) => Some(problem),
                    State::BrokenBelow => None,
                };
                let below = entry.content.filter(|_| entry.kind == EntryKind::Directory);
                Found::Entry(Box::new(entry), problem, below)
            }
        }))
    }
}

/// Reports every damaged path below `root`: the first ones by name, the others by number.
/// Lines about damaged paths, shared fairly among the snapshots that have any: much damage of one
/// snapshot does not hide that of another.
#[derive(Default)]
pub struct Lines {
    of_snapshots: Vec<Vec<DamagedPath>>,
    paths: u64,
}

impl Lines {
    /// Takes those of one more snapshot; all of them together stay few.
    fn add(&mut self, lines: Vec<DamagedPath>, paths: u64) {
        self.paths = self.paths.saturating_add(paths);
        self.of_snapshots.push(lines);
        let share = (LINES_MAX / self.of_snapshots.len()).max(1);
        self.of_snapshots.iter_mut().for_each(|lines| lines.truncate(share));
    }

    /// Hands them over.
    pub fn finish(self, report: &mut CheckReport) {
        report.damaged_paths = self.of_snapshots.into_iter().flatten().collect();
        let listed = report.damaged_paths.len() as u64;
        report.damaged_paths_more = self.paths.saturating_sub(listed);
    }
}

/// Reports every damaged path below `root`: the first ones by name, all by number.
pub fn report(
    trees: &mut Trees<'_>,
    snapshot: SessionId,
    root: Reference,
    lines: &mut Lines,
) -> Result<u64> {
    let paths = count(trees, root)?;
    let mut listed = Vec::new();
    let mut add = |at: &[u8], problem: String| {
        let path = match at {
            [] => "/".to_owned(),
            _ => path::display(at),
        };
        listed.push(DamagedPath { snapshot, path, problem });
        listed.len() < LINES_MAX
    };
    let mut has_room = true;
    let mut stack = vec![Level::new(Vec::new(), root)];
    while has_room && let Some(level) = stack.last_mut() {
        trees.job.interrupt.check()?;
        match level.step(trees)? {
            None => drop(stack.pop()),
            Some(Found::Nothing) => {}
            Some(Found::Here(problem)) => has_room = add(&level.path, problem),
            Some(Found::Entry(entry, problem, below)) => {
                let at = path::join(&level.path, &entry.name);
                if let Some(problem) = problem {
                    has_room = add(&at, problem);
                }
                match below {
                    Some(_) if stack.len() > limits::DEPTH_MAX => {
                        has_room = has_room && add(&at, TOO_DEEP.to_owned());
                    }
                    Some(directory) => stack.push(Level::new(at, directory)),
                    None => {}
                }
            }
        }
    }
    lines.add(listed, paths);
    Ok(paths)
}

const TOO_DEEP: &str = "it lies too deep to look below";

/// How many damaged paths there are below a directory, itself included; each distinct directory is
/// looked at once.
fn count(trees: &mut Trees<'_>, root: Reference) -> Result<u64> {
    let mut known: HashMap<u128, u64> = HashMap::new();
    let mut stack = vec![Level::new(Vec::new(), root)];
    let mut total = 0;
    while let Some(level) = stack.last_mut() {
        trees.job.interrupt.check()?;
        match level.step(trees)? {
            None => {
                known.insert(level.key, level.damaged);
                total = level.damaged;
                stack.pop();
                if let Some(above) = stack.last_mut() {
                    above.damaged = above.damaged.saturating_add(total);
                }
            }
            Some(Found::Nothing) => {}
            Some(Found::Here(_)) => level.damaged = level.damaged.saturating_add(1),
            Some(Found::Entry(_, problem, below)) => {
                let mut here = u64::from(problem.is_some());
                let known = below.and_then(|below| known.get(&below.fingerprint.half()));
                here = here.saturating_add(known.copied().unwrap_or(0));
                let next = below.filter(|_| known.is_none());
                let is_too_deep = next.is_some() && stack.len() > limits::DEPTH_MAX;
                here = here.saturating_add(u64::from(is_too_deep));
                if let Some(level) = stack.last_mut() {
                    level.damaged = level.damaged.saturating_add(here);
                }
                stack.extend(next.filter(|_| !is_too_deep).map(|it| Level::new(Vec::new(), it)));
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r87_much_damage_of_one_snapshot_hides_none_of_another() {
        let lines_of = |number: u8, count: usize| {
            let snapshot = SessionId([number; 16]);
            let line = DamagedPath { snapshot, path: "/x".to_owned(), problem: String::new() };
            vec![line; count]
        };
        let mut lines = Lines::default();
        lines.add(lines_of(1, LINES_MAX), 70_000);
        lines.add(lines_of(2, 3), 3);
        lines.add(lines_of(3, LINES_MAX), 1500);
        let mut report = CheckReport::default();
        lines.finish(&mut report);
        let listed = |number: u8| {
            let of = |it: &&DamagedPath| it.snapshot == SessionId([number; 16]);
            report.damaged_paths.iter().filter(of).count()
        };
        assert_eq!((listed(1), listed(2), listed(3)), (LINES_MAX / 3, 3, LINES_MAX / 3));
        assert_eq!(report.damaged_paths.len() as u64 + report.damaged_paths_more, 71_503);
    }
}
