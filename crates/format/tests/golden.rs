//! Frozen bytes of every structure: what a released version wrote, every later one must read.
//!
//! The files in `tests/golden/v4` are compared in both directions: values encode to these bytes,
//! and these bytes decode to the values. Where an encoder may rightly yield other bytes (a
//! compressor of another version), only decoding is checked. `UPDATE_EXPECT=1` writes files that
//! are missing or differ; it is for formats that no release has written yet.

use onefold_format::codec::{Codec, Compression, Compressor, Decompressor};
use onefold_format::configuration::{ChunkerSettings, Configuration};
use onefold_format::container::{self, Base, ChunkDescriptor, Delta, FrameDescriptor};
use onefold_format::index_run::{self, Piece, Table};
use onefold_format::layout::ChangeName;
use onefold_format::node::{
    BaseFrame, ContainerUses, DirectoryLeaf, DirectoryMap, DirectoryPart, Entry, EntryKind, Extent,
    FileMap, Listing, Node, PlacementMap, PlacementPage, PlacementPart, PlacementRun, Reference,
    Time, Totals, Transform, UseOfContainer,
};
use onefold_format::record::{
    self, Change, Checkpoint, Damage, Doubt, Epoch, Fate, KnownChange, KnownSession, KnownSnapshot,
    Mark, Note, Original, Outcome, Plan, RECORD_VERSION, SnapshotKind, SnapshotRecord, Summary,
    Sweep, Tombstone,
};
use onefold_format::share::{
    FormerAddress, ShareAddress, ShareDescription, SharePlace, SharePolicy,
};
use onefold_format::stub::{self, Stub, StubOwner};
use onefold_format::{FORMAT_VERSION, metadata_pack};
use onefold_types::{
    CheckpointId, ContainerId, DoubtId, Fingerprint, Level, PlanId, RunId, SessionId, ShareId,
    StoreId,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    golden.join(format!("v{FORMAT_VERSION}")).join(name)
}

fn update() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1")
}

fn write(name: &str, bytes: &[u8]) {
    std::fs::create_dir_all(path("")).unwrap();
    std::fs::write(path(name), bytes).unwrap();
}

/// The frozen bytes of `name`.
fn frozen(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap_or_else(|error| {
        panic!("{name}: {error}; UPDATE_EXPECT=1 writes the golden files of a new structure")
    })
}

/// Checks that `encoded` is what is frozen under `name`, and returns it.
fn check(name: &str, encoded: &[u8]) -> Vec<u8> {
    if update() && std::fs::read(path(name)).ok().as_deref() != Some(encoded) {
        write(name, encoded);
    }
    let frozen = frozen(name);
    assert!(
        frozen == encoded,
        "{name} is encoded otherwise than in version {FORMAT_VERSION}: stores that exist would be \
         misread, or differ from new ones.\nfrozen  {frozen:02x?}\nencoded {encoded:02x?}"
    );
    frozen
}

/// Writes `make()` under `name` if it is missing and may be written; never compares.
fn frozen_or_new(name: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    if update() && !path(name).exists() {
        write(name, &make());
    }
    frozen(name)
}

fn fingerprint(byte: u8) -> Fingerprint {
    Fingerprint(std::array::from_fn(|position| byte.wrapping_add(position as u8)))
}

fn reference(byte: u8, level: u16) -> Reference {
    Reference { fingerprint: fingerprint(byte), level: Level(level) }
}

fn id(byte: u8) -> [u8; 16] {
    std::array::from_fn(|position| byte ^ position as u8)
}

fn frame(offset: u64, stored_length: u32, plain_length: u32, codec: Codec) -> FrameDescriptor {
    FrameDescriptor { offset, stored_length, plain_length, codec }
}

fn chunk(byte: u8, length: u32, level: u16, frame: u32, offset: u32) -> ChunkDescriptor {
    let (fingerprint, level, payload_length) = (fingerprint(byte), Level(level), length);
    ChunkDescriptor { fingerprint, length, level, frame, offset, payload_length }
}

fn base(byte: u8) -> Base {
    Base { fingerprint: fingerprint(byte), container: Some(ContainerId(id(byte))) }
}

