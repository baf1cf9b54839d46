//! Newer is told from damaged, structure by structure (R81).
//!
//! Whatever has a version or room for more is given a value that only a newer program can have
//! written, under checksums that hold: it must be refused as newer, neither called damaged, which
//! would let somebody repair it away, nor taken for what this version would have meant.

use onefold_format::codec::Codec;
use onefold_format::configuration::Configuration;
use onefold_format::container::{self, FOOTER_BYTES, MetadataSection};
use onefold_format::index_run::{self, Piece};
use onefold_format::node::Node;
use onefold_format::record::{
    self, Change, Checkpoint, Damage, Doubt, Epoch, Fate, Mark, Note, Outcome, Plan,
    RECORD_VERSION, Sweep, Tombstone,
};
use onefold_format::{FORMAT_VERSION, metadata_pack};
use onefold_types::{ErrorKind, Result};
use serde::de::DeserializeOwned;
use std::path::PathBuf;

fn golden(name: &str) -> Vec<u8> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    std::fs::read(root.join(format!("v{FORMAT_VERSION}")).join(name)).unwrap()
}

#[track_caller]
fn is_newer<T>(result: Result<T>) {
    assert_eq!(result.err().expect("it is refused").kind(), ErrorKind::NewerFormat);
}

#[track_caller]
fn is_damaged<T>(result: Result<T>) {
    assert_eq!(result.err().expect("it is refused").kind(), ErrorKind::Damaged);
}

/// The bytes with those at `at` replaced.
fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// A footer whose checksum, which stands at `crc_at` over all before it, holds.
fn resealed(mut footer: Vec<u8>, crc_at: usize) -> Vec<u8> {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &footer[..crc_at]) as u32;
    footer[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    footer
}

const LATER: [u8; 2] = (FORMAT_VERSION + 1).to_le_bytes();

#[test]
fn r81_a_newer_configuration() {
    let text = String::from_utf8(golden("configuration.json")).unwrap();
    Configuration::decode(text.as_bytes()).unwrap();
    let own = format!("\"format_version\": {FORMAT_VERSION}");
    for version in [u64::from(FORMAT_VERSION) + 1, 65_535, 65_536, u64::MAX] {
        let newer = text.replace(&own, &format!("\"format_version\": {version}, \"more\": {{}}"));
        is_newer(Configuration::decode(newer.as_bytes()));
        is_newer(Configuration::decode(format!("{{\"format_version\":{version}}}").as_bytes()));
    }
    is_damaged(Configuration::decode(
        text.replace(&own, &format!("{own}, \"more\": 1")).as_bytes(),
    ));
}

#[test]
fn r81_newer_containers_and_their_reserved_bytes() {
    let header = golden("container-header.bin");
    container::decode_header(&header).unwrap();
    is_newer(container::decode_header(&with(&header, 8, &LATER)));
    for at in 10..16 {
        is_newer(container::decode_header(&with(&header, at, &[1])));
    }
    is_damaged(container::decode_header(&with(&header, 0, b"2")));

    let footer = golden("container-footer.bin");
    let decode = |bytes: &[u8]| container::Footer::decode(bytes, 1148 + 321 + FOOTER_BYTES as u64);
    decode(&footer).unwrap();
    for at in 12..16 {
        let used = with(&footer, at, &[1]);
        is_damaged(decode(&used));
        is_newer(decode(&resealed(used, 24)));
    }
    // No checksum covers what follows it, so nothing there can be believed.
    for at in 28..32 {
        is_damaged(decode(&with(&footer, at, &[1])));
    }
}

