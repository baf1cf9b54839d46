//! Where the default spends what may be lost, and where the edges of its rules are.

use crate::support::{Stream, all_choices, container, fingerprint, fixed, parameters};
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::rewrite::{
    ContainerUse, Decision, Expected, RewriteChoice, RewriteLimits, RewriteParameters, StreamChunk,
    StreamRewriter, UnitId, Usage,
};
use std::sync::Arc;

/// What the previous version used: container, bytes, places. All containers are large.
fn history(used: impl IntoIterator<Item = (u64, u64, u32)>) -> Option<Arc<ContainerUse>> {
    let usage = |referred_bytes, spans| Usage { referred_bytes, payload_bytes: 1 << 20, spans };
    let used = used.into_iter();
    Some(Arc::new(
        used.map(|(number, bytes, spans)| (container(number), usage(bytes, spans))).collect(),
    ))
}

/// A stream of chunks of any size.
struct Sized {
    rewriter: StreamRewriter,
    pushed: u64,
    rewritten: Vec<u64>,
}

impl Sized {
    fn new(choice: &RewriteChoice, parameters: RewriteParameters) -> Self {
        let rewriter = StreamRewriter::new(choice, parameters).unwrap();
        Self { rewriter, pushed: 0, rewritten: Vec::new() }
    }

    /// So many chunks of such a size, old or new. The tickets of old ones are their containers.
    fn push(&mut self, count: u64, size_bytes: u32, instances: Option<&[UnitId]>) {
        let number = instances.and_then(|instances| instances.first()).map_or(0, |id| id.0[0]);
        for _ in 0..count {
            self.pushed += 1;
            let chunk = StreamChunk {
                ticket: u64::from(number),
                fingerprint: fingerprint(self.pushed),
                size_bytes,
                status: instances.map_or(DuplicateStatus::Unique, DuplicateStatus::Old),
            };
            let mut decided = Vec::new();
            self.rewriter.push(&chunk, &mut decided);
            let rewritten = decided.iter().filter(|one| one.decision == Decision::Rewrite);
            self.rewritten.extend(rewritten.map(|one| one.ticket));
        }
    }

    fn old(&mut self, count: u64, size_bytes: u32, container_number: u64) {
        self.push(count, size_bytes, Some(&[container(container_number)]));
    }
}

#[test]
fn equally_good_places_share_what_may_be_lost_evenly() {
    // Eight areas of a hundred chunks of ten bytes; each uses five containers ten times each, as
    // the version before did. A quarter of 400 unique chunks may be stored again: ten containers.
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 800, unique_chunks: 400 }),
        history: history((1..=40).map(|number| (number, 100, 1))),
        window_containers: 2,
        ..parameters(1000)
    };
    let mut stream = Sized::new(&RewriteChoice::Auto(RewriteLimits::loss(0.2)), parameters);
    let mut of_areas = Vec::new();
    for area in 0..8 {
        let before = stream.rewritten.len();
        for number in 1..=5 {
            stream.old(10, 10, area * 5 + number);
        }
        stream.push(50, 10, None);
        of_areas.push((stream.rewritten.len() - before) / 10);
        // All cost the same: a hundred bytes for a read that is worth three, rounded to a bucket.
        assert_eq!(stream.rewriter.counters().threshold, 3.2);
    }
    assert_eq!(of_areas.iter().sum::<usize>(), 10, "{of_areas:?}");
    assert!(of_areas.iter().all(|count| (1..=2).contains(count)), "{of_areas:?}");
    assert_eq!(stream.rewriter.counters().segments, 8);
}

#[test]
fn s2_13_without_a_history_nothing_is_borrowed_from_the_rest_of_the_stream() {
    // New chunks are large, so the price is low enough for all ten containers; but they have
    // ten chunks each, and of the 64 that may be stored again in all 16 are for the first quarter.
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 800, unique_chunks: 256 }),
        window_containers: 2,
        ..parameters(100 + 100 * 100)
    };
    let mut stream = Sized::new(&RewriteChoice::Auto(RewriteLimits::loss(0.2)), parameters);
    for number in 1..=10 {
        stream.old(10, 1, number);
    }
    stream.push(100, 100, None);
    let counters = stream.rewriter.counters();
    assert_eq!((counters.chunks, counters.unique), (200, 100));
    // What is really new counts: a quarter of 100 chunks, two containers.
    assert_eq!((counters.rewritten, counters.kept, counters.kept_by_limit), (20, 80, 80));
}

