//! Limits: of reads, of the loss, of memory; and what a stream that goes on for ever takes.

use crate::support::{Stream, all_choices, container, fixed, parameters};
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::rewrite::{
    Before, ContainerUse, Decision, Expected, RewriteChoice, RewriteCounters, RewriteLimits,
    RewriteParameters, Usage,
};
use std::sync::Arc;

#[test]
fn candidates_beyond_the_limit_are_those_of_the_most_used_containers() {
    for choice in [RewriteChoice::Window(fixed(100)), RewriteChoice::Auto(RewriteLimits::loss(0.5))]
    {
        let parameters = RewriteParameters {
            candidates_bytes_max: 32,
            expected: Some(Expected { chunks: 60, unique_chunks: 60 }),
            ..parameters(100)
        };
        let mut stream = Stream::new(&choice, parameters);
        stream.olds(1, 20);
        stream.olds(2, 5);
        stream.olds(3, 7);
        assert_eq!(stream.decided.len(), 0, "{choice}");
        stream.old(4);
        assert_eq!((stream.decided.len(), stream.kept(1)), (20, 20), "{choice}");
        assert_eq!(stream.counters().forced, 20);
        assert_eq!(stream.counters().candidates_bytes_peak, 33);
        stream.finish();
        assert!(stream.kept(1) == 20 && !stream.rewritten().is_empty(), "{choice}");
    }
}

#[test]
fn a_limit_of_reads_alone_is_kept_by_every_policy_that_has_one() {
    for name in ["flexible,reads=2", "window,reads=2", "auto,reads=2"] {
        let choice: RewriteChoice = name.parse().unwrap();
        let sizes = RewriteParameters { segment_containers: 1, ..parameters(100) };
        let mut stream = Stream::new(&choice, sizes);
        for round in 0..40u64 {
            for (part, count) in [(0, 40), (1, 30), (2, 20), (3, 7), (4, 3)] {
                stream.olds(round * 10 + part, count);
            }
        }
        stream.finish();
        let counters = stream.counters();
        assert!(counters.containers_referred <= 2 * 40 + 2, "{name}: {counters:?}");
        assert!(counters.rewritten > 900 && counters.rewritten < 2400, "{name}: {counters:?}");
    }
}

#[test]
fn what_earlier_versions_left_may_be_spent_little_by_little() {
    let run = |before| {
        let parameters = RewriteParameters {
            expected: Some(Expected { chunks: 1000, unique_chunks: 0 }),
            before: Some(before),
            ..parameters(20)
        };
        let mut stream = Stream::new(&RewriteChoice::Auto(RewriteLimits::loss(0.2)), parameters);
        for number in 0..500 {
            stream.olds(number, 2);
        }
        stream.finish();
        stream.counters().rewritten
    };
    // A quarter of 1600 is 400 in all; an eighth of that is for this version.
    assert_eq!(run(Before { unique_chunks: 1600, rewritten_chunks: 0 }), 50);
    assert_eq!(run(Before { unique_chunks: 1600, rewritten_chunks: 320 }), 10);
    assert_eq!(run(Before { unique_chunks: 1600, rewritten_chunks: 9999 }), 0);
}

#[test]
fn s2_11_a_version_may_spend_by_the_one_before_or_an_eighth_of_what_all_have_left() {
    // At a loss of 20 % a quarter: of 400 chunks of the version before, or of an eighth of 1600.
    for (words, most) in [("budget=version", 100), ("budget=store", 50)] {
        for policy in ["flexible", "window"] {
            let choice: RewriteChoice = format!("{policy},loss=20,{words}").parse().unwrap();
            let parameters = RewriteParameters {
                expected: Some(Expected { chunks: 1000, unique_chunks: 400 }),
                before: Some(Before { unique_chunks: 1600, rewritten_chunks: 0 }),
                ..parameters(20)
            };
            let mut stream = Stream::new(&choice, parameters);
            for segment in 1..=10 {
                for (container, count) in [1, 1, 1, 1, 2, 2, 3, 4, 5, 80].into_iter().enumerate() {
                    stream.olds(segment * 100 + container as u64, count);
                }
                // H_rw for each segment that has passed, and nothing of those to come.
                let rewritten = stream.counters().rewritten;
                assert!(rewritten * 10 <= most * segment, "{choice}: {rewritten} after {segment}");
            }
            stream.finish();
            let rewritten = stream.counters().rewritten;
            assert!((most * 3 / 4..=most).contains(&rewritten), "{choice}: {rewritten}");
        }
    }
}

/// What becomes of a segment that uses so many containers, the first once, the second twice.
fn used_more_and_more(choice: &RewriteChoice, containers: u64) -> RewriteCounters {
    let expected = Some(Expected { chunks: 500, unique_chunks: 100_000 });
    let mut stream = Stream::new(choice, RewriteParameters { expected, ..parameters(100) });
    (1..=containers).for_each(|number| stream.olds(number, number));
    stream.uniques(500 - containers * (containers + 1) / 2);
    stream.finish();
    *stream.counters()
}

#[test]
fn s2_15_and_s2_16_without_a_limit_twenty_containers_of_a_segment_are_left_alone() {
    for make in [RewriteChoice::Flexible, RewriteChoice::Window] {
        let unlimited = make(RewriteLimits::default());
        // Of thirty containers the twentieth, from the most used on, is used eleven times.
        let beyond = used_more_and_more(&unlimited, 30);
        assert_eq!((beyond.read_bound, beyond.rewrite_bound), (11.0, 31.0), "{unlimited}");
        assert!(beyond.rewritten > 100, "{unlimited}: {beyond:?}");
        let within = used_more_and_more(&unlimited, 20);
        assert_eq!((within.read_bound, within.threshold, within.rewritten), (0.0, 0.0, 0));
    }
    // Who asks for both limits gets the middle between the bounds, as published.
    let limits = RewriteLimits { reads_max: Some(20.0), ..RewriteLimits::loss(0.02) };
    let published = used_more_and_more(&RewriteChoice::Flexible(limits), 20);
    assert_eq!((published.read_bound, published.rewrite_bound), (0.0, 21.0));
    assert_eq!((published.threshold, published.rewritten), (10.5, 55));
}

