//! Walks the extents of one file, pulled one by one.
//!
//! A pull-style walk lets its caller do other work with the same reader between two extents: the
//! planner locates chunks and runs full windows in the middle of a large file.
//!
//! Invariants: levels fall at every step down (checked by [`TreeReader::node`]); the lengths of a
//! map's extents add up to what its parent says; extents come in order and cover the file exactly.
//! A walk that starts later in the file passes over maps that end before, unread.

use super::TreeReader;
use onefold_format::node::{Extent, Reference};
use onefold_types::{Error, Level, Result};

/// A walk over the chunks and holes of one file.
pub struct ExtentWalk {
    open: Vec<OpenMap>,
    root: Option<(Extent, Level)>,
    position: u64,
    from: u64,
}

struct OpenMap {
    extents: std::vec::IntoIter<Extent>,
    child_level: Level,
    end: u64,
}

impl ExtentWalk {
    /// A walk over a file of `size` bytes.
    pub fn new(content: Option<Reference>, size: u64) -> Result<Self> {
        if content.is_none() && size > 0 {
            return Err(Error::damaged(
                "the entry has a size, but no content; it cannot be restored",
            ));
        }
        let root = content.map(|reference| {
            let extent = Extent { fingerprint: reference.fingerprint, length: size };
            (extent, reference.level)
        });
        Ok(Self { open: Vec::new(), root, position: 0, from: 0 })
    }

    /// The same walk, but without extents that end at or before `offset`.
    #[must_use]
    pub fn starting_at(mut self, offset: u64) -> Self {
        self.from = offset;
        self
    }

    /// The next extent and its offset in the file.
    pub fn next(&mut self, reader: &TreeReader) -> Result<Option<(u64, Extent)>> {
        if let Some((extent, level)) = self.root.take()
            && let Some(found) = self.visit(extent, level, reader)?
        {
            return Ok(Some(found));
        }
        while let Some(map) = self.open.last_mut() {
            let child_level = map.child_level;
            let Some(extent) = map.extents.next() else {
                if map.end != self.position {
                    return Err(Error::damaged(
                        "a part of the file's tree has another length than its parent says",
                    ));
                }
                self.open.pop();
                continue;
            };
            if let Some(found) = self.visit(extent, child_level, reader)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn visit(
        &mut self,
        extent: Extent,
        level: Level,
        reader: &TreeReader,
    ) -> Result<Option<(u64, Extent)>> {
        let start = self.position;
        let end = start
            .checked_add(extent.length)
            .ok_or_else(|| Error::damaged("the file is longer than any file can be"))?;
        if end <= self.from {
            self.position = end;
            return Ok(None);
        }
        if extent.is_hole() || level == Level::DATA {
            self.position = end;
            return Ok(Some((start, extent)));
        }
        let map = reader.file_map(Reference { fingerprint: extent.fingerprint, level })?;
        self.open.push(OpenMap {
            extents: map.extents.into_iter(),
            child_level: map.child_level,
            end,
        });
        Ok(None)
    }
}
