//! Modelled devices, and a clock that only accesses move.
//!
//! Latencies are those of S0.17: microseconds for a random read of 1 KiB, as measured by the paper
//! on its machine. Where a bandwidth is given, the bytes read take their time besides. The clock
//! adds up (S0.10 to S0.13):
//!
//! `time = device accesses x latency (+ bytes / bandwidth) + memory accesses x DRAM latency`
//!
//! Whatever else a processor does is not in it: that is what makes the figures those of the
//! algorithms and the same on every machine.

pub mod measure;

use onefold_policy::FilterCounters;
use onefold_policy::lookup::DeviceCosts;
use onefold_types::{Error, Result};

/// The latency of main memory in nanoseconds (S0.17).
pub const DRAM_NS: u64 = 130;
/// The latency of a remote store in nanoseconds.
pub const REMOTE_NS: u64 = 1_000_000;

/// A device that holds index and containers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its name in tables.
    pub name: String,
    /// One random read, in nanoseconds.
    pub read_ns: u64,
    /// Bytes that it moves in a second, where the bytes of an access count.
    pub bytes_per_second: Option<u64>,
    /// What it costs to hold a chunk with its data, in nanoseconds; zero in S0's model, where
    /// fingerprints come alone.
    pub held_chunk_ns: u64,
}

impl Device {
    /// A device whose accesses all take the same time.
    ///
    /// # Errors
    /// The latency is zero or above an hour.
    pub fn new(name: impl Into<String>, read_ns: u64) -> Result<Self> {
        const HOUR_NS: u64 = 3_600_000_000_000;
        if !(1..=HOUR_NS).contains(&read_ns) {
            return Err(Error::invalid(format!(
                "a device latency of {read_ns} ns is impossible; it must be 1 to {HOUR_NS}"
            )));
        }
        Ok(Self { name: name.into(), read_ns, bytes_per_second: None, held_chunk_ns: 0 })
    }

    /// The devices of S0.17, slowest first, and the remote store.
    #[must_use]
    pub fn modelled() -> Vec<Self> {
        let devices = [
            ("HDD", 11_494_000),
            ("remote store", REMOTE_NS),
            ("SATA SSD", 141_000),
            ("Optane SSD", 25_000),
            ("PM", 800),
            ("DRAM", DRAM_NS),
        ];
        let device = |(name, read_ns): (&str, _)| Self {
            name: name.to_owned(),
            read_ns,
            bytes_per_second: None,
            held_chunk_ns: 0,
        };
        devices.map(device).into()
    }

    /// The same device where chunks come with their data, as in a backup.
    #[must_use]
    pub fn holding(self, held_chunk_ns: u64) -> Self {
        Self { held_chunk_ns, ..self }
    }

    /// What look-ups cost on it.
    #[must_use]
    pub fn costs(&self) -> DeviceCosts {
        DeviceCosts::new(self.read_ns, DRAM_NS).holding(self.held_chunk_ns)
    }

    /// The left side of inequality (8): latency of the device over latency of memory.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.read_ns as f64 / DRAM_NS as f64
    }

    /// How long these accesses take, in nanoseconds.
    #[must_use]
    pub fn access_ns(&self, accesses: u64, bytes: u64) -> u64 {
        let moving = self
            .bytes_per_second
            .map_or(0, |speed| u128::from(bytes) * 1_000_000_000 / u128::from(speed.max(1)));
        let latency = u128::from(accesses) * u128::from(self.read_ns);
        u64::try_from(latency + moving).unwrap_or(u64::MAX)
    }
}

/// What a look-up stage did, in accesses: the virtual clock's hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accesses {
    /// Accesses of the device.
    pub device: u64,
    /// Bytes read by them.
    pub device_bytes: u64,
    /// Questions to the summary vector.
    pub filter: u64,
    /// Look-ups in the cache before the index is asked (S0.4, pre-lookup).
    pub cache: u64,
    /// Look-ups in the cache after a prefetch (post-lookup).
    pub post: u64,
    /// Fingerprints put into a buffer or into the cache: S0's model leaves them out.
    pub upkeep: u64,
    /// Chunks held with their data until others before them had been judged.
    pub held: u64,
}

