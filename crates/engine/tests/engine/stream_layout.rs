//! Stream-informed layout (S1.16, FAST'08, section 4.2): what is stored of a stream stands in
//! containers of its own, in the order of the stream.

use crate::ingest::{backup_options, create, entry_at, in_memory, options, paths, random_bytes};
use crate::rewriting::open_with;
use onefold_engine::container::{list, reader::read_section};
use onefold_engine::ingest::{BackupOptions, Source, backup};
use onefold_engine::tree::TreeReader;
use onefold_engine::{Job, MemoryPlan, Repository};
use onefold_types::{Fingerprint, SessionId, limits};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Files of each stream: small ones, which are read several at a time, and large ones.
const FILES: usize = 60;

fn write_source(root: &Path, name: &str, seed: u64) {
    let directory = root.join(name);
    fs::create_dir(&directory).unwrap();
    for number in 0..FILES {
        let length = if number % 10 == 0 { 700_000 } else { 9000 + number * 100 };
        let bytes = random_bytes(seed + number as u64, length);
        fs::write(directory.join(format!("{number:02}")), bytes).unwrap();
    }
}

/// The chunks of a source in the order of its stream, by name.
fn stream_of(
    repository: &Arc<Repository>,
    id: SessionId,
    source: &Path,
) -> HashMap<Fingerprint, usize> {
    let trees = TreeReader::open(repository).unwrap();
    let mut places = HashMap::new();
    for number in 0..FILES {
        let entry = entry_at(repository, id, &source.join(format!("{number:02}")));
        let content = entry.content.unwrap();
        trees
            .extents(content, entry.size, &mut |extent| {
                let next = places.len();
                places.entry(extent.fingerprint).or_insert(next);
                Ok(())
            })
            .unwrap();
    }
    places
}

#[test]
fn s1_16_two_streams_share_no_container_and_each_stands_in_its_order() {
    let source = tempfile::tempdir().unwrap();
    let names = ["one", "other"];
    for (name, seed) in names.into_iter().zip([1000, 2000]) {
        write_source(source.path(), name, seed);
    }
    let (_, store) = in_memory();
    create(&store, &options());
    let repository = open_with(&store, MemoryPlan::new(256 * limits::MIB).unwrap());
    let Source::Paths { selection, .. } = paths(source.path()) else { unreachable!() };
    let directories = names.map(|name| source.path().join(name));
    let both = Source::Paths { paths: directories.to_vec(), selection };
    let asked = BackupOptions { streams: 2, threads: 4, ..backup_options() };
    let report = backup(&repository, both, &asked, &Job::unattended().0).unwrap();
    assert_eq!(report.streams, 2);
    let id = report.snapshot.unwrap();
    let streams = directories.map(|directory| stream_of(&repository, id, &directory));
    let (mut containers, mut seen) = ([0; 2], BTreeSet::new());
    for container in list::container_names(&repository).unwrap() {
        let section = read_section(&repository, container).unwrap();
        let data = section.chunks.iter().filter(|chunk| !chunk.level.is_node());
        let names: Vec<Fingerprint> = data.map(|chunk| chunk.fingerprint).collect();
        let is_of_one_kind = [0, section.chunks.len()].contains(&names.len());
        assert!(is_of_one_kind, "{container} has data and nodes");
        for (number, places) in streams.iter().enumerate() {
            let of: Vec<usize> =
                names.iter().filter_map(|name| places.get(name)).copied().collect();
            if of.is_empty() {
                continue;
            }
            containers[number] += 1;
            assert_eq!(of.len(), names.len(), "{container} has chunks of both streams");
            assert!(of.is_sorted(), "{container}: not in the order of its stream: {of:?}");
            seen.extend(names.iter().copied());
        }
    }
    assert!(containers.into_iter().all(|count| count > 10), "{containers:?}");
    assert_eq!(seen.len(), streams.iter().map(HashMap::len).sum::<usize>());
}
