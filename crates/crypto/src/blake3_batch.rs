//! BLAKE3 digests of many chunks at once.
//!
//! BLAKE3 splits its input into leaves of 1024 bytes and hashes leaves in SIMD lanes. One call for
//! each content-defined chunk of a few kibibytes leaves most lanes idle; taking leaf *i* of all
//! chunks of a batch together keeps them full. The digests are exactly those of the documented
//! interface, which the tests check for every length class.
//!
//! Algorithm (BLAKE3 specification, sections 2.4 to 2.6):
//! 1. sort the chunks by falling length, so that the chunks that have a leaf *i* are a prefix;
//! 2. for each *i* hash all full leaves *i* together: same counter, no increment; as soon as one
//!    chunk has more leaves left than there are chunks that have any, which do not fill the lanes,
//!    the rest of each chunk by itself: counters that count up;
//!    what does not fill the lanes is filled up with leaves that were hashed already (`fill_up`);
//! 3. hash each chunk's last, partial leaf block by block;
//! 4. join neighbouring chaining values level by level, all chunks together; an odd one moves up
//!    unchanged, which yields the specified tree; a chunk's last join carries the root flag.
//!
//! The lane interface of the `blake3` crate is public but undocumented, so its version is pinned.

use blake3::platform::{Platform, words_from_le_bytes_32};
use blake3::{IncrementCounter, platform::le_bytes_from_words_32};
use onefold_types::Fingerprint;
use std::ops::Range;
use zeroize::Zeroizing;

const LEAF_BYTES: usize = 1024;
const BLOCK_BYTES: usize = 64;
/// Chunks with more leaves fill the lanes by themselves.
const LEAVES_MAX: usize = 256;

/// Inputs that fill no lanes are hashed as they are if they are fewer.
const LEFT_OVER_MIN: usize = 3;

const CHUNK_START: u8 = 1;
const CHUNK_END: u8 = 2;
const PARENT: u8 = 4;
const ROOT: u8 = 8;
const KEYED_HASH: u8 = 16;

const INITIAL_VALUE: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

type ChainingValue = [u8; 32];

/// Computes BLAKE3 digests, keyed or not, in batches.
pub struct BatchHasher {
    platform: Platform,
    /// Wiped when dropped, as the key is.
    key_words: Zeroizing<[u32; 8]>,
    mode: u8,
    key: Option<Zeroizing<[u8; 32]>>,
}

/// One chunk of a batch that takes part in lane hashing.
struct Member<'a> {
    index: usize,
    bytes: &'a [u8],
    first: usize,
    count: usize,
}

impl BatchHasher {
    /// A hasher for plain BLAKE3, or for keyed BLAKE3 where a key is given.
    #[must_use]
    pub fn new(key: Option<&[u8; 32]>) -> Self {
        Self {
            platform: Platform::detect(),
            key_words: Zeroizing::new(key.map_or(INITIAL_VALUE, words_from_le_bytes_32)),
            mode: if key.is_some() { KEYED_HASH } else { 0 },
            key: key.map(|key| Zeroizing::new(*key)),
        }
    }

