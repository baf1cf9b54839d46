//! Rules of the papers at the point where each differs from its nearest neighbour.

use crate::support::{Stream, container, fixed, parameters};
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::rewrite::{
    ContainerUse, Decision, Expected, RewriteChoice, RewriteLimits, RewriteParameters, UnitId,
    Usage,
};
use std::sync::Arc;

/// A window of four containers of three chunks each.
fn small_window() -> RewriteParameters {
    RewriteParameters { window_containers: 4, ..parameters(3) }
}

/// Chunks of one container, of which the first comes again and again.
fn push_repeated(stream: &mut Stream, container_number: u64, times: usize) {
    let instances = [container(container_number)];
    for _ in 0..times {
        stream.push(1 << 40 | container_number, DuplicateStatus::Old(&instances));
    }
}

#[test]
fn s2_22_a_container_is_kept_if_it_is_used_more_often_than_the_threshold() {
    for (count, kept) in [(4, 0), (5, 5)] {
        let mut stream = Stream::new(&RewriteChoice::Window(fixed(4)), small_window());
        stream.olds(1, count);
        stream.uniques(12);
        stream.finish();
        assert_eq!((stream.kept(1), stream.rewritten().len()), (kept, count as usize - kept));
    }
}

#[test]
fn s2_30_what_waits_at_the_end_is_decided_by_the_same_rules() {
    for choice in [
        RewriteChoice::Capping { level: Some(1) },
        RewriteChoice::Flexible(fixed(3)),
        RewriteChoice::Window(fixed(2)),
    ] {
        let mut stream = Stream::new(&choice, small_window());
        stream.olds(1, 2);
        stream.olds(2, 3);
        assert!(stream.rewriter.waiting() > 0, "{choice}");
        stream.finish();
        assert_eq!((stream.rewritten(), stream.kept(2)), (vec![0, 1], 3), "{choice}");
    }
}

#[test]
fn s2_20_a_duplicate_is_kept_if_the_window_has_kept_chunks_of_its_container() {
    let mut stream = Stream::new(&RewriteChoice::Window(fixed(2)), small_window());
    // Three in two blocks: more than the threshold, so they are kept.
    stream.olds(1, 2);
    stream.uniques(1);
    stream.old(1);
    stream.uniques(2);
    assert_eq!(stream.kept(1), 3);
    // The first block leaves. With a new one there are two then, which is not more.
    stream.uniques(6);
    stream.old(1);
    stream.uniques(2);
    assert_eq!((stream.kept(1), stream.rewriter.waiting()), (4, 0));
}

#[test]
fn s2_5_repeated_chunks_count_each_time() {
    let choices = [
        (RewriteChoice::Capping { level: Some(1) }, 5),
        (RewriteChoice::Flexible(fixed(4)), 5),
        (RewriteChoice::Window(fixed(4)), 5),
    ];
    for (choice, kept) in choices {
        let mut stream = Stream::new(&choice, parameters(10));
        push_repeated(&mut stream, 1, 5);
        stream.olds(2, 3);
        stream.uniques(2);
        stream.finish();
        assert_eq!((stream.kept(1), stream.kept(2)), (kept, 0), "{choice}");
    }
}

#[test]
fn s2_26_a_repeated_chunk_counts_where_it_is_first() {
    let limits = RewriteLimits::loss(0.1);
    let closeness = |push: &dyn Fn(&mut Stream)| {
        let mut stream = Stream::new(
            &RewriteChoice::Window(limits),
            RewriteParameters { window_containers: 4, ..parameters(10) },
        );
        push_repeated(&mut stream, 1, 1);
        stream.old(1);
        push(&mut stream);
        assert_eq!(stream.counters().cycles, 1);
        stream.counters().closeness
    };
    // Two chunks of a container beside one another, in a window of forty.
    let once = closeness(&|stream| stream.uniques(38));
    assert_eq!(once, 1.0 / 40.0);
    let again = closeness(&|stream| {
        stream.uniques(20);
        push_repeated(stream, 1, 5);
        stream.uniques(13);
    });
    assert_eq!(again, once);
}

