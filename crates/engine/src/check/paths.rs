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

/// Reports every damaged path below `root`.
pub fn report(
    trees: &mut Trees<'_>,
    snapshot: SessionId,
    root: Reference,
    report: &mut CheckReport,
) -> Result<()> {
    let mut add = |at: &[u8], problem: String| {
        if report.damaged_paths.len() >= LINES_MAX {
            report.damaged_paths_more += 1;
            return;
        }
        let path = match at {
            [] => "/".to_owned(),
            _ => path::display(at),
        };
        report.damaged_paths.push(DamagedPath { snapshot, path, problem });
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
    Ok(())
}
