//! Walks every snapshot's tree, each distinct node once, and tells which subtrees are whole.
//!
//! Depth first, with a stack of its own, so that no tree can exhaust the thread's. What is known of
//! a finished node (`Facts`) is kept under 128 bits of its name, as far as memory allows; beyond
//! that, nodes met again are walked again. Verified on the way: every reference resolves, a node's
//! level is one more than its highest child's and what its container says, a file's size is the sum
//! of its extents and each extent's length that of its chunk, and a directory's totals are right.

use super::LINES_MAX;
use super::resolver::{Found, FoundNode, Resolver, lost};
use crate::job::Job;
use onefold_format::node::{Entry, EntryKind, Node, Reference, Totals};
use onefold_types::{ContainerId, Error, ErrorKind, Level, Result, bug};
use std::collections::{BTreeSet, HashMap};

/// Reasons kept for broken nodes; beyond that a common sentence stands in.
const REASONS_MAX: usize = 10_000;

/// What is known of a finished subtree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Facts {
    kind: Kind,
    /// Entries below, for directories; bytes below, for directories and files.
    totals: Totals,
    /// Whether everything below can be restored.
    is_whole: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    File,
    Leaf,
    Directory,
    Unreadable,
}

/// A child as its parent describes it.
#[derive(Clone, Copy)]
struct Child {
    reference: Reference,
    expected: Expected,
}

#[derive(Clone, Copy)]
enum Expected {
    /// A directory with these totals, if they are known.
    Directory(Option<Totals>),
    /// A leaf of a large directory.
    Leaf(Totals),
    /// That many bytes of a file.
    Bytes(u64),
}

struct Frame {
    child: Child,
    facts: Facts,
    children: std::vec::IntoIter<Child>,
}

impl Frame {
    fn childless(child: Child, is_whole: bool) -> Self {
        Self {
            child,
            facts: Facts { kind: Kind::Unreadable, totals: Totals::default(), is_whole },
            children: Vec::new().into_iter(),
        }
    }
}

/// What became of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// It can be restored.
    Whole,
    /// It cannot: what is wrong with it.
    Broken(String),
    /// It is a directory, and something below it is broken.
    BrokenBelow,
}

/// The walk over all trees of a store.
pub struct Trees<'a> {
    /// Finds chunks.
    pub resolver: Resolver,
    /// How to stop, and who watches.
    pub job: &'a Job,
    /// Problems that concern no path.
    pub problems: Vec<String>,
    /// Damaged or missing containers that snapshots need something of.
    pub needed: BTreeSet<ContainerId>,
    /// Whether something is missing of which nothing tells where it was.
    pub unlocated: bool,
    known: HashMap<u128, Facts>,
    known_max: usize,
    reasons: HashMap<u128, String>,
    has_warned: bool,
}

impl<'a> Trees<'a> {
    /// A walk that starts with no knowledge.
    pub fn new(resolver: Resolver, known_max: usize, job: &'a Job) -> Self {
        Self {
            resolver,
            job,
            problems: Vec::new(),
            needed: BTreeSet::new(),
            unlocated: false,
            known: HashMap::new(),
            known_max,
            reasons: HashMap::new(),
            has_warned: false,
        }
    }

    /// Whether everything below a root can be restored.
    pub fn is_whole(&mut self, root: Reference) -> Result<bool> {
        let child = Child { reference: root, expected: Expected::Directory(None) };
        Ok(self.state_of(child)? == State::Whole)
    }

    /// What became of an entry's content.
    pub fn entry_state(&mut self, entry: &Entry) -> Result<State> {
        match child_of(entry) {
            Ok(Some(child)) => self.state_of(child),
            Ok(None) => Ok(State::Whole),
            Err(problem) => Ok(State::Broken(problem.to_owned())),
        }
    }

    /// What is wrong with a node itself, if the walk has met something.
    pub fn reason(&self, node: Reference) -> Option<&str> {
        let reason = self.reasons.get(&node.fingerprint.half());
        reason.map(String::as_str)
    }

    /// Whether a reference leads to recorded chunk locations.
    pub fn is_placement(&mut self, reference: Reference) -> Result<bool> {
        let node = self.resolver.node(reference)?;
        Ok(matches!(node, FoundNode::Node(Node::PlacementMap(_), _) | FoundNode::Unknown))
    }

