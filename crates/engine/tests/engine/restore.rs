//! Restores from hand-made stores into real directories.

mod attributes;
mod damage;
mod file_reader;
mod hostile;
mod on_the_way;
mod overwrite;
mod replacing;
mod sparse;
mod support;
mod surplus;
mod survival;

use onefold_engine::container::reader::read_section;
use onefold_engine::job::Collected;
use onefold_engine::patterns::Patterns;
use onefold_engine::restore::{Delete, Overwrite, RestoreOptions, RestoreReport, Without, restore};
use onefold_engine::{Job, Repository};
use onefold_format::node::Entry;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_store::Blobs;
use onefold_types::{ContainerId, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Options with which everything is restored to `target`.
fn options(target: &Path) -> RestoreOptions {
    RestoreOptions {
        target: target.to_path_buf(),
        overwrite: Overwrite::IfChanged,
        in_place: false,
        saved_within_ns: 0..0,
        delete: Delete::Nothing,
        sparse: false,
        verify: false,
        dry_run: false,
        include: Patterns::none(),
        exclude: Patterns::none(),
        threads: 2,
        engine: RestoreEngine::Direct,
        placed: None,
        sources: None,
        follows_out: false,
        reach: None,
        without: Without::default(),
        spared: None,
    }
}

/// Restores without any problem.
fn restore_cleanly(
    repository: &Arc<Repository>,
    root: &Entry,
    options: &RestoreOptions,
) -> RestoreReport {
    let (report, problems) = restore_with_problems(repository, root, options);
    assert_eq!(problems, [], "{report:?}");
    assert_eq!(report.errors, 0);
    report
}

type Problem = (String, ErrorKind, String);

fn restore_with_problems(
    repository: &Arc<Repository>,
    root: &Entry,
    options: &RestoreOptions,
) -> (RestoreReport, Vec<Problem>) {
    let (job, collected) = Job::unattended();
    let report = restore(repository, root, options, &job).unwrap();
    (report, problems(&collected))
}

fn problems(collected: &Collected) -> Vec<Problem> {
    std::mem::take(&mut collected.0.lock().unwrap())
}

fn patterns(list: &[&str]) -> Patterns {
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    Patterns::build(&list, &[]).unwrap()
}

/// The containers of a store, oldest first.
fn containers(store: &dyn Blobs) -> Vec<ContainerId> {
    let mut ids = Vec::new();
    store
        .list_names("containers", &mut |name| {
            ids.extend(name.rsplit('/').next().unwrap().parse::<ContainerId>());
            Ok(())
        })
        .unwrap();
    ids.sort();
    ids
}

/// The containers that hold data, not tree nodes.
fn data_containers(store: &dyn Blobs, repository: &Repository) -> Vec<ContainerId> {
    let mut ids = containers(store);
    ids.retain(|id| {
        let section = read_section(repository, *id).unwrap();
        !section.chunks[0].level.is_node()
    });
    ids
}
