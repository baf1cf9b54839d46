//! What cannot be ends a collection in an error, before anything is deleted, and never in silence.
//!
//! As in the tests of the same name for backups: each canary of `crates/tidy/mutants.toml` whose
//! rule begins with "hard ends" breaks the program in a way that no input brings about.

use crate::basics::{Saved, everything};
use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::collection::{CollectOptions, MarkAlgorithm, collect};

#[test]
fn i13_what_cannot_be_ends_a_collection_in_an_error_of_its_own() {
    for algorithm in [MarkAlgorithm::Auto, MarkAlgorithm::Physical, MarkAlgorithm::Partitioned] {
        let mut saved = Saved::versions(Suite::Aes256Gcm);
        saved.save_mostly_dead();
        let options = CollectOptions { algorithm, ..everything() };
        match collect(&saved.repository, &options, &job()) {
            Ok(report) => assert!(report.copied_chunks > 0 && report.kept.is_empty(), "{report:?}"),
            Err(error) => panic!("{algorithm:?}: ended in {:?}: {error}", error.kind()),
        }
        // Whatever it has lost it has lost in silence.
        saved.assert_whole();
    }
}