    fn state_of(&mut self, child: Child) -> Result<State> {
        if child.reference.level == Level::DATA {
            let problem = self.data_problem(&child)?;
            return Ok(problem.map_or(State::Whole, State::Broken));
        }
        let facts = self.facts(child)?;
        Ok(match mismatch(&facts, child.expected) {
            Some(problem) => State::Broken(problem.to_owned()),
            None if facts.is_whole => State::Whole,
            None => match child.expected {
                Expected::Bytes(_) => State::Broken(
                    self.reason(child.reference)
                        .unwrap_or("a part of it cannot be read")
                        .to_owned(),
                ),
                _ => State::BrokenBelow,
            },
        })
    }

    /// Walks a subtree.
    fn facts(&mut self, top: Child) -> Result<Facts> {
        if let Some(facts) = self.known.get(&top.reference.fingerprint.half()) {
            return Ok(*facts);
        }
        let mut stack = vec![self.open(top)?];
        loop {
            let Some(frame) = stack.last_mut() else {
                return Err(Error::invalid("a walk without a top"));
            };
            if let Some(child) = frame.children.next() {
                if child.reference.level == Level::DATA {
                    let node = frame.child.reference;
                    let is_file = frame.facts.kind == Kind::File;
                    if let Some(problem) = self.data_problem(&child)? {
                        if let Some(frame) = stack.last_mut() {
                            frame.facts.is_whole = false;
                        }
                        self.set_reason(node, is_file.then_some(problem));
                    }
                } else if let Some(facts) = self.known.get(&child.reference.fingerprint.half()) {
                    let facts = *facts;
                    self.absorb(frame, child, facts);
                } else {
                    self.job.interrupt.check()?;
                    let frame = self.open(child)?;
                    stack.push(frame);
                }
                continue;
            }
            let Some(Frame { child, facts, .. }) = stack.pop() else {
                return Err(bug!("a walk ends twice"));
            };
            if self.known.len() < self.known_max {
                let key = child.reference.fingerprint.half();
                self.known.insert(key, facts);
            }
            match stack.last_mut() {
                Some(above) => self.absorb(above, child, facts),
                None => return Ok(facts),
            }
        }
    }

    /// Adds a finished child to the frame above it.
    fn absorb(&mut self, frame: &mut Frame, child: Child, facts: Facts) {
        let problem = match mismatch(&facts, child.expected) {
            Some(problem) => Some(problem.to_owned()),
            None if facts.is_whole => return,
            None => None,
        };
        frame.facts.is_whole = false;
        // A file has the reason of its first bad part; a large directory that of a leaf which is
        // not as it says. Everything else is told by the path of an entry.
        let reason = match frame.facts.kind {
            Kind::File => problem.or_else(|| self.reason(child.reference).map(str::to_owned)),
            Kind::Directory => problem,
            _ => None,
        };
        self.set_reason(frame.child.reference, reason);
    }

    fn set_reason(&mut self, node: Reference, reason: Option<String>) {
        if let Some(reason) = reason
            && self.reasons.len() < REASONS_MAX
        {
            let key = node.fingerprint.half();
            self.reasons.entry(key).or_insert(reason);
        }
    }

    /// Reads a node and lists its children.
    fn open(&mut self, child: Child) -> Result<Frame> {
        let node = match self.resolver.node(child.reference)? {
            FoundNode::Node(node, container) => {
                self.needed.extend(container);
                node
            }
            FoundNode::Lost(problem, held_by) => {
                self.unlocated |= held_by.is_empty();
                self.needed.extend(held_by);
                return Ok(self.unreadable(child, problem));
            }
            FoundNode::Wrong(problem) => return Ok(self.unreadable(child, problem)),
            FoundNode::Unknown => {
                self.warn_blind();
                return Ok(Frame::childless(child, true));
            }
        };
        self.check_stored_level(child.reference)?;
        let (facts, children) = match describe(node)? {
            Some(described) => described,
            None => {
                let problem = "a list of locations stands where content should be";
                return Ok(self.unreadable(child, problem.to_owned()));
            }
        };
        Ok(Frame { child, facts, children: children.into_iter() })
    }

    /// A frame for a node that cannot be walked.
    fn unreadable(&mut self, child: Child, problem: String) -> Frame {
        self.set_reason(child.reference, Some(problem));
        Frame::childless(child, false)
    }

    /// Collection scans nodes by the level that their container states.
    fn check_stored_level(&mut self, reference: Reference) -> Result<()> {
        if let Found::Sound(location) = self.resolver.find(&reference.fingerprint)? {
            let stored = location.descriptor().level;
            if stored != reference.level && self.problems.len() < LINES_MAX {
                self.problems.push(format!(
                    "container {} states level {stored} for node {}, which is of level {}",
                    location.container, reference.fingerprint, reference.level
                ));
            }
        }
        Ok(())
    }

