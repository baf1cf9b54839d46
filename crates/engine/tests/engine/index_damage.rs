//! Index runs with damage anywhere: no panic, and never a wrong "no".

use crate::index::fingerprint;
use crate::ingest::{create, in_memory, options};
use onefold_crypto::{Purpose, Suite, TAG_BYTES};
use onefold_engine::index::run::Run;
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex, IndexMode, run_writer};
use onefold_engine::{InitOptions, Repository};
use onefold_format::index_run::{Entry, IndexKind, PAGE_STORED_BYTES, PIECE_PART, is_hook};
use onefold_format::layout;
use onefold_store::{Blobs, Key, MemoryStore};
use onefold_types::environment::{Randomness, SeededRandomness};
use onefold_types::{ContainerId, RunId};
use std::sync::Arc;

const COUNT: usize = 700;

/// A store with one run of `COUNT` entries, a third of them hooks.
struct Fixture {
    memory: MemoryStore,
    repository: Arc<Repository>,
    id: RunId,
    containers: Vec<ContainerId>,
    entries: Vec<Entry>,
}

impl Fixture {
    fn new(kind: IndexKind, suite: Suite) -> Self {
        let (memory, store) = in_memory();
        let repository = create(&store, &InitOptions { suite, ..options() });
        let randomness = SeededRandomness::new(1);
        let mut containers: Vec<ContainerId> =
            (0..9).map(|_| ContainerId::random(&randomness)).collect();
        containers.sort_unstable();
        let mut entries: Vec<Entry> = (0..COUNT)
            .map(|number| Entry {
                prefix: (randomness.next_u64() & !31) + u64::from(number % 3 > 0),
                container: randomness.below(9) as u32,
            })
            .collect();
        entries.sort_unstable();
        let mut next = entries.iter().copied();
        let next = &mut || Ok(next.next());
        let id =
            run_writer::write_run(&repository, Some(kind), containers.clone(), Vec::new(), next);
        Self { memory, repository, id: id.unwrap(), containers, entries }
    }

    fn key(&self) -> Key {
        Key::new(layout::index_run(self.id)).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        self.memory.get(&self.key()).unwrap()
    }

    fn replace(&self, bytes: &[u8]) {
        self.memory.remove(&self.key());
        self.memory.put(&self.key(), bytes).unwrap();
    }

    /// Asks for some entries. Each must be found, or the run must no longer count as covering
    /// anything, so that the containers are replayed. Returns whether the run stayed in use and
    /// whether a problem was reported.
    fn assert_no_wrong_no(&self, mode: IndexMode, step: usize, what: &str) -> (bool, bool) {
        let index = FingerprintIndex::open_with(&self.repository, mode).unwrap();
        let mut found = Vec::new();
        for entry in self.entries.iter().step_by(step) {
            if mode == IndexMode::Sampled && !is_hook(entry.prefix) {
                continue;
            }
            let known = index.may_contain(&self.repository, &fingerprint(entry.prefix)).unwrap();
            let questions = [fingerprint(entry.prefix)];
            found.clear();
            index.locate_newest(&self.repository, &questions, &mut found, &mut 0).unwrap();
            if index.runs().is_empty() {
                assert_eq!(index.covered(), [], "{what}");
                assert!(!index.problems().is_empty(), "{what}");
                return (false, true);
            }
            let container = self.containers[entry.container as usize];
            assert!(known && found[0].contains(&container), "{what}: a wrong no");
        }
        (true, !index.problems().is_empty())
    }
}

