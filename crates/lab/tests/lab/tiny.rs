//! Every experiment in its tiny form: all that it states holds, but for what is named here.
//!
//! These are the tests of the papers' results: break a policy, an index or a formula, and
//! statements of the experiments that are about it fail.

use onefold_lab::experiment::{Experiment, Setting};
use std::path::PathBuf;

/// Runs the tiny form of an experiment. All its statements hold, but those that begin like this.
/// Returns the report.
#[track_caller]
fn assert_holds(name: &str, missed: &[&str]) -> String {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_onefold-lab")));
    let setting = Setting { tiny: true, program, ..Setting::default() };
    let [experiment] = Experiment::named(name).unwrap()[..] else { panic!("{name}: not one") };
    let report = experiment.run(&setting).unwrap();
    assert!(!report.checks().is_empty(), "{name} states nothing");
    for check in report.checks() {
        let is_missed = missed.iter().any(|beginning| check.what.starts_with(beginning));
        assert_eq!(check.holds, !is_missed, "{name}: {}: {}", check.what, check.figures);
    }
    let markdown = report.markdown();
    if LOOK_UPS.contains(&name) {
        assert!(markdown.contains("as shipped"), "{name} does not show the product");
        assert_the_product_comes_first(&markdown);
    }
    for beginning in missed {
        let mut stated = report.checks().iter().map(|check| check.what.as_str());
        assert!(stated.any(|what| what.starts_with(beginning)), "{name} states no '{beginning}'");
    }
    markdown
}

/// What is said of ways of looking up is said of the product as it is before all others.
const LOOK_UPS: [&str; 9] = [
    "lookup-devices",
    "published-lookup",
    "ring-sweep",
    "bucket-threshold-sweep",
    "filter-size-sweep",
    "four-configurations",
    "sampled",
    "aged",
    "auto",
];

/// In each table that has a row, or a column, for the product and for others, its is the first.
#[track_caller]
fn assert_the_product_comes_first(markdown: &str) {
    for table in markdown.split("\n\n").filter(|part| part.starts_with('|')) {
        let mut lines = table.lines();
        let header = lines.next().unwrap_or_default();
        let first = lines.nth(1).unwrap_or_default();
        let has_ways = ["strategy", "configuration", "| index |"];
        assert!(
            !has_ways.iter().any(|way| header.contains(way)) || first.contains("as shipped"),
            "the product is not first:\n{header}\n{first}"
        );
    }
}

#[test]
fn the_tiny_form_of_lookup_devices_holds() {
    assert_holds("lookup-devices", &[]);
}

#[test]
fn the_tiny_form_of_published_lookup_holds() {
    assert_holds("published-lookup", &[]);
}

#[test]
fn the_tiny_form_of_lookup_clock_holds() {
    assert_holds("lookup-clock", &[]);
}

#[test]
fn the_tiny_form_of_product_throughput_holds() {
    assert_holds("product-throughput", &[]);
}

#[test]
fn the_tiny_form_of_product_report_holds() {
    assert_holds("product-report", &[]);
}

#[test]
fn the_tiny_form_of_ring_sweep_holds() {
    let markdown = assert_holds("ring-sweep", &[]);
    // S0.26, S0.31: each stage on each device, the device's among them, and the total is their sum.
    let header = "| device | ring | filter s | pre-lookup s | device s | post-lookup s | upkeep s \
                  | total s |";
    let table = markdown.split("\n\n").find(|part| part.starts_with(header)).unwrap();
    let mut of_hdd = Vec::new();
    for row in table.lines().skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let seconds = |place: usize| cells[place].replace(',', "").parse::<f64>().unwrap();
        let stages: f64 = (2..7).map(seconds).sum();
        assert!((stages - seconds(7)).abs() < 0.0004, "{row}");
        if cells[0] == "HDD" {
            of_hdd.push((seconds(4), seconds(7)));
        }
    }
    assert!(of_hdd.len() > 10 && of_hdd.iter().all(|(device, all)| device < all), "{of_hdd:?}");
}

#[test]
fn the_tiny_form_of_bucket_threshold_sweep_holds() {
    assert_holds("bucket-threshold-sweep", &[]);
}

#[test]
fn the_tiny_form_of_filter_size_sweep_holds() {
    assert_holds("filter-size-sweep", &[]);
}

#[test]
fn the_tiny_form_of_four_configurations_misses_what_it_says() {
    assert_holds("four-configurations", &["exchange: both, with the product"]);
}

#[test]
fn the_tiny_form_of_chunking_holds() {
    assert_holds("chunking", &[]);
}

#[test]
fn the_tiny_form_of_data_centres_holds() {
    assert_holds("data-centres", &[]);
}