    fn data_problem(&mut self, child: &Child) -> Result<Option<String>> {
        let Expected::Bytes(length) = child.expected else {
            return Ok(Some("file data stands where a directory should be".to_owned()));
        };
        let location = match self.resolver.find(&child.reference.fingerprint)? {
            Found::Sound(location) => location,
            Found::Rescuable(location) => {
                self.needed.insert(location.container);
                location
            }
            Found::Lost(held_by) => {
                self.unlocated |= held_by.is_empty();
                self.needed.extend(held_by);
                return Ok(Some(lost(&child.reference.fingerprint)));
            }
            Found::Unknown => {
                self.warn_blind();
                return Ok(None);
            }
        };
        let chunk = location.descriptor();
        if chunk.level != Level::DATA || u64::from(chunk.length) != length {
            return Ok(Some(format!(
                "chunk {} has {} bytes at level {}, {length} bytes of data were expected",
                chunk.fingerprint, chunk.length, chunk.level
            )));
        }
        Ok(None)
    }

    fn warn_blind(&mut self) {
        if !self.has_warned {
            self.has_warned = true;
            self.problems.push(
                "too much of the index is missing to tell whether every chunk is there; run \
                 'onefold check --repair-index' and check again"
                    .to_owned(),
            );
        }
    }
}

/// What an entry says about its content; an error if that is impossible.
fn child_of(entry: &Entry) -> Result<Option<Child>, &'static str> {
    match (entry.kind, entry.content) {
        (EntryKind::File, Some(reference)) => {
            Ok(Some(Child { reference, expected: Expected::Bytes(entry.size) }))
        }
        (EntryKind::File, None) if entry.size > 0 => Err("the file has bytes but no content"),
        (EntryKind::Directory, Some(reference)) => {
            Ok(Some(Child { reference, expected: Expected::Directory(Some(entry.totals)) }))
        }
        (EntryKind::Directory, None) => Err("the directory has no content"),
        (_, Some(_)) => Err("it has content and can have none"),
        (_, None) => Ok(None),
    }
}

/// How a finished subtree differs from what its parent says about it.
fn mismatch(facts: &Facts, expected: Expected) -> Option<&'static str> {
    match (expected, facts.kind) {
        (_, Kind::Unreadable) => None,
        (Expected::Bytes(bytes), Kind::File) => {
            (facts.totals.bytes != bytes).then_some("its size is not the sum of its parts")
        }
        (Expected::Bytes(_), _) => Some("a directory stands where file content should be"),
        (Expected::Directory(_) | Expected::Leaf(_), Kind::File) => {
            Some("file content stands where a directory should be")
        }
        (Expected::Leaf(_), Kind::Directory) => Some("a part of the directory is no leaf"),
        (Expected::Leaf(totals) | Expected::Directory(Some(totals)), _) => {
            (facts.totals != totals).then_some("its totals are not the sums over its entries")
        }
        (Expected::Directory(None), _) => None,
    }
}

/// What a node says about its children; `None` for a node that is no content.
fn describe(node: Node) -> Result<Option<(Facts, Vec<Child>)>> {
    let mut facts = Facts { kind: Kind::File, totals: Totals::default(), is_whole: true };
    let mut children = Vec::new();
    match node {
        Node::FileMap(map) => {
            facts.totals.bytes = map.extents.iter().map(|extent| extent.length).sum();
            let extents = map.extents.iter().filter(|extent| !extent.is_hole());
            children.extend(extents.map(|extent| Child {
                reference: Reference { fingerprint: extent.fingerprint, level: map.child_level },
                expected: Expected::Bytes(extent.length),
            }));
        }
        Node::DirectoryLeaf(leaf) => {
            facts.kind = Kind::Leaf;
            for entry in &leaf.entries {
                facts.totals.add(entry);
                match child_of(entry) {
                    Ok(child) => children.extend(child),
                    Err(_) => facts.is_whole = false,
                }
            }
        }
        Node::DirectoryMap(map) => {
            facts.kind = Kind::Directory;
            for part in &map.parts {
                let totals = &mut facts.totals;
                totals.add_totals(&part.totals);
                children
                    .push(Child { reference: part.leaf, expected: Expected::Leaf(part.totals) });
            }
        }
        Node::Transform(_) => {
            return Err(Error::new(
                ErrorKind::NewerFormat,
                "the store holds transformed content; use a newer onefold",
            ));
        }
        Node::PlacementPage(_) | Node::PlacementMap(_) | Node::ContainerUses(_) => {
            return Ok(None);
        }
    }
    Ok(Some((facts, children)))
}