/// Every codec, every column, chunks of three levels.
fn section() -> container::MetadataSection {
    container::MetadataSection {
        frames: vec![
            frame(32, 700, 1500, Codec::Zstd),
            frame(732, 326, 310, Codec::Raw),
            frame(1058, 90, 200, Codec::Lz4),
        ],
        chunks: vec![
            chunk(1, 1000, 0, 0, 0),
            chunk(2, 500, 0, 0, 1000),
            ChunkDescriptor { payload_length: 10, ..chunk(3, 9000, 0, 1, 0) },
            chunk(4, 300, 1, 1, 10),
            chunk(5, 200, 2, 2, 0),
        ],
        deltas: vec![Delta {
            chunk: 2,
            depth: 1,
            bases: vec![base(9), base(10)],
            payload_length: 10,
        }],
        sketches: vec![(1, [5; 24]), (3, [6; 24])],
        session: Some(SessionId(id(0x50))),
        repacked_level: 0,
    }
}

#[test]
fn containers_are_frozen() {
    let name = ContainerId(id(0x40));
    let header = check("container-header.bin", &container::encode_header(name));
    assert_eq!(container::decode_header(&header).unwrap(), name);

    let footer = container::Footer {
        metadata_offset: 1148,
        metadata_length: 321,
        body_crc: 0x0123_4567_89ab_cdef,
    };
    let bytes = check("container-footer.bin", &footer.encode());
    let decoded = container::Footer::decode(&bytes, 1148 + 321 + 40).unwrap();
    assert_eq!(decoded, footer);

    let plain = check("metadata-section.bin", &section().encode());
    assert_eq!(container::MetadataSection::decode(&plain).unwrap(), section());
    let ordinary = container::MetadataSection {
        frames: vec![frame(32, 60, 44, Codec::Raw)],
        chunks: vec![chunk(1, 44, 0, 0, 0)],
        ..container::MetadataSection::default()
    };
    let plain = check("metadata-section-ordinary.bin", &ordinary.encode());
    assert_eq!(container::MetadataSection::decode(&plain).unwrap(), ordinary);

    let repacked = container::MetadataSection { repacked_level: 12, ..ordinary.clone() };
    let plain = check("metadata-section-repacked.bin", &repacked.encode());
    assert_eq!(container::MetadataSection::decode(&plain).unwrap(), repacked);
    // Who does not know the column reads all else.
    let unknown = [&ordinary.encode()[..], &[250, 1, 12]].concat();
    assert_eq!(container::MetadataSection::decode(&unknown).unwrap(), ordinary);

    let coded = frozen_or_new("metadata-section-coded.bin", || {
        container::code_metadata(&section().encode()).unwrap()
    });
    // From before the column of whereabouts: it is read as it ever was.
    let mut before = section();
    before.deltas[0].bases.iter_mut().for_each(|base| base.container = None);
    assert_eq!(container::decode_metadata(&coded).unwrap(), before);
    let coded = frozen_or_new("metadata-section-whereabouts-coded.bin", || {
        container::code_metadata(&section().encode()).unwrap()
    });
    assert_eq!(container::decode_metadata(&coded).unwrap(), section());
}

#[test]
fn the_body_checksum_is_the_published_one() {
    let mut checksum = container::BodyChecksum::default();
    checksum.update(b"1234");
    checksum.update(b"56789");
    // The check value of CRC-64/NVME over "123456789".
    assert_eq!(checksum.finish(), 0xae8b_1486_0a79_9888);
}

#[test]
fn metadata_packs_are_frozen() {
    let mut pack = metadata_pack::begin();
    metadata_pack::append(&mut pack, ContainerId(id(1)), b"a sealed section");
    metadata_pack::append(&mut pack, ContainerId(id(2)), b"");
    let bytes = check("metadata-pack.bin", &pack.into_bytes());
    let records = metadata_pack::read(&bytes).unwrap();
    assert_eq!(
        records,
        [(ContainerId(id(1)), &b"a sealed section"[..]), (ContainerId(id(2)), &b""[..]),]
    );
}

