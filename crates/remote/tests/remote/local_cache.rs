//! What this machine keeps of a store that is elsewhere: what is asked for again and what is not,
//! damaged files, the bound, and what proves that an object exists.

use onefold_remote::LocalCache;
use onefold_remote::local_cache::{
    BLOCK_BYTES, FRAMES_MAX_BYTES, INDEX_RANGE_MAX_BYTES, PART_MAX, RUN_MAX_BYTES, SHARDS,
    WRITTEN_PART,
};
use onefold_store::layers::{Counting, Fault, Faulty, Operation};
use onefold_store::{Asked, Blobs, Key, MemoryStore, Store, conformance};
use onefold_types::limits::METADATA_SECTION_MAX_BYTES;
use onefold_types::{ErrorKind, StoreId};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Far = Arc<Counting<MemoryStore>>;

const STORE: StoreId = StoreId([7; 16]);
/// Room for everything that tests keep.
const ROOM_BYTES: u64 = 4 << 30;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// A store with this object, elsewhere.
fn with(name: &str, bytes: &[u8]) -> Far {
    let far = Arc::new(Counting::new(MemoryStore::new()));
    far.put(&key(name), bytes).unwrap();
    far
}

/// A process that uses it.
fn process(far: &Far, directory: &Path, size_max_bytes: u64) -> LocalCache<Far> {
    let near = LocalCache::new(Arc::clone(far), directory.to_owned(), size_max_bytes);
    near.open_as(STORE, false).unwrap();
    near
}

fn range(near: &impl Blobs, name: &str, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    near.peek_range(&key(name), offset, &mut buffer).unwrap();
    buffer
}

/// Requests that were made since the last time.
fn requests(far: &Far) -> u64 {
    far.take().iter().map(|(_, _, count)| count.calls).sum()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let shards = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = shards.filter_map(|shard| fs::read_dir(shard.path()).ok()).flatten().flatten();
    files.map(|file| file.path()).collect()
}

#[test]
fn conforms() {
    let directory = tempfile::tempdir().unwrap();
    let make = || {
        let near = LocalCache::new(MemoryStore::new(), directory.path().to_owned(), ROOM_BYTES);
        near.open_as(STORE, true).unwrap();
        Box::new(near) as Box<dyn Store>
    };
    conformance::run(&make).unwrap();
}

#[test]
fn what_was_read_is_not_asked_for_again_by_any_process() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["index/a", "containers/00/a"] {
        let whole = pattern(300_000);
        let far = with(name, &whole);
        requests(&far);
        for asked in [2, 0, 0] {
            let near = process(&far, directory.path(), ROOM_BYTES);
            assert!(range(&near, name, 70_000, 5_000) == whole[70_000..75_000]);
            let (size, tail) = near.peek_tail(&key(name), 10_000).unwrap();
            assert!(size == 300_000 && tail == whole[290_000..], "{name}");
            assert_eq!(requests(&far), asked, "{name}");
        }
        // A longer tail is another one, and so is a range that begins elsewhere.
        let near = process(&far, directory.path(), ROOM_BYTES);
        assert!(range(&near, name, 70_001, 5_000) == whole[70_001..75_001]);
        assert!(near.peek_tail(&key(name), 10_001).unwrap().1 == whole[289_999..]);
        // All of an object that is shorter than its tail.
        assert_eq!(requests(&far), 2, "{name}");
    }
    let short = with("index/b", b"short");
    for _ in 0..2 {
        let near = process(&short, directory.path(), ROOM_BYTES);
        assert_eq!(near.peek_tail(&key("index/b"), 64).unwrap(), (5, b"short".to_vec()));
    }
    assert_eq!(short.counts().total(Operation::GetTail).calls, 1);
}