    /// The digest of one input.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> Fingerprint {
        Fingerprint(match &self.key {
            Some(key) => *blake3::keyed_hash(key, bytes).as_bytes(),
            None => *blake3::hash(bytes).as_bytes(),
        })
    }

    /// Appends the digest of each chunk to `digests`, in the order of `chunks`.
    pub fn hash_batch(&self, chunks: &[&[u8]], digests: &mut Vec<Fingerprint>) {
        let base = digests.len();
        digests.resize(base + chunks.len(), Fingerprint::ZERO);
        let digests = &mut digests[base..];
        let mut members = Vec::with_capacity(chunks.len());
        let mut nodes_total = 0;
        for (index, &bytes) in chunks.iter().enumerate() {
            if bytes.len() <= LEAF_BYTES || bytes.len() > LEAVES_MAX * LEAF_BYTES {
                digests[index] = self.hash(bytes);
                continue;
            }
            let count = bytes.len().div_ceil(LEAF_BYTES);
            members.push(Member { index, bytes, first: nodes_total, count });
            nodes_total += count;
        }
        members.sort_unstable_by_key(|member| std::cmp::Reverse(member.bytes.len()));
        let mut nodes = vec![[0; 32]; nodes_total];
        self.hash_full_leaves(&members, &mut nodes);
        for member in &members {
            let rest = member.bytes.len() % LEAF_BYTES;
            if rest > 0 {
                let leaf = &member.bytes[member.bytes.len() - rest..];
                nodes[member.first + member.count - 1] =
                    self.hash_partial_leaf(leaf, (member.count - 1) as u64);
            }
        }
        self.join(members, &mut nodes, digests);
    }

    fn hash_full_leaves(&self, members: &[Member<'_>], nodes: &mut [ChainingValue]) {
        let full_leaves = |member: &Member<'_>| member.bytes.len() / LEAF_BYTES;
        let leaves_max = members.first().map_or(0, full_leaves);
        let mut inputs: Vec<&[u8; LEAF_BYTES]> = Vec::with_capacity(members.len());
        for leaf in 0..leaves_max {
            // Members are sorted by falling length, so those that have this leaf come first.
            let count = members.partition_point(|member| full_leaves(member) > leaf);
            let members = &members[..count];
            if count < self.platform.simd_degree() && count < leaves_max - leaf {
                for member in members {
                    self.hash_rest(member, leaf..full_leaves(member), &mut inputs, nodes);
                }
                return;
            }
            inputs.clear();
            for member in members {
                inputs.extend(member.bytes[leaf * LEAF_BYTES..].first_chunk());
            }
            let outputs = self.hash_leaves(&mut inputs, leaf, IncrementCounter::No);
            for (member, output) in members.iter().zip(outputs.chunks_exact(32)) {
                nodes[member.first + leaf].copy_from_slice(output);
            }
        }
    }

    /// Hashes some full leaves of one chunk together.
    fn hash_rest<'a>(
        &self,
        member: &Member<'a>,
        leaves: Range<usize>,
        inputs: &mut Vec<&'a [u8; LEAF_BYTES]>,
        nodes: &mut [ChainingValue],
    ) {
        let bytes = &member.bytes[leaves.start * LEAF_BYTES..leaves.end * LEAF_BYTES];
        inputs.clear();
        inputs.extend(bytes.as_chunks().0);
        let outputs = self.hash_leaves(inputs, leaves.start, IncrementCounter::Yes);
        let nodes = &mut nodes[member.first..][leaves];
        for (node, output) in nodes.iter_mut().zip(outputs.chunks_exact(32)) {
            node.copy_from_slice(output);
        }
    }

    /// The values of the inputs, and of what they were filled up with.
    fn hash_leaves(
        &self,
        inputs: &mut Vec<&[u8; LEAF_BYTES]>,
        first: usize,
        increment: IncrementCounter,
    ) -> Vec<u8> {
        fill_up(inputs, self.platform.simd_degree());
        let mut outputs = vec![0; inputs.len() * 32];
        let (key, mode) = (&self.key_words, self.mode);
        let counter = first as u64;
        let (start, end) = (CHUNK_START, CHUNK_END);
        self.platform.hash_many(inputs, key, counter, increment, mode, start, end, &mut outputs);
        outputs
    }

    fn hash_partial_leaf(&self, leaf: &[u8], counter: u64) -> ChainingValue {
        let mut value = *self.key_words;
        let blocks = leaf.len().div_ceil(BLOCK_BYTES);
        for (position, part) in leaf.chunks(BLOCK_BYTES).enumerate() {
            let mut block = [0; BLOCK_BYTES];
            block[..part.len()].copy_from_slice(part);
            let start = if position == 0 { CHUNK_START } else { 0 };
            let end = if position + 1 == blocks { CHUNK_END } else { 0 };
            let flags = self.mode | start | end;
            self.platform.compress_in_place(&mut value, &block, part.len() as u8, counter, flags);
        }
        le_bytes_from_words_32(&value)
    }

    /// Joins the chaining values of all members, level by level, down to the digests.
    fn join(
        &self,
        mut members: Vec<Member<'_>>,
        nodes: &mut [ChainingValue],
        digests: &mut [Fingerprint],
    ) {
        let mut blocks: Vec<[u8; BLOCK_BYTES]> = Vec::new();
        let mut outputs = Vec::new();
        while !members.is_empty() {
            blocks.clear();
            for member in members.iter().filter(|member| member.count == 2) {
                push_pairs(&nodes[member.first..member.first + 2], &mut blocks);
            }
            self.hash_parents(&blocks, ROOT, &mut outputs);
            let roots = members.iter().filter(|member| member.count == 2);
            for (member, output) in roots.zip(outputs.chunks_exact(32)) {
                digests[member.index].0.copy_from_slice(output);
            }
            members.retain(|member| member.count > 2);
            blocks.clear();
            for member in &members {
                push_pairs(&nodes[member.first..member.first + member.count], &mut blocks);
            }
            self.hash_parents(&blocks, 0, &mut outputs);
            let mut joined = outputs.chunks_exact(32);
            for member in &mut members {
                let pairs = member.count / 2;
                for (node, output) in nodes[member.first..][..pairs].iter_mut().zip(&mut joined) {
                    node.copy_from_slice(output);
                }
                if member.count % 2 == 1 {
                    nodes[member.first + pairs] = nodes[member.first + member.count - 1];
                }
                member.count = member.count.div_ceil(2);
            }
        }
    }

    fn hash_parents(&self, blocks: &[[u8; BLOCK_BYTES]], root: u8, outputs: &mut Vec<u8>) {
        let mut inputs: Vec<&[u8; BLOCK_BYTES]> = blocks.iter().collect();
        fill_up(&mut inputs, self.platform.simd_degree());
        outputs.clear();
        outputs.resize(inputs.len() * 32, 0);
        let flags = self.mode | PARENT | root;
        let no = IncrementCounter::No;
        self.platform.hash_many(&inputs, &self.key_words, 0, no, flags, 0, 0, outputs);
    }
}

