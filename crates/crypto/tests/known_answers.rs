//! Known answers: what a store derives, seals and names, compared with other implementations.
//!
//! `known_answers/answers.json` was computed by `known_answers/generate.py` from docs/FORMAT.md,
//! with Python's libraries and without this crate. A released version's answers never change: a
//! test that fails here says that stores which exist can no longer be read.

use onefold_crypto::{
    Fingerprinter, HashKind, KdfCost, KeyFile, KeyRing, KeySlot, MasterKey, Purpose, Vault,
};
use onefold_crypto::{TAG_BYTES, contexts};
use onefold_types::environment::Randomness;
use onefold_types::{Fingerprint, StoreId};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Gives bytes that were chosen instead of random ones, first to last.
struct Chosen(Mutex<Vec<u8>>);

impl Chosen {
    fn new(parts: &[&[u8]]) -> Self {
        Self(Mutex::new(parts.concat()))
    }
}

impl Randomness for Chosen {
    fn fill(&self, bytes: &mut [u8]) {
        let mut left = self.0.lock().unwrap();
        let taken: Vec<u8> = left.drain(..bytes.len()).collect();
        bytes.copy_from_slice(&taken);
    }
}

fn answers() -> Value {
    serde_json::from_str(include_str!("known_answers/answers.json")).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(text(value)).unwrap()
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    bytes(value).try_into().unwrap()
}

fn master_key() -> MasterKey {
    MasterKey::from_bytes(array(&answers()["master_key"]))
}

const PURPOSES: [Purpose; 15] = [
    Purpose::Container,
    Purpose::IndexRun,
    Purpose::Outcome,
    Purpose::Mark,
    Purpose::Tombstone,
    Purpose::Plan,
    Purpose::Damage,
    Purpose::Session,
    Purpose::Configuration,
    Purpose::Fate,
    Purpose::Doubt,
    Purpose::Change,
    Purpose::Generation,
    Purpose::Checkpoint,
    Purpose::Stub,
];

/// What the answers call a purpose. A new purpose does not compile before it has a name here.
fn name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Container => "container",
        Purpose::IndexRun => "index run",
        Purpose::Outcome => "outcome",
        Purpose::Mark => "mark",
        Purpose::Tombstone => "tombstone",
        Purpose::Plan => "plan",
        Purpose::Damage => "damage",
        Purpose::Session => "session",
        Purpose::Configuration => "configuration",
        Purpose::Fate => "fate",
        Purpose::Doubt => "doubt",
        Purpose::Change => "change",
        Purpose::Generation => "generation",
        Purpose::Checkpoint => "checkpoint",
        Purpose::Stub => "stub",
    }
}

#[test]
fn r80_every_subkey_is_the_known_one() {
    let answers = answers();
    let known = answers["subkeys"].as_object().unwrap();
    let contexts = [
        ("sealing", contexts::SEALING),
        ("data", contexts::DATA),
        ("nodes", contexts::NODES),
        ("boundaries", contexts::BOUNDARIES),
        ("configuration", contexts::CONFIGURATION),
    ];
    assert_eq!(known.len(), contexts.len());
    for (what, context) in contexts {
        assert_eq!(*master_key().subkey(context), array::<32>(&known[what]), "{what}");
    }
}

#[test]
fn r80_the_configurations_tag_is_the_known_one() {
    let known = &answers()["configuration"];
    let tag =
        master_key().authenticate(contexts::CONFIGURATION, text(&known["covered"]).as_bytes());
    assert_eq!(tag, array::<32>(&known["authenticity"]));
}