#[test]
fn whatever_proves_that_an_object_exists_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let name = "containers/00/a";
    let far = with(name, &pattern(1000));
    let near = process(&far, directory.path(), ROOM_BYTES);
    near.peek_tail(&key(name), 100).unwrap();
    range(&near, name, 100, 100);
    far.delete(&key(name)).unwrap();
    assert!(near.peek_tail(&key(name), 100).is_ok());
    // Neither a proof nor kept.
    assert!(near.get_range(&key(name), 100, &mut [0; 100]).is_err());
    for proof in [
        near.get_tail(&key(name), 100).map(drop),
        near.get(&key(name)).map(drop),
        near.size(&key(name)).map(drop),
    ] {
        assert_eq!(proof.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[test]
fn what_is_longer_or_of_another_kind_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let asked_twice = |name: &str, offset: u64, length: usize| {
        let far = with(name, &vec![1; offset as usize + length]);
        requests(&far);
        let near = process(&far, directory.path(), ROOM_BYTES);
        for _ in 0..2 {
            range(&near, name, offset, length);
        }
        requests(&far) == 2
    };
    assert!(!asked_twice("containers/00/a", 32, FRAMES_MAX_BYTES));
    assert!(asked_twice("containers/00/a", 32, FRAMES_MAX_BYTES + 1));
    assert!(!asked_twice("index/a", 0, INDEX_RANGE_MAX_BYTES));
    assert!(asked_twice("index/a", 0, INDEX_RANGE_MAX_BYTES + 1));
    assert!(asked_twice("metadata/a", 0, 10));
    assert!(asked_twice("indexes/a", 0, 10));
    let asked_twice_for_tail = |name: &str, length: usize| {
        let far = with(name, &vec![1; length]);
        requests(&far);
        let near = process(&far, directory.path(), ROOM_BYTES);
        for _ in 0..2 {
            near.peek_tail(&key(name), length).unwrap();
        }
        requests(&far) == 2
    };
    assert!(!asked_twice_for_tail("containers/00/c", METADATA_SECTION_MAX_BYTES));
    assert!(asked_twice_for_tail("containers/00/c", METADATA_SECTION_MAX_BYTES + 1));
}

#[test]
fn what_does_not_fit_its_checksum_is_asked_for_again() {
    let directory = tempfile::tempdir().unwrap();
    let whole = pattern(2000);
    let far = with("index/a", &whole);
    let check = |what: &str| {
        let near = process(&far, directory.path(), ROOM_BYTES);
        assert!(range(&near, "index/a", 500, 100) == whole[500..600], "{what}");
        let (size, tail) = near.peek_tail(&key("index/a"), 100).unwrap();
        assert!(size == 2000 && tail == whole[1900..], "{what}");
    };
    check("at first");
    let sound: Vec<_> = files(directory.path())
        .into_iter()
        .map(|file| (file.clone(), fs::read(file).unwrap()))
        .collect();
    assert_eq!(sound.len(), 2);
    requests(&far);
    for (file, bytes) in &sound {
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(file, flipped).unwrap();
            check("flipped");
            assert_eq!(requests(&far), 1, "{at}");
            assert!(fs::read(file).unwrap() == *bytes, "it is mended");
        }
        for length in [0, 31, 40, bytes.len() - 1] {
            fs::write(file, &bytes[..length]).unwrap();
            check("cut");
            assert_eq!(requests(&far), 1, "{length}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        fs::write(file, longer).unwrap();
        check("longer");
        assert_eq!(requests(&far), 1);
    }
    // One in the place of the other.
    let [(first, first_bytes), (second, second_bytes)] = &sound[..] else { unreachable!() };
    fs::write(first, second_bytes).unwrap();
    fs::write(second, first_bytes).unwrap();
    check("exchanged");
    assert_eq!(requests(&far), 2);
    check("mended");
    assert_eq!(requests(&far), 0);
}

#[test]
fn what_was_damaged_when_it_was_read_is_asked_for_again_once_somebody_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let peek = |near: &LocalCache<Far>| near.peek_tail(&key("index/a"), 100).unwrap().1;
    let damaged = with("index/a", &[6; 200]);
    assert_eq!(peek(&process(&damaged, directory.path(), ROOM_BYTES)), [6; 100]);
    let sound = with("index/a", &[7; 200]);
    let near = process(&sound, directory.path(), ROOM_BYTES);
    assert_eq!(peek(&near), [6; 100], "nobody knows");
    assert!(near.distrust(&key("index/a")));
    assert_eq!(peek(&near), [7; 100]);
    assert!(near.distrust(&key("index/a")), "another one may have read it before");
    // And for all others.
    assert_eq!(peek(&process(&sound, directory.path(), ROOM_BYTES)), [7; 100]);
    // Where nothing is kept there is nothing to be asked for again.
    let without = LocalCache::new(sound, directory.path().to_owned(), ROOM_BYTES);
    assert!(!without.distrust(&key("index/a")));
}

#[test]
fn stores_are_told_apart_and_unknown_ones_keep_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let far = with("index/a", &pattern(200));
    range(&process(&far, directory.path(), ROOM_BYTES), "index/a", 0, 100);
    let other = with("index/a", &[9; 200]);
    let near = LocalCache::new(Arc::clone(&other), directory.path().to_owned(), ROOM_BYTES);
    requests(&other);
    for _ in 0..2 {
        assert_eq!(range(&near, "index/a", 0, 100), [9; 100], "nobody has said which it is");
    }
    assert_eq!(requests(&other), 2);
    near.open_as(StoreId([8; 16]), false).unwrap();
    assert_eq!(range(&near, "index/a", 0, 100), [9; 100]);
}

