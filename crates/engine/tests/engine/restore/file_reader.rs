//! One file read at any offset, as a mount reads it.

use super::support::{
    CHUNK_BYTES, Item, Part, in_memory, random_bytes, repository_of_containers, repository_on,
    repository_with_memory, store_tree,
};
use onefold_engine::Repository;
use onefold_engine::chunks::ChunkReader;
use onefold_engine::chunks::read_frame::VERIFIED_MAX;
use onefold_engine::container::{list, reader::read_section};
use onefold_engine::tree::file_reader::CHILDREN_KEPT;
use onefold_engine::tree::{FileReader, TreeReader};
use onefold_format::container::HEADER_BYTES;
use onefold_format::layout;
use onefold_format::node::{Entry, EntryKind};
use onefold_store::layers::{Counting, Operation};
use onefold_store::{Key, MemoryStore};
use onefold_types::environment::{Randomness, SeededRandomness};
use onefold_types::{ErrorKind, Level, limits};
use std::sync::Arc;

/// What a mount asks for at a time.
const READ_BYTES: usize = 4 * limits::KIB;

/// A tree reader with caches of its own that hold next to no frames.
fn trees(repository: &Arc<Repository>) -> Arc<TreeReader> {
    Arc::new(TreeReader::new(ChunkReader::apart(repository).unwrap()))
}

/// Stores files and gives the entry of each.
fn stored(repository: &Arc<Repository>, files: Vec<Item>) -> Vec<Entry> {
    let root = store_tree(repository, files);
    trees(repository).entries(root.content.unwrap()).unwrap()
}

fn bytes_of(parts: &[Part]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            Part::Bytes(part) | Part::Chunks(part, _) => bytes.extend_from_slice(part),
            Part::Hole(length) => bytes.resize(bytes.len() + *length as usize, 0),
        }
    }
    bytes
}

/// Files of every form that a tree can have.
fn forms() -> Vec<Vec<Part>> {
    let random = |seed, length| Part::Bytes(random_bytes(seed, length));
    let many = random_bytes(8, 75_000).into_iter().flat_map(|byte| [byte; 16]).collect();
    vec![
        vec![],
        vec![random(1, 1)],
        vec![random(2, CHUNK_BYTES)],
        vec![random(3, CHUNK_BYTES + 1)],
        vec![Part::Hole(100_000)],
        vec![Part::Hole(70_000), random(4, 30_001), Part::Hole(1)],
        vec![random(5, 99_999), Part::Hole(3_000_000), random(6, 2_000_000)],
        // The same chunk over and over.
        vec![Part::Bytes(vec![7; 40 * CHUNK_BYTES + 5])],
        // A few chunks so often that there are maps of maps of maps.
        vec![Part::Chunks(many, 16), Part::Hole(5), random(9, 77)],
    ]
}

struct Chance(SeededRandomness);

impl Chance {
    fn below(&self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end.max(1)
    }
}

/// Compares a range with what the file holds.
fn compare(reader: &FileReader, expected: &[u8], offset: u64, length: usize) {
    let mut found = vec![0xa5; length];
    let read = reader.read_at(offset, &mut found).unwrap();
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(expected.len());
    let end = start.saturating_add(length).min(expected.len());
    assert_eq!(read, end - start, "{offset} {length}");
    assert!(found[..read] == expected[start..end], "{offset} {length}");
    assert!(found[read..].iter().all(|byte| *byte == 0xa5), "{offset} {length}");
}

