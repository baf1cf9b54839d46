//! What a user may write, and what is refused.

use onefold_policy::restore_plan::RestoreEngine;
use onefold_policy::rewrite::{RewriteChoice, RewriteLimits, RewriteParameters, StreamRewriter};

#[test]
fn choices_are_read_as_they_are_written() {
    for text in [
        "none",
        "capping",
        "capping,level=12",
        "flexible",
        "flexible,loss=7,reads=20",
        "window,loss=7,threshold=120",
        "window,reads=2.5",
        "flexible,loss=7,budget=version",
        "history,loss=0.5",
        "auto",
        "auto,loss=12.25",
    ] {
        let choice: RewriteChoice = text.parse().unwrap();
        assert_eq!(choice.to_string(), text);
    }
    let choice: RewriteChoice = "flexible,reads=20,loss=7%".parse().unwrap();
    let limits = RewriteLimits { reads_max: Some(20.0), ..RewriteLimits::loss(0.07) };
    assert_eq!(choice, RewriteChoice::Flexible(limits));
    assert_eq!(RewriteChoice::default().to_string(), "auto");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    for (text, reason) in [
        ("", "'' is no way of rewriting"),
        ("lbw", "'lbw' is no way of rewriting"),
        ("auto,loss", "'loss' is no limit"),
        ("auto,loss=much", "'much', which is no number"),
        ("auto,loss=100", "the loss is 1; it must be from 0 to 0.99"),
        ("auto,loss=-1", "must be from 0 to 0.99"),
        ("auto,loss=NaN", "must be from 0 to 0.99"),
        ("window,reads=-2", "must be from 0 to"),
        ("history,reads=2", "'history' has no limit 'reads'"),
        ("capping,loss=2", "'capping' has no limit 'loss'"),
        ("none,loss=2", "'none' has no limit 'loss'"),
        ("auto,budget=version", "'auto' has no limit 'budget'"),
        ("window,budget=year", "it must be store or version"),
        ("capping,level=-1", "'-1', which is no number"),
    ] {
        let error = text.parse::<RewriteChoice>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn s2_32_what_is_not_said_is_the_papers_equal_memory() {
    let defaults = RewriteParameters::default();
    assert_eq!(defaults.container_bytes, 4 << 20);
    assert_eq!((defaults.segment_containers, defaults.window_containers), (5, 8));
    assert_eq!(defaults.candidates_bytes_max, 5 * (4 << 20));
    let alacc = RestoreEngine::AdaptiveLookAhead {
        memory_bytes: 32 << 20,
        look_ahead_bytes: 32 << 20,
        adapts: false,
    };
    assert_eq!("adaptive,fixed".parse::<RestoreEngine>().unwrap(), alacc);
}

#[test]
fn parameters_out_of_range_are_refused_with_the_range() {
    let good = RewriteParameters::default;
    for (parameters, reason) in [
        (RewriteParameters { container_bytes: 0, ..good() }, "size of a container is 0"),
        (RewriteParameters { segment_containers: 0, ..good() }, "from 1 to 65536"),
        (RewriteParameters { window_containers: 1 << 17, ..good() }, "from 1 to 65536"),
        (RewriteParameters { loss_max: Some(1.0), ..good() }, "from 0 to 0.99"),
        (RewriteParameters { whole_worth: -1.0, ..good() }, "worth of a whole container is -1"),
        (RewriteParameters { reads_max: Some(f64::INFINITY), ..good() }, "number of reads is inf"),
    ] {
        let error = StreamRewriter::new(&RewriteChoice::None, parameters).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}
