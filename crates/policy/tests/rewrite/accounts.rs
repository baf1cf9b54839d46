//! What is counted and told: owners, reports and the next version go by these figures.

use crate::support::{Stream, container, fingerprint, fixed, parameters};
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::rewrite::{
    ContainerUse, Decision, Expected, RewriteChoice, RewriteLimits, RewriteParameters, StreamChunk,
    StreamRewriter, Usage,
};

/// Three segments of fifty chunks, the last of which uses three containers three times each.
fn three_segments(take_back: bool) -> Stream {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 200, unique_chunks: 90 }),
        segment_containers: 5,
        ..parameters(10)
    };
    let choice = RewriteChoice::Flexible(RewriteLimits::loss(0.1));
    let mut stream = Stream::new(&choice, parameters);
    stream.olds(1, 50);
    for (number, count) in [(2, 1), (3, 2), (4, 47)] {
        stream.olds(number, count);
    }
    assert_eq!(stream.counters().rewritten, 3);
    for size_bytes in [1; 3].into_iter().take(if take_back { 3 } else { 0 }) {
        stream.rewriter.take_back(size_bytes);
    }
    for (number, count) in [(5, 3), (6, 3), (7, 44)] {
        stream.olds(number, count);
    }
    stream
}

#[test]
fn s2_13_what_was_not_stored_again_after_all_is_credit_again() {
    // Credit of three segments: 7.5. Three are used up, and 4 is less than three and three.
    let used_up = three_segments(false);
    assert_eq!((used_up.counters().rewrite_bound, used_up.counters().rewritten), (3.0, 3));
    // With them it is 7, and both containers are stored again.
    let again = three_segments(true);
    assert_eq!((again.counters().rewrite_bound, again.counters().rewritten), (44.0, 6));
    assert_eq!(again.counters().rewritten_bytes, 6);
    assert_eq!(again.counters().kept, used_up.counters().kept - 6 + 3);
}

#[test]
fn bytes_stored_again_and_thresholds_are_added_up() {
    let mut rewriter =
        StreamRewriter::new(&RewriteChoice::Flexible(fixed(9)), parameters(10)).unwrap();
    let mut decided = Vec::new();
    for (ticket, size_bytes) in [(0, 30), (1, 21), (2, 50)] {
        let instances = [container(ticket)];
        let status = DuplicateStatus::Old(&instances[..]);
        let fingerprint = fingerprint(ticket);
        rewriter.push(&StreamChunk { ticket, fingerprint, size_bytes, status }, &mut decided);
    }
    assert!(decided.iter().all(|decided| decided.decision == Decision::Rewrite));
    let counters = rewriter.counters();
    assert_eq!((counters.chunks, counters.chunk_bytes), (3, 101));
    assert_eq!((counters.rewritten, counters.rewritten_bytes), (3, 101));
    // Two segments of fifty bytes, the second one of a single chunk.
    assert_eq!((counters.segments, counters.cycles), (2, 2));
    assert_eq!((counters.threshold, counters.threshold_sum), (9.0, 18.0));
}

#[test]
fn segments_and_areas_are_counted_by_every_policy_that_has_them() {
    for (choice, segments) in [
        (RewriteChoice::Capping { level: Some(9) }, 4),
        (RewriteChoice::Flexible(RewriteLimits::loss(0.1)), 4),
        // Containers that have left a window.
        (RewriteChoice::Window(RewriteLimits::loss(0.1)), 20),
        // Areas of half a window of four.
        (RewriteChoice::Auto(RewriteLimits::loss(0.1)), 10),
    ] {
        let sizes = RewriteParameters { window_containers: 4, ..parameters(10) };
        let mut stream = Stream::new(&choice, sizes);
        for number in 0..20 {
            stream.olds(number, 10);
        }
        stream.finish();
        assert_eq!(stream.counters().segments, segments, "{choice}");
    }
}