impl Accesses {
    /// What counters say, with the bytes that the device moved.
    #[must_use]
    pub fn of(counters: &FilterCounters, device_bytes: u64) -> Self {
        Self {
            device: counters.device_reads(),
            device_bytes,
            filter: counters.summary_lookups,
            cache: counters.cache_lookups,
            post: counters.post_lookups,
            upkeep: counters.fingerprints_buffered + counters.fingerprints_prefetched,
            held: counters.chunks_held,
        }
    }
}

/// The time of each stage in nanoseconds, as in Table 4 of S0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stages {
    /// Summary vector.
    pub filter_ns: u64,
    /// The cache, before the index is asked.
    pub cache_ns: u64,
    /// The device.
    pub device_ns: u64,
    /// The cache, after a prefetch.
    pub post_ns: u64,
    /// Filling buffer and cache.
    pub upkeep_ns: u64,
    /// Holding chunks with their data.
    pub held_ns: u64,
}

impl Stages {
    /// The time that accesses take on a device.
    #[must_use]
    pub fn of(accesses: &Accesses, device: &Device) -> Self {
        Self {
            filter_ns: accesses.filter.saturating_mul(DRAM_NS),
            cache_ns: accesses.cache.saturating_mul(DRAM_NS),
            device_ns: device.access_ns(accesses.device, accesses.device_bytes),
            post_ns: accesses.post.saturating_mul(DRAM_NS),
            upkeep_ns: accesses.upkeep.saturating_mul(DRAM_NS),
            held_ns: accesses.held.saturating_mul(device.held_chunk_ns),
        }
    }

    /// All stages together.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        let memory = [self.filter_ns, self.cache_ns, self.post_ns, self.upkeep_ns, self.held_ns];
        memory.into_iter().fold(self.device_ns, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_ratios_come_out() {
        let ratio = |name: &str| {
            let devices = Device::modelled();
            devices.iter().find(|device| device.name == name).unwrap().ratio()
        };
        // S0.24; the paper leaves the SATA SSD out (S0.32).
        assert!((ratio("HDD") - 88_415.38).abs() < 0.01);
        assert!((ratio("Optane SSD") - 192.31).abs() < 0.01);
        assert!((ratio("PM") - 6.15).abs() < 0.01);
        assert!((ratio("SATA SSD") - 1084.62).abs() < 0.01);
        assert!((ratio("DRAM") - 1.0).abs() < 1e-9);
        // S0.17, in nanoseconds, and the remote store that Table 1 has not.
        let latencies: Vec<u64> = Device::modelled().iter().map(|device| device.read_ns).collect();
        assert_eq!(latencies, [11_494_000, 1_000_000, 141_000, 25_000, 800, 130]);
    }

    #[test]
    fn stages_add_up() {
        let counters = FilterCounters {
            index_page_reads: 2,
            containers_prefetched: 1,
            summary_lookups: 8,
            cache_lookups: 5,
            post_lookups: 2,
            fingerprints_buffered: 3,
            fingerprints_prefetched: 100,
            ..FilterCounters::default()
        };
        let accesses = Accesses::of(&counters, 500);
        let device = Device::new("d", 1000).unwrap();
        let stages = Stages::of(&accesses, &device);
        assert_eq!((stages.filter_ns, stages.cache_ns), (8 * 130, 5 * 130));
        assert_eq!((stages.device_ns, stages.post_ns, stages.upkeep_ns), (3000, 260, 103 * 130));
        // The clock agrees with the policy about what an access of memory is.
        assert_eq!(stages.total_ns(), counters.memory_accesses() * 130 + 3000);
    }

    #[test]
    fn bytes_take_time_where_a_bandwidth_is_given() {
        let slow = Device { bytes_per_second: Some(1_000_000), ..Device::new("d", 10).unwrap() };
        assert_eq!(slow.access_ns(2, 500), 20 + 500_000);
        let absurd = Device { bytes_per_second: Some(0), ..slow };
        assert_eq!(absurd.access_ns(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn impossible_latencies_are_refused_with_the_range() {
        for read_ns in [0, u64::MAX] {
            let message = Device::new("d", read_ns).unwrap_err().to_string();
            assert!(message.contains("1 to 3600000000000"), "{message}");
        }
    }
}
