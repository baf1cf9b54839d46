//! From parameters to the chunker that they describe.

use crate::fastcdc::FastCdc;
use crate::fixed::Fixed;
use crate::mincdc::MinCdc;
use crate::rabin::Rabin;
use crate::regression::Regression;
use crate::{Chunker, ChunkerKind, ChunkerParameters};
use onefold_types::Result;

impl ChunkerParameters {
    /// The chunker. With a secret, boundaries are keyed; fixed chunks have nothing to key.
    pub fn build(&self, secret: Option<&[u8; 32]>) -> Result<Box<dyn Chunker>> {
        self.validate()?;
        Ok(match self.kind {
            ChunkerKind::Fixed => Box::new(Fixed::new(self.size_avg_bytes)),
            ChunkerKind::Rabin => Box::new(Rabin::new(self, secret)),
            ChunkerKind::Regression => Box::new(Regression::new(self, secret)),
            ChunkerKind::FastCdc => Box::new(FastCdc::new(self, secret)),
            ChunkerKind::MinCdc => Box::new(MinCdc::new(self, secret)),
        })
    }
}