/// Makes the last inputs, where they fill no lanes, as many as the next narrower code takes at
/// once. What is left over after that is hashed one by one, which takes longer than a round: on
/// AVX-512, 3 to 7 leaves take 1.2 to 1.3 instead of 2.0 to 3.2 microseconds, 13 to 15 take 2.2
/// instead of 3.5 to 4.5.
fn fill_up<T: Copy>(inputs: &mut Vec<T>, degree: usize) {
    let left_over = inputs.len() % degree;
    if let Some(first) = inputs.first().copied()
        && left_over >= LEFT_OVER_MIN
    {
        // No more than the degree, which is a power of two.
        let filled = inputs.len() - left_over + left_over.next_power_of_two();
        inputs.resize(filled, first);
    }
}

fn push_pairs(nodes: &[ChainingValue], blocks: &mut Vec<[u8; BLOCK_BYTES]>) {
    for pair in nodes.chunks_exact(2) {
        let mut block = [0; BLOCK_BYTES];
        block[..32].copy_from_slice(&pair[0]);
        block[32..].copy_from_slice(&pair[1]);
        blocks.push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::{Randomness, SeededRandomness};
    use proptest::prelude::*;

    fn check(lengths: &[usize], key: Option<&[u8; 32]>) {
        let randomness = SeededRandomness::new(lengths.len() as u64);
        let chunks: Vec<Vec<u8>> = lengths
            .iter()
            .map(|&length| {
                let mut bytes = vec![0; length];
                randomness.fill(&mut bytes);
                bytes
            })
            .collect();
        let slices: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let mut digests = Vec::new();
        BatchHasher::new(key).hash_batch(&slices, &mut digests);
        for (chunk, digest) in chunks.iter().zip(&digests) {
            let expected = match key {
                Some(key) => blake3::keyed_hash(key, chunk),
                None => blake3::hash(chunk),
            };
            assert_eq!(&digest.0, expected.as_bytes(), "length {}", chunk.len());
        }
    }

    #[test]
    fn every_length_class_equals_the_documented_interface() {
        let mut lengths = Vec::new();
        for leaves in 0..20 {
            for offset in [0, 1, 63, 64, 65, 1023] {
                lengths.push(leaves * LEAF_BYTES + offset);
            }
        }
        lengths.extend([LEAVES_MAX * LEAF_BYTES, LEAVES_MAX * LEAF_BYTES + 1, 100_000, 131_071]);
        check(&lengths, None);
        check(&lengths, Some(&[7; 32]));
        check(&[], None);
        for &length in &lengths {
            check(&[length], Some(&[9; 32]));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn random_batches_equal_the_documented_interface(
            lengths in proptest::collection::vec(0usize..40_000, 0..60)
        ) {
            check(&lengths, Some(&[3; 32]));
        }
    }
}
