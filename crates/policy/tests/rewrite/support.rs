//! Names, numbers, and a stream that remembers what was decided.

use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::rewrite::UnitId;
use onefold_policy::rewrite::{
    Candidate, Decided, Decision, RewriteChoice, RewriteCounters, RewriteLimits, RewriteParameters,
    StreamChunk, StreamRewriter,
};
use onefold_types::Fingerprint;
use std::collections::BTreeMap;

pub fn container(number: u64) -> UnitId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    UnitId(bytes)
}

pub fn container_number(id: UnitId) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&id.0[..8]);
    u64::from_le_bytes(bytes)
}

pub fn fingerprint(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8].copy_from_slice(&mixed.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    Fingerprint(bytes)
}

/// Numbers that look random and are the same every time (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Every policy, with the same loss where there is one.
pub fn all_choices(loss: f64) -> Vec<RewriteChoice> {
    let limits = RewriteLimits::loss(loss);
    vec![
        RewriteChoice::None,
        RewriteChoice::Capping { level: Some(3) },
        RewriteChoice::Flexible(limits),
        RewriteChoice::Window(limits),
        RewriteChoice::History(limits),
        RewriteChoice::Auto(limits),
    ]
}

pub fn fixed(threshold: u32) -> RewriteLimits {
    RewriteLimits { threshold: Some(threshold), ..RewriteLimits::default() }
}

/// Chunks of one byte, in containers of so many.
pub fn parameters(container_chunks: u64) -> RewriteParameters {
    RewriteParameters {
        container_bytes: container_chunks,
        candidates_bytes_max: u64::MAX,
        ..RewriteParameters::default()
    }
}

/// A stream of chunks of one byte.
pub struct Stream {
    pub rewriter: StreamRewriter,
    pub decided: BTreeMap<u64, Decision>,
    ticket: u64,
}

impl Stream {
    pub fn new(choice: &RewriteChoice, parameters: RewriteParameters) -> Self {
        let rewriter = StreamRewriter::new(choice, parameters).unwrap();
        Self { rewriter, decided: BTreeMap::new(), ticket: 0 }
    }

    pub fn push(&mut self, number: u64, status: DuplicateStatus<&[UnitId]>) -> Option<Candidate> {
        let chunk = StreamChunk {
            ticket: self.ticket,
            fingerprint: fingerprint(number),
            size_bytes: 1,
            status,
        };
        self.ticket += 1;
        let mut decided = Vec::new();
        let candidate = self.rewriter.push(&chunk, &mut decided);
        self.note(decided);
        candidate
    }

    /// The next chunk, unlike all others, lies in an old container.
    pub fn old(&mut self, container_number: u64) {
        self.push(self.ticket, DuplicateStatus::Old(&[container(container_number)]));
    }

    /// So many of them.
    pub fn olds(&mut self, container_number: u64, count: u64) {
        for _ in 0..count {
            self.old(container_number);
        }
    }

    /// So many new chunks.
    pub fn uniques(&mut self, count: u64) {
        for _ in 0..count {
            self.push(self.ticket, DuplicateStatus::Unique);
        }
    }

    pub fn finish(&mut self) {
        let mut decided = Vec::new();
        self.rewriter.finish(&mut decided);
        self.note(decided);
        assert_eq!(self.rewriter.waiting(), 0);
    }

    fn note(&mut self, decided: Vec<Decided>) {
        for Decided { ticket, decision } in decided {
            assert_eq!(self.decided.insert(ticket, decision), None, "decided twice");
        }
    }

    /// Chunks kept in a container.
    pub fn kept(&self, container_number: u64) -> usize {
        let keep = Decision::Keep(container(container_number));
        self.decided.values().filter(|decision| **decision == keep).count()
    }

    /// Tickets of the chunks stored again.
    pub fn rewritten(&self) -> Vec<u64> {
        let rewritten = self.decided.iter().filter(|(_, what)| **what == Decision::Rewrite);
        rewritten.map(|(ticket, _)| *ticket).collect()
    }

    pub fn counters(&self) -> &RewriteCounters {
        self.rewriter.counters()
    }
}
