//! What rewriting will find in the rest of the stream, and at which price.
//!
//! The price of a read that is saved is the bytes that have to be stored again for it. Prices stand
//! in buckets, sixteen to each power of two. The previous version's use of a container says how
//! often and how sparsely this version will use it (HAR, ATC'14, section 4.2: use is inherited).
//! What the stream used of a container leaves the forecast; what the stream used of containers that
//! the previous version did not use is expected to go on at the same rate.
//!
//! Memory: forty bytes for each container in the history.

use crate::rewrite::UnitId;
use crate::rewrite::container_use::ContainerUse;

/// Buckets to each power of two.
const STEPS: u64 = 16;
/// Enough for prices up to 2^44 bytes.
const BUCKETS: usize = 44 * STEPS as usize;

/// Bytes at each price.
#[derive(Clone, Debug)]
pub(super) struct Prices(Vec<u64>);

impl Default for Prices {
    fn default() -> Self {
        Self(vec![0; BUCKETS])
    }
}

impl Prices {
    pub(super) fn add(&mut self, price: u64, bytes: u64) {
        if let Some(sum) = self.0.get_mut(bucket_of(price)) {
            *sum = sum.saturating_add(bytes);
        }
    }

    fn take(&mut self, price: u64, bytes: u64) {
        if let Some(sum) = self.0.get_mut(bucket_of(price)) {
            *sum = sum.saturating_sub(bytes);
        }
    }
}

/// The bucket of a price: exact below 16, then with an error of a sixteenth.
pub(super) fn bucket_of(price: u64) -> usize {
    let octave = u64::from(price.max(1).ilog2());
    if octave < 4 {
        return price as usize;
    }
    let fraction = (price >> (octave - 4)) - STEPS;
    (((octave - 3) * STEPS + fraction) as usize).min(BUCKETS - 1)
}

/// The lowest price of a bucket.
pub(super) fn first_price_of(bucket: usize) -> u64 {
    let (octave, fraction) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if octave == 0 { fraction } else { (STEPS + fraction) << (octave - 1) }
}

/// How high a price may be now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Limit {
    /// Prices in buckets below this one are paid.
    pub(super) bucket: usize,
    /// Bytes that may be spent in this very bucket.
    pub(super) marginal_bytes: f64,
}

/// The rest of the stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rest {
    /// If the history has more than that still to come, this stream is only one of several, or
    /// what the history knows was deleted.
    pub(super) bytes: f64,
    /// How often what was a surprise will come again.
    pub(super) repetition: f64,
}

/// A container of the history.
#[derive(Clone, Copy, Debug)]
struct Known {
    container: UnitId,
    visit_bytes: u64,
    price: u64,
    visits_left: u32,
    /// What the previous version used and this one has not stored again yet.
    used_bytes: u64,
    /// Whether this version refers to the container for good.
    is_kept: bool,
}

impl Known {
    /// Whether this is what was expected, and not a few chunks that strayed from the container.
    fn is_like(&self, bytes: u64) -> bool {
        self.visits_left > 0 && bytes >= self.visit_bytes / 2
    }
}

/// The forecast.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    known: Vec<Known>,
    /// What the history lets expect and has not come yet.
    pool: Prices,
    pool_bytes: u64,
    /// What has come without having been expected.
    surprises: Prices,
}

impl Forecast {
    /// `price` says what a read of so many bytes costs that are such a share of what is used.
    pub(super) fn new(history: &ContainerUse, price: impl Fn(u64, f64) -> u64) -> Self {
        let mut forecast = Self::default();
        for (container, usage) in history.iter().filter(|(_, usage)| usage.referred_bytes > 0) {
            let visits_left = usage.spans.max(1);
            let visit_bytes = usage.referred_bytes.div_ceil(u64::from(visits_left));
            let price = price(visit_bytes, 1.0 / f64::from(visits_left));
            let bytes = visit_bytes.saturating_mul(u64::from(visits_left));
            forecast.pool.add(price, bytes);
            forecast.pool_bytes = forecast.pool_bytes.saturating_add(bytes);
            let used_bytes = usage.referred_bytes;
            let is_kept = false;
            let known = Known { container, visit_bytes, price, visits_left, used_bytes, is_kept };
            forecast.known.push(known);
        }
        forecast
    }

    /// The share of what this version may still use of a container that so many bytes are: 1 for
    /// one that is not known, 0 for one that is kept, which nothing can save it from reading.
    pub(super) fn share(&self, container: &UnitId, bytes: u64) -> f64 {
        match self.find(container).and_then(|index| self.known.get(index)) {
            Some(known) if known.is_kept => 0.0,
            Some(known) => bytes as f64 / known.used_bytes.max(bytes).max(1) as f64,
            None => 1.0,
        }
    }

