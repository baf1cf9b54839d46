//! Whether a frame is worth compressing, from a look at some of its bytes.
//!
//! El-Shimi et al., ATC'12 (S4.24): half of the chunks give 86 % of what compression saves, and
//! 31 % do not compress at all; heuristics skip those. Ours takes strips spread evenly over the
//! frame and adds up how unevenly their byte values are distributed: the sum of the squares of
//! their counts. Where all values are equally likely, as in what is compressed or encrypted
//! already, that is as small as chance makes it; text, programs and tables are far above.
//!
//! It is asked where `zstd,LEVEL,selective` is chosen, and not otherwise: trying every frame was
//! found to cost little more than looking on ordinary data (experiments/primary).
//!
//! ```text
//! frame    [strip]......[strip]......[strip]......[strip]      strips of 256 bytes, 16 of them
//! n bytes looked at, counts c of the 256 values:
//!          expected for noise: sum c^2 = n + n^2 / 256, standard deviation near n / 11
//!          worth it if the sum exceeds that by 1/32 of n^2 / 256
//! ```
//!
//! # Invariants
//! - It errs towards compressing: noise is called worth it next to never, and what is called not
//!   worth it may shrink only where equal stretches are far apart (archives of copies).
//! - A short frame is always worth it: looking would cost what compressing costs.
//! - No effect on what is stored but for its size: a frame says how it is coded.

/// Strips that are looked at.
const STRIPS: usize = 16;
/// Bytes of each.
const STRIP_BYTES: usize = 256;
/// Frames that are shorter are not looked at.
const LOOK_FROM_BYTES: usize = 4 * STRIPS * STRIP_BYTES;
/// How far above that of noise the sum must be, as a part of the sum of noise: five times what
/// chance makes of it.
pub const EXCESS_MIN: f64 = 1.0 / 32.0;

/// Whether compressing it may be expected to save anything.
#[must_use]
pub fn is_worth_compressing(frame: &[u8]) -> bool {
    excess(frame).is_none_or(|excess| excess > EXCESS_MIN)
}

/// How far the sum of squares is above that of noise, as a part of that; `None` for what is too
/// short to be looked at.
#[must_use]
pub fn excess(frame: &[u8]) -> Option<f64> {
    if frame.len() < LOOK_FROM_BYTES {
        return None;
    }
    let mut counts = [0u64; 256];
    let distance = (frame.len() - STRIP_BYTES) / (STRIPS - 1);
    let mut looked_at = 0u64;
    for strip in frame.chunks(distance).filter_map(|from_here| from_here.get(..STRIP_BYTES)) {
        for byte in strip {
            if let Some(count) = counts.get_mut(usize::from(*byte)) {
                *count += 1;
            }
        }
        looked_at += STRIP_BYTES as u64;
    }
    let sum: u64 = counts.iter().map(|count| count * count).sum();
    let evenly = (looked_at * looked_at / 256) as f64;
    Some((sum as f64 - looked_at as f64 - evenly) / evenly)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::{Randomness, SeededRandomness};

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        SeededRandomness::new(seed).fill(&mut bytes);
        bytes
    }

    #[test]
    fn noise_is_not_worth_it_and_everything_uneven_is() {
        for seed in 0..2000 {
            let length = LOOK_FROM_BYTES + (seed as usize * 37) % 300_000;
            assert!(!is_worth_compressing(&noise(seed, length)), "{seed}");
        }
        let text: Vec<u8> = b"the quick brown fox ".iter().copied().cycle().take(50_000).collect();
        let nibbles: Vec<u8> = noise(1, 50_000).iter().map(|byte| byte & 0x7f).collect();
        for uneven in [vec![0; 50_000], text, nibbles] {
            assert!(is_worth_compressing(&uneven));
        }
    }

    #[test]
    fn what_is_a_third_text_is_worth_it_wherever_the_text_lies() {
        for third in 0..3 {
            let mut bytes = noise(third, 90_000);
            let start = third as usize * 30_000;
            bytes[start..start + 30_000].fill(b' ');
            assert!(is_worth_compressing(&bytes), "{third}");
        }
    }

    #[test]
    fn sixteen_strips_are_looked_at_however_long_the_frame() {
        // Of n equal bytes the sum is n^2, which is 256 (1 - 1/n) - 1 above that of noise.
        for length in [LOOK_FROM_BYTES, 50_000, 50_001, 1 << 20] {
            assert_eq!(excess(&vec![7; length]), Some(255.0 - 256.0 / 4096.0), "{length}");
        }
    }

    #[test]
    fn short_frames_are_not_looked_at() {
        assert!(is_worth_compressing(&[]));
        assert!(is_worth_compressing(&noise(1, LOOK_FROM_BYTES - 1)));
    }
}