#[test]
fn index_runs_are_frozen() {
    let entries: Vec<_> = (0..20u32)
        .map(|number| index_run::Entry {
            prefix: u64::from(number) * 0x0101_0101_0101,
            container: number % 3,
        })
        .collect();
    let page = check("index-page.bin", &index_run::encode_page(&entries));
    let mut decoded = Vec::new();
    index_run::decode_page(&page, entries.len(), &mut decoded).unwrap();
    assert_eq!(decoded, entries);

    let table = Table {
        entries: index_run::PAGE_ENTRIES as u64 + 1,
        containers: vec![ContainerId(id(1)), ContainerId(id(2)), ContainerId(id(3))],
        replaced: vec![RunId(id(4))],
        pages_per_piece: 192,
        pieces_per_hook_piece: 32,
        fences: vec![5, 0x0102_0304_0506_0708],
        piece_lengths: vec![441],
        hook_lengths: vec![87],
    };
    let bytes = check("index-table.bin", &table.encode());
    assert_eq!(Table::decode(&bytes).unwrap(), table);

    let kind = index_run::IndexKind::Signature;
    let footer = index_run::Footer { pages: 2, pieces_length: 528, table_length: 107, kind };
    let bytes = check("index-footer.bin", &footer.encode());
    let length = 2 * 4096 + 528 + 107 + bytes.len() as u64;
    assert_eq!(index_run::Footer::decode(&bytes, length).unwrap(), footer);
}

#[test]
fn index_pieces_are_frozen() {
    let cells: Vec<u8> = (0..18).collect();
    let pieces = [
        ("index-piece-nothing.bin", Piece::Nothing),
        ("index-piece-bloom.bin", Piece::Bloom { hashes: 4, words: cells.as_chunks().0 }),
        (
            "index-piece-fuse.bin",
            Piece::Fuse { seed: 9, segment_cells: 4, first_cells: 10, cells: &cells },
        ),
        (
            "index-piece-signature.bin",
            Piece::Signature { seed: 2, buckets: 1, ordinal_bits: 3, cells: &cells },
        ),
    ];
    for (name, piece) in pieces {
        let mut encoded = Vec::new();
        piece.encode(&mut encoded);
        let bytes = check(name, &encoded);
        assert_eq!(Piece::decode(&bytes).unwrap(), piece);
    }
}

fn entry(name: &[u8], kind: EntryKind) -> Entry {
    Entry {
        name: name.to_vec(),
        kind,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        links: 1,
        modified: Time { seconds: -1, nanoseconds: 5 },
        ..Entry::default()
    }
}

/// One entry of every kind, and a file with everything a file can have.
fn entries() -> Vec<Entry> {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
    let device = |name, kind, device_number| Entry { device_number, ..entry(name, kind) };
    vec![
        device(b"block", EntryKind::BlockDevice, 0x0801),
        device(b"character", EntryKind::CharacterDevice, 0x0103),
        Entry {
            mode: 0o2755,
            content: Some(reference(0x20, 3)),
            totals: Totals { entries: 12, bytes: 345_678, chunks: 40 },
            listing: Listing::Whole,
            ..entry(b"directory", EntryKind::Directory)
        },
        Entry { listing: Listing::Above, ..entry(b"directory above", EntryKind::Directory) },
        entry(b"empty", EntryKind::File),
        Entry {
            mode: 0o4755,
            uid: u32::MAX,
            links: 2,
            modified: time(1_700_000_000, 999_999_999),
            changed: time(1_700_000_001, 1),
            inode: u64::MAX,
            device: 77,
            size: 5000,
            sparse: true,
            chunks: 1,
            content: Some(reference(0x30, 0)),
            lacks_attributes: true,
            xattrs: vec![
                (b"system.posix_acl_access".to_vec(), vec![2, 0, 0, 0]),
                (b"user.note".to_vec(), b"value".to_vec()),
            ],
            ..entry(b"file \xff", EntryKind::File)
        },
        Entry { target: b"../elsewhere".to_vec(), ..entry(b"link", EntryKind::Symlink) },
        entry(b"pipe", EntryKind::Fifo),
        entry(b"socket", EntryKind::Socket),
    ]
}

fn directory_map() -> DirectoryMap {
    let part = |byte, first_name: &[u8], entries, bytes| {
        let totals = Totals { entries, bytes, chunks: 2 * entries };
        DirectoryPart { leaf: reference(byte, 2), first_name: first_name.to_vec(), totals }
    };
    DirectoryMap { parts: vec![part(1, b"a", 3, 4), part(2, b"b", 0, 0)] }
}