#[test]
fn i13_any_range_of_a_file_is_what_the_file_holds() {
    let (_, repository) = in_memory();
    let items = forms().into_iter().enumerate();
    let items = items.map(|(number, parts)| Item::parts(format!("{number}"), parts)).collect();
    let entries = stored(&repository, items);
    let highest = entries.iter().filter_map(|entry| entry.content).map(|content| content.level);
    assert!(highest.max() >= Some(Level(3)), "maps of maps of maps");
    let trees = trees(&repository);
    for (entry, parts) in entries.iter().zip(forms()) {
        let expected = bytes_of(&parts);
        let size = expected.len() as u64;
        let reader = FileReader::open(Arc::clone(&trees), entry).unwrap();
        assert_eq!(reader.size(), size);
        compare(&reader, &expected, 0, expected.len() + 10);
        for offset in [0, 1, size.saturating_sub(1), size, size + 1, u64::MAX] {
            for length in [0, 1, 2, 100_000] {
                compare(&reader, &expected, offset, length);
            }
        }
        let chance = Chance(SeededRandomness::new(size));
        for _ in 0..300 {
            let longest = [10, READ_BYTES as u64, 300_000][chance.below(3) as usize];
            compare(&reader, &expected, chance.below(size + 9), chance.below(longest) as usize);
        }
    }
}

#[test]
fn i13_sixteen_threads_read_one_file_at_once() {
    let (_, repository) = in_memory();
    let parts = vec![
        Part::Bytes(random_bytes(1, 3_000_000)),
        Part::Hole(500_000),
        Part::Bytes(random_bytes(2, 3_000_000)),
    ];
    let expected = bytes_of(&parts);
    let entries = stored(&repository, vec![Item::parts("f", parts)]);
    let reader = FileReader::open(trees(&repository), &entries[0]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (reader, expected) = (&reader, &expected);
            scope.spawn(move || {
                let chance = Chance(SeededRandomness::new(thread));
                let mut offset = thread * 400_000;
                for _ in 0..100 {
                    compare(reader, expected, offset, READ_BYTES);
                    offset += READ_BYTES as u64;
                    compare(reader, expected, chance.below(expected.len() as u64), 20_000);
                }
            });
        }
    });
}

#[test]
fn i13_a_small_read_of_a_large_file_opens_few_frames() {
    let (_, repository) = in_memory();
    let expected = random_bytes(1, 24_000_000);
    let entries = stored(&repository, vec![Item::file("f", expected.clone())]);
    let levels = u64::from(entries[0].content.unwrap().level.0);
    assert!(levels >= 2);
    for offset in [0, 11_111_111, 23_990_000] {
        let trees = trees(&repository);
        let reader = FileReader::open(Arc::clone(&trees), &entries[0]).unwrap();
        compare(&reader, &expected, offset, READ_BYTES);
        let counters = trees.chunks().counters();
        // A frame for each map, and those of two chunks at most.
        assert!(counters.frames <= levels + 2, "{offset}: {counters:?}");
        assert!(counters.sections <= levels + 2, "{offset}: {counters:?}");
        compare(&reader, &expected, offset, READ_BYTES);
        assert_eq!(trees.chunks().counters(), counters, "what was just read is kept");
        // Where its data goes on is asked of no more of its tree than the range takes.
        let range = offset..offset + READ_BYTES as u64;
        assert_eq!(reader.data_within(range.clone()).unwrap(), Some(offset));
        assert_eq!(reader.hole_within(range.clone()).unwrap(), range.end.min(24_000_000));
        assert_eq!(trees.chunks().counters(), counters, "the rest of the file is not looked at");
    }
}

/// A MiB is read with one request for each container that it lies in.
#[test]
fn a_large_read_asks_for_frames_that_lie_beside_one_another_at_once() {
    let counting = Arc::new(Counting::new(MemoryStore::new()));
    let repository = repository_on(Arc::clone(&counting) as Arc<_>);
    let expected = random_bytes(1, 6 * limits::MIB);
    let entries = stored(&repository, vec![Item::file("f", expected.clone())]);
    let trees = trees(&repository);
    let reader = FileReader::open(Arc::clone(&trees), &entries[0]).unwrap();
    let containers = list::container_names(&repository).unwrap().len() as u64;
    // What is known of the tree afterwards.
    for offset in [0, 2, 4, 5] {
        compare(&reader, &expected, offset * limits::MIB as u64, 1);
    }
    for (offset, length) in [(limits::MIB / 2, limits::MIB), (0, 6 * limits::MIB)] {
        let frames = trees.chunks().counters().frames;
        counting.take();
        compare(&reader, &expected, offset as u64, length);
        let frames = trees.chunks().counters().frames - frames;
        let requests = counting.take().of("containers", Operation::GetRange).calls;
        let whole = (length / limits::FRAME_PLAIN_TARGET_BYTES) as u64;
        assert!(frames + 2 >= whole, "{frames} frames of {whole}");
        let most = (length / limits::MIB) as u64 + containers + 2;
        assert!(requests <= most && requests < frames, "{requests} requests, {frames} frames");
    }
}

