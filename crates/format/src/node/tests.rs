use super::*;
use onefold_types::ContainerId;
use proptest::prelude::*;

fn reference(byte: u8, level: u16) -> Reference {
    Reference { fingerprint: Fingerprint([byte; 32]), level: Level(level) }
}

fn leaf() -> DirectoryLeaf {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
    let file = Entry {
        name: b"a\xff file".to_vec(),
        mode: 0o4755,
        uid: 1000,
        gid: u32::MAX,
        links: 2,
        modified: time(1_700_000_000, 999_999_999),
        changed: time(1_700_000_001, 1),
        inode: u64::MAX,
        device: 77,
        size: 5000,
        sparse: true,
        chunks: 3,
        content: Some(reference(1, 1)),
        xattrs: vec![(b"user.x".to_vec(), vec![0, 255]), (b"user.y".to_vec(), vec![])],
        ..Entry::default()
    };
    let directory = Entry {
        name: b"b".to_vec(),
        kind: EntryKind::Directory,
        modified: time(-5, 0),
        content: Some(reference(2, 3)),
        totals: Totals { entries: 9, bytes: 1 << 50, chunks: 10 },
        ..Entry::default()
    };
    let symlink = Entry {
        name: b"c".to_vec(),
        kind: EntryKind::Symlink,
        target: b"../\xfe".to_vec(),
        ..Entry::default()
    };
    let device = Entry {
        name: b"d".to_vec(),
        kind: EntryKind::BlockDevice,
        device_number: 0x801,
        ..Entry::default()
    };
    let fifo = Entry { name: b"e".to_vec(), kind: EntryKind::Fifo, ..Entry::default() };
    let empty = Entry { name: b"f".to_vec(), ..Entry::default() };
    DirectoryLeaf {
        entries: vec![file, directory, symlink, device, fifo, empty],
        users: vec![(0, b"root".to_vec()), (1000, b"u".to_vec())],
        groups: vec![],
    }
}

fn nodes() -> Vec<Node> {
    vec![
        Node::FileMap(FileMap {
            child_level: Level(2),
            extents: vec![
                Extent { fingerprint: Fingerprint([1; 32]), length: 1 << 40 },
                Extent::hole(1 << 41),
            ],
        }),
        Node::DirectoryLeaf(leaf()),
        Node::DirectoryLeaf(DirectoryLeaf::default()),
        Node::DirectoryMap(DirectoryMap {
            parts: vec![DirectoryPart {
                leaf: reference(4, 1),
                first_name: b"a".to_vec(),
                totals: Totals { entries: 3, bytes: 4, chunks: 2 },
            }],
        }),
        Node::Transform(Transform {
            method: 1,
            parameters: b"level 6".to_vec(),
            sources: vec![(reference(5, 0), 100)],
            length: 20,
        }),
        Node::PlacementPage(PlacementPage {
            containers: vec![ContainerId([8; 16])],
            runs: vec![
                PlacementRun { container: Some(0), frame: 15, chunks: 1000, bytes: 1 << 23 },
                PlacementRun { container: None, frame: 0, chunks: 1, bytes: 9 },
            ],
        }),
        Node::PlacementMap(PlacementMap {
            parts: vec![PlacementPart { page: reference(6, 1), chunks: 1001 }],
            uses: vec![reference(7, 1)],
        }),
        Node::ContainerUses(ContainerUses {
            containers: vec![UseOfContainer {
                container: ContainerId([8; 16]),
                frame: 2,
                referred_bytes: 1 << 20,
                payload_bytes: 0,
                spans: 3,
                rests_on: vec![BaseFrame {
                    container: ContainerId([9; 16]),
                    frame: 300,
                    bytes: 1 << 40,
                }],
            }],
        }),
    ]
}

#[test]
fn every_kind_round_trips() {
    for node in nodes() {
        assert_eq!(Node::decode(&node.encode()).unwrap(), node);
    }
}

#[test]
fn truncation_is_always_damage() {
    for node in nodes() {
        let bytes = node.encode();
        for length in 0..bytes.len() {
            assert!(Node::decode(&bytes[..length]).is_err(), "{node:?} cut to {length}");
        }
    }
}