#[test]
fn every_kind_of_node_is_frozen() {
    let leaf = DirectoryLeaf {
        entries: entries(),
        users: vec![(1000, b"someone".to_vec())],
        groups: vec![(100, b"users".to_vec())],
    };
    let extent = |byte, length| Extent { fingerprint: fingerprint(byte), length };
    let file_map = FileMap {
        child_level: Level(1),
        extents: vec![extent(1, 8000), Extent::hole(1 << 40), extent(2, 127)],
    };
    let transform = Transform {
        method: 7,
        parameters: b"parameters".to_vec(),
        sources: vec![(reference(1, 0), 500), (reference(2, 1), 70_000)],
        length: 1234,
    };
    let run = |container, frame, chunks, bytes| PlacementRun { container, frame, chunks, bytes };
    let far = run(Some(1), 300, 300, 1 << 21);
    let placement_page = PlacementPage {
        containers: vec![ContainerId(id(1)), ContainerId(id(2))],
        runs: vec![run(Some(0), 0, 5, 40_000), far, run(None, 0, 1, 100)],
    };
    let reference = |byte| Reference { fingerprint: fingerprint(byte), level: Level(1) };
    let part = |byte, chunks| PlacementPart { page: reference(byte), chunks };
    let placement_map =
        PlacementMap { parts: vec![part(3, 306), part(4, 1)], uses: vec![reference(5)] };
    let used = |byte, referred_bytes, payload_bytes, spans, rests_on| UseOfContainer {
        container: ContainerId(id(byte)),
        frame: u16::from(byte),
        referred_bytes,
        payload_bytes,
        spans,
        rests_on,
    };
    let base = |byte, frame, bytes| BaseFrame { container: ContainerId(id(byte)), frame, bytes };
    let bases = vec![base(2, 2, 8000), base(3, 511, 1 << 30)];
    let frames = vec![used(1, 40_000, 1 << 22, 1, bases), used(2, 1 << 21, 0, 300, vec![])];
    let container_uses = ContainerUses { containers: frames };
    let nodes = [
        ("node-file-map.bin", Node::FileMap(file_map)),
        ("node-directory-leaf.bin", Node::DirectoryLeaf(leaf)),
        ("node-directory-map.bin", Node::DirectoryMap(directory_map())),
        ("node-transform.bin", Node::Transform(transform)),
        ("node-placement-page.bin", Node::PlacementPage(placement_page)),
        ("node-placement-map.bin", Node::PlacementMap(placement_map)),
        ("node-container-uses-and-bases.bin", Node::ContainerUses(container_uses)),
    ];
    for (name, node) in nodes {
        let bytes = check(name, &node.encode());
        assert_eq!(Node::decode(&bytes).unwrap(), node, "{name}");
    }
}

fn snapshot() -> SnapshotRecord {
    SnapshotRecord {
        version: record::RECORD_VERSION,
        kind: SnapshotKind::Backup,
        root: reference(1, 4),
        started_ns: 1_700_000_000_000_000_001,
        finished_ns: 1_700_000_001_000_000_002,
        host: "host".into(),
        user: "user".into(),
        paths: vec!["/path/\u{e9}".into()],
        base: Some("/path".into()),
        listing: Listing::Whole,
        tags: vec!["daily".into(), "important".into()],
        description: "a \"note\"".into(),
        hold: true,
        parent: Some(SessionId(id(2))),
        predecessors: vec![SessionId(id(3)), SessionId(id(4))],
        program: "onefold 0.1.0".into(),
        summary: Summary {
            files: 1,
            directories: 2,
            others: 3,
            bytes: 4,
            files_new: 5,
            files_changed: 6,
            files_unchanged: 7,
            bytes_read: 8,
            chunks: 9,
            chunks_new: 10,
            bytes_new: 11,
            chunks_rewritten: 3,
            bytes_rewritten: 30_000,
            containers: 70,
            container_reads: 90,
            bytes_stored: 12,
            errors: 13,
        },
        placement: Some(reference(5, 1)),
        doubts: vec![DoubtId(id(10)), DoubtId(id(11))],
        strays: 7,
        share: None,
        original: None,
    }
}