/// One chunk more than a frame remembers as verified, read again and again in small steps.
#[test]
fn a_frame_of_more_chunks_than_it_remembers_gives_them_all() {
    let (_, repository) = in_memory();
    let expected = random_bytes(1, (VERIFIED_MAX + 1) * limits::KIB);
    let parts = vec![Part::Chunks(expected.clone(), limits::KIB)];
    let entries = stored(&repository, vec![Item::parts("f", parts)]);
    let trees = trees(&repository);
    let reader = FileReader::open(Arc::clone(&trees), &entries[0]).unwrap();
    for step in [700, 1024, expected.len()] {
        for offset in (0..expected.len()).step_by(step) {
            compare(&reader, &expected, offset as u64, step);
        }
    }
    let levels = u64::from(entries[0].content.unwrap().level.0);
    assert!(trees.chunks().counters().frames <= levels + 1, "all of it lies in one");
}

/// More children of maps than are kept of any file: those of a large one are kept as well.
#[test]
fn whoever_reads_here_and_there_in_a_large_file_reads_each_map_once() {
    const TINY_BYTES: usize = 64;
    let repository = repository_with_memory(Arc::new(MemoryStore::new()), 256 * limits::MIB);
    let expected = random_bytes(1, (CHILDREN_KEPT + CHILDREN_KEPT / 4) * TINY_BYTES);
    let parts = vec![Part::Chunks(expected.clone(), TINY_BYTES)];
    let entries = stored(&repository, vec![Item::parts("f", parts)]);
    let entry = Entry { chunks: (expected.len() / TINY_BYTES) as u64, ..entries[0].clone() };
    let trees = trees(&repository);
    let reader = FileReader::open(Arc::clone(&trees), &entry).unwrap();
    let frames = || trees.chunks().counters().frames;
    // A byte out of each map, none of which has fewer children.
    let pass = || {
        let before = frames();
        for offset in (0..expected.len()).step_by(64 * TINY_BYTES) {
            compare(&reader, &expected, offset as u64, 1);
        }
        frames() - before
    };
    let (first, second) = (pass(), pass());
    let of_data = (expected.len() / limits::FRAME_PLAIN_TARGET_BYTES + 2) as u64;
    assert!(second <= of_data && first > second, "{first}, then {second}, of data {of_data}");
}

/// However much of a container is wanted, a request is for a MiB at most.
#[test]
fn a_large_read_of_one_container_takes_a_request_for_each_mib() {
    let counting = Arc::new(Counting::new(MemoryStore::new()));
    let store = Arc::clone(&counting) as Arc<_>;
    let repository = repository_of_containers(store, 64 * limits::MIB, 4 * limits::MIB);
    let expected = random_bytes(1, 3 * limits::MIB);
    // Large ones, so that one map tells of all.
    let parts = vec![Part::Chunks(expected.clone(), 64 * limits::KIB)];
    let entries = stored(&repository, vec![Item::parts("f", parts)]);
    let reader = FileReader::open(trees(&repository), &entries[0]).unwrap();
    compare(&reader, &expected, 0, 1);
    counting.take();
    compare(&reader, &expected, limits::MIB as u64, 2 * limits::MIB);
    let asked = counting.take().of("containers", Operation::GetRange);
    assert!(asked.bytes >= 2 * limits::MIB as u64, "{asked:?}");
    assert!(asked.calls > 2, "with the tags of the frames it is more than two MiB: {asked:?}");
    assert!(asked.bytes <= asked.calls * limits::MIB as u64, "{asked:?}");
    assert!(asked.calls <= 4, "{asked:?}");
}