#[test]
fn the_bound_holds_and_what_is_used_stays() {
    let directory = tempfile::tempdir().unwrap();
    let bound = 1 << 20;
    let length = 4000;
    let whole = pattern(2000 * length);
    let far = with("index/a", &whole);
    let near = process(&far, directory.path(), bound);
    for number in 0..2000 {
        range(&near, "index/a", (number * length) as u64, length);
    }
    let held = |directory: &Path| -> u64 {
        files(directory).iter().map(|file| file.metadata().unwrap().len()).sum()
    };
    let left = held(directory.path());
    assert!(left <= bound && left > bound / 2, "{left} bytes");
    // Another process counts what is there.
    let again = process(&far, directory.path(), bound);
    for number in 0..500 {
        range(&again, "index/a", (number * length) as u64, length);
    }
    assert!(held(directory.path()) <= bound);
    // Files that were used long ago go first.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    for file in files(directory.path()) {
        fs::File::options().write(true).open(file).unwrap().set_modified(old).unwrap();
    }
    requests(&far);
    let used = process(&far, directory.path(), bound);
    range(&used, "index/a", 499 * length as u64, length);
    assert_eq!(requests(&far), 0, "it was kept last");
    for number in 1000..1100 {
        range(&used, "index/a", (number * length) as u64, length);
    }
    requests(&far);
    range(&used, "index/a", 499 * length as u64, length);
    assert_eq!(requests(&far), 0, "it was used last");
    // No file may take more than a part of its shard (PART_MAX), with the 40 bytes of its head.
    let most = usize::try_from(bound / PART_MAX).unwrap() / SHARDS - 40;
    for (number, length) in [most, most + 1].into_iter().enumerate() {
        let offset = 7_000_000 + number as u64;
        range(&used, "index/a", offset, length);
        requests(&far);
        range(&used, "index/a", offset, length);
        assert_eq!(requests(&far), number as u64, "{length}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "no directory").unwrap();
    let far = with("index/a", &pattern(200));
    let near = process(&far, &file.join("below"), ROOM_BYTES);
    for _ in 0..2 {
        assert!(range(&near, "index/a", 0, 100) == pattern(200)[..100]);
        near.peek_tail(&key("index/a"), 100).unwrap();
    }
}

#[test]
fn backups_of_this_machine_pass_it_over_and_others_cannot_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let above = tempfile::tempdir().unwrap();
    let directory = above.path().join("objects");
    let far = with("index/a", &pattern(200));
    range(&process(&far, &directory, ROOM_BYTES), "index/a", 0, 100);
    let tag = fs::read_to_string(directory.join("CACHEDIR.TAG")).unwrap();
    assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn what_is_kept_is_not_foreseen() {
    let directory = tempfile::tempdir().unwrap();
    let objects = Arc::new(object_store::memory::InMemory::new());
    let bucket = onefold_remote::BucketStore::over(objects, "bucket", "").unwrap();
    bucket.put(&key("index/a"), &pattern(200)).unwrap();
    let near = LocalCache::new(bucket, directory.path().to_owned(), ROOM_BYTES);
    near.open_as(STORE, false).unwrap();
    let tail = || vec![Asked::Tail(key("index/a"), 100)];
    assert_ne!(near.foresee(tail()), 0);
    near.peek_tail(&key("index/a"), 100).unwrap();
    assert_eq!(near.foresee(tail()), 0);
    let of_container = vec![Asked::Tail(key("containers/00/a"), 100)];
    assert_ne!(near.foresee(of_container), 0);
}

/// Stores an object piece by piece.
fn put_in_pieces(near: &impl Blobs, name: &str, bytes: &[u8], pieces: usize) {
    let mut left = bytes.chunks(bytes.len().div_ceil(pieces)).peekable();
    let each = &mut |piece: &mut Vec<u8>| {
        piece.extend_from_slice(left.next().unwrap_or_default());
        Ok(left.peek().is_some())
    };
    near.put_pieces(&key(name), each).unwrap();
    near.was_read_back(&key(name));
}

/// Stores an object, and reads it back.
fn put(near: &impl Blobs, name: &str, bytes: &[u8]) {
    near.put(&key(name), bytes).unwrap();
    near.was_read_back(&key(name));
}

#[test]
fn what_was_written_is_read_here_and_not_taken_for_a_proof() {
    let directory = tempfile::tempdir().unwrap();
    let length = 3 * BLOCK_BYTES + 100;
    let whole = pattern(length);
    for (name, pieces) in [("containers/00/a", 1), ("index/a", 1), ("index/b", 3)] {
        let far = Arc::new(Counting::new(MemoryStore::new()));
        match pieces {
            1 => put(&process(&far, directory.path(), ROOM_BYTES), name, &whole),
            _ => put_in_pieces(&process(&far, directory.path(), ROOM_BYTES), name, &whole, pieces),
        }
        requests(&far);
        let near = process(&far, directory.path(), ROOM_BYTES);
        // Inside of blocks, beside their edges, across them, and the whole.
        let edges = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 1, length - 1];
        for from in edges {
            for to in edges.into_iter().chain([length]).filter(|to| *to > from) {
                assert!(range(&near, name, from as u64, to - from) == whole[from..to], "{from}");
                let mut buffer = vec![0; to - from];
                near.glance_range(&key(name), from as u64, &mut buffer).unwrap();
                assert!(buffer == whole[from..to], "{from} {to}");
            }
        }
        for tail in [1, 100, BLOCK_BYTES, length, length + 1] {
            let (size, found) = near.peek_tail(&key(name), tail).unwrap();
            assert!(size == length as u64 && found == whole[length.saturating_sub(tail)..]);
        }
        assert_eq!(requests(&far), 0, "{name}");
        assert!(near.glance_range(&key(name), length as u64, &mut [0]).is_err(), "{name}: too far");
        far.delete(&key(name)).unwrap();
        near.peek_tail(&key(name), 100).unwrap();
        for proof in [
            near.get_tail(&key(name), 100).map(drop),
            near.get(&key(name)).map(drop),
            near.size(&key(name)).map(drop),
        ] {
            assert_eq!(proof.unwrap_err().kind(), ErrorKind::NotFound);
        }
        near.delete(&key(name)).unwrap();
        assert!(
            near.glance_range(&key(name), 0, &mut [0]).is_err(),
            "{name} was deleted from here"
        );
    }
}

