//! A damaged tree, walked beside the tree of its copy: into those directories only of which
//! something is missing.
//!
//! What can be read of a directory says what each entry should be, so that the entries are healed
//! one by one; where a part of the directory itself is lost it is built anew afterwards, when it is
//! left. Without a copy, or where the copy has no such entry, what can still be read out of damaged
//! containers is stored again all the same.
//!
//! Memory: one leaf of each open directory of both trees.

use super::rebuilding::Top;
use super::{Healer, is_passed_over};
use crate::tree::directory_cursor::check_depth;
use crate::tree::path;
use crate::tree::tree_reader::DirectoryCursor as Finder;
use onefold_format::node::{Entry, EntryKind, Node, Reference};
use onefold_types::{Error, Result};

/// A directory on the way.
struct Open {
    path: Vec<u8>,
    reference: Reference,
    leaves: std::vec::IntoIter<Reference>,
    entries: std::vec::IntoIter<Entry>,
    /// The copy's directory.
    copy: Option<(Reference, Finder)>,
    /// A part of its own is lost.
    is_lost: bool,
    /// All below that was looked at is there.
    is_whole: bool,
    /// Why the copy is of no use.
    reason: Option<Error>,
}

impl Healer<'_> {
    /// Heals what is below a root.
    pub(super) fn directory(&mut self, root: Reference, copy: Option<Reference>) -> Result<()> {
        let mut stack = vec![self.open(b"/".to_vec(), root, copy)?];
        while let Some(open) = stack.last_mut() {
            self.job.interrupt.check()?;
            if let Some(entry) = open.entries.next() {
                let at = path::join(&open.path, &entry.name);
                let Some(content) = entry.content else { continue };
                if self.is_whole(content)? {
                    continue;
                }
                let beside = self.beside(open, &entry)?;
                if entry.kind == EntryKind::Directory {
                    check_depth(stack.len(), &at)?;
                    let opened = self.open(at, content, beside.and_then(|it| it.content))?;
                    stack.push(opened);
                } else {
                    open.is_whole &= self.file(&at, &entry, beside.as_ref())?;
                }
            } else if let Some(leaf) = open.leaves.next() {
                match self.own_node(leaf)? {
                    Some(Node::DirectoryLeaf(leaf)) => open.entries = leaf.entries.into_iter(),
                    _ => open.is_lost = true,
                }
            } else if let Some(open) = stack.pop() {
                let is_whole = self.leave(open)?;
                stack.iter_mut().last().into_iter().for_each(|above| above.is_whole &= is_whole);
            }
        }
        Ok(())
    }

    fn open(&mut self, at: Vec<u8>, own: Reference, copy: Option<Reference>) -> Result<Open> {
        let mut open = Open {
            path: at,
            reference: own,
            leaves: Vec::new().into_iter(),
            entries: Vec::new().into_iter(),
            copy: None,
            is_lost: false,
            is_whole: true,
            reason: None,
        };
        match self.own_node(own)? {
            Some(Node::DirectoryLeaf(leaf)) => open.entries = leaf.entries.into_iter(),
            Some(Node::DirectoryMap(map)) => {
                let leaves: Vec<Reference> = map.parts.into_iter().map(|part| part.leaf).collect();
                open.leaves = leaves.into_iter();
            }
            _ => open.is_lost = true,
        }
        match copy.map(|copy| Ok((copy, self.copy.cursor(copy, 0)?))).transpose() {
            Ok(copy) => open.copy = copy,
            Err(error) if is_passed_over(&error) => open.reason = Some(error),
            Err(error) => return Err(error),
        }
        Ok(open)
    }

    /// The copy's entry of the same name and kind.
    fn beside(&self, open: &mut Open, entry: &Entry) -> Result<Option<Entry>> {
        let Some((_, finder)) = &mut open.copy else { return Ok(None) };
        match self.copy.find(finder, &entry.name) {
            Ok(found) => Ok(found.map(|(found, _)| found).filter(|it| it.kind == entry.kind)),
            Err(error) if is_passed_over(&error) => {
                open.reason.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Builds what is lost of a directory; whether it is whole then, with all below it.
    fn leave(&mut self, open: Open) -> Result<bool> {
        let Open { path, reference, copy, is_lost, mut is_whole, mut reason, .. } = open;
        if is_lost {
            let built = match copy {
                Some((copy, _)) => self.rebuild_directory(&path, Top { own: reference, copy })?,
                None => Err(None),
            };
            let is_built = built.is_ok();
            if let Err(why) = built {
                (is_whole, reason) = (false, reason.or(why));
            }
            self.settle(&path, is_built, reason.as_ref());
        } else if let Some(reason) = reason.filter(|_| !is_whole) {
            self.job.observer.problem(&path::display(&path), &reason);
        }
        if is_whole {
            self.presence.note_whole(reference);
        }
        Ok(is_whole)
    }
}