#[test]
fn har_rewrites_sparse_containers_at_once_least_used_first() {
    let usage = |referred_bytes, payload_bytes| Usage { referred_bytes, payload_bytes, spans: 1 };
    let history: ContainerUse = [
        (container(1), usage(90, 100)),
        (container(2), usage(4, 100)),
        (container(3), usage(10, 100)),
        (container(4), usage(49, 0)),
    ]
    .into_iter()
    .collect();
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 200, unique_chunks: 20 }),
        history: Some(Arc::new(history)),
        ..parameters(100)
    };
    let choice = RewriteChoice::History(RewriteLimits::loss(0.5));
    let mut stream = Stream::new(&choice, parameters);
    stream.olds(1, 90);
    stream.olds(2, 4);
    stream.olds(3, 10);
    stream.olds(4, 49);
    stream.olds(5, 1);
    stream.push(999, DuplicateStatus::Old(&[container(2), container(5)]));
    assert_eq!(stream.rewriter.waiting(), 0);
    // Twenty chunks are allowed: 4 + 10, but not 49 more.
    assert_eq!((stream.kept(1), stream.kept(2), stream.kept(3)), (90, 0, 0));
    assert_eq!((stream.kept(4), stream.kept(5)), (49, 2));
    assert_eq!(stream.rewritten().len(), 14);
}

#[test]
fn containers_used_by_half_are_not_worth_rewriting_however_much_may_be_lost() {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 400, unique_chunks: 200 }),
        ..parameters(100)
    };
    let mut stream = Stream::new(&RewriteChoice::Auto(RewriteLimits::loss(0.9)), parameters);
    for (number, count) in [(1, 100), (2, 51), (3, 50), (4, 9), (5, 100), (6, 90)] {
        stream.olds(number, count);
    }
    stream.finish();
    assert_eq!((stream.kept(3), stream.kept(4), stream.rewritten().len()), (0, 0, 59));
}

#[test]
fn chunks_without_instances_are_stored_and_odd_sizes_do_no_harm() {
    for choice in all_choices(0.07) {
        let mut stream = Stream::new(&choice, parameters(10));
        stream.push(1, DuplicateStatus::Old(&[]));
        assert_eq!(stream.decided[&0], Decision::Rewrite);
        stream.finish();
        stream.finish();
        let many: Vec<_> = (0..1000).map(container).collect();
        for _ in 0..3 {
            stream.push(2, DuplicateStatus::Old(&many));
        }
        stream.finish();
        assert_eq!(stream.decided.len(), 4, "{choice}");
    }
}

#[test]
fn a_stream_that_goes_on_for_ever_waits_for_no_more_than_a_window() {
    for choice in all_choices(0.07) {
        let sizes = RewriteParameters { candidates_bytes_max: 300, ..parameters(50) };
        let mut stream = Stream::new(&choice, sizes);
        for round in 0..500u64 {
            stream.olds(round, 20);
            stream.olds(round % 7 + 1000, 1);
            stream.uniques(4);
            assert!(stream.rewriter.waiting() <= 400, "{choice}");
        }
        stream.finish();
        assert_eq!(stream.decided.len(), 500 * 21);
    }
}

#[test]
fn the_worth_of_a_whole_container_decides_between_a_stray_and_a_sparse_one() {
    let run = |whole_worth| {
        let usage = |referred_bytes| Usage { referred_bytes, payload_bytes: 1000, spans: 1 };
        let history = [(container(1), usage(1000)), (container(2), usage(80))];
        let parameters = RewriteParameters {
            expected: Some(Expected { chunks: 200, unique_chunks: 80 }),
            history: Some(Arc::new(history.into_iter().collect())),
            whole_worth,
            ..parameters(400)
        };
        let mut stream = Stream::new(&RewriteChoice::Auto(RewriteLimits::loss(0.5)), parameters);
        stream.olds(1, 50);
        stream.olds(2, 80);
        stream.finish();
        (stream.kept(1), stream.kept(2))
    };
    // Eighty chunks may be rewritten: the stray fifty, or all that is used of the sparse container.
    assert_eq!(run(0.0), (0, 80));
    assert_eq!(run(100.0), (50, 0));
}

#[test]
fn a_history_counts_each_chunk_once_and_each_place_apart() {
    let mut used = ContainerUse::with_span(100);
    for (number, size_bytes, is_first) in
        [(1, 40, true), (1, 40, true), (2, 30, true), (1, 40, false), (2, 120, true), (1, 5, true)]
    {
        used.refer(container(number), size_bytes, is_first);
    }
    used.set_payload(container(1), 400);
    let usage = used.get(&container(1)).unwrap();
    // Used from 0 to 80, from 110 to 150, and 120 bytes later.
    assert_eq!(usage, Usage { referred_bytes: 85, payload_bytes: 400, spans: 2 });
    let usage = used.get(&container(2)).unwrap();
    assert_eq!(usage, Usage { referred_bytes: 150, payload_bytes: 0, spans: 1 });
    assert_eq!((used.len(), used.is_empty(), used.get(&container(3))), (2, false, None));
}
