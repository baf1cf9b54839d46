//! The columns of a metadata section as a reader meets them.
//!
//! The bytes of each are in the header of [`super`]. A column stands once; one that is not known is
//! refused or passed over by its tag. Decoders are total.

use super::MetadataSection;
use super::delta_columns::{decode_deltas, decode_sketches, decode_whereabouts};
use crate::wire::Reader;
use onefold_types::{Error, ErrorKind, Level, Result, SessionId};

pub(super) const COLUMN_FINGERPRINTS: u8 = 1;
pub(super) const COLUMN_LENGTHS: u8 = 2;
pub(super) const COLUMN_LEVELS: u8 = 3;
pub(super) const COLUMN_DELTAS: u8 = 4;
pub(super) const COLUMN_SKETCHES: u8 = 128;
pub(super) const COLUMN_SESSION: u8 = 129;
pub(super) const COLUMN_WHEREABOUTS: u8 = 130;
pub(super) const COLUMN_REPACKED: u8 = 131;

/// The columns of a metadata section as they are met.
#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) fingerprints: Option<&'a [u8]>,
    pub(super) lengths: Option<&'a [u8]>,
    pub(super) levels: Option<&'a [u8]>,
    pub(super) deltas: Option<&'a [u8]>,
    pub(super) sketches: Option<&'a [u8]>,
    pub(super) session: Option<&'a [u8]>,
    pub(super) whereabouts: Option<&'a [u8]>,
    pub(super) repacked: Option<&'a [u8]>,
}

impl<'a> Columns<'a> {
    pub(super) fn take(&mut self, tag: u8, bytes: &'a [u8]) -> Result<()> {
        let slot = match tag {
            COLUMN_FINGERPRINTS => &mut self.fingerprints,
            COLUMN_LENGTHS => &mut self.lengths,
            COLUMN_LEVELS => &mut self.levels,
            COLUMN_DELTAS => &mut self.deltas,
            COLUMN_SKETCHES => &mut self.sketches,
            COLUMN_SESSION => &mut self.session,
            COLUMN_WHEREABOUTS => &mut self.whereabouts,
            COLUMN_REPACKED => &mut self.repacked,
            0..128 => {
                return Err(Error::new(
                    ErrorKind::NewerFormat,
                    format!("metadata column {tag} is not known; use a newer onefold"),
                ));
            }
            _ => return Ok(()),
        };
        match slot.replace(bytes) {
            None => Ok(()),
            Some(_) => Err(Error::damaged("metadata section: a column stands twice")),
        }
    }
}

impl Columns<'_> {
    /// Decodes the columns that are left out when they are empty.
    pub(super) fn decode_beside_chunks(
        &self,
        count: usize,
        section: &mut MetadataSection,
    ) -> Result<()> {
        if let Some(bytes) = self.deltas {
            section.deltas = decode_deltas(bytes, count)?;
        }
        if let Some(bytes) = self.whereabouts {
            decode_whereabouts(bytes, &mut section.deltas)?;
        }
        if let Some(bytes) = self.sketches {
            section.sketches = decode_sketches(bytes, count)?;
        }
        if let Some(bytes) = self.session {
            let mut reader = Reader::new(bytes, "session column");
            section.session = Some(reader.id().map(SessionId)?);
            reader.finish()?;
        }
        if let Some(bytes) = self.repacked {
            let mut reader = Reader::new(bytes, "repacked column");
            section.repacked_level = reader.u8()?;
            reader.finish()?;
        }
        Ok(())
    }
}

/// Hands out one level a chunk from the runs of the level column.
pub(super) struct LevelRuns<'a> {
    reader: Reader<'a>,
    level: Level,
    left: u64,
}

impl<'a> LevelRuns<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes, "level column"), level: Level::DATA, left: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Level> {
        if self.left == 0 {
            self.level = Level(self.reader.varint_max(u64::from(u16::MAX))? as u16);
            self.left = self.reader.varint()?;
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| self.reader.damaged("a run of levels is empty"))?;
        Ok(self.level)
    }

    pub(super) fn finish(self) -> Result<()> {
        if self.left > 0 {
            return Err(self.reader.damaged("a run of levels is too long"));
        }
        self.reader.finish()
    }
}
