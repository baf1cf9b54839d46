//! Partitions by path: the bound, and that every file is in one of them.

use onefold_policy::primary::path_partitions::{PathPartitions, SizedPath};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn divide(files: &[(&str, u64)], share: f64) -> (PathPartitions, Vec<Vec<String>>) {
    let sized: Vec<SizedPath<'_>> = files.iter().map(|(p, b)| (p.as_bytes(), *b)).collect();
    let partitions = PathPartitions::divide(&sized, share);
    let mut members = vec![Vec::new(); partitions.count()];
    for (path, _) in files {
        members[partitions.partition_of(path.as_bytes())].push((*path).to_owned());
    }
    (partitions, members)
}

#[test]
fn directories_are_split_where_they_are_too_large_and_neighbours_packed() {
    let files =
        [("a/x", 10), ("a/y", 10), ("b/big/1", 30), ("b/big/2", 30), ("b/small", 10), ("c", 10)];
    let (_, members) = divide(&files, 0.4);
    let expected: [&[&str]; 3] = [&["a/x", "a/y"], &["b/big/1"], &["b/big/2", "b/small"]];
    assert_eq!(members[..2], expected[..2]);
    assert_eq!(members[2], expected[2]);
    assert_eq!(members[3], ["c"]);
    let (whole, members) = divide(&files, 1.0);
    assert_eq!((whole.count(), members[0].len()), (1, 6));
}

/// `a.b` sorts before `a/b` as bytes, and after it in a walk: directories stay together.
#[test]
fn paths_are_ordered_by_component() {
    let files = [("a/b", 5), ("a.b", 5), ("a/c", 5), ("a", 5)];
    let (partitions, members) = divide(&files, 0.75);
    assert_eq!(partitions.count(), 2);
    assert!(members.iter().any(|member| member == &["a.b"]), "{members:?}");
    assert_eq!(partitions.partition_of(b"/a//c"), partitions.partition_of(b"a/c"));
}

#[test]
fn a_file_above_the_bound_is_alone_and_no_files_are_one_partition() {
    let files = [("a", 1), ("b", 98), ("c", 1)];
    let (partitions, members) = divide(&files, 0.1);
    assert_eq!(partitions.count(), 3);
    assert_eq!(members[1], ["b"]);
    assert_eq!(divide(&[], 0.1).0.count(), 1);
    assert_eq!(divide(&[("a", 0), ("b", 0)], 0.1).0.count(), 1);
    // One file twice cannot be divided.
    assert_eq!(divide(&[("a", 5), ("a", 5)], 0.1).0.count(), 1);
}

#[test]
fn files_that_come_later_belong_somewhere() {
    let (partitions, _) = divide(&[("d/a", 10), ("d/m", 10)], 0.5);
    assert_eq!(partitions.partition_of(b"a"), 0);
    assert_eq!(partitions.partition_of(b"d/b/deep"), 0);
    assert_eq!(partitions.partition_of(b"z"), 1);
}

proptest! {
    #[test]
    fn the_bound_holds_and_every_file_is_in_one_partition(
        files in proptest::collection::vec(("[ab.]{1,2}(/[ab]{1,2}){0,4}", 0u64..1000), 1..60),
        share in 0.02f64..1.0,
    ) {
        let named: BTreeMap<&str, u64> = files.iter().map(|(p, b)| (p.as_str(), *b)).collect();
        let mut named: Vec<(&str, u64)> = named.into_iter().collect();
        let all: u64 = named.iter().map(|(_, bytes)| bytes).sum();
        let bound = (all as f64 * share) as u64;
        let (partitions, members) = divide(&named, share);
        let bytes_of: BTreeMap<&str, u64> = named.iter().copied().collect();
        let sums: Vec<u64> =
            members.iter().map(|one| one.iter().map(|p| bytes_of[p.as_str()]).sum()).collect();
        for (member, sum) in members.iter().zip(&sums) {
            let with_bytes = member.iter().filter(|path| bytes_of[path.as_str()] > 0);
            prop_assert!(*sum <= bound || with_bytes.count() == 1, "{member:?} {sum} {bound}");
            prop_assert!(!member.is_empty());
        }
        // Two neighbours never fit into one.
        prop_assert!((partitions.count() as f64) <= 2.0 / share + 1.0);
        named.reverse();
        prop_assert_eq!(divide(&named, share).0, partitions);
    }
}
