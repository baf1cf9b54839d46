//! From the secret of a store to the constants of a chunker.
//!
//! BLAKE3 in key-derivation mode turns the secret into as many words as a chunker needs, under a
//! context of its own for each chunker. Without a secret the same function runs on no input, so
//! that the public constants, too, are numbers with nothing up their sleeve.

/// Bytes whose long runs are common in files: zeros, spaces, erased flash.
///
/// No chunker may see a boundary at every position of such a run; the constants are drawn again
/// until none does.
pub(crate) const FILLERS: [u8; 3] = [0x00, 0x20, 0xff];

/// Constants drawn again because of [`FILLERS`] at most so many times. Every chunker accepts a
/// draw with a probability above one fifth, so that the bound is not met in practice.
pub(crate) const DRAWS_MAX: usize = 256;

/// The words that belong to a secret and a context.
pub(crate) struct KeyStream(blake3::OutputReader);

impl KeyStream {
    /// `context` names the one use of these words.
    pub(crate) fn new(secret: Option<&[u8; 32]>, context: &'static str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        if let Some(secret) = secret {
            hasher.update(secret);
        }
        Self(hasher.finalize_xof())
    }

    /// The next word.
    pub(crate) fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// The next word, cut to 32 bits.
    pub(crate) fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::KeyStream;

    #[test]
    fn secret_and_context_both_matter() {
        let first = |secret: Option<&[u8; 32]>, context| KeyStream::new(secret, context).next_u64();
        let words = [
            first(None, "a"),
            first(None, "b"),
            first(Some(&[0; 32]), "a"),
            first(Some(&[1; 32]), "a"),
        ];
        for (index, word) in words.iter().enumerate() {
            assert!(!words[..index].contains(word), "{index}");
        }
        assert_eq!(first(Some(&[1; 32]), "a"), words[3]);
    }
}