#[test]
fn r80_every_purpose_and_part_is_sealed_as_known() {
    let answers = answers();
    let (object, nonce) = (array::<16>(&answers["name"]), bytes(&answers["nonce"]));
    let plain = bytes(&answers["plain"]);
    let key = master_key();
    let mut seen = BTreeSet::new();
    for known in answers["seals"].as_array().unwrap() {
        let encrypted = known["encrypted"].as_bool().unwrap();
        let vault = Vault::new(encrypted.then_some(&key));
        let what = text(&known["purpose"]);
        let purpose = PURPOSES.into_iter().find(|purpose| name(*purpose) == what).unwrap();
        assert_eq!(purpose as u64, known["number"].as_u64().unwrap(), "{what}");
        let part = u32::try_from(known["part"].as_u64().unwrap()).unwrap();
        seen.insert((encrypted, what.to_owned()));

        let sealer = vault.object(purpose, &object).unwrap();
        let mut sealed = [b"front".as_slice(), &plain].concat();
        sealer.seal(part, &mut sealed, 5).unwrap();
        let expected = bytes(&known["sealed"]);
        assert_eq!(sealed[5..], expected, "{what}, part {part}, encrypted: {encrypted}");
        assert_eq!(expected.len(), plain.len() + TAG_BYTES);
        let mut apart = Vec::new();
        sealer.open_into(part, &expected, &mut apart).unwrap();
        assert_eq!(apart, plain);
        let mut in_place = expected;
        let length = sealer.open(part, &mut in_place).unwrap();
        assert_eq!(in_place[..length], plain);

        let expected = bytes(&known["record"]);
        let chosen = Chosen::new(&[&nonce]);
        let record = vault.seal_record(purpose, &object, &plain, &chosen).unwrap();
        assert_eq!(record, expected, "record of {what}, encrypted: {encrypted}");
        assert_eq!(vault.open_record(purpose, &object, &expected).unwrap(), plain);
    }
    assert_eq!(seen.len(), 2 * PURPOSES.len(), "every purpose is known, with a key and without");
}

#[test]
fn r80_fingerprints_of_data_and_nodes_are_the_known_ones() {
    let key = master_key();
    let mut seen = BTreeSet::new();
    for known in answers()["fingerprints"].as_array().unwrap() {
        let kind: HashKind = text(&known["hash"]).parse().unwrap();
        let keyed = known["keyed"].as_bool().unwrap();
        let length = known["length"].as_u64().unwrap();
        seen.insert((kind.to_string(), keyed));
        let input: Vec<u8> = (0..length).map(|position| (position % 251) as u8).collect();
        let fingerprinter = Fingerprinter::new(kind, keyed.then_some(&key));
        let [data, node] = ["data", "node"].map(|what| Fingerprint(array(&known[what])));
        let what = format!("{kind}, {length} bytes, keyed: {keyed}");
        assert_eq!(fingerprinter.data(&input), data, "data, {what}");
        assert_eq!(fingerprinter.node(&input), node, "node, {what}");
        // Several of one length, and among others: the batch hashes both in ways of its own.
        let mut batch = Vec::new();
        fingerprinter.data_batch(&[&input, b"x", &input, &input, &input], &mut batch);
        for at in [0, 2, 3, 4] {
            assert_eq!(batch[at], data, "batch, {what}");
        }
    }
    assert_eq!(seen.len(), 6);
}

/// The rings of the answers: with the first generation alone, and with each later one.
fn rings() -> Vec<KeyRing> {
    let answers = answers();
    let mut rings = vec![KeyRing::new(master_key())];
    for known in &answers["generations"].as_array().unwrap()[1..] {
        let number = u32::try_from(known["number"].as_u64().unwrap()).unwrap();
        let since_ns = known["since_ns"].as_i64().unwrap();
        let chosen = Chosen::new(&[&bytes(&known["secret"])]);
        let last = rings.last().unwrap();
        rings.push(last.rotated(number, since_ns, &chosen).unwrap());
    }
    rings
}