#[test]
fn a_container_that_is_kept_cannot_be_saved_and_costs_the_more() {
    // Container 1 is of the kind that is read once, container 2 of the kind read everywhere: all
    // that is left of the first is better stored again than a little of the second, unless
    // the first is read anyway.
    let run = |first: u64, may_be_rewritten: u64| {
        let unique_chunks = 4 * may_be_rewritten;
        let parameters = RewriteParameters {
            expected: Some(Expected { chunks: 200, unique_chunks }),
            history: history([(1, first + 10, 2), (2, 1000, 100)]),
            window_containers: 2,
            whole_worth: 100.0,
            ..parameters(100)
        };
        let mut stream = Stream::new(&RewriteChoice::Auto(RewriteLimits::loss(0.2)), parameters);
        let fill = |stream: &mut Stream, count| {
            for _ in 0..count {
                stream.push(1 << 50, DuplicateStatus::Fresh(()));
            }
        };
        stream.olds(1, first);
        fill(&mut stream, 100 - first);
        let kept = stream.kept(1) as u64;
        stream.olds(1, 10);
        stream.olds(2, 8);
        fill(&mut stream, 82);
        (kept, stream.kept(1) as u64 - kept, stream.kept(2))
    };
    // More than half of an area is not worth rewriting, so container 1 is kept.
    assert_eq!(run(60, 10), (60, 10, 0));
    // What was stored again is not kept, so the rest of it is all that there is.
    assert_eq!(run(12, 22), (0, 0, 8));
}

#[test]
fn no_more_is_stored_again_than_the_limit_of_reads_asks_for() {
    let parameters = RewriteParameters {
        reads_max: Some(3.0),
        segment_containers: 1,
        window_containers: 2,
        ..parameters(100)
    };
    let mut stream = Stream::new(&RewriteChoice::Auto(RewriteLimits::default()), parameters);
    for (number, count) in [(1, 4), (2, 6), (3, 20), (4, 30), (5, 40)] {
        stream.olds(number, count);
    }
    assert_eq!(stream.rewritten().len(), 4 + 6);
    assert_eq!(stream.counters().containers_referred, 3);
}

#[test]
fn the_first_version_of_all_leaves_most_of_its_budget_to_later_ones() {
    // By the version before, one chunk may be stored again for each that was new; of a version that
    // was new for more than its half, an eighth.
    for (unique_chunks, most) in [(499, 499), (500, 500), (501, 62), (800, 100)] {
        let parameters = RewriteParameters {
            expected: Some(Expected { chunks: 1000, unique_chunks }),
            history: history((1..=900).map(|number| (number, 10, 1))),
            ..parameters(100)
        };
        let choice = RewriteChoice::History(RewriteLimits::loss(0.5));
        let mut stream = Sized::new(&choice, parameters);
        for number in 1..=900 {
            stream.old(1, 10, number);
        }
        assert_eq!(stream.rewritten.len(), most, "{unique_chunks}");
    }
}

#[test]
fn s2_21_a_container_that_is_read_anyway_comes_before_one_with_more_company() {
    let sizes = RewriteParameters { window_containers: 4, ..parameters(10) };
    let mut stream = Stream::new(&RewriteChoice::Window(fixed(4)), sizes);
    stream.olds(1, 5);
    stream.uniques(15);
    stream.old(1);
    stream.olds(2, 3);
    // The first five leave the window. One chunk of container 1 is left, and was kept; three of
    // container 2 are left, and wait.
    stream.uniques(16);
    assert_eq!((stream.kept(1), stream.rewriter.waiting()), (6, 3));
    stream.push(1 << 40, DuplicateStatus::Old(&[container(2), container(1)]));
    stream.uniques(9);
    assert_eq!((stream.kept(1), stream.rewriter.waiting()), (7, 3));
}

#[test]
fn what_has_left_the_window_is_not_remembered() {
    let sizes = RewriteParameters { window_containers: 4, ..parameters(3) };
    let mut stream = Stream::new(&RewriteChoice::Window(fixed(9)), sizes);
    for round in 0..3 {
        stream.push(1 << 40, DuplicateStatus::Old(&[container(1)]));
        stream.uniques(14);
        // Stored again each time: the owner would have said that it has it.
        assert_eq!(stream.rewritten().len(), round + 1);
    }
}

#[test]
fn what_a_stream_holds_does_not_grow_with_its_length() {
    for choice in all_choices(0.07) {
        let mut stream = Stream::new(&choice, parameters(10));
        let mut length_of_rounds = |rounds: std::ops::Range<u64>| {
            for number in rounds {
                stream.olds(number, 3);
                stream.uniques(1);
            }
            format!("{:?}", stream.rewriter).len()
        };
        // A multiple of segments, areas and windows each.
        let early = length_of_rounds(0..203);
        let late = length_of_rounds(203..1003);
        assert!(late < early * 5 / 4, "{choice}: {early}, {late}");
    }
}

#[test]
fn s2_18_equal_chunks_are_found_among_thousands_that_wait() {
    for choice in [RewriteChoice::Capping { level: Some(0) }, RewriteChoice::Window(fixed(1 << 20))]
    {
        let mut stream = Stream::new(&choice, parameters(1 << 20));
        for _ in 0..2 {
            for number in 0..5000 {
                stream.push(number, DuplicateStatus::Old(&[container(number % 7)]));
            }
        }
        stream.finish();
        assert_eq!(stream.rewritten(), (0..5000).collect::<Vec<_>>(), "{choice}");
        assert_eq!(stream.counters().shared, 5000, "{choice}");
    }
}

/// One chunk of container 1 twice, then chunks of three others.
fn at_the_limit(choice: &str, sizes: RewriteParameters, fill: u64) -> Stream {
    let mut stream = Stream::new(&choice.parse().unwrap(), sizes);
    for _ in 0..2 {
        stream.push(1 << 40, DuplicateStatus::Old(&[container(1)]));
    }
    stream.olds(2, 4);
    stream.olds(3, 5);
    stream.uniques(fill);
    stream
}