#[test]
fn what_was_not_stored_or_is_of_another_kind_is_not_kept_when_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let far = with("containers/00/a", b"the one that is there");
    let near = process(&far, directory.path(), ROOM_BYTES);
    assert!(near.put(&key("containers/00/a"), b"another").is_err());
    for name in ["metadata/a", "sessions/a", "containersof/a", "indexes/a"] {
        near.put(&key(name), b"written").unwrap();
    }
    let broken = &mut |_: &mut Vec<u8>| Err(onefold_types::Error::damaged("the source"));
    assert!(near.put_pieces(&key("index/b"), broken).is_err());
    assert!(files(directory.path()).is_empty());
    // Nor before it is known which store it is.
    let unknown = LocalCache::new(far, directory.path().to_owned(), ROOM_BYTES);
    unknown.put(&key("containers/00/b"), b"written").unwrap();
    put_in_pieces(&unknown, "index/b", b"written", 2);
    assert!(files(directory.path()).is_empty());
}

#[test]
fn what_was_written_is_kept_up_to_its_bounds() {
    let is_kept = |far: &Far, near: &LocalCache<Far>, name: &str| {
        requests(far);
        range(near, name, 0, 1);
        requests(far) == 0
    };
    // Index runs, in pieces.
    for (length, kept) in [(RUN_MAX_BYTES, true), (RUN_MAX_BYTES + 1, false)] {
        let directory = tempfile::tempdir().unwrap();
        let far = Arc::new(Counting::new(MemoryStore::new()));
        let near = process(&far, directory.path(), ROOM_BYTES);
        put_in_pieces(&near, "index/a", &pattern(length), 4);
        assert_eq!(is_kept(&far, &near, "index/a"), kept, "{length}");
        assert!(far.get(&key("index/a")).unwrap() == pattern(length));
    }
    // All that a process writes: half of the bound, to the last byte.
    let bound: u64 = 16 << 20;
    let most = usize::try_from(bound / WRITTEN_PART).unwrap();
    let each = most / 64;
    for last in [each, each + 1] {
        let directory = tempfile::tempdir().unwrap();
        let far = Arc::new(Counting::new(MemoryStore::new()));
        let near = process(&far, directory.path(), bound);
        let name = |number: usize| format!("containers/00/{number}");
        (0..63).for_each(|number| put(&near, &name(number), &pattern(each)));
        put(&near, &name(63), &pattern(last));
        assert_eq!(is_kept(&far, &near, &name(63)), last == each, "{last}");
        // What was too much has taken no room.
        put(&near, &name(64), &[1]);
        assert_eq!(is_kept(&far, &near, &name(64)), last != each);
        let others = process(&far, directory.path(), bound);
        put(&others, &name(65), &pattern(each));
        assert!(is_kept(&far, &others, &name(65)), "another process");
    }
    // One object: a part of a shard, with its head and the checksums of its blocks.
    let part = usize::try_from(bound / PART_MAX).unwrap() / SHARDS;
    let most = part - 40 - part.div_ceil(BLOCK_BYTES) * 16;
    for (length, kept) in [(most, true), (most + 1, false)] {
        let directory = tempfile::tempdir().unwrap();
        let far = Arc::new(Counting::new(MemoryStore::new()));
        let near = process(&far, directory.path(), bound);
        put(&near, "containers/00/a", &pattern(length));
        assert_eq!(is_kept(&far, &near, "containers/00/a"), kept, "{length}");
    }
    // What is too long takes nothing of what may be written.
    let directory = tempfile::tempdir().unwrap();
    let far = Arc::new(Counting::new(MemoryStore::new()));
    let near = process(&far, directory.path(), bound);
    let name = |number: usize| format!("containers/00/{number}");
    (0..64).for_each(|number| put(&near, &name(number), &pattern(most + 1)));
    put(&near, &name(64), &[1]);
    assert!(is_kept(&far, &near, &name(64)));
}

