//! The worked examples of the paper (S2.29), and small cases beside them.

use crate::support::{Stream, container, fixed, parameters};
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::rewrite::{
    Decision, Expected, RewriteChoice, RewriteLimits, RewriteParameters,
};

const SEGMENT_1: [u64; 14] = [60, 55, 50, 45, 40, 38, 36, 34, 32, 30, 28, 26, 3, 2];
const SEGMENT_2: [u64; 12] = [90, 80, 70, 60, 50, 40, 6, 5, 4, 3, 2, 2];

/// Two segments whose containers are used as in Fig. 1 (a), filled up with new chunks.
fn figure_1(choice: &RewriteChoice) -> Stream {
    let mut stream = Stream::new(choice, parameters(100));
    for (segment, counts) in [&SEGMENT_1[..], &SEGMENT_2[..]].into_iter().enumerate() {
        for (rank, count) in counts.iter().enumerate() {
            stream.olds((segment * 100 + rank) as u64, *count);
        }
        stream.uniques(500 - counts.iter().sum::<u64>());
        assert_eq!(stream.rewriter.waiting(), 0);
    }
    stream
}

#[test]
fn s2_29_figure_1_capping_at_ten_against_twelve_and_six() {
    let capping = figure_1(&RewriteChoice::Capping { level: Some(10) });
    assert_eq!(capping.counters().containers_referred, 20);
    assert_eq!(capping.counters().rewritten, 28 + 26 + 3 + 2 + 2 + 2);

    let flexible = figure_1(&RewriteChoice::Flexible(fixed(10)));
    assert_eq!(flexible.counters().containers_referred, 12 + 6);
    assert_eq!(flexible.counters().rewritten, 3 + 2 + 6 + 5 + 4 + 3 + 2 + 2);
    assert_eq!((flexible.kept(11), flexible.kept(12)), (26, 0));
    assert_eq!((flexible.kept(105), flexible.kept(106)), (40, 0));
}

/// Fig. 2: most of C1 lies at the front of S1, most of C2 at the front of S2, and a few chunks of
/// each on the other side of the boundary.
fn figure_2(choice: &RewriteChoice) -> Stream {
    let sizes = RewriteParameters { segment_containers: 2, window_containers: 4, ..parameters(10) };
    let mut stream = Stream::new(choice, sizes);
    stream.olds(1, 17);
    stream.olds(2, 3);
    stream.olds(1, 3);
    stream.olds(2, 17);
    stream.finish();
    stream
}

#[test]
fn s2_29_figure_2_a_boundary_costs_capping_what_the_window_keeps() {
    let capping = figure_2(&RewriteChoice::Capping { level: Some(1) });
    assert_eq!(capping.rewritten(), [17, 18, 19, 20, 21, 22]);
    let flexible = figure_2(&RewriteChoice::Flexible(fixed(5)));
    assert_eq!(flexible.rewritten(), [17, 18, 19, 20, 21, 22]);
    let window = figure_2(&RewriteChoice::Window(fixed(4)));
    assert_eq!(window.rewritten(), [0u64; 0]);
    assert_eq!((window.kept(1), window.kept(2)), (20, 20));
    assert_eq!(window.counters().containers_referred, 2);
}

#[test]
fn s2_29_figure_4_position_by_position() {
    let sizes = RewriteParameters { window_containers: 4, ..parameters(3) };
    let mut stream = Stream::new(&RewriteChoice::Window(fixed(4)), sizes);
    stream.olds(1, 6);
    stream.olds(3, 2);
    stream.olds(1, 2);
    stream.olds(2, 2);
    // Position 1: eight, two and two. Only container 1 is used more than four times.
    assert_eq!((stream.kept(1), stream.decided.len()), (8, 8));
    assert_eq!(stream.counters().candidates_bytes_peak, 6);
    stream.olds(2, 3);
    // Position 2: container 2 has reached five, and its chunks leave the cache.
    assert_eq!((stream.kept(2), stream.decided.len()), (5, 13));
    assert_eq!(stream.rewriter.waiting(), 2);
    stream.uniques(3);
    // Position 3: the chunks of container 3 have come to the end.
    assert_eq!(stream.rewritten(), [6, 7]);
    assert_eq!(stream.rewriter.waiting(), 0);
    stream.finish();
    assert_eq!(stream.decided.len(), 15);
}

#[test]
fn a_container_read_a_window_ago_is_kept_and_one_read_before_is_not() {
    let sizes = RewriteParameters { window_containers: 4, ..parameters(3) };
    let mut stream = Stream::new(&RewriteChoice::Window(fixed(2)), sizes);
    stream.olds(1, 3);
    stream.uniques(6);
    stream.old(1);
    stream.uniques(2);
    assert_eq!((stream.kept(1), stream.counters().containers_referred), (4, 1));
    // Nothing of it is left in the window but the last one, and then not even that.
    stream.uniques(12);
    stream.old(1);
    stream.uniques(11);
    assert_eq!(stream.rewritten(), [24]);
}

