//! Files and directories whose own nodes are lost: built anew out of the copy, as copying into this
//! store builds them ([`crate::copy`]).
//!
//! What hangs below a lost node has no name before the node is built again. So it is stored as it
//! comes, unless it is there, and the name of what was built tells whether it is what was lost.
//! Nodes are built out of entries and chunks alone, so the same content gives the same name, if the
//! file was cut as this store cuts now.
//!
//! Memory: as for a copy.

use super::{Healer, is_passed_over};
use crate::chunk_store::ChunkBatch;
use crate::copy::assemble::Assembler;
use crate::copy::cutting::{Cut, Cutter, Part};
use crate::copy::walk::{Pair, Walk};
use crate::restore::sequence::{Sequence, SequenceOptions};
use crate::tree::file_map::FileMapBuilder;
use crate::tree::{ExtentWalk, FileReader};
use onefold_format::node::{Entry, Extent, Reference};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::{Error, Result, bug, limits};
use std::collections::VecDeque;

/// Parts of a file without data after which what waits is dealt with.
const WAITING_MAX: usize = 1 << 12;

/// A directory that is lost in part, and its copy.
#[derive(Clone, Copy)]
pub(super) struct Top {
    /// The lost one.
    pub own: Reference,
    /// The copy's.
    pub copy: Reference,
}

/// What came of building: if it is not what was lost, why, if that was not told already.
pub(super) type Built = std::result::Result<(), Option<Error>>;

impl Healer<'_> {
    /// Builds a directory. What its own readable leaves say about entries is taken over from them.
    pub(super) fn rebuild_directory(&mut self, at: &[u8], top: Top) -> Result<Built> {
        let (own, copy) = self.stores;
        let (same_cuts, same_names) = (copy.cuts_like(own), copy.names_like(own));
        let cutter = Cutter::new(own, same_cuts, same_names);
        let memory_bytes = copy.memory().stash_bytes as u64;
        let how = SequenceOptions {
            engine: RestoreEngine::OptimalChunks { memory_bytes },
            reach: self.options.reach,
            placed: None,
            place: None,
        };
        let mut walk = Walk {
            source: &self.copy,
            target: &self.own,
            store: self.store,
            same_names: same_cuts && same_names,
            distrusts_pair: false,
            sequence: Sequence::new(&self.copy, how, self.options.threads, self.job),
            assembler: Assembler::new(self.writer, cutter, self.job),
            steps: VecDeque::new(),
            cost: 0,
            at: 0,
            damaged: 0,
            job: self.job,
        };
        let pair = Pair { source: top.copy, target: top.own };
        match walk.run(at, top.copy, Some(pair)) {
            Ok(()) => {}
            Err(error) if is_passed_over(&error) => return Ok(Err(Some(error))),
            Err(error) => return Err(error),
        }
        let damaged = walk.damaged + walk.assembler.damaged;
        self.healing.bytes_from_copy += walk.sequence.bytes_read;
        let built = walk.assembler.finish()?.reference;
        Ok(match built == top.own {
            true => Ok(()),
            false if damaged > 0 => Err(None),
            false => Err(Some(other_name())),
        })
    }

    /// Builds a file.
    pub(super) fn rebuild_file(
        &mut self,
        content: Reference,
        copy: &Entry,
        reader: &FileReader,
    ) -> Result<Built> {
        let built = match self.build_file(copy, reader) {
            Ok(built) => built,
            Err(error) if is_passed_over(&error) => return Ok(Err(Some(error))),
            Err(error) => return Err(error),
        };
        Ok(match built == Some(content) {
            true => Ok(()),
            false => Err(Some(other_name())),
        })
    }

    fn build_file(&mut self, copy: &Entry, reader: &FileReader) -> Result<Option<Reference>> {
        let (own, other) = self.stores;
        let mut cutter = Cutter::new(own, other.cuts_like(own), other.names_like(own));
        let (mut map, mut parts) = (FileMapBuilder::default(), Vec::new());
        let mut walk = ExtentWalk::new(copy.content, copy.size)?;
        let mut at = 0;
        cutter.begin();
        while let Some((_, extent)) = walk.next(&self.copy)? {
            self.job.interrupt.check()?;
            if extent.is_hole() {
                cutter.hole(extent.length, &mut |part| parts.push(part));
            } else {
                if extent.length > limits::CHUNK_SIZE_MAX_BYTES as u64 {
                    return Err(Error::damaged("a chunk is longer than any chunk can be"));
                }
                let buffer = cutter.buffer();
                let start = buffer.len();
                buffer.resize(start + extent.length as usize, 0);
                reader.read_at(at, &mut buffer[start..])?;
                self.healing.bytes_from_copy += extent.length;
                cutter.chunk(extent.fingerprint, &mut |part| parts.push(part));
            }
            at += extent.length;
            if cutter.is_full() || parts.len() >= WAITING_MAX {
                self.store_parts(cutter.take(), &mut parts, &mut map)?;
            }
        }
        cutter.end(&mut |part| parts.push(part));
        self.store_parts(cutter.take(), &mut parts, &mut map)?;
        map.finish(self.writer)
    }

    fn store_parts(
        &mut self,
        cut: Cut,
        parts: &mut Vec<Part>,
        map: &mut FileMapBuilder,
    ) -> Result<()> {
        let Cut { buffer, ranges, fingerprints } = cut;
        let mut names = fingerprints.clone().into_iter();
        if !ranges.is_empty() {
            let batch = ChunkBatch { buffer, ranges, fingerprints, corresponding: Vec::new() };
            self.writer.put_data(batch, &mut drop)?;
        }
        for part in parts.drain(..) {
            let extent = match part {
                Part::Hole(length) => Extent::hole(length),
                Part::Data(length) => {
                    let fingerprint = names.next().ok_or_else(|| bug!("a chunk has no name"))?;
                    Extent { fingerprint, length }
                }
            };
            map.push(extent, self.writer)?;
        }
        Ok(())
    }
}

fn other_name() -> Error {
    Error::damaged("what was built out of the copy is not what is missing: it was cut otherwise")
}
