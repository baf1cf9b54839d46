//! What `backup` tells of what it left out (R85): how much, and what asked for it without effect.

use crate::context::Context;
use crate::size::{counted, human};
use crate::store_path;
use onefold_engine::ingest::Selection;
use onefold_engine::ingest::left_out::LeftOut;
use onefold_types::Result;
use serde_json::{Value, json};

/// Tells how many items were left out, and why.
pub fn describe(context: &Context, asked: &Selection, found: &LeftOut) -> Result<()> {
    let reasons = reasons(asked, found);
    match reasons.is_empty() {
        true => Ok(()),
        false => context.output.note(&format!("left out: {}", reasons.join(", "))),
    }
}

fn reasons(asked: &Selection, found: &LeftOut) -> Vec<String> {
    let mut reasons = Vec::new();
    if found.matched_items > 0 {
        reasons.push(format!("{} by patterns", counted(found.matched_items, "item")));
    }
    if found.caches > 0 {
        reasons.push(counted(found.caches, "cache"));
    }
    for (name, mark) in asked.exclude_if_present.iter().zip(&found.marked) {
        if mark.directories > 0 {
            reasons.push(format!("{} with '{name}'", counted(mark.directories, "directory")));
        }
    }
    if let Some(limit) = asked.exclude_larger_than_bytes
        && found.large_files > 0
    {
        reasons.push(format!(
            "{} larger than {} ({})",
            counted(found.large_files, "file"),
            human(limit),
            human(found.large_bytes)
        ));
    }
    if found.mounts > 0 {
        reasons.push(counted(found.mounts, "mount"));
    }
    if found.snapshot_mounts > 0 {
        reasons.push(counted(found.snapshot_mounts, "snapshot mount"));
    }
    if found.gone > 0 {
        reasons.push(format!("{} that went meanwhile", counted(found.gone, "item")));
    }
    if found.grown > 0 {
        reasons.push(format!("what came into {} meanwhile", counted(found.grown, "directory")));
    }
    reasons
}

/// Warns of patterns, and of names of marks, that met nothing: what they are to leave out may be
/// saved in silence.
pub fn warn_of_unmet(context: &Context, asked: &Selection, found: &LeftOut) {
    store_path::warn_of_unmatched(&context.output, &asked.excludes);
    let unmet: Vec<String> = asked
        .exclude_if_present
        .iter()
        .zip(&found.marked)
        .filter(|(_, mark)| !mark.was_met)
        .map(|(name, _)| format!("'{name}'"))
        .collect();
    if !unmet.is_empty() {
        context.output.warning(&format!(
            "no directory holds {}, so --exclude-if-present left nothing out for it; what lies in \
             a directory that is left out is not looked at",
            unmet.join(" or ")
        ));
    }
}

/// The same in numbers.
pub fn fields(asked: &Selection, found: &LeftOut) -> Value {
    let marked = asked.exclude_if_present.iter().zip(&found.marked);
    json!({
        "matched_items": found.matched_items,
        "matched_bytes": found.matched_bytes,
        "large_files": found.large_files,
        "large_bytes": found.large_bytes,
        "caches": found.caches,
        "marked": marked.map(|(name, mark)| (name, mark.directories)).collect::<Vec<_>>(),
        "mounts": found.mounts,
        "snapshot_mounts": found.snapshot_mounts,
        "gone": found.gone,
        "grown_directories": found.grown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_engine::ingest::left_out::MarkCount;
    use onefold_engine::patterns::Patterns;

    #[test]
    fn r85_every_reason_is_told_and_none_that_there_was_not() {
        let asked = Selection {
            excludes: Patterns::none(),
            one_file_system: true,
            exclude_larger_than_bytes: Some(1 << 30),
            exclude_caches: true,
            exclude_if_present: vec![".nobackup".into(), ".skip".into()],
            ..Selection::default()
        };
        let all = LeftOut {
            matched_items: 5,
            matched_bytes: 9,
            large_files: 2,
            large_bytes: 3 << 30,
            caches: 3,
            marked: vec![
                MarkCount { directories: 1, was_met: true },
                MarkCount { directories: 0, was_met: true },
            ],
            mounts: 4,
            gone: 2,
            grown: 1,
            ..LeftOut::default()
        };
        assert_eq!(
            reasons(&asked, &all).join(", "),
            "5 items by patterns, 3 caches, 1 directory with '.nobackup', 2 files larger than \
             1.00 GiB (3.00 GiB), 4 mounts, 2 items that went meanwhile, what came into 1 \
             directory meanwhile"
        );
        assert!(reasons(&asked, &LeftOut::none(2)).is_empty());
    }
}