#[test]
fn s2_26_closeness_is_the_mean_distance_from_the_chunk_that_would_be_read_for() {
    let mut stream = Stream::new(
        &RewriteChoice::Window(RewriteLimits::loss(0.1)),
        RewriteParameters { window_containers: 4, ..parameters(10) },
    );
    // Ten and thirty chunks behind the first one of container 1, one behind that of container 2.
    for (number, uniques) in [(1, 9), (1, 19), (1, 0), (2, 0), (2, 7)] {
        stream.old(number);
        stream.uniques(uniques);
    }
    assert_eq!(stream.counters().cycles, 1);
    assert_eq!(stream.counters().closeness, f64::from(10 + 30 + 1) / 3.0 / 40.0);
}

#[test]
fn s2_26_what_was_stored_again_is_not_read_for_in_the_old_container() {
    let mut stream = Stream::new(
        &RewriteChoice::Window(fixed(9)),
        RewriteParameters { window_containers: 4, ..parameters(10) },
    );
    // With the first block go two chunks of the fourth, in which the cycle then ends; in the sixth
    // are two that may still stay where they are.
    for (number, uniques) in [(1, 29), (1, 4), (1, 14), (2, 2), (2, 16)] {
        stream.old(number);
        stream.uniques(uniques);
    }
    let counters = stream.counters();
    assert_eq!((counters.cycles, counters.rewritten), (1, 3));
    assert_eq!(counters.closeness, 3.0 / 40.0);
}

#[test]
fn s2_24_a_cycle_is_as_many_moves_as_the_window_has_containers() {
    let mut stream = Stream::new(
        &RewriteChoice::Window(RewriteLimits::loss(0.1)),
        RewriteParameters { window_containers: 4, ..parameters(10) },
    );
    let cycles: Vec<u64> = (0..15)
        .map(|_| {
            stream.uniques(10);
            stream.counters().cycles
        })
        .collect();
    // The first threshold comes just before the first move, which is one of the next cycle.
    assert_eq!(cycles, [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]);
}

#[test]
fn s2_9_har_spends_what_may_be_lost_on_the_least_used_containers() {
    let usage = |referred_bytes| Usage { referred_bytes, payload_bytes: 100, spans: 1 };
    let used = [(1, 40), (2, 30), (3, 10), (4, 20)];
    let history: ContainerUse =
        used.iter().map(|(number, bytes)| (container(*number), usage(*bytes))).collect();
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 200, unique_chunks: 30 }),
        history: Some(Arc::new(history)),
        ..parameters(100)
    };
    // Thirty chunks may be stored again: all of the two that were used least.
    let choice = RewriteChoice::History(RewriteLimits::loss(0.5));
    let mut stream = Stream::new(&choice, parameters);
    for (number, bytes) in used {
        stream.olds(number, bytes);
    }
    assert_eq!(used.map(|(number, _)| stream.kept(number)), [40, 30, 0, 0]);
}

#[test]
fn s2_9_har_takes_containers_for_sparse_of_which_less_than_half_was_used() {
    let usage = |referred_bytes| Usage { referred_bytes, payload_bytes: 100, spans: 1 };
    let used = [(1, 24), (2, 26), (3, 49), (4, 50), (5, 51)];
    let history: ContainerUse =
        used.iter().map(|(number, bytes)| (container(*number), usage(*bytes))).collect();
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 2000, unique_chunks: 1000 }),
        history: Some(Arc::new(history)),
        ..parameters(100)
    };
    let choice = RewriteChoice::History(RewriteLimits::loss(0.9));
    let mut stream = Stream::new(&choice, parameters);
    for (number, bytes) in used {
        stream.olds(number, bytes);
    }
    let kept = used.map(|(number, _)| stream.kept(number));
    assert_eq!(kept, [0, 0, 0, 50, 51]);
    assert!(stream.decided.values().all(|decision| *decision != Decision::Share));
}