#[test]
fn the_tiny_form_of_duplicate_locality_misses_what_it_says() {
    assert_holds("duplicate-locality", &["scattered: neighbours are at home"]);
}

#[test]
fn the_tiny_form_of_signature_index_holds() {
    assert_holds("signature-index", &[]);
}

#[test]
fn the_tiny_form_of_sampled_holds() {
    assert_holds("sampled", &[]);
}

#[test]
fn the_tiny_form_of_aged_misses_what_it_says() {
    let missed = ["eager, filter first", "eager, cache first", "lazy", "second look"];
    let on = ["HDD", "remote store", "SATA SSD", "Optane SSD", "PM"];
    let missed =
        missed.map(str::to_owned).into_iter().chain(on.map(|one| format!("auto on {one}")));
    let missed: Vec<String> = missed.map(|one| format!("aged, {one}: at least 99 %")).collect();
    assert_holds("aged", &missed.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn the_tiny_form_of_auto_holds() {
    assert_holds("auto", &[]);
}

#[test]
fn the_tiny_form_of_window_size_holds() {
    assert_holds("window-size", &[]);
}

#[test]
fn the_tiny_form_of_threshold_sweep_holds() {
    assert_holds("threshold-sweep", &[]);
}

#[test]
fn the_tiny_form_of_ratio_curves_holds() {
    assert_holds("ratio-curves", &[]);
}

#[test]
fn the_tiny_form_of_rewrite_grid_misses_what_it_says() {
    let missed = [
        "adaptive, look-ahead 8: no policy is below none",
        "adaptive, look-ahead 8: the default",
        "adaptive, look-ahead 64: the default is at most 3 %",
        "adaptive, look-ahead 64: the default is above",
    ];
    assert_holds("rewrite-grid", &missed);
}

#[test]
fn the_tiny_form_of_versions_restore_holds() {
    assert_holds("versions-restore", &[]);
}

#[test]
fn the_tiny_form_of_generations_restore_holds() {
    assert_holds("generations-restore", &[]);
}

#[test]
fn the_tiny_form_of_fresh_chunks_holds() {
    assert_holds("fresh-chunks", &[]);
}

#[test]
fn the_tiny_form_of_restore_devices_holds() {
    assert_holds("restore-devices", &[]);
}

#[test]
fn the_tiny_form_of_gc_compression_holds() {
    assert_holds("gc-compression", &[]);
}

#[test]
fn the_tiny_form_of_gc_files_holds() {
    assert_holds("gc-files", &[]);
}

#[test]
fn the_tiny_form_of_gc_fullness_holds() {
    assert_holds("gc-fullness", &[]);
}

#[test]
fn the_tiny_form_of_gc_phases_holds() {
    assert_holds("gc-phases", &[]);
}

#[test]
fn the_tiny_form_of_gc_liveness_holds() {
    assert_holds("gc-liveness", &[]);
}

#[test]
fn the_tiny_form_of_gc_memory_holds() {
    assert_holds("gc-memory", &[]);
}

#[test]
fn the_tiny_form_of_gc_locality_holds() {
    assert_holds("gc-locality", &[]);
}

#[test]
fn the_tiny_form_of_partition_savings_holds() {
    assert_holds("partition-savings", &[]);
}

#[test]
fn the_tiny_form_of_reconciliation_holds() {
    assert_holds("reconciliation", &[]);
}

#[test]
fn the_tiny_form_of_regression_chunking_holds() {
    assert_holds("regression-chunking", &[]);
}

#[test]
fn the_tiny_form_of_primary_index_holds() {
    assert_holds("primary-index", &[]);
}

#[test]
fn the_tiny_form_of_primary_savings_holds() {
    assert_holds("primary-savings", &[]);
}

#[test]
fn the_tiny_form_of_primary_references_holds() {
    assert_holds("primary-references", &[]);
}

#[test]
fn the_tiny_form_of_selective_compression_holds() {
    assert_holds("selective-compression", &[]);
}

#[test]
fn the_tiny_form_of_deltas_holds() {
    assert_holds("deltas", &[]);
}

#[test]
fn the_tiny_form_of_requests_holds() {
    assert_holds("requests", &[]);
}

#[test]
fn every_experiment_is_tested() {
    let source = include_str!("tiny.rs");
    for experiment in Experiment::ALL {
        let name = experiment.claim.name;
        let test = format!("fn the_tiny_form_of_{}_", name.replace('-', "_"));
        let is_run = source.contains(&test) && source.contains(&format!("\"{name}\""));
        assert!(is_run, "{name} has no test here");
    }
}

#[test]
fn the_tiny_form_of_rewriting_devices_holds() {
    assert_holds("rewriting-devices", &[]);
}
