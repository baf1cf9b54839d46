//! Delta chunks of containers, made whole again: payload and bases to the bytes of a chunk.
//!
//! A delta is looked at like any chunk of a frame only after it was made whole; what is verified is
//! the chunk, by its own fingerprint. Where bases are is not known here: a [`BaseSource`] gives
//! them, verified by name. A delta of depth n asks for instances of a depth below n, so that asking
//! ends, whatever a store says ([`onefold_format::container`]).
//!
//! Concurrency: a [`DeltaOpener`] belongs to one thread; sources are shared.

use super::verify;
use onefold_crypto::Fingerprinter;
use onefold_format::container::{Base, ChunkDescriptor, Delta, MetadataSection};
use onefold_format::delta::DeltaDecoder;
use onefold_types::error::Context;
use onefold_types::{Error, Result, bug};

/// The bytes of a base.
pub type BaseBytes = Box<dyn AsRef<[u8]> + Send>;

/// Gives bases.
pub trait BaseSource: Send + Sync {
    /// The plain bytes of a base, verified by name, out of an instance that is plain or of a depth
    /// below this.
    ///
    /// Errors: `Damaged` if there is no such instance that can be read.
    fn base(&self, base: &Base, below_depth: u8) -> Result<BaseBytes>;
}

/// Makes deltas whole; one for each thread, because it keeps working memory.
#[derive(Default)]
pub struct DeltaOpener {
    decoder: DeltaDecoder,
    plain: Vec<u8>,
}

impl DeltaOpener {
    /// Appends the bytes of a delta to `plain`. They are not verified.
    ///
    /// Errors: `Damaged` if a base is lost, or the payload makes no chunk of this length of them;
    /// others of the source.
    pub fn open(
        &mut self,
        frame: &[u8],
        made: (&ChunkDescriptor, &Delta),
        source: &dyn BaseSource,
        plain: &mut Vec<u8>,
    ) -> Result<()> {
        let bases = bases_of(made.0, made.1, source)?;
        self.make(frame, made.0, &bases, plain)
    }

    /// The bytes of a delta out of its bases, verified; they stay valid until the next call.
    ///
    /// Errors: `Damaged` if it is not the chunk that it is named by.
    pub fn verified(
        &mut self,
        frame: &[u8],
        chunk: &ChunkDescriptor,
        bases: &[BaseBytes],
        fingerprinter: &Fingerprinter,
    ) -> Result<&[u8]> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let made = self.make(frame, chunk, bases, &mut plain);
        self.plain = plain;
        made?;
        match fingerprinter.data(&self.plain) == chunk.fingerprint {
            true => Ok(&self.plain),
            false => Err(verify::wrong(&chunk.fingerprint)),
        }
    }

    fn make(
        &mut self,
        frame: &[u8],
        chunk: &ChunkDescriptor,
        bases: &[BaseBytes],
        plain: &mut Vec<u8>,
    ) -> Result<()> {
        let payload = verify::cut(frame, chunk).ok_or_else(|| verify::wrong(&chunk.fingerprint))?;
        let bases: Vec<&[u8]> = bases.iter().map(|base| (**base).as_ref()).collect();
        let decoded = self.decoder.decode(&bases, payload, chunk.length as usize, plain);
        decoded.context(|| format!("chunk {}", chunk.fingerprint))
    }
}

/// The bases of a delta.
///
/// Errors: `Damaged` if one of them is lost: this instance of the chunk is lost with it. Others of
/// the source.
pub fn bases_of(
    chunk: &ChunkDescriptor,
    delta: &Delta,
    source: &dyn BaseSource,
) -> Result<Vec<BaseBytes>> {
    let one = |base: &Base| source.base(base, delta.depth);
    let bases: Result<Vec<BaseBytes>> = delta.bases.iter().map(one).collect();
    bases.map_err(|error| match error.is_lost() {
        // What is not found is the base; the delta is where it should be.
        true => Error::damaged(format!(
            "chunk {} is stored as a difference against a chunk that is lost: {error}",
            chunk.fingerprint
        )),
        false => error,
    })
}

/// How a delta of a section is made.
///
/// Errors: of kind *bug* if the chunk is no delta of this section.
pub fn delta_of<'a>(section: &'a MetadataSection, chunk: &ChunkDescriptor) -> Result<&'a Delta> {
    let delta = section.delta_of(chunk);
    delta.ok_or_else(|| bug!("a chunk is no delta of its section", chunk.fingerprint))
}