#[test]
fn r81_columns_and_codecs_of_newer_sections() {
    let plain = golden("metadata-section-ordinary.bin");
    let section = MetadataSection::decode(&plain).unwrap();
    for tag in 0..=255 {
        let more = [&plain[..], &[tag, 2, 7, 7]].concat();
        match tag {
            1..=4 => is_damaged(MetadataSection::decode(&more)),
            0 | 5..128 => is_newer(MetadataSection::decode(&more)),
            // Sketches, the session, whereabouts and the level have a form of their own.
            128..=131 => is_damaged(MetadataSection::decode(&more)),
            132.. => assert_eq!(MetadataSection::decode(&more).unwrap(), section),
        }
    }
    for code in 3..=255 {
        is_newer(Codec::from_code(code));
        // The codec of the only frame follows its two lengths, each of one byte.
        is_newer(MetadataSection::decode(&with(&plain, 3, &[code])));
        is_newer(container::decode_metadata(&with(
            &golden("metadata-section-coded.bin"),
            0,
            &[code],
        )));
    }
}

#[test]
fn r81_newer_metadata_packs() {
    let pack = golden("metadata-pack.bin");
    metadata_pack::read(&pack).unwrap();
    is_newer(metadata_pack::read(&with(&pack, 8, &LATER)));
    for at in 10..16 {
        is_newer(metadata_pack::read(&with(&pack, at, &[0x80])));
    }
}

#[test]
fn r81_newer_index_runs_and_pieces() {
    let footer = golden("index-footer.bin");
    let own = |bytes: &[u8]| {
        let number = |from: usize, to: usize| {
            let mut word = [0; 8];
            word[..to - from].copy_from_slice(&bytes[from..to]);
            u64::from_le_bytes(word)
        };
        let object = number(0, 4) * 4096 + number(4, 12) + number(12, 20) + 40;
        index_run::Footer::decode(bytes, object)
    };
    own(&footer).unwrap();
    let version = (index_run::RUN_VERSION + 1).to_le_bytes();
    is_newer(own(&resealed(with(&footer, 20, &version), 28)));
    for kind in [0, 4, 255] {
        is_newer(own(&resealed(with(&footer, 22, &[kind]), 28)));
    }
    for at in 23..28 {
        is_newer(own(&resealed(with(&footer, at, &[1]), 28)));
    }
    let piece = golden("index-piece-fuse.bin");
    Piece::decode(&piece).unwrap();
    for form in 4..=255 {
        is_newer(Piece::decode(&with(&piece, 0, &[form])));
    }
}

#[test]
fn r81_nodes_of_newer_versions_and_kinds() {
    for name in ["file-map", "directory-leaf", "directory-map", "placement-page"] {
        let node = golden(&format!("node-{name}.bin"));
        Node::decode(&node).unwrap();
        for version in (0..=255).filter(|version| *version != node[0]) {
            is_newer(Node::decode(&with(&node, 0, &[version])));
        }
    }
    for kind in [0].into_iter().chain(9..=255) {
        is_newer(Node::decode(&with(&golden("node-file-map.bin"), 1, &[kind])));
    }
}

#[test]
fn uses_written_before_there_were_bases_are_the_same_without_them() {
    let [first, now] = ["node-container-uses.bin", "node-container-uses-and-bases.bin"]
        .map(|name| Node::decode(&golden(name)).unwrap());
    let Node::ContainerUses(mut uses) = now else { panic!("{now:?}") };
    assert!(!uses.containers[0].rests_on.is_empty());
    uses.containers.iter_mut().for_each(|one| one.rests_on.clear());
    assert_eq!(first, Node::ContainerUses(uses));
}

#[test]
fn r81_kinds_and_flags_of_newer_directory_entries() {
    use onefold_format::node::{DirectoryLeaf, Entry};
    let entry = Entry { name: b"n".to_vec(), links: 1, ..Entry::default() };
    let leaf = DirectoryLeaf { entries: vec![entry], ..DirectoryLeaf::default() };
    let plain = Node::DirectoryLeaf(leaf).encode();
    Node::decode(&plain).unwrap();
    // version, kind, entries, name (2), then kind, mode, uid, gid, links, seconds and nanoseconds
    // twice, inode, device, size, flags.
    let (kind_at, flags_at) = (5, 17);
    for kind in 7..=255 {
        is_newer(Node::decode(&with(&plain, kind_at, &[kind])));
    }
    for bit in 5..8 {
        for low in 0..32 {
            is_newer(Node::decode(&with(&plain, flags_at, &[1 << bit | low])));
        }
    }
    assert_ne!(Node::decode(&with(&plain, flags_at, &[1])).unwrap(), Node::decode(&plain).unwrap());
}

