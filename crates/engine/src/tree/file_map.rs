//! Builds the tree of one file from its extents, in order.
//!
//! A file of one chunk is that chunk. Otherwise file maps of level 1 list chunks, maps of level 2
//! list those, and so on. A map ends where a child's fingerprint says so (one in 128 behind the
//! 64th child, so after 192 on average, and after 1024 at the latest). A change inside a large file
//! thus leaves the maps around it as they were, and they are stored once.

use super::NodeSink;
use onefold_format::node::{Extent, FileMap, Node, Reference};
use onefold_types::{Error, ErrorKind, Level, Result};

const CHILDREN_MIN: usize = 64;
const CHILDREN_MAX: usize = 1024;
const CUT_ONE_IN: u64 = 128;

/// The tree of one file while it is being read.
#[derive(Default)]
pub struct FileMapBuilder {
    levels: Vec<Vec<Extent>>,
    length: u64,
}

impl FileMapBuilder {
    /// Appends a chunk or a hole. Neighbouring holes become one.
    pub fn push(&mut self, extent: Extent, stream: &mut dyn NodeSink) -> Result<()> {
        if extent.length == 0 {
            return Ok(());
        }
        self.length = self.length.checked_add(extent.length).ok_or_else(too_long)?;
        if let Some(last) = self.levels.first_mut().and_then(|extents| extents.last_mut())
            && last.is_hole()
            && extent.is_hole()
        {
            last.length += extent.length;
            return Ok(());
        }
        self.push_at(0, extent, stream)
    }

    /// Bytes appended so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Closes all maps; `None` for an empty file.
    pub fn finish(mut self, stream: &mut dyn NodeSink) -> Result<Option<Reference>> {
        let mut level = 0;
        while level < self.levels.len() {
            let is_top = level + 1 == self.levels.len();
            if let [only] = self.levels[level].as_slice()
                && is_top
                && !only.is_hole()
            {
                let reference =
                    Reference { fingerprint: only.fingerprint, level: level_of(level)? };
                return Ok(Some(reference));
            }
            if !self.levels[level].is_empty() {
                self.close(level, stream)?;
            }
            level += 1;
        }
        Ok(None)
    }

    fn push_at(&mut self, level: usize, extent: Extent, stream: &mut dyn NodeSink) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        let extents = &mut self.levels[level];
        extents.push(extent);
        let count = extents.len();
        let cut = !extent.is_hole() && extent.fingerprint.prefix().is_multiple_of(CUT_ONE_IN);
        if count >= CHILDREN_MAX || (count >= CHILDREN_MIN && cut) {
            self.close(level, stream)?;
        }
        Ok(())
    }

    fn close(&mut self, level: usize, stream: &mut dyn NodeSink) -> Result<()> {
        let extents = std::mem::take(&mut self.levels[level]);
        let length = extents.iter().map(|extent| extent.length).sum();
        let node = Node::FileMap(FileMap { child_level: level_of(level)?, extents });
        let fingerprint = stream.put_tree_node(level_of(level + 1)?, &node)?;
        self.push_at(level + 1, Extent { fingerprint, length }, stream)
    }
}

fn level_of(level: usize) -> Result<Level> {
    u16::try_from(level).map(Level).map_err(|_| too_long())
}

fn too_long() -> Error {
    Error::new(ErrorKind::LimitExceeded, "the file is longer than any file can be")
}