#[test]
fn s2_18_chunks_wait_up_to_the_very_limit_and_what_is_forced_is_counted() {
    for (choice, forced) in [
        (RewriteChoice::Capping { level: Some(0) }, 21),
        (RewriteChoice::Flexible(fixed(0)), 21),
        (RewriteChoice::Window(fixed(99)), 21),
        (RewriteChoice::Auto(RewriteLimits::loss(0.1)), 21),
    ] {
        let sizes = RewriteParameters { candidates_bytes_max: 20, ..parameters(100) };
        let mut stream = Stream::new(&choice, sizes);
        stream.olds(1, 20);
        assert_eq!((stream.decided.len(), stream.counters().forced), (0, 0), "{choice}");
        stream.old(1);
        let counters = *stream.counters();
        assert_eq!((stream.decided.len(), counters.forced), (21, forced), "{choice}");
        stream.olds(1, 21);
        assert_eq!(stream.counters().forced, 2 * forced, "{choice}");
    }
}

#[test]
fn s2_18_equal_chunks_take_the_room_of_one() {
    for choice in [
        RewriteChoice::Capping { level: Some(0) },
        RewriteChoice::Flexible(fixed(99)),
        RewriteChoice::Window(fixed(99)),
        RewriteChoice::Auto(RewriteLimits::loss(0.1)),
    ] {
        let sizes = RewriteParameters { candidates_bytes_max: 2, ..parameters(100) };
        let mut stream = Stream::new(&choice, sizes);
        let instances = [container(1)];
        for _ in 0..20 {
            stream.push(1 << 40, DuplicateStatus::Old(&instances));
        }
        stream.old(2);
        let counters = *stream.counters();
        assert_eq!((stream.decided.len(), counters.forced), (0, 0), "{choice}");
        assert_eq!((stream.rewriter.waiting(), counters.candidates_bytes_peak), (21, 2));
    }
}

#[test]
fn s2_25_what_was_used_within_eight_containers_counts_as_one_place() {
    for (between_bytes, spans) in [((32 << 20) - 1, 1), (32 << 20, 2)] {
        let mut used = ContainerUse::new();
        used.refer_run(container(1), 1);
        used.refer_run(container(2), between_bytes);
        used.refer_run(container(1), 1);
        assert_eq!(used.get(&container(1)).unwrap().spans, spans);
    }
}

#[test]
fn s2_9_a_container_is_sparse_below_one_half_and_unknown_without_its_payload() {
    for (referred_bytes, payload_bytes, is_sparse) in [
        (0, 0, None),
        (7, 0, None),
        (0, 100, Some(true)),
        (49, 100, Some(true)),
        (50, 100, Some(false)),
        (51, 100, Some(false)),
    ] {
        let usage = Usage { referred_bytes, payload_bytes, spans: 1 };
        assert_eq!(usage.is_sparse(), is_sparse, "{usage:?}");
    }
}

#[test]
fn a_place_a_span_away_counts_as_another_and_runs_count_whole() {
    for (between_bytes, spans) in [(99, 1), (100, 2)] {
        let mut used = ContainerUse::with_span(100);
        assert!(used.is_empty());
        used.refer_run(container(1), 10);
        used.refer_run(container(2), between_bytes);
        used.refer_run(container(1), 10);
        let usage = used.get(&container(1)).unwrap();
        assert_eq!(usage, Usage { referred_bytes: 20, payload_bytes: 0, spans });
        assert!(!used.is_empty());
    }
}

#[test]
fn what_counts_containers_is_told_from_what_counts_bytes() {
    for (text, counts_containers) in [
        ("none", false),
        ("capping", true),
        ("capping,level=3", true),
        // Without any limit these go by the level of capping.
        ("flexible", true),
        ("window", true),
        ("flexible,loss=2", false),
        ("window,loss=2", false),
        ("flexible,reads=2", true),
        ("window,threshold=2", true),
        ("window,loss=2,threshold=2", true),
        ("history", false),
        ("auto", false),
        ("auto,loss=2", false),
        ("auto,reads=2", true),
        ("auto,loss=2,reads=2", true),
    ] {
        let choice: RewriteChoice = text.parse().unwrap();
        assert_eq!(choice.counts_containers(), counts_containers, "{text}");
    }
}