fn check_record<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, value: &T) {
    let bytes = check(name, &record::encode(value).unwrap());
    assert_eq!(record::decode::<T>(&bytes, name).unwrap(), *value);
}

#[test]
fn every_record_is_frozen() {
    let bare = SnapshotRecord {
        kind: SnapshotKind::Synthetic,
        parent: None,
        predecessors: Vec::new(),
        placement: None,
        doubts: Vec::new(),
        strays: 0,
        ..snapshot()
    };
    check_record("outcome-committed.json", &Outcome::Committed(Box::new(snapshot())));
    check_record("outcome-synthetic.json", &Outcome::Committed(Box::new(bare)));
    let (kind, share) = (SnapshotKind::Manifest, Some(ShareId(id(5))));
    let manifest = SnapshotRecord { kind, share, ..snapshot() };
    check_record("outcome-manifest.json", &Outcome::Committed(Box::new(manifest)));
    let original = Some(Original { store: StoreId(id(13)), snapshot: SessionId(id(14)) });
    let copied = SnapshotRecord { original, ..snapshot() };
    check_record("outcome-copied.json", &Outcome::Committed(Box::new(copied)));
    check_record("outcome-fenced.json", &Outcome::Fenced);
    let plan = Plan {
        condemned: vec![ContainerId(id(6)), ContainerId(id(7))],
        tombstones: vec![SessionId(id(8))],
        outcomes: vec![SessionId(id(3)), SessionId(id(4))],
        changes: vec![ChangeName { snapshot: SessionId(id(3)), number: 12 }],
        unused_bytes: 1_000_000,
        stored_bytes: 70_000_000,
    };
    check_record("plan.json", &plan);
    let epoch = Epoch { plan: PlanId(id(9)) };
    check_record("epoch.json", &epoch);
    let note = Note { time_ns: -5, by: "user@host".into(), reason: "keep rules".into() };
    check_record("note.json", &note);
    let damage = Damage { time_ns: 6, problem: "a seal does not hold".into() };
    check_record("damage.json", &damage);
    let sweep = Sweep { deleted: vec![ContainerId(id(6))] };
    check_record("sweep.json", &sweep);
    let (time_ns, by, reason) = (7, "user@host".to_owned(), "forget".to_owned());
    let mark =
        Mark { snapshot: SessionId(id(12)), time_ns, by: by.clone(), reason: reason.clone() };
    check_record("mark.json", &mark);
    check_record("tombstone.json", &Tombstone { time_ns, by, reason, given_up: true });
    check_record("fate-taken-back.json", &Fate::TakenBack {});
    check_record("change.json", &change(false));
    check_record("change-forgotten.json", &change(true));
    let doubt = Doubt { time_ns: 8, reason: "the index was made anew".into() };
    check_record("doubt.json", &doubt);
    check_record("checkpoint.json", &checkpoint());
}

fn checkpoint() -> Checkpoint {
    let name = ChangeName { snapshot: SessionId(id(3)), number: 12 };
    Checkpoint {
        version: RECORD_VERSION,
        committed: vec![KnownSnapshot { session: SessionId(id(3)), snapshot: snapshot() }],
        without_record: vec![KnownSession {
            session: SessionId(id(8)),
            predecessors: vec![SessionId(id(3)), SessionId(id(4))],
            strays: 5,
        }],
        fenced: vec![SessionId(id(4))],
        tombstones: vec![SessionId(id(8))],
        given_up: vec![SessionId(id(9))],
        changes: vec![KnownChange { name, change: change(false) }],
        replaces: vec![CheckpointId(id(10)), CheckpointId(id(11))],
    }
}

fn change(forgotten: bool) -> Change {
    Change {
        time_ns: 9,
        by: "user@host".into(),
        hold: !forgotten,
        tags: vec!["one".into(), "two".into()],
        description: "a note".into(),
        forgotten,
    }
}

