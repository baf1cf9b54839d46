//! What is fuzzed: every decoder of the format. A target takes any bytes and must not panic.
//!
//! What decodes must also survive being written and read again: else a value that this version
//! accepts could not be copied. `fuzz/` runs the same targets under libFuzzer.

use onefold_format::codec::{Codec, Compression, Decompressor};
use onefold_format::configuration::Configuration;
use onefold_format::container::{self, Footer, MetadataSection};
use onefold_format::index_run::{self, Piece, Table};
use onefold_format::node::Node;
use onefold_format::record::{
    self, Change, Damage, Doubt, Epoch, Fate, Mark, Note, Outcome, Plan, Sweep, Tombstone,
};
use onefold_format::share::{DESCRIPTION_MAX_BYTES, ShareDescription};
use onefold_format::stub::{self, Stub};
use onefold_format::{layout, metadata_pack};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A name, what the names of its golden files begin with, and the target.
pub type Target = (&'static str, &'static [&'static str], fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 16] = [
    ("container_header", &["container-header"], container_header),
    ("container_footer", &["container-footer"], container_footer),
    ("metadata_section", &["metadata-section.", "metadata-section-ordinary"], metadata_section),
    ("coded_section", &["metadata-section-coded"], coded_section),
    ("metadata_pack", &["metadata-pack"], pack),
    ("index_page", &["index-page"], index_page),
    ("index_table", &["index-table"], index_table),
    ("index_footer", &["index-footer"], index_footer),
    ("index_piece", &["index-piece"], index_piece),
    ("node", &["node-"], node),
    (
        "record",
        &[
            "outcome",
            "plan",
            "epoch",
            "sweep",
            "note",
            "tombstone",
            "mark",
            "fate",
            "damage",
            "doubt",
            "change",
        ],
        record,
    ),
    ("configuration", &["configuration"], configuration),
    ("frame", &["frame-"], frame),
    ("name", &["configuration"], name),
    ("stub", &["stub-"], stub),
    ("share", &["share"], share),
];

pub fn container_header(bytes: &[u8]) {
    if let Ok(id) = container::decode_header(bytes) {
        assert_eq!(container::decode_header(&container::encode_header(id)).ok(), Some(id));
    }
}

pub fn container_footer(bytes: &[u8]) {
    for object_bytes in [bytes.len() as u64, 1148 + 321 + 40, u64::MAX] {
        if let Ok(footer) = Footer::decode(bytes, object_bytes) {
            assert_eq!(Footer::decode(&footer.encode(), object_bytes).ok(), Some(footer));
        }
    }
}

pub fn metadata_section(bytes: &[u8]) {
    if let Ok(section) = MetadataSection::decode(bytes) {
        assert_eq!(MetadataSection::decode(&section.encode()).ok(), Some(section));
    }
}

pub fn coded_section(bytes: &[u8]) {
    let _ = container::decode_metadata(bytes);
}

pub fn pack(bytes: &[u8]) {
    if let Ok(records) = metadata_pack::read(bytes) {
        let mut pack = metadata_pack::begin();
        records.iter().for_each(|(id, section)| metadata_pack::append(&mut pack, *id, section));
        assert_eq!(metadata_pack::read(&pack.into_bytes()).ok(), Some(records.clone()));
    }
}

pub fn index_page(bytes: &[u8]) {
    for count in [0, 1, 20, index_run::PAGE_ENTRIES, usize::MAX] {
        let _ = index_run::decode_page(bytes, count, &mut Vec::new());
    }
}

pub fn index_table(bytes: &[u8]) {
    let Ok(table) = Table::decode(bytes) else {
        return;
    };
    assert_eq!(Table::decode(&table.encode()).ok().as_ref(), Some(&table));
    let starts = table.starts();
    for page in [0, table.fences.len().saturating_sub(1)] {
        if page < table.fences.len() {
            let _ = (table.entries_in_page(page), table.page_offset(&starts, page));
        }
    }
    for piece in 0..table.piece_lengths.len().min(16) {
        let _ = (table.pages_of(piece), table.piece_offset(&starts, piece));
    }
    for hook in 0..table.hook_lengths.len().min(16) {
        let _ = table.hook_offset(&starts, hook);
    }
    let _ = table.pieces_length();
}

pub fn index_footer(bytes: &[u8]) {
    let golden = 2 * 4096 + 528 + 107 + 40;
    for object_bytes in [bytes.len() as u64, golden, u64::MAX] {
        if let Ok(footer) = index_run::Footer::decode(bytes, object_bytes) {
            let again = index_run::Footer::decode(&footer.encode(), object_bytes);
            assert_eq!(again.ok(), Some(footer));
        }
    }
}

pub fn index_piece(bytes: &[u8]) {
    if let Ok(piece) = Piece::decode(bytes) {
        let mut again = Vec::new();
        piece.encode(&mut again);
        assert_eq!(Piece::decode(&again).ok(), Some(piece));
    }
}

pub fn node(bytes: &[u8]) {
    if let Ok(node) = Node::decode(bytes) {
        node.references(&mut |_| {});
        assert_eq!(Node::decode(&node.encode()).ok(), Some(node));
    }
}

pub fn record(bytes: &[u8]) {
    fn of<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
        if let Ok(value) = record::decode::<T>(bytes, "fuzz") {
            let again = record::encode(&value).expect("what was read can be written");
            assert_eq!(record::decode::<T>(&again, "fuzz").ok(), Some(value));
        }
    }
    of::<Outcome>(bytes);
    of::<Plan>(bytes);
    of::<Epoch>(bytes);
    of::<Sweep>(bytes);
    of::<Note>(bytes);
    of::<Tombstone>(bytes);
    of::<Mark>(bytes);
    of::<Fate>(bytes);
    of::<Damage>(bytes);
    of::<Doubt>(bytes);
    of::<Change>(bytes);
    let _ = record::is_newer(bytes);
}

