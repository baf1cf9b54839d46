//! Impossible parameters are refused, and the message says what is possible; those in use are told.

use onefold_policy::FilterCounters;
use onefold_policy::lookup::{
    AutoParameters, DeviceCosts, LazyParameters, LookupStrategy, PostLookup, SampledParameters,
    StreamLookup,
};
use onefold_types::ErrorKind;

fn lazy(ring_length: usize, bucket_threshold: usize, buffer_max: usize) -> LookupStrategy {
    LookupStrategy::Lazy(LazyParameters {
        ring_length,
        bucket_threshold,
        buffer_max,
        ..LazyParameters::default()
    })
}

#[test]
fn impossible_parameters_are_refused_with_the_valid_range() {
    let auto = AutoParameters::new(DeviceCosts::SATA_SSD, 1000);
    let costs = |device_read_ns, memory_access_ns| {
        LookupStrategy::Auto(AutoParameters {
            costs: DeviceCosts::new(device_read_ns, memory_access_ns),
            ..auto
        })
    };
    let LookupStrategy::Lazy(no_ring) = lazy(0, 1, 1) else { unreachable!() };
    let cases = [
        (lazy(0, 4, 100), "the length of a locality ring is 0; it must be from 1 to 65536"),
        (lazy(65_537, 4, 100), "locality ring is 65537; it must be from 1 to 65536"),
        (LookupStrategy::SecondLook(no_ring), "locality ring is 0; it must be from 1 to 65536"),
        (lazy(1, 0, 100), "the bucket threshold is 0; it must be from 1 to 65536"),
        (lazy(1, 65_537, 100), "the bucket threshold is 65537; it must be from 1 to 65536"),
        (lazy(1, 1, 0), "waiting fingerprints is 0; it must be from 1 to 16777216"),
        (lazy(1, 1, 16_777_217), "is 16777217; it must be from 1 to 16777216"),
        (
            LookupStrategy::Sampled(SampledParameters { segment_length: 0 }),
            "the length of a segment is 0; it must be from 1 to 1048576",
        ),
        (
            LookupStrategy::Auto(AutoParameters { buffer_max: 0, ..auto }),
            "waiting fingerprints is 0; it must be from 1 to 16777216",
        ),
        (
            LookupStrategy::Auto(AutoParameters { window_length: 63, ..auto }),
            "the length of a window is 63; it must be from 64 to 16777216",
        ),
        (costs(0, 1), "the cost of a device access in ns is 0; it must be from 1 to"),
        (costs(1, 0), "the cost of a memory access in ns is 0; it must be from 1 to"),
    ];
    for (strategy, message) in cases {
        let error = StreamLookup::new(&strategy).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn the_ends_of_the_ranges_and_the_defaults_are_accepted() {
    let costs = DeviceCosts::new(1, 3_600_000_000_000);
    let strategies = [
        lazy(1, 1, 1),
        lazy(65_536, 65_536, 1 << 24),
        LookupStrategy::Lazy(LazyParameters::default()),
        LookupStrategy::SecondLook(LazyParameters::default()),
        LookupStrategy::Sampled(SampledParameters::default()),
        LookupStrategy::Sampled(SampledParameters { segment_length: 1 }),
        LookupStrategy::Auto(AutoParameters::new(costs, 1)),
        LookupStrategy::default(),
    ];
    for strategy in strategies {
        assert_eq!(StreamLookup::new(&strategy).unwrap().waiting(), 0);
    }
    let default = LazyParameters::default();
    assert_eq!(default.ring_length, 2048, "S0.19");
}

#[test]
fn s0_24_ratios_of_the_papers_devices() {
    let ratios = [
        (DeviceCosts::HARD_DISK, 88_415.38),
        (DeviceCosts::SATA_SSD, 1_084.62),
        (DeviceCosts::OPTANE_SSD, 192.31),
        (DeviceCosts::PERSISTENT_MEMORY, 6.15),
        (DeviceCosts::MEMORY, 1.0),
    ];
    for (costs, ratio) in ratios {
        assert!((costs.ratio() - ratio).abs() < 0.01, "{costs:?}: {}", costs.ratio());
    }
}

#[test]
fn what_it_does_is_told_with_all_its_parameters() {
    let told = |strategy| StreamLookup::new(&strategy).unwrap().explain(&FilterCounters::default());
    assert_eq!(
        told(lazy(1000, 16, 5000)),
        "Chunks are looked up lazily: a chunk that is neither in the cache nor surely new waits \
         until 16 of its bucket can be located together, or 5000 wait in all; rings take 1000, as \
         was asked for. So far 0 look-ups took 0 accesses of the device."
    );
    let whole = LazyParameters { post_lookup: PostLookup::WholeRing, ..LazyParameters::default() };
    let told = told(LookupStrategy::SecondLook(whole));
    assert!(told.contains("lazily, with a second look into the cache: a chunk"), "{told}");
    assert!(told.contains("2048, all of them looked for again after every hit, as"), "{told}");
}
