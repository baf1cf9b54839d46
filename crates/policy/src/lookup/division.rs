//! The division of an index into buckets: equal ranges of prefixes (S0.5), and how many.
//!
//! A bucket is a fixed range of prefixes, whatever the index behind it becomes: every run of the
//! index is sorted by prefix, so one range is one stretch of neighbouring pages in each of them,
//! those that are written or merged while chunks wait included. The index says with how few buckets
//! each is still one access, and how many there are if an access is as short as it should be.
//!
//! S0 has as many buckets as its index has blocks, and takes for granted that they fill. They do
//! not if few chunks wait, because most are found in the cache or the stream may not be held back
//! for long: a bucket is then located for a single chunk. So the number of buckets follows what can
//! wait. It begins with the fewest, and
//!
//! - doubles when, of as many buckets as there are, almost all were full;
//! - is halved when buckets, over a few, were not even half full.
//!
//! As many as fill, and not as few as can be, because accesses are shorter then. A bucket counts as
//! full at [`FULL_MAX`] even if its threshold is higher: one more chunk to an access saves next to
//! nothing by then. Fewer buckets make an access longer, never more of them.
//!
//! What it does not weigh: where the oldest chunk has to leave, its whole bucket does, so in large
//! buckets chunks wait for less of the time that they could, and may share fewer containers.
//!
//! Invariant: between two changes of the count, equal prefixes are in one bucket, and a bucket's
//! prefixes are a range.

use crate::ports::BucketCounts;
use onefold_types::Fingerprint;

/// Buckets after which it is judged whether they fill: few, so that a short stream profits too.
const JUDGED_BUCKETS: u32 = 16;
/// Fingerprints with which a bucket is full whatever its threshold.
const FULL_MAX: usize = 64;

/// How many buckets there are, and how well they have filled.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// Zero before the index was asked.
    count: u32,
    /// How many there should be by how they fill; the index has the last word.
    wanted: u32,
    /// Buckets located since they were judged last, and the fingerprints in them, of each at most
    /// as many as make it full.
    located: u32,
    fingerprints: usize,
}

impl Division {
    /// The bucket that a fingerprint falls into.
    pub(super) fn bucket_of(&self, fingerprint: &Fingerprint) -> u32 {
        ((u128::from(fingerprint.prefix()) * u128::from(self.count)) >> 64) as u32
    }

    /// Keeps to what the index says now; whether there are other buckets than before.
    pub(super) fn fit(&mut self, counts: BucketCounts) -> bool {
        let fewest = counts.fewest.max(1);
        self.wanted = self.wanted.clamp(fewest, counts.most.max(fewest));
        std::mem::replace(&mut self.count, self.wanted) != self.wanted
    }

    /// A bucket with so many fingerprints is to be located; `fit` takes the consequences.
    pub(super) fn note_located(&mut self, fingerprints: usize, bucket_threshold: usize) {
        let full = bucket_threshold.min(FULL_MAX);
        self.located += 1;
        self.fingerprints += fingerprints.min(full);
        let most = self.located as usize * full;
        if self.located >= JUDGED_BUCKETS && self.fingerprints * 2 < most {
            self.restart(self.count / 2);
        } else if self.located >= JUDGED_BUCKETS.max(self.count) {
            let is_full = self.fingerprints * 16 >= most * 15;
            self.restart(if is_full { self.count.saturating_mul(2) } else { self.count });
        }
    }

    fn restart(&mut self, wanted: u32) {
        *self = Self { count: self.count, wanted, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: BucketCounts = BucketCounts { fewest: 4, most: 64 };

    fn at(prefix: u64) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&prefix.swap_bytes().to_le_bytes());
        Fingerprint(bytes)
    }

    /// A division that has located `buckets` of so many fingerprints each.
    fn after(mut division: Division, buckets: u32, fingerprints: usize) -> Division {
        for _ in 0..buckets {
            division.note_located(fingerprints, 16);
            division.fit(COUNTS);
        }
        division
    }

    fn fitted() -> Division {
        let mut division = Division::default();
        assert!(division.fit(COUNTS));
        division
    }

    #[test]
    fn buckets_are_equal_ranges_of_prefixes() {
        let division = fitted();
        assert_eq!(division.count, 4, "the fewest to begin with");
        let quarter = 1 << 62;
        for bucket in 0..4 {
            let first = quarter * u64::from(bucket);
            let both = [first, first + (quarter - 1)].map(|prefix| division.bucket_of(&at(prefix)));
            assert_eq!(both, [bucket; 2]);
        }
    }

    #[test]
    fn s0_5_the_number_of_buckets_follows_what_fills_them() {
        // Full: 16, 16, 16 and 32 of them, and never more than the index has.
        let counts = [15, 16, 31, 32, 47, 48, 79, 80, 500];
        let counts = counts.map(|buckets| after(fitted(), buckets, 16).count);
        assert_eq!(counts, [4, 8, 8, 16, 16, 32, 32, 64, 64]);
        // Half full is enough to stay, less is not, and it stops at the fewest.
        let full = || after(fitted(), 80, 16);
        assert_eq!(after(full(), 500, 8).count, 64);
        let counts = [15, 16, 32, 48, 64, 500].map(|buckets| after(full(), buckets, 7).count);
        assert_eq!(counts, [64, 32, 16, 8, 4, 4]);
    }

    #[test]
    fn almost_all_must_be_full_for_more_buckets() {
        let after_some = |fingerprints| after(after(fitted(), 15, 40), 1, fingerprints).count;
        assert_eq!([0, 1, 16].map(after_some), [8, 8, 8], "one bucket in sixteen");
        let after_two = |fingerprints| after(after(fitted(), 14, 40), 2, fingerprints).count;
        assert_eq!([7, 8].map(after_two), [4, 8], "as much in two");
    }

    #[test]
    fn a_bucket_is_full_at_a_number_even_if_its_threshold_is_higher() {
        let counts = [FULL_MAX, FULL_MAX - 5, FULL_MAX / 2 - 1].map(|fingerprints| {
            let mut division = after(fitted(), 16, 16);
            for _ in 0..JUDGED_BUCKETS {
                division.note_located(fingerprints, 1024);
            }
            division.fit(COUNTS);
            division.count
        });
        assert_eq!(counts, [16, 8, 4]);
    }

    #[test]
    fn buckets_that_are_neither_full_nor_empty_stay_as_they_are() {
        let mut division = fitted();
        for _ in 0..JUDGED_BUCKETS {
            division.note_located(12, 16);
        }
        assert_eq!(division.located, 0, "they have been judged");
        assert!(!division.fit(COUNTS));
        assert_eq!(division.count, 4);
    }

    #[test]
    fn the_index_is_obeyed_when_it_grows_or_shrinks() {
        let mut division = fitted();
        assert!(!division.fit(COUNTS));
        assert!(division.fit(BucketCounts { fewest: 8, most: 128 }));
        assert!(!division.fit(BucketCounts { fewest: 1, most: 8 }));
        assert!(division.fit(BucketCounts { fewest: 1, most: 1 }));
        assert!(!division.fit(BucketCounts { fewest: 0, most: 0 }), "what cannot be is one");
        assert_eq!((division.count, division.bucket_of(&at(u64::MAX))), (1, 0));
    }
}