#[test]
fn s2_28_algorithm_1_compares_strictly() {
    // Forty containers with a chunk each: both bounds are 1, and all chunks are as close together
    // as they were before. So the loss does not come first, and the threshold rises.
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 240, unique_chunks: 2160 }),
        reads_max: Some(5.0),
        window_containers: 4,
        ..parameters(10)
    };
    let mut stream = Stream::new(&RewriteChoice::Window(RewriteLimits::loss(0.001)), parameters);
    for number in 0..40 {
        stream.old(number);
    }
    let counters = stream.counters();
    assert_eq!((counters.read_bound, counters.rewrite_bound), (1.0, 1.0));
    assert_eq!((counters.cycles, counters.closeness, counters.threshold), (1, 0.0, 2.0));
}

#[test]
fn s2_16_a_threshold_on_the_bound_of_the_loss_does_not_lie_between() {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 100, unique_chunks: 360 }),
        reads_max: Some(2.0),
        ..parameters(10)
    };
    let mut stream = Stream::new(&RewriteChoice::Flexible(RewriteLimits::loss(0.1)), parameters);
    for (number, count) in [(1, 2), (2, 6), (3, 10), (4, 32)] {
        stream.olds(number, count);
    }
    let counters = *stream.counters();
    assert_eq!((counters.read_bound, counters.rewrite_bound), (10.0, 32.0));
    assert_eq!((counters.threshold, counters.rewritten), (21.0, 18));
    for (number, count) in [(5, 8), (6, 21), (7, 21)] {
        stream.olds(number, count);
    }
    let counters = *stream.counters();
    assert_eq!((counters.read_bound, counters.rewrite_bound), (0.0, 21.0));
    assert_eq!(counters.threshold, 10.5);
}

/// Whether the bytes of chunks are asked for that are pushed one after the other.
fn asked_for(stream: &mut Stream, names: &[u64], instances: &[&[UnitId]]) -> Vec<bool> {
    let asked = names.iter().zip(instances).map(|(name, instances)| {
        let candidate = stream.push(*name, DuplicateStatus::Old(instances));
        candidate.is_none_or(|candidate| candidate.is_open)
    });
    asked.collect()
}

#[test]
fn what_the_window_surely_keeps_waits_without_its_bytes() {
    let choice = RewriteChoice::Window(fixed(3));
    let mut stream = Stream::new(&choice, parameters(100));
    let (one, other) = ([container(1)], [container(1), container(2)]);
    // The fourth is above the threshold; what lies elsewhere as well may be referred to there.
    let of = [&one[..], &one, &one, &one, &other, &one];
    let asked = asked_for(&mut stream, &[1, 2, 3, 4, 5, 6], &of);
    assert_eq!(asked, [true, true, true, false, true, false]);
    stream.finish();
    assert_eq!((stream.kept(1), stream.rewritten()), (6, vec![]));
    // What the window has referred to before is kept as well.
    let mut stream =
        Stream::new(&choice, RewriteParameters { window_containers: 2, ..parameters(4) });
    assert_eq!(asked_for(&mut stream, &[1, 2, 3, 4], &[&one[..]; 4]), [true, true, true, false]);
    assert_eq!(asked_for(&mut stream, &[5, 9], &[&one, &[container(3)]]), [false, true]);
}

#[test]
fn what_an_area_uses_most_of_waits_without_its_bytes() {
    let choice = RewriteChoice::Auto(RewriteLimits::loss(0.5));
    let one = [container(1)];
    let mut stream = Stream::new(&choice, parameters(8));
    // More than half of the container; a chunk that comes again counts once.
    let asked = asked_for(&mut stream, &[1, 2, 2, 3, 4, 5, 6], &[&one[..]; 7]);
    assert_eq!(asked, [true, true, true, true, true, false, false]);
    stream.uniques(1000);
    stream.finish();
    assert_eq!((stream.kept(1), stream.rewritten()), (7, vec![]));
    // The next area begins anew; without a limit of loss anything may be stored again.
    assert_eq!(asked_for(&mut stream, &[1], &[&one]), [true]);
    let choice =
        RewriteChoice::Auto(RewriteLimits { reads_max: Some(1.0), ..RewriteLimits::default() });
    let mut stream = Stream::new(&choice, parameters(8));
    assert!(asked_for(&mut stream, &[1, 2, 3, 4, 5, 6], &[&one[..]; 6]).iter().all(|asked| *asked));
}