#[track_caller]
fn refuses_newer<T: DeserializeOwned>(name: &str) {
    let text = String::from_utf8(golden(name)).unwrap();
    record::decode::<T>(text.as_bytes(), name).unwrap();
    let later = u64::from(RECORD_VERSION) + 1;
    for version in [later, u64::from(u32::MAX) + 1, u64::MAX] {
        // With and without fields that this version knows, and with one that it does not.
        let own = text.replacen('{', &format!("{{\"version\":{version},"), 1);
        is_newer(record::decode::<T>(own.as_bytes(), name));
        let more = text.replacen('{', &format!("{{\"version\":{version},\"more\":[0],"), 1);
        is_newer(record::decode::<T>(more.as_bytes(), name));
        is_newer(record::decode::<T>(format!("{{\"version\":{version}}}").as_bytes(), name));
    }
    let more = text.replacen('{', "{\"more\":[0],", 1);
    is_damaged(record::decode::<T>(more.as_bytes(), name));
}

#[test]
fn r81_records_of_newer_versions() {
    refuses_newer::<Plan>("plan.json");
    refuses_newer::<Epoch>("epoch.json");
    refuses_newer::<Sweep>("sweep.json");
    refuses_newer::<Note>("note.json");
    refuses_newer::<Tombstone>("tombstone.json");
    refuses_newer::<Mark>("mark.json");
    refuses_newer::<Fate>("fate-taken-back.json");
    refuses_newer::<Change>("change.json");
    refuses_newer::<Change>("change-forgotten.json");
    refuses_newer::<Damage>("damage.json");
    refuses_newer::<Doubt>("doubt.json");
    refuses_newer::<Outcome>("outcome-fenced.json");
    refuses_newer::<Outcome>("outcome-committed.json");
}

#[test]
fn r81_a_newer_checkpoint_is_not_taken_for_one_of_ours() {
    let text = String::from_utf8(golden("checkpoint.json")).unwrap();
    let own = format!("{{\"version\":{RECORD_VERSION},\"committed\"");
    assert_eq!(text.matches(&own).count(), 1);
    for more in ["", ",\"surprise\":{\"deep\":[]}"] {
        let newer = own.replace(',', &format!("{more},"));
        let newer = newer.replace(&RECORD_VERSION.to_string(), &(RECORD_VERSION + 1).to_string());
        is_newer(record::decode::<Checkpoint>(text.replace(&own, &newer).as_bytes(), "it"));
    }
    let more = text.replacen('{', "{\"more\":[0],", 1);
    is_damaged(record::decode::<Checkpoint>(more.as_bytes(), "it"));
}

#[test]
fn r81_a_newer_snapshot_is_not_taken_for_one_of_ours() {
    let text = String::from_utf8(golden("outcome-committed.json")).unwrap();
    let own = format!("\"version\":{RECORD_VERSION}");
    assert_eq!(text.matches(&own).count(), 1);
    for more in ["", ",\"surprise\":{\"deep\":[]}"] {
        let newer = text.replace(&own, &format!("\"version\":{}{more}", RECORD_VERSION + 1));
        is_newer(record::decode::<Outcome>(newer.as_bytes(), "outcome"));
    }
    let unknown = format!("{{\"outcome\":\"paused\",\"version\":{}}}", RECORD_VERSION + 1);
    is_newer(record::decode::<Outcome>(unknown.as_bytes(), "outcome"));
}