#[test]
fn s2_11_what_may_be_stored_again_is_used_to_the_last_chunk_and_equal_ones_count_once() {
    // A ninth of 45 chunks: one that comes twice, four of container 2, and none of container 3.
    for (choice, chunks) in
        [("flexible,threshold=6,loss=10", 50), ("window,threshold=6,loss=10", 40)]
    {
        let sizes = RewriteParameters {
            expected: Some(Expected { chunks, unique_chunks: 45 }),
            window_containers: 4,
            ..parameters(10)
        };
        let stream = at_the_limit(choice, sizes, chunks - 11);
        let counters = stream.counters();
        assert_eq!((counters.rewritten, counters.shared, counters.kept), (5, 1, 5), "{choice}");
        assert_eq!((counters.kept_by_limit, stream.kept(3)), (5, 5), "{choice}");
    }
}

#[test]
fn what_the_loss_forbids_is_counted_by_har_as_well() {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 100, unique_chunks: 20 }),
        history: history([(1, 10, 1)]),
        ..parameters(100)
    };
    let mut stream = Stream::new(&RewriteChoice::History(RewriteLimits::loss(0.5)), parameters);
    stream.olds(1, 30);
    let counters = stream.counters();
    assert_eq!((counters.rewritten, counters.kept, counters.kept_by_limit), (20, 10, 10));
}

#[test]
fn s2_15_a_container_that_is_only_named_is_not_read() {
    // Two are read and two may be. The third one holds the same chunks as the second.
    for choice in ["flexible,reads=2", "window,reads=2.5"] {
        let sizes = RewriteParameters { window_containers: 4, ..parameters(10) };
        let mut stream = Stream::new(&choice.parse().unwrap(), sizes);
        stream.olds(1, 20);
        for number in 0..30 {
            stream.push(1 << 40 | number, DuplicateStatus::Old(&[container(2), container(3)]));
        }
        let counters = stream.counters();
        assert_eq!(
            (counters.cycles, counters.read_bound, counters.rewritten),
            (1, 0.0, 0),
            "{choice}"
        );
    }
}

#[test]
fn s2_18_a_window_makes_room_beyond_its_limit_only() {
    let sizes = RewriteParameters { candidates_bytes_max: 20, ..parameters(10) };
    let mut stream = Stream::new(&RewriteChoice::Window(fixed(99)), sizes);
    stream.olds(1, 20);
    assert_eq!((stream.rewriter.waiting(), stream.counters().forced), (20, 0));
    stream.old(1);
    assert_eq!((stream.rewriter.waiting(), stream.counters().forced), (1, 20));
}

#[test]
fn s2_22_a_new_threshold_holds_for_the_whole_window_at_once() {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 240, unique_chunks: 2160 }),
        reads_max: Some(5.0),
        window_containers: 4,
        ..parameters(10)
    };
    let mut stream = Stream::new(&RewriteChoice::Window(RewriteLimits::loss(0.1)), parameters);
    for (number, count) in [(1, 2), (2, 4), (3, 8), (4, 10), (5, 16)] {
        stream.olds(number, count);
    }
    // Half of the first block is of container 3, which is therefore stored again, too.
    assert_eq!((stream.counters().threshold, stream.rewritten().len()), (11.0, 14));
    assert_eq!((stream.kept(5), stream.rewriter.waiting()), (16, 10));
}

#[test]
fn s2_21_company_in_the_whole_window_counts() {
    let sizes = RewriteParameters { window_containers: 4, ..parameters(10) };
    let mut stream = Stream::new(&RewriteChoice::Window(fixed(3)), sizes);
    stream.old(2);
    stream.olds(5, 3);
    stream.uniques(6);
    stream.push(1 << 40, DuplicateStatus::Old(&[container(2), container(5)]));
    stream.uniques(9);
    assert_eq!((stream.kept(5), stream.rewriter.waiting()), (4, 1));
}

#[test]
fn what_comes_more_often_than_it_did_is_a_surprise_that_may_come_again() {
    // Each area uses the same five containers. The version before used each in one place.
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 800, unique_chunks: 400 }),
        history: history((1..=5).map(|number| (number, 100, 1))),
        window_containers: 2,
        whole_worth: 0.0,
        ..parameters(1000)
    };
    let mut stream = Sized::new(&RewriteChoice::Auto(RewriteLimits::loss(0.2)), parameters);
    let mut of_areas = Vec::new();
    for _ in 0..8 {
        let before = stream.rewritten.len();
        for number in 1..=5 {
            stream.old(10, 10, number);
        }
        stream.push(50, 10, None);
        of_areas.push((stream.rewritten.len() - before) / 10);
    }
    // Half of all for what seemed to come once, and the rest little by little.
    assert_eq!((of_areas[0], of_areas.iter().sum::<usize>()), (5, 10), "{of_areas:?}");
    assert!(of_areas[1..].iter().all(|count| *count <= 1), "{of_areas:?}");
}
