//! What requests cost this restore, learnt from those it makes, and how far one is to reach.
//!
//! Algorithm: a request takes `access + bytes * pace`. Both are fitted by least squares to the
//! requests made so far, of which older ones count less and less. To read on through a gap costs
//! its bytes; to ask anew costs an access, so a gap of `access / pace` bytes costs the same either
//! way. Half of that is read: bytes that nobody needs cost the processor something as well, and
//! the fit is rough. A request is as long as four accesses take, within limits. On a disk that
//! seeks that is a whole container, on flash a piece that stays in the processor's cache, and
//! nobody has to say which it is.
//!
//! Invariants: [`Reach::NEAR`] before a dozen requests of different lengths were seen, and never
//! farther than [`Reach::FAR`]. What is restored does not depend on it.

use onefold_types::limits;
use std::time::Duration;

/// Requests before the first guess.
const REQUESTS_MIN: f64 = 12.0;
/// What is left of a request's weight after the next.
const WEIGHT_KEPT: f64 = 0.99;
/// Nothing is faster than 50 GB/s: a fit that says so says that length does not matter.
const PACE_MIN_NS: f64 = 0.02;

/// Accesses that a request may take the time of.
const ACCESSES_A_READ: f64 = 4.0;

/// How far one request reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// Bytes that nobody needs that are read rather than asking twice.
    pub gap_bytes_max: u64,
    /// Bytes of one request, unless a single frame has more.
    pub read_bytes_max: u64,
}

impl Reach {
    /// Where asking costs little: enough to amortise a request, little enough to stay in a cache.
    pub const NEAR: Self = Self { gap_bytes_max: 0, read_bytes_max: limits::MIB as u64 };
    /// Where asking is dear.
    pub const FAR: Self = Self {
        gap_bytes_max: (limits::MIB / 2) as u64,
        read_bytes_max: limits::CONTAINER_TARGET_BYTES as u64,
    };
}

/// Weighted sums over requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestCosts {
    count: f64,
    bytes: f64,
    ns: f64,
    bytes_squared: f64,
    bytes_ns: f64,
}

impl RequestCosts {
    /// Notes a request.
    pub fn note(&mut self, bytes: usize, elapsed: Duration) {
        let (bytes, ns) = (bytes as f64, elapsed.as_nanos() as f64);
        let sums = [
            (&mut self.count, 1.0),
            (&mut self.bytes, bytes),
            (&mut self.ns, ns),
            (&mut self.bytes_squared, bytes * bytes),
            (&mut self.bytes_ns, bytes * ns),
        ];
        for (sum, more) in sums {
            *sum = *sum * WEIGHT_KEPT + more;
        }
    }

    /// How far requests are to reach.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let spread = self.count * self.bytes_squared - self.bytes * self.bytes;
        // Requests of one length say nothing about what length costs.
        if self.count < REQUESTS_MIN || spread <= self.bytes * self.bytes * 1e-3 {
            return Reach::NEAR;
        }
        let pace = (self.count * self.bytes_ns - self.bytes * self.ns) / spread;
        let pace = pace.max(PACE_MIN_NS);
        let access = (self.ns - pace * self.bytes) / self.count;
        // Conversions make zero of a fit in which an access takes less than no time.
        let (gap, read) = (access / pace / 2.0, access / pace * ACCESSES_A_READ);
        let (near, far) = (Reach::NEAR, Reach::FAR);
        Reach {
            gap_bytes_max: (gap as u64).min(far.gap_bytes_max),
            read_bytes_max: (read as u64).clamp(near.read_bytes_max, far.read_bytes_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(access_ns: f64, pace_ns: f64, requests: usize) -> Reach {
        let mut costs = RequestCosts::default();
        for number in 0..requests {
            let bytes = 40_000 + number * 7919 % 400_000;
            // Some take half as long again, as on real devices.
            let noise = if number % 5 == 0 { 1.5 } else { 0.9 };
            let ns = (access_ns + pace_ns * bytes as f64) * noise;
            costs.note(bytes, Duration::from_nanos(ns as u64));
        }
        costs.reach()
    }

    #[test]
    fn devices_that_seek_read_on_and_fast_ones_do_not() {
        // A hard disk: 8 ms, 150 MB/s. An object store: 30 ms, 80 MB/s. Flash: 75 us, 500 MB/s.
        assert_eq!(reach(8e6, 6.7, 200), Reach::FAR);
        assert_eq!(reach(30e6, 12.5, 200), Reach::FAR);
        let flash = reach(75e3, 2.0, 200);
        assert!((5_000..60_000).contains(&flash.gap_bytes_max), "{flash:?}");
        let memory = reach(2e3, 0.2, 200);
        assert!(memory.gap_bytes_max < 30_000, "{memory:?}");
        for fast in [flash, memory] {
            assert_eq!(fast.read_bytes_max, Reach::NEAR.read_bytes_max);
        }
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(reach(8e6, 6.7, 5), Reach::NEAR);
        let mut same = RequestCosts::default();
        (0..100).for_each(|_| same.note(100_000, Duration::from_millis(9)));
        assert_eq!(same.reach(), Reach::NEAR);
        let mut falling = RequestCosts::default();
        for number in 1..100_usize {
            falling.note(number * 1000, Duration::from_nanos(1_000_000 - number as u64 * 5000));
        }
        assert!(falling.reach().gap_bytes_max <= Reach::FAR.gap_bytes_max);
    }

    #[test]
    fn a_device_that_changes_is_followed() {
        let mut costs = RequestCosts::default();
        let mut feed = |access_ns: u64, pace_ns: u64| {
            for number in 0..600_u64 {
                let bytes = 40_000 + number * 7919 % 400_000;
                costs.note(bytes as usize, Duration::from_nanos(access_ns + pace_ns * bytes));
            }
            costs.reach()
        };
        assert_eq!(feed(8_000_000, 7), Reach::FAR);
        assert!(feed(20_000, 1).gap_bytes_max < 20_000);
        assert_eq!(feed(8_000_000, 7), Reach::FAR);
    }
}