#[test]
fn r90_every_generation_of_keys_seals_and_is_named_as_known() {
    let answers = answers();
    let (object, nonce) = (array::<16>(&answers["name"]), bytes(&answers["nonce"]));
    let plain = bytes(&answers["plain"]);
    let rings = rings();
    let newest = Vault::of_ring(rings.last().unwrap(), Box::new(|| Ok(false)));
    for (ring, known) in rings.iter().zip(answers["generations"].as_array().unwrap()) {
        let number = u32::try_from(known["number"].as_u64().unwrap()).unwrap();
        assert_eq!(ring.newest().number, number);
        assert_eq!(ring.newest().id, array::<16>(&known["id"]));
        let vault = Vault::of_ring(ring, Box::new(|| Ok(false)));
        let mut part = plain.clone();
        vault.object(Purpose::Container, &object).unwrap().seal(0, &mut part, 0).unwrap();
        assert_eq!(part, bytes(&known["part"]), "generation {number}");
        let chosen = Chosen::new(&[&nonce]);
        let record = vault.seal_record(Purpose::Outcome, &object, &plain, &chosen).unwrap();
        assert_eq!(record, bytes(&known["record"]), "generation {number}");
        // The newest ring opens what every one has sealed.
        assert_eq!(newest.open_record(Purpose::Outcome, &object, &record).unwrap(), plain);
        let stored = newest.stored(Purpose::Container, &object).unwrap();
        assert_eq!(stored.open(0, &mut part).unwrap(), plain.len());
        let mut place = [0; 16];
        place[..4].copy_from_slice(&number.to_le_bytes());
        let decision = bytes(&known["decision"]);
        let id = Vault::new(None).open_record(Purpose::Generation, &place, &decision).unwrap();
        assert_eq!(id, ring.newest().id);
    }
}

#[test]
fn r80_key_slots_are_made_and_opened_as_known() {
    let answers = answers();
    let store = StoreId(array(&answers["store"]));
    let password = bytes(&answers["password"]);
    let (salt, nonce) = (bytes(&answers["salt"]), bytes(&answers["nonce"]));
    let known: Vec<&str> = answers["key_slots"].as_array().unwrap().iter().map(text).collect();
    let rings = rings();
    let mut seen = BTreeSet::new();
    for &known in &known {
        let slot = KeySlot::from_bytes(known.as_bytes()).unwrap();
        let claimed = slot.claimed().unwrap().unwrap();
        let ring = rings.iter().find(|ring| ring.newest() == claimed).unwrap();
        seen.insert(claimed.number);
        let opened = slot.open(&password, store).unwrap();
        assert_eq!(*opened.to_bytes(), *ring.to_bytes());
        let chosen = Chosen::new(&[&salt, &nonce]);
        let made = KeySlot::create(ring, &password, store, slot.cost(), &chosen).unwrap();
        assert_eq!(String::from_utf8(made.to_bytes().unwrap()).unwrap(), known);
    }
    assert_eq!(seen, rings.iter().map(|ring| ring.newest().number).collect());
    // Those of stores that are older than rotations are opened, and not made any more.
    for known in answers["first_key_slots"].as_array().unwrap().iter().map(text) {
        let slot = KeySlot::from_bytes(known.as_bytes()).unwrap();
        assert_eq!(slot.claimed().unwrap(), None);
        let opened = slot.open(&password, store).unwrap();
        assert_eq!(*opened.to_bytes(), *master_key().as_bytes());
    }
    // The cost is chosen again from time to time, but the first slot is one of a real store.
    let first = KeySlot::from_bytes(known[0].as_bytes()).unwrap();
    assert_eq!(first.cost(), KdfCost { memory_kib: 12 * 1024, passes: 3, lanes: 1 });
}

#[test]
fn r80_key_files_are_read_and_open_their_slots_as_known() {
    let answers = answers();
    let store = StoreId(array(&answers["store"]));
    let line = text(&answers["key_file"]);
    let file = KeyFile::parse(line.as_bytes()).unwrap();
    assert_eq!(*file.to_text(), line);
    let (salt, nonce) = (bytes(&answers["salt"]), bytes(&answers["nonce"]));
    let rings = rings();
    let known = answers["key_file_slots"].as_array().unwrap();
    assert!(!known.is_empty());
    for known in known.iter().map(text) {
        let slot = KeySlot::from_bytes(known.as_bytes()).unwrap();
        let claimed = slot.claimed().unwrap().unwrap();
        let ring = rings.iter().find(|ring| ring.newest() == claimed).unwrap();
        assert_eq!(*slot.open(&file, store).unwrap().to_bytes(), *ring.to_bytes());
        let chosen = Chosen::new(&[&salt, &nonce]);
        let made = KeySlot::create(ring, &file, store, KdfCost::default(), &chosen).unwrap();
        assert_eq!(String::from_utf8(made.to_bytes().unwrap()).unwrap(), known);
    }
}