/// What is whole around a damaged frame is given however large the read is.
#[test]
fn a_large_read_over_a_damaged_frame_names_it_and_gives_what_is_before() {
    let memory = MemoryStore::new();
    let counting = Arc::new(Counting::new(memory.clone()));
    let repository = repository_on(Arc::clone(&counting) as Arc<_>);
    let expected = random_bytes(1, 2 * limits::MIB);
    let entries = stored(&repository, vec![Item::file("f", expected.clone())]);
    let name = |at: usize| repository.fingerprinter().data(&expected[at..at + CHUNK_BYTES]);
    let middle = name(expected.len() / 2 / CHUNK_BYTES * CHUNK_BYTES);
    let (id, section, frame) = list::container_names(&repository)
        .unwrap()
        .into_iter()
        .find_map(|id| {
            let section = read_section(&repository, id).unwrap();
            section.chunks.iter().find(|chunk| chunk.fingerprint == middle)?;
            // Behind another one that is read together with it.
            let chunks = section.chunks.iter().filter(|chunk| !chunk.level.is_node());
            let frame = chunks.map(|chunk| chunk.frame).max()?;
            assert!(frame > 0);
            Some((id, section, frame))
        })
        .unwrap();
    let at = section.frames[frame as usize].offset as usize;
    let key = Key::new(layout::container(id)).unwrap();
    assert!(memory.corrupt(&key, |bytes| bytes[at + 99] ^= 1));
    let lost: Vec<usize> = (0..expected.len())
        .step_by(CHUNK_BYTES)
        .filter(|at| {
            let name = repository.fingerprinter().data(&expected[*at..][..CHUNK_BYTES]);
            section.chunks.iter().any(|known| known.fingerprint == name && known.frame == frame)
        })
        .collect();
    let (first, last) = (lost[0], lost[lost.len() - 1] + CHUNK_BYTES);
    let reader = FileReader::open(trees(&repository), &entries[0]).unwrap();
    let mut found = vec![0; expected.len()];
    // What is known of the tree afterwards.
    compare(&reader, &expected, 0, 1);
    counting.take();
    let error = reader.read_at(0, &mut found).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    // The chunks before it do not all ask for it once more.
    let requests = counting.take().of("containers", Operation::GetRange).calls;
    assert!(requests <= 8, "{requests}");
    assert!(found[..first] == expected[..first]);
    compare(&reader, &expected, 0, first);
    compare(&reader, &expected, last as u64, expected.len());
}

#[test]
fn i13_data_and_holes_of_a_range_are_where_the_file_has_them() {
    let (_, repository) = in_memory();
    let forms = forms().into_iter().take(7);
    let items = forms.clone().enumerate();
    let items = items.map(|(number, parts)| Item::parts(format!("{number}"), parts)).collect();
    let trees = trees(&repository);
    for (entry, parts) in stored(&repository, items).iter().zip(forms) {
        // For each byte whether it is in a hole.
        let mut holes = Vec::new();
        for part in &parts {
            let (length, is_hole) = match part {
                Part::Bytes(part) | Part::Chunks(part, _) => (part.len(), false),
                Part::Hole(length) => (*length as usize, true),
            };
            holes.resize(holes.len() + length, is_hole);
        }
        let reader = FileReader::open(Arc::clone(&trees), entry).unwrap();
        let chance = Chance(SeededRandomness::new(entry.size));
        for _ in 0..200 {
            let start = chance.below(entry.size + 3);
            let end = start + chance.below(200_000);
            let range = start as usize..(end as usize).min(holes.len());
            let of = holes.get(range).unwrap_or_default();
            let first = |wanted| of.iter().position(|is_hole| *is_hole == wanted);
            let data = first(false).map(|at| start + at as u64);
            assert_eq!(reader.data_within(start..end).unwrap(), data, "{start}..{end}");
            if let (Some(at), true) = (first(true).or(Some(of.len())), start < entry.size) {
                let hole = start + at as u64;
                assert_eq!(reader.hole_within(start..end).unwrap(), hole, "{start}..{end}");
            }
        }
    }
}

