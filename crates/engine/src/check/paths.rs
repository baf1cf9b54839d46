//! Damage in terms of a snapshot: every path that cannot be restored whole.
//!
//! Walks down from the root into those subtrees only that the first walk found not whole; with the
//! facts still known, this costs no more than the directories on the way.

use super::resolver::FoundNode;
use super::trees::{State, Trees};
use super::{CheckReport, DamagedPath, LINES_MAX};
use crate::tree::path;
use onefold_format::node::{Entry, EntryKind, Node, Reference};
use onefold_types::{Result, SessionId, limits};

/// Something on the way down.
enum Step {
    /// A directory's node, or a leaf of it.
    Node(Reference),
    /// The entries of a leaf.
    Entries(std::vec::IntoIter<Entry>),
}

struct Level {
    path: Vec<u8>,
    steps: Vec<Step>,
}

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
        self.paths += paths;
        self.of_snapshots.push(lines);
        let share = (LINES_MAX / self.of_snapshots.len()).max(1);
        self.of_snapshots.iter_mut().for_each(|lines| lines.truncate(share));
    }

    /// Hands them over.
    pub fn finish(self, report: &mut CheckReport) {
        report.damaged_paths = self.of_snapshots.into_iter().flatten().collect();
        report.damaged_paths_more = self.paths - report.damaged_paths.len() as u64;
    }
}

/// Reports every damaged path below `root`; returns how many there are.
pub fn report(
    trees: &mut Trees<'_>,
    snapshot: SessionId,
    root: Reference,
    lines: &mut Lines,
) -> Result<u64> {
    let mut listed = Vec::new();
    let mut paths = 0;
    let mut add = |at: &[u8], problem: String| {
        paths += 1;
        if listed.len() >= LINES_MAX {
            return;
        }
        let path = match at {
            [] => "/".to_owned(),
            _ => path::display(at),
        };
        listed.push(DamagedPath { snapshot, path, problem });
    };
    let mut stack = vec![Level { path: Vec::new(), steps: vec![Step::Node(root)] }];
    while let Some(level) = stack.last_mut() {
        let Some(step) = level.steps.pop() else {
            stack.pop();
            continue;
        };
        match step {
            Step::Node(reference) => match trees.resolver.node(reference)? {
                FoundNode::Node(Node::DirectoryLeaf(leaf), _) => {
                    level.steps.push(Step::Entries(leaf.entries.into_iter()));
                }
                FoundNode::Node(Node::DirectoryMap(map), _) => {
                    if let Some(reason) = trees.reason(reference) {
                        add(&level.path, reason.to_owned());
                    }
                    let leaves = map.parts.iter().rev();
                    level.steps.extend(leaves.map(|part| Step::Node(part.leaf)));
                }
                FoundNode::Node(..) => add(&level.path, "it is no directory".to_owned()),
                FoundNode::Lost(problem, _) | FoundNode::Wrong(problem) => {
                    add(&level.path, problem);
                }
                FoundNode::Unknown => {}
            },
            Step::Entries(mut entries) => {
                let Some(entry) = entries.next() else {
                    continue;
                };
                level.steps.push(Step::Entries(entries));
                let at = path::join(&level.path, &entry.name);
                match trees.entry_state(&entry)? {
                    State::Whole => continue,
                    State::Broken(problem) => add(&at, problem),
                    State::BrokenBelow => {}
                }
                let directory = entry.content.filter(|_| entry.kind == EntryKind::Directory);
                let Some(directory) = directory else {
                    continue;
                };
                if stack.len() > limits::DEPTH_MAX {
                    add(&at, "it lies too deep to look below".to_owned());
                    continue;
                }
                stack.push(Level { path: at, steps: vec![Step::Node(directory)] });
            }
        }
    }
    lines.add(listed, paths);
    Ok(paths)
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