#[test]
fn of_what_was_written_and_is_damaged_no_byte_is_given_out() {
    let directory = tempfile::tempdir().unwrap();
    let length = 2 * BLOCK_BYTES + 10;
    let whole = pattern(length);
    let far = Arc::new(Counting::new(MemoryStore::new()));
    let name = "containers/00/a";
    put(&process(&far, directory.path(), ROOM_BYTES), name, &whole);
    let kept = files(directory.path());
    let [file] = &kept[..] else { panic!("{} files", kept.len()) };
    let sound = fs::read(file).unwrap();
    let read = |what: &str| {
        let near = process(&far, directory.path(), ROOM_BYTES);
        let mut buffer = vec![0; length];
        near.glance_range(&key(name), 0, &mut buffer).unwrap();
        assert!(buffer == whole, "{what}");
    };
    let before = sound.len() - length;
    let places = (0..before).chain((before..sound.len()).step_by(5003)).chain([sound.len() - 1]);
    for at in places {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(file, flipped).unwrap();
        requests(&far);
        read("flipped");
        assert_eq!(requests(&far), 1, "{at}");
    }
    // A size that cannot be.
    for size in [u64::MAX, u64::MAX / 4097 * 4096, 1 << 40] {
        let mut sized = sound.clone();
        sized[32..40].copy_from_slice(&size.to_le_bytes());
        fs::write(file, sized).unwrap();
        read("sized");
        assert_eq!(requests(&far), 1, "{size}");
    }
    for length in [0, 31, 40, before, sound.len() - 1] {
        fs::write(file, &sound[..length]).unwrap();
        read("cut");
        assert_eq!(requests(&far), 1, "{length}");
    }
    // One damaged block says nothing of the others.
    let mut flipped = sound.clone();
    flipped[before + BLOCK_BYTES] ^= 1;
    fs::write(file, flipped).unwrap();
    let near = process(&far, directory.path(), ROOM_BYTES);
    for (offset, asked) in [(0, 0), (BLOCK_BYTES, 1), (2 * BLOCK_BYTES, 0)] {
        let mut byte = [0];
        near.glance_range(&key(name), offset as u64, &mut byte).unwrap();
        assert_eq!((byte[0], requests(&far)), (whole[offset], asked), "{offset}");
    }
    // What was damaged when it was kept is kept no longer, once somebody says so.
    fs::write(file, &sound).unwrap();
    assert!(near.distrust(&key(name)));
    assert!(!file.exists());
}

#[test]
fn what_was_written_is_given_out_once_it_was_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let far = Arc::new(Counting::new(MemoryStore::new()));
    let name = "index/a";
    let asked = || {
        requests(&far);
        let near = process(&far, directory.path(), ROOM_BYTES);
        near.glance_range(&key(name), 1, &mut [0; 100]).unwrap();
        requests(&far)
    };
    let near = process(&far, directory.path(), ROOM_BYTES);
    near.put(&key(name), &pattern(1000)).unwrap();
    assert_eq!(asked(), 1);
    near.was_read_back(&key(name));
    assert_eq!(asked(), 0);
    // Of one that cannot be deleted nothing is kept either.
    let broken = Faulty::scripted(MemoryStore::new(), |call| match call.operation {
        Operation::Delete => Fault::Before(ErrorKind::Io),
        _ => Fault::None,
    });
    let near = LocalCache::new(broken, directory.path().to_owned(), ROOM_BYTES);
    near.open_as(STORE, false).unwrap();
    put(&near, "index/b", &pattern(1000));
    let before = files(directory.path()).len();
    assert!(near.delete(&key("index/b")).is_err());
    assert_eq!(files(directory.path()).len(), before - 1);
}
