//! Which subtrees are whole: each node and each chunk below is in a container that may be relied
//! upon (rule W5), and each node can be read.
//!
//! A walk ends with the first thing that is missing; what it has finished is remembered, so that
//! all walks together look at each node once, as long as the memo has room.
//!
//! Memory: the memo, of a bounded number of nodes; one node of each level of the tree.

use super::is_passed_over;
use crate::chunk_store::ChunkStore;
use crate::job::Job;
use crate::tree::TreeReader;
use onefold_format::node::Reference;
use onefold_types::{Level, Result};
use std::collections::HashMap;

/// What is known of nodes.
pub struct Presence {
    /// By 128 bits of their names.
    known: HashMap<u128, bool>,
    known_max: usize,
}

struct Frame {
    reference: Reference,
    children: std::vec::IntoIter<Reference>,
}

impl Presence {
    /// Nothing is known yet; of so many nodes at most something will be.
    pub fn new(known_max: usize) -> Self {
        Self { known: HashMap::new(), known_max }
    }

    /// Everything below a node is there now.
    pub fn note_whole(&mut self, reference: Reference) {
        self.note(reference, true);
    }

    fn note(&mut self, reference: Reference, is_whole: bool) {
        let key = reference.fingerprint.half();
        if self.known.len() < self.known_max || self.known.contains_key(&key) {
            self.known.insert(key, is_whole);
        }
    }

    /// Whether a chunk, and all below it if it is a node, is there.
    pub fn is_whole(
        &mut self,
        store: &ChunkStore,
        reader: &TreeReader,
        job: &Job,
        top: Reference,
    ) -> Result<bool> {
        let mut stack: Vec<Frame> = Vec::new();
        let mut next = Some(top);
        loop {
            if let Some(reference) = next.take()
                && !self.enter(store, reader, reference, &mut stack)?
            {
                // Whatever lies above it is not whole either.
                stack.iter().for_each(|frame| self.note(frame.reference, false));
                return Ok(false);
            }
            job.interrupt.check()?;
            let Some(frame) = stack.last_mut() else { return Ok(true) };
            next = frame.children.next();
            if next.is_none()
                && let Some(done) = stack.pop()
            {
                self.note(done.reference, true);
            }
        }
    }

    /// Looks at one chunk; `false` if it is missing. A node whose children are not known to be
    /// there goes onto the stack.
    fn enter(
        &mut self,
        store: &ChunkStore,
        reader: &TreeReader,
        reference: Reference,
        stack: &mut Vec<Frame>,
    ) -> Result<bool> {
        if reference.level == Level::DATA {
            return store.is_present(&reference.fingerprint);
        }
        if let Some(is_whole) = self.known.get(&reference.fingerprint.half()) {
            return Ok(*is_whole);
        }
        let node = match store.is_present(&reference.fingerprint)? {
            true => reader.node(reference),
            false => {
                self.note(reference, false);
                return Ok(false);
            }
        };
        match node {
            Ok(node) => {
                let mut children = Vec::new();
                node.references(&mut |child| children.push(child));
                stack.push(Frame { reference, children: children.into_iter() });
                Ok(true)
            }
            Err(error) if is_passed_over(&error) => {
                self.note(reference, false);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
