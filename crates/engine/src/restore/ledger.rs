//! What was planned of an output against what was delivered to it.
//!
//! Algorithm: of every chunk that is planned a mark is added, made of its fingerprint and of the
//! offset that it is to stand at; of every chunk that is delivered it is taken off, made of the
//! offset that its bytes went to. Bytes are counted beside that. In the end both are zero, in
//! whatever order the chunks came: a chunk that was left out, delivered twice, for another or at
//! another's offset leaves something. It is no defence against malice: what is delivered was
//! verified before, and offsets come from the program alone.
//!
//! Concurrency: any thread plans and delivers; the counters are relaxed, and are read by whoever
//! knows by other means that nobody delivers any more.

use super::window::Piece;
use onefold_types::{Fingerprint, Result, invariant};
use std::sync::atomic::{AtomicU64, Ordering};

/// Odd, and random otherwise: what differs in few bits differs in many when multiplied by it.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The balance of one output.
#[derive(Debug, Default)]
pub struct Ledger {
    marks: AtomicU64,
    bytes: AtomicU64,
}

impl Ledger {
    /// Forgets what was planned and delivered, and expects so many bytes.
    pub fn begin_anew(&self, bytes: u64) {
        self.marks.store(0, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Expects bytes: delivered ones, or those that [`Ledger::settle_bytes`] tells of.
    pub fn expect_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes came to be what they are to be without a chunk: a hole, or they were already.
    pub fn settle_bytes(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Expects a chunk at an offset.
    pub fn plan(&self, offset: u64, fingerprint: &Fingerprint) {
        self.marks.fetch_add(mark(offset, fingerprint), Ordering::Relaxed);
    }

    /// Bytes go to an offset, which are those of a run of pieces that are neighbours in a frame.
    pub fn deliver(&self, offset: u64, bytes: &[u8], run: &[Piece]) {
        let first = run.first().map_or(0, |piece| piece.chunk_offset);
        let marks = run.iter().map(|piece| {
            let within = u64::from(piece.chunk_offset.wrapping_sub(first));
            mark(offset.wrapping_add(within), &piece.fingerprint)
        });
        self.marks.fetch_sub(marks.fold(0, u64::wrapping_add), Ordering::Relaxed);
        self.settle_bytes(bytes.len() as u64);
    }

    /// A chunk that was planned does not come.
    pub fn give_up(&self, piece: &Piece) {
        self.marks.fetch_sub(mark(piece.file_offset, &piece.fingerprint), Ordering::Relaxed);
        self.settle_bytes(u64::from(piece.length));
    }

    /// Nothing is expected any more.
    ///
    /// Errors: a bug if it is not so.
    pub fn expect_settled(&self) -> Result<()> {
        let bytes = self.bytes.load(Ordering::Relaxed) as i64;
        invariant!(bytes == 0, "not as many bytes were restored as there are to be", bytes);
        let marks = self.marks.load(Ordering::Relaxed);
        invariant!(marks == 0, "a chunk was not restored where it belongs, or another was", marks);
        Ok(())
    }
}

fn mark(offset: u64, fingerprint: &Fingerprint) -> u64 {
    let mixed = fingerprint.prefix() ^ offset.wrapping_mul(SPREAD);
    // Without the shift, exchanged offsets would too often leave the same sum.
    (mixed ^ mixed >> 32).wrapping_mul(SPREAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;

    /// Three chunks that lie back to back in a frame.
    fn pieces() -> Vec<Piece> {
        let piece = |number: u8| Piece {
            fingerprint: Fingerprint([number; 32]),
            file_offset: 10_000 + u64::from(number) * 100,
            output: 0,
            frame: 0,
            chunk_offset: u32::from(number) * 100,
            length: 100,
            payload_length: 100,
            delta: 0,
        };
        (0..3).map(piece).collect()
    }

    type Deliver<'a> = &'a dyn Fn(&Ledger, &[Piece]);

    fn balance(deliver: impl Fn(&Ledger, &[Piece])) -> Result<()> {
        let (ledger, pieces) = (Ledger::default(), pieces());
        for piece in &pieces {
            ledger.expect_bytes(u64::from(piece.length));
            ledger.plan(piece.file_offset, &piece.fingerprint);
        }
        deliver(&ledger, &pieces);
        ledger.expect_settled()
    }

    fn each(ledger: &Ledger, pieces: &[Piece]) {
        let one = |piece: &Piece| {
            ledger.deliver(piece.file_offset, &[0; 100], std::slice::from_ref(piece));
        };
        pieces.iter().for_each(one);
    }

    #[test]
    fn whatever_the_order_what_was_planned_and_delivered_leaves_nothing() {
        balance(each).unwrap();
        balance(|ledger, all| ledger.deliver(10_000, &[0; 300], all)).unwrap();
        balance(|ledger, all| {
            each(ledger, &all[2..]);
            each(ledger, &all[..2]);
        })
        .unwrap();
    }

    #[test]
    fn i13_what_is_left_out_doubled_or_elsewhere_is_a_bug() {
        let exchanged = |ledger: &Ledger, all: &[Piece]| {
            let mut all = all.to_vec();
            (all[0].file_offset, all[1].file_offset) = (all[1].file_offset, all[0].file_offset);
            each(ledger, &all);
        };
        let for_another = |ledger: &Ledger, all: &[Piece]| {
            each(ledger, &[all[0], Piece { file_offset: all[1].file_offset, ..all[0] }, all[2]]);
        };
        let wrongly_joined = |ledger: &Ledger, all: &[Piece]| {
            // As it lies in the frame from the first to the last.
            ledger.deliver(10_000, &[0; 300], &[all[0], all[2]]);
            each(ledger, &all[1..2]);
        };
        let cases: [Deliver<'_>; 7] = [
            &|ledger, all| each(ledger, &all[..2]),
            &|ledger, all| each(ledger, &[all, &all[1..2]].concat()),
            &|ledger, all| each(ledger, &[all[0], all[1], all[1]]),
            &|ledger, all| ledger.deliver(10_001, &[0; 300], all),
            &exchanged,
            &for_another,
            &wrongly_joined,
        ];
        for (number, case) in cases.into_iter().enumerate() {
            let error = balance(case).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Bug, "{number}: {error}");
        }
    }
}
