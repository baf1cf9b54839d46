//! Giving way: a stream claims the new chunks of a batch before it stores them, and waits for what
//! another session claimed before ([`crate::index::Claims`]).
//!
//! It waits until the chunks are durable there, which makes duplicates of them, or until none of
//! them has become so for [`PATIENCE`]. Meanwhile it does not hold back what others wait for. A
//! batch is handed to the look-up only then, so what a session waits for is never behind what it
//! has not stored itself.

use super::{ChunkStore, StreamWriter};
use crate::index::claims::PATIENCE;
use onefold_types::{Fingerprint, Result};
use std::thread;
use std::time::{Duration, Instant};

/// How often others are asked whether they have stored what is waited for.
const ASK_PERIOD: Duration = Duration::from_millis(100);

impl ChunkStore {
    /// Claims those of these chunks that nobody has stored yet; those that another session is
    /// storing.
    fn claim_new(&self, fingerprints: &[Fingerprint]) -> Result<Vec<Fingerprint>> {
        let Some(claims) = self.claims() else { return Ok(Vec::new()) };
        if !claims.has_company() {
            return Ok(Vec::new());
        }
        let new = self.unknown(fingerprints)?;
        let prefixes: Vec<u64> = new.iter().map(Fingerprint::prefix).collect();
        let theirs = claims.claim(&prefixes);
        Ok(new.into_iter().filter(|one| theirs.contains(&one.prefix())).collect())
    }

    /// Those that neither the session nor, as far as it has heard, anybody else has stored.
    fn unknown(&self, fingerprints: &[Fingerprint]) -> Result<Vec<Fingerprint>> {
        let shared = self.lock();
        let mut unknown = Vec::new();
        for fingerprint in fingerprints {
            let is_pending = shared.pending.contains_key(fingerprint);
            if !is_pending && !shared.port.index.may_hold(&self.repository, fingerprint)? {
                unknown.push(*fingerprint);
            }
        }
        Ok(unknown)
    }
}

impl StreamWriter {
    /// Claims the new chunks among these, and waits for those that others are storing; see the
    /// module. Buffers that are no longer needed go to `spare`.
    pub(super) fn give_way(
        &mut self,
        fingerprints: &[Fingerprint],
        spare: &mut dyn FnMut(Vec<u8>),
    ) -> Result<()> {
        let Some(claims) = self.store.claims() else { return Ok(()) };
        let mut theirs = self.store.claim_new(fingerprints)?;
        let mut until = Instant::now() + PATIENCE;
        loop {
            if claims.is_wanted() {
                self.let_go(spare)?;
            }
            if theirs.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                claims.pass_over(theirs.iter().map(Fingerprint::prefix));
                return Ok(());
            }
            claims.check_interrupt()?;
            thread::sleep(ASK_PERIOD);
            self.store.hear();
            let before = theirs.len();
            theirs = self.store.unknown(&theirs)?;
            if theirs.len() < before {
                until = Instant::now() + PATIENCE;
            }
        }
    }
}