#[test]
fn r22_a_flipped_byte_anywhere_leads_to_no_wrong_no() {
    for (kind, suite) in [
        (IndexKind::Bloom, Suite::None),
        (IndexKind::Fuse, Suite::Aes256Gcm),
        (IndexKind::Signature, Suite::None),
        (IndexKind::Signature, Suite::Aes256Gcm),
    ] {
        let fixture = Fixture::new(kind, suite);
        let bytes = fixture.bytes();
        let table = Run::open(&fixture.repository, fixture.id).unwrap().table;
        let starts = table.starts();
        let (piece, tail) = (table.piece_offset(&starts, 0) as usize, *starts.last().unwrap());
        let hooks = table.hook_offset(&starts, 0) as usize;
        assert_eq!(fixture.assert_no_wrong_no(IndexMode::Exact, 1, "sound"), (true, false));
        for place in (0..bytes.len()).step_by(3) {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << (place % 8);
            fixture.replace(&flipped);
            let what = format!("{kind}, byte {place} of {}", bytes.len());
            let exact = fixture.assert_no_wrong_no(IndexMode::Exact, 29, &what);
            let expected = match place {
                // Of three pages, signatures read none.
                _ if place < piece && kind == IndexKind::Signature => (true, false),
                _ if place < piece => (false, true),
                // A piece that cannot be read denies nothing.
                _ if place < hooks => (true, true),
                // Hooks are not asked for.
                _ if (place as u64) < tail => (true, false),
                _ => (false, true),
            };
            assert_eq!(exact, expected, "{what}");
            let sampled = fixture.assert_no_wrong_no(IndexMode::Sampled, 29, &what);
            let expected = match place {
                // If a hook that is asked for lies on the page.
                _ if place < piece => (sampled.0, !sampled.0),
                _ if place < hooks => (true, false),
                _ if (place as u64) < tail => (true, true),
                _ => (false, true),
            };
            assert_eq!(sampled, expected, "{what}, sampled");
        }
    }
}

#[test]
fn r13_a_run_cut_short_anywhere_is_not_used() {
    let fixture = Fixture::new(IndexKind::Fuse, Suite::Aes256Gcm);
    let bytes = fixture.bytes();
    for length in (0..bytes.len()).step_by(11) {
        fixture.replace(&bytes[..length]);
        let outcome = fixture.assert_no_wrong_no(IndexMode::Exact, 29, &format!("{length} bytes"));
        assert_eq!(outcome, (false, true), "{length}");
    }
}

/// What an unencrypted store gives to anybody who may write to it: pieces that open and are
/// nonsense. Answers may be wrong then, which a check finds; but nothing panics.
#[test]
fn pieces_of_nonsense_under_a_good_seal_do_no_harm() {
    for kind in IndexKind::ALL {
        let fixture = Fixture::new(kind, Suite::None);
        let bytes = fixture.bytes();
        let table = Run::open(&fixture.repository, fixture.id).unwrap().table;
        let start = table.piece_offset(&table.starts(), 0) as usize;
        assert_eq!(start, 3 * PAGE_STORED_BYTES);
        let length = table.piece_lengths[0] as usize - TAG_BYTES;
        let sealer = fixture.repository.vault().object(Purpose::IndexRun, &fixture.id.0).unwrap();
        let randomness = SeededRandomness::new(2);
        for attempt in 0..300 {
            let mut plain = bytes[start..start + length].to_vec();
            // Of the parameters, of the body, or of everything.
            let range = match attempt % 3 {
                0 => 0..18,
                1 => 18..length,
                _ => 0..length,
            };
            randomness.fill(&mut plain[range]);
            plain[0] = (attempt % 7) as u8;
            sealer.seal(PIECE_PART, &mut plain, 0).unwrap();
            let mut changed = bytes.clone();
            changed[start..start + plain.len()].copy_from_slice(&plain);
            fixture.replace(&changed);
            let index = FingerprintIndex::open(&fixture.repository).unwrap();
            for entry in fixture.entries.iter().step_by(50) {
                let fingerprint = fingerprint(entry.prefix);
                index.may_contain(&fixture.repository, &fingerprint).unwrap();
                index.locate(&fixture.repository, &fingerprint, &mut 0).unwrap();
            }
        }
    }
}