#[test]
fn references_skip_holes_and_keep_levels() {
    let mut seen = Vec::new();
    for node in nodes() {
        node.references(&mut |reference| {
            seen.push((reference.fingerprint.0[0], reference.level.0))
        });
    }
    assert_eq!(seen, [(1, 2), (1, 1), (2, 3), (4, 1), (5, 0), (6, 1), (7, 1)]);
}

#[test]
fn r54_names_that_leave_the_directory_are_refused() {
    for name in ["", ".", "..", "a/b", "/", "a\0"] {
        let mut hostile = DirectoryLeaf::default();
        hostile.entries.push(Entry { name: name.as_bytes().to_vec(), ..Entry::default() });
        assert!(Node::decode(&Node::DirectoryLeaf(hostile).encode()).is_err(), "{name:?}");
    }
}

#[test]
fn disorder_and_contradictions_are_refused() {
    let mut disordered = leaf();
    disordered.entries.reverse();
    let mut repeated = leaf();
    repeated.entries[1].name = repeated.entries[0].name.clone();
    let mut content_without_size = leaf();
    content_without_size.entries[0].size = 0;
    let mut link_with_content = leaf();
    link_with_content.entries[2].content = Some(reference(1, 0));
    for hostile in [disordered, repeated, content_without_size, link_with_content] {
        assert!(Node::decode(&Node::DirectoryLeaf(hostile).encode()).is_err());
    }
}

#[test]
fn unknown_kinds_mean_a_newer_format() {
    for bytes in [[2, 99], [3, 1]] {
        assert_eq!(Node::decode(&bytes).unwrap_err().kind(), ErrorKind::NewerFormat);
    }
}

proptest! {
    #[test]
    fn decoding_survives_anything(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Node::decode(&bytes);
    }

    #[test]
    fn decoding_survives_mutation(which in 0usize..6, position: usize, byte: u8) {
        let mut bytes = nodes()[which].encode();
        let position = position % bytes.len();
        bytes[position] = byte;
        if let Ok(node) = Node::decode(&bytes) {
            prop_assert_eq!(Node::decode(&node.encode()).unwrap(), node);
        }
    }
}

#[test]
fn r124_names_that_repeat_or_are_out_of_order_are_refused() {
    let leaf = |names: &[&[u8]]| {
        let named = |name: &&[u8]| Entry { name: name.to_vec(), ..Entry::default() };
        let entries = names.iter().map(named).collect();
        Node::DirectoryLeaf(DirectoryLeaf { entries, ..DirectoryLeaf::default() })
    };
    let map = |names: &[&[u8]]| {
        let (leaf, totals) = (reference(1, 1), Totals::default());
        let part = |name: &&[u8]| DirectoryPart { leaf, first_name: name.to_vec(), totals };
        Node::DirectoryMap(DirectoryMap { parts: names.iter().map(part).collect() })
    };
    for node in [leaf(&[b"a", b"b"]), map(&[b"a", b"b"])] {
        assert_eq!(Node::decode(&node.encode()).unwrap(), node);
    }
    let wrong: [&[&[u8]]; 3] = [&[b"a", b"a"], &[b"b", b"a"], &[b"a", b"c", b"b"]];
    for names in wrong {
        for node in [leaf(names), map(names)] {
            let error = Node::decode(&node.encode()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{names:?}: {error}");
        }
    }
}

#[test]
fn a_list_of_names_is_of_directories_and_says_one_thing() {
    let entry = |kind, listing| Entry { name: b"a".to_vec(), kind, listing, ..Entry::default() };
    let decoded = |entry: Entry| {
        let leaf = DirectoryLeaf { entries: vec![entry], ..DirectoryLeaf::default() };
        Node::decode(&Node::DirectoryLeaf(leaf).encode())
    };
    for listing in [Listing::Partial, Listing::Whole, Listing::Above] {
        assert!(decoded(entry(EntryKind::Directory, listing)).is_ok());
        assert_eq!(decoded(entry(EntryKind::File, listing)).is_ok(), listing == Listing::Partial);
    }
}