#[test]
fn the_configuration_is_frozen() {
    let configuration = Configuration {
        format_version: FORMAT_VERSION,
        store_id: "000102030405060708090a0b0c0d0e0f".into(),
        created_ns: 1_700_000_000_000_000_000,
        encryption: "aes-256-gcm".into(),
        hash: "blake3".into(),
        chunker: ChunkerSettings {
            kind: "mincdc".into(),
            size_min_bytes: 4096,
            size_avg_bytes: 8192,
            size_max_bytes: 12_288,
            regression_depth: 0,
            tar_aware: true,
        },
        compression: "zstd,2".into(),
        delta: String::new(),
        container_size_bytes: 4 << 20,
        decisions: String::new(),
        authenticity: "ab".repeat(32),
    };
    let bytes = check("configuration.json", &configuration.encode().unwrap());
    assert_eq!(Configuration::decode(&bytes).unwrap(), configuration);
    let delta = Configuration { delta: "off".into(), ..configuration.clone() };
    let decisions = Configuration { decisions: "database".into(), ..configuration };
    let bytes = check("configuration-delta.json", &delta.encode().unwrap());
    assert_eq!(Configuration::decode(&bytes).unwrap(), delta);
    let bytes = check("configuration-decisions.json", &decisions.encode().unwrap());
    assert_eq!(Configuration::decode(&bytes).unwrap(), decisions);
}

#[test]
fn stubs_and_shares_are_frozen() {
    let modified = Time { seconds: -5, nanoseconds: 6 };
    let mut stub = Stub::new(reference(1, 2), (70 * 65536 + 3, 99), modified, 16).unwrap();
    stub.set_recalled(0);
    stub.set_recalled(69);
    stub.valid -= 4;
    let bytes = check("stub-body.bin", &stub.encode());
    assert_eq!(Stub::decode(&bytes).unwrap(), stub);
    let owner = StubOwner { share: ShareId(id(5)), inode: 0x0102_0304_0506_0708 };
    let bytes = check("stub-attribute.bin", &stub::join(owner, b"sealed"));
    assert_eq!(stub::split(&bytes).unwrap(), (owner, b"sealed".as_slice()));
    let policy = SharePolicy {
        age_min_seconds: 259_200,
        size_min_bytes: 32_768,
        excludes: vec!["*.iso".into()],
    };
    let place = SharePlace { inode: 7, made_ns: 1_790_000_000_000_000_008 };
    let (share, store) = (ShareId(id(5)), StoreId(id(6)));
    let at = |path: &str| ShareAddress {
        machine: "00112233445566778899aabbccddeeff".into(),
        host: "server".into(),
        path: path.into(),
    };
    let (addresses, until_ns) = (vec![at("/srv/files")], 1_790_000_000_000_000_009);
    let moved_from = vec![FormerAddress { address: at("/old\\xff"), until_ns }];
    let share = ShareDescription { share, store, place, addresses, moved_from, policy };
    let bytes = check("share.json", &share.encode().unwrap());
    assert_eq!(ShareDescription::decode(&bytes).unwrap(), share);
}

#[test]
fn frames_of_every_codec_still_decode() {
    let plain: Vec<u8> = (0..5000u32).map(|number| (number / 9 % 31) as u8).collect();
    let mut decompressor = Decompressor::new().unwrap();
    let kinds = [
        ("frame-zstd.bin", Compression::Zstd(2), Codec::Zstd),
        ("frame-zstd-fast.bin", Compression::Zstd(-7), Codec::Zstd),
        ("frame-zstd-best.bin", Compression::Zstd(22), Codec::Zstd),
        ("frame-lz4.bin", Compression::Lz4, Codec::Lz4),
        ("frame-raw.bin", Compression::None, Codec::Raw),
    ];
    for (name, compression, codec) in kinds {
        let coded = frozen_or_new(name, || {
            let mut coded = Vec::new();
            let mut compressor = Compressor::new(compression).unwrap();
            let taken = compressor.compress(&plain, &mut coded).unwrap();
            assert_eq!(taken, codec, "{name}");
            coded
        });
        let mut decoded = Vec::new();
        decompressor.decompress(codec, &coded, plain.len(), &mut decoded).unwrap();
        assert_eq!(decoded, plain, "{name}");
    }
}

#[test]
fn no_golden_file_is_forgotten() {
    if update() {
        return;
    }
    let source = concat!(include_str!("golden.rs"), include_str!("newer.rs"));
    for entry in std::fs::read_dir(path("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let named = source.contains(&format!("\"{name}\""));
        assert!(named, "{name} is checked by no test");
    }
}