#[test]
fn i13_files_read_in_turn_from_end_to_end_cost_each_frame_once() {
    const FILES: usize = 12;
    const FILE_BYTES: usize = 2_000_000;
    let (_, repository) = in_memory();
    let expected: Vec<_> = (0..FILES as u64).map(|seed| random_bytes(seed, FILE_BYTES)).collect();
    let item = |(number, bytes): (usize, &Vec<u8>)| Item::file(format!("{number:02}"), &**bytes);
    let entries = stored(&repository, expected.iter().enumerate().map(item).collect());
    let containers = list::container_names(&repository).unwrap();
    let frames_of = |id| read_section(&repository, id).unwrap().frames.len() as u64;
    let frames: u64 = containers.into_iter().map(frames_of).sum();
    // More files than the caches hold frames: what each reader holds of its own is what counts.
    let trees = trees(&repository);
    let open = |entry| FileReader::open(Arc::clone(&trees), entry).unwrap();
    let readers: Vec<FileReader> = entries.iter().map(open).collect();
    for offset in (0..FILE_BYTES as u64).step_by(READ_BYTES) {
        for (reader, expected) in readers.iter().zip(&expected) {
            compare(reader, expected, offset, READ_BYTES);
        }
    }
    let counters = trees.chunks().counters();
    // Files begin and end within frames that they share with their neighbours, and so do their
    // maps.
    assert!(counters.frames <= frames + 4 * FILES as u64, "{counters:?} of {frames} frames");
}

#[test]
fn i13_damage_is_named_where_it_is_asked_for_and_nowhere_else() {
    let (memory, repository) = in_memory();
    let expected = random_bytes(1, 3_000_000);
    let entries = stored(&repository, vec![Item::file("f", expected.clone())]);
    // The second frame of the container of the first chunk.
    let name = |bytes: &[u8]| repository.fingerprinter().data(bytes);
    let first = name(&expected[..CHUNK_BYTES]);
    let sections = list::container_names(&repository).unwrap().into_iter();
    let mut sections = sections.map(|id| (id, read_section(&repository, id).unwrap()));
    let (id, section) = sections
        .find(|(_, section)| section.chunks.iter().any(|chunk| chunk.fingerprint == first))
        .unwrap();
    let at = section.frames[1].offset as usize;
    assert!(at > HEADER_BYTES);
    let key = Key::new(layout::container(id)).unwrap();
    assert!(memory.corrupt(&key, |bytes| bytes[at + 99] ^= 1));
    let is_lost = |chunk: &[u8]| {
        let name = name(chunk);
        section.chunks.iter().any(|known| known.fingerprint == name && known.frame == 1)
    };
    let reader = FileReader::open(trees(&repository), &entries[0]).unwrap();
    let mut lost = 0;
    for _ in 0..2 {
        for (number, chunk) in expected.chunks(CHUNK_BYTES).enumerate() {
            let offset = (number * CHUNK_BYTES) as u64;
            if !is_lost(chunk) {
                compare(&reader, &expected, offset, chunk.len());
                continue;
            }
            lost += 1;
            let mut buffer = vec![0; 10];
            let error = reader.read_at(offset + 5, &mut buffer).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
            assert!(error.to_string().contains(&name(chunk).to_string()), "{error}");
        }
    }
    assert!(lost > 10);
}

#[test]
fn i13_a_tree_that_does_not_fit_its_file_is_damage() {
    let (_, repository) = in_memory();
    let entries = stored(&repository, vec![Item::file("f", random_bytes(1, 100_000))]);
    let trees = trees(&repository);
    for size in [99_999, 100_001, 1 << 40] {
        let entry = Entry { size, ..entries[0].clone() };
        let reader = FileReader::open(Arc::clone(&trees), &entry).unwrap();
        assert_eq!(reader.read_at(50, &mut [0; 9]).unwrap_err().kind(), ErrorKind::Damaged);
    }
    let kind_of = |entry: Entry| FileReader::open(Arc::clone(&trees), &entry).err().unwrap().kind();
    assert_eq!(kind_of(Entry { content: None, ..entries[0].clone() }), ErrorKind::Damaged);
    let directory = Entry { kind: EntryKind::Directory, ..entries[0].clone() };
    assert_eq!(kind_of(directory), ErrorKind::Invalid);
}