#[test]
fn with_a_leading_chunk_all_of_its_container_in_the_window_moves_and_equal_chunks_share() {
    let sizes = RewriteParameters { window_containers: 4, ..parameters(3) };
    let mut stream = Stream::new(&RewriteChoice::Window(fixed(9)), sizes);
    let instances = [container(1)];
    stream.push(70, DuplicateStatus::Old(&instances));
    stream.uniques(4);
    stream.push(71, DuplicateStatus::Old(&instances));
    stream.push(70, DuplicateStatus::Old(&instances));
    stream.uniques(4);
    assert_eq!(stream.decided.len(), 0);
    assert_eq!(stream.counters().candidates_bytes_peak, 2);
    stream.uniques(1);
    let expected = [(0, Decision::Rewrite), (5, Decision::Rewrite), (6, Decision::Share)];
    assert_eq!(stream.decided.clone().into_iter().collect::<Vec<_>>(), expected);
    // A late equal chunk still knows.
    stream.push(70, DuplicateStatus::Old(&instances));
    stream.uniques(2);
    assert_eq!(stream.decided[&12], Decision::Share);
}

#[test]
fn s2_21_the_instance_with_most_company_is_taken() {
    for choice in [
        RewriteChoice::Capping { level: Some(1) },
        RewriteChoice::Flexible(fixed(2)),
        RewriteChoice::Window(fixed(1)),
    ] {
        let mut stream = Stream::new(&choice, parameters(10));
        // The newest instance of each is in a container of its own; all are in container 5.
        for number in 0..6 {
            let instances = [container(100 + number), container(5), container(50 + number % 2)];
            stream.push(number, DuplicateStatus::Old(&instances));
        }
        stream.olds(5, 2);
        stream.finish();
        assert_eq!((stream.kept(5), stream.counters().containers_referred), (8, 1), "{choice}");
    }
}

#[test]
fn s2_13_credit_left_by_whole_segments_is_spent_by_torn_ones() {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 200, unique_chunks: 90 }),
        segment_containers: 5,
        ..parameters(10)
    };
    // Ten per cent: ten chunks may be rewritten, 2.5 for each segment.
    let choice = RewriteChoice::Flexible(RewriteLimits::loss(0.1));
    let mut stream = Stream::new(&choice, parameters);
    for _ in 0..2 {
        stream.olds(1, 50);
    }
    assert_eq!(stream.counters().rewritten, 0);
    // Credit 7: the containers with one and two chunks, as the third reaches it.
    for (number, count) in [(2, 1), (3, 2), (4, 4), (5, 43)] {
        stream.olds(number, count);
    }
    assert_eq!((stream.counters().rewrite_bound, stream.counters().rewritten), (4.0, 3));
    for (number, count) in [(6, 3), (7, 3), (8, 44)] {
        stream.olds(number, count);
    }
    // Credit 7 again: both with three, together six, and the last one reaches the limit.
    assert_eq!((stream.counters().rewrite_bound, stream.counters().rewritten), (44.0, 9));
}

#[test]
fn s2_15_and_s2_16_both_limits_and_the_middle_between_their_bounds() {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 100, unique_chunks: 900 }),
        reads_max: Some(2.0),
        ..parameters(10)
    };
    let choice = RewriteChoice::Flexible(RewriteLimits::loss(0.1));
    let mut stream = Stream::new(&choice, parameters);
    for (number, count) in [(1, 2), (2, 6), (3, 10), (4, 32)] {
        stream.olds(number, count);
    }
    // Two reads are allowed: down to 10. 50 chunks may be rewritten: up to 32.
    let counters = *stream.counters();
    assert_eq!((counters.read_bound, counters.rewrite_bound), (10.0, 32.0));
    assert_eq!((counters.threshold, counters.rewritten), (21.0, 18));
    assert_eq!(counters.containers_referred, 1);
    for (number, count) in [(5, 5), (6, 20), (7, 25)] {
        stream.olds(number, count);
    }
    // Three are allowed now, and there are three; 82 may be rewritten, and there are 50.
    let counters = *stream.counters();
    assert_eq!((counters.read_bound, counters.rewrite_bound), (0.0, 26.0));
    assert_eq!((counters.threshold, counters.rewritten), (21.0, 18 + 25));
}

#[test]
fn s2_28_algorithm_1_moves_the_threshold_by_closeness() {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 240, unique_chunks: 2160 }),
        reads_max: Some(5.0),
        window_containers: 4,
        ..parameters(10)
    };
    let choice = RewriteChoice::Window(RewriteLimits::loss(0.1));
    let mut stream = Stream::new(&choice, parameters);
    // Far apart: first all first halves, then all second halves.
    for _ in 0..2 {
        for (number, count) in [(1, 1), (2, 2), (3, 4), (4, 5), (5, 8)] {
            stream.olds(number, count);
        }
    }
    let counters = *stream.counters();
    // 40 chunks: four reads are allowed, so down to 4; 40 may be rewritten, which the last reaches.
    assert_eq!((counters.read_bound, counters.rewrite_bound), (4.0, 16.0));
    assert_eq!((counters.cycles, counters.threshold), (1, 11.0));
    assert!(counters.closeness > 0.3 && counters.closeness < 0.6, "{}", counters.closeness);
    // Close together, a cycle long.
    for number in 6..9 {
        stream.olds(number, 10);
    }
    let after = *stream.counters();
    assert_eq!(after.cycles, 2);
    assert!(after.closeness < counters.closeness);
    // Of this cycle count four containers that were rewritten, with 2, 4, 8 and 10 chunks, eight
    // kept chunks of the fifth, and ten of each new one. Seven reads are allowed less that of the
    // fifth, so down to 8; 70 - 24 chunks may be rewritten, which the first 10 but two reaches.
    assert_eq!((after.read_bound, after.rewrite_bound), (8.0, 10.0));
    // 11 is not between them, so their middle; one less, since chunks lie closer together.
    assert_eq!(after.threshold, 8.0);
}