    /// The stream used a container: so many bytes of it at such a price.
    pub(super) fn observe(&mut self, container: &UnitId, bytes: u64, price: u64) {
        let found = self.find(container);
        let known = found.and_then(|index| self.known.get_mut(index));
        if let Some(known) = known.filter(|known| known.is_like(bytes)) {
            known.visits_left -= 1;
            self.pool.take(known.price, known.visit_bytes);
            self.pool_bytes = self.pool_bytes.saturating_sub(known.visit_bytes);
        } else {
            self.surprises.add(price, bytes);
        }
    }

    /// What the stream used of a container was decided: so many bytes are stored again, or none.
    pub(super) fn decided(&mut self, container: &UnitId, rewritten_bytes: Option<u64>) {
        let found = self.find(container);
        let Some(known) = found.and_then(|index| self.known.get_mut(index)) else {
            return;
        };
        match rewritten_bytes {
            Some(bytes) => known.used_bytes = known.used_bytes.saturating_sub(bytes),
            None => known.is_kept = true,
        }
    }

    fn find(&self, container: &UnitId) -> Option<usize> {
        self.known.binary_search_by(|known| known.container.cmp(container)).ok()
    }

    /// How high a price may be if so many bytes are left to spend, for what is at hand now and all
    /// that is to come in the rest of the stream.
    pub(super) fn limit(&self, now: &Prices, left_bytes: f64, rest: Rest) -> Limit {
        let expected = (rest.bytes / self.pool_bytes.max(1) as f64).min(1.0);
        let mut spent = 0.0;
        for bucket in 0..BUCKETS {
            let known = self.pool.0[bucket] as f64 * expected;
            let later = known + self.surprises.0[bucket] as f64 * rest.repetition;
            let all = now.0[bucket] as f64 + later;
            if spent + all > left_bytes {
                let share = now.0[bucket] as f64 / all;
                return Limit { bucket, marginal_bytes: (left_bytes - spent).max(0.0) * share };
            }
            spent += all;
        }
        Limit { bucket: BUCKETS, marginal_bytes: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::Usage;

    #[test]
    fn buckets_rise_with_prices_and_are_a_sixteenth_wide() {
        let mut last = 0;
        for price in (0..100_000u64).chain([1 << 30, 1 << 40, (1 << 44) + 5, u64::MAX]) {
            let bucket = bucket_of(price);
            assert!(bucket >= last, "{price}");
            last = bucket;
            let first = first_price_of(bucket);
            assert!(first <= price);
            assert!(price >= 1 << 44 || price - first <= price / 16, "{price}");
        }
        assert!(last < BUCKETS);
    }

    #[test]
    fn the_limit_is_where_now_and_the_rest_use_up_what_is_left() {
        let mut history = ContainerUse::new();
        for (number, referred_bytes) in [(1, 10), (2, 200), (3, 3000)] {
            let usage = Usage { referred_bytes, payload_bytes: 4000, spans: 1 };
            history.insert(UnitId([number; 16]), usage);
        }
        let mut forecast = Forecast::new(&history, |bytes, _| bytes);
        let mut now = Prices::default();
        now.add(10, 10);
        now.add(200, 200);
        let rest = |repetition| Rest { bytes: 1e9, repetition };
        let limit = forecast.limit(&now, 220.0, rest(0.0));
        // Both of price 10 take 20, half of what is left is for now.
        assert_eq!(limit, Limit { bucket: bucket_of(200), marginal_bytes: 100.0 });
        // What has come is not expected any more; a few chunks of it are not what was expected.
        forecast.observe(&UnitId([2; 16]), 190, 190);
        forecast.observe(&UnitId([3; 16]), 8, 8);
        let limit = forecast.limit(&now, 220.0, rest(1.0));
        assert_eq!(limit, Limit { bucket: bucket_of(200), marginal_bytes: 192.0 });
        assert_eq!(forecast.limit(&now, 10_000.0, rest(1.0)).bucket, BUCKETS);
        // Of the 3010 bytes that are known, only a hundredth is still to come.
        let little = Rest { bytes: 30.1, repetition: 0.0 };
        let limit = forecast.limit(&now, 10.1, little);
        assert_eq!((limit.bucket, limit.marginal_bytes.round()), (bucket_of(200), 0.0));
    }
}