pub fn configuration(bytes: &[u8]) {
    if let Ok(configuration) = Configuration::decode(bytes) {
        let _ = configuration.authenticated_bytes();
        let again = configuration.encode().expect("what was read can be written");
        assert_eq!(Configuration::decode(&again).ok(), Some(configuration));
    }
}

pub fn frame(bytes: &[u8]) {
    let mut decompressor = Decompressor::new().expect("a decompressor can be set up");
    let mut plain = Vec::new();
    for codec in [Codec::Raw, Codec::Zstd, Codec::Lz4] {
        for length in [0, 1, bytes.len(), 4096, 1 << 20] {
            let done = decompressor.decompress(codec, bytes, length, &mut plain);
            assert!(done.is_err() || plain.len() == length);
        }
    }
}

/// Names of objects and of settings, which come as text.
pub fn name(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines().take(64) {
        let _ = layout::session_of(line);
        let _ = layout::mark_of(line);
        let _ = layout::last_component(line);
        let _ = line.parse::<Compression>();
        let _ = line.parse::<index_run::IndexKind>();
        let _ = line.parse::<onefold_types::Fingerprint>();
        let _ = line.parse::<onefold_types::ContainerId>();
    }
}

pub fn stub(bytes: &[u8]) {
    let _ = stub::split(bytes);
    if let Ok(stub) = Stub::decode(bytes) {
        assert_eq!(stub.encode(), bytes);
        for granule in stub.not_recalled().take(64) {
            let range = stub.range_of(granule);
            assert!(!range.is_empty() && !stub.is_own(range.start));
        }
    }
}

pub fn share(bytes: &[u8]) {
    if let Ok(share) = ShareDescription::decode(bytes) {
        match share.encode() {
            Ok(again) => assert_eq!(ShareDescription::decode(&again).ok(), Some(share)),
            // People may write it more densely than it is written here.
            Err(_) => assert!(bytes.len() > DESCRIPTION_MAX_BYTES / 16),
        }
    }
}
