//! Test support: the one suite that every store and every layer passes.
//!
//! It states the promises of the two ports as checks. It is a public module, so that stores outside
//! this crate run it too; production code has no use for it. A check that fails is returned as a
//! message that names it; the suite itself can fail, which its own tests show with broken stores.

use crate::{Key, Listed, Store};
use onefold_types::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

type Outcome = Result<(), String>;
type Check = fn(&dyn Store) -> Outcome;

const CHECKS: [(&str, Check); 13] = [
    ("put and get", put_and_get),
    ("pieces", pieces),
    ("names are taken once", names_are_taken_once),
    (DIRECTORIES, directories),
    ("ranges", ranges),
    ("tails", tails),
    ("absence", absence),
    ("listing", listing),
    ("listing stops and can re-enter", listing_stops),
    ("deletion", deletion),
    ("hostile names", hostile_names),
    ("decisions", decisions),
    ("concurrency", concurrency),
];

/// The one that stores need not pass which have no directories.
const DIRECTORIES: &str = "directories";

/// Threads that race in the concurrent checks.
const THREADS: usize = 8;

/// Runs every check, each on a fresh store that `make` returns.
///
/// # Errors
///
/// The first check that fails, in words.
pub fn run(make: &dyn Fn() -> Box<dyn Store>) -> Result<(), String> {
    run_all(make, |_| true)
}

/// The same for stores whose names are flat: there a name may be an object although others begin
/// with it. Nobody makes such names, so nothing else depends on it.
///
/// # Errors
///
/// The first check that fails, in words.
pub fn run_flat(make: &dyn Fn() -> Box<dyn Store>) -> Result<(), String> {
    run_all(make, |name| name != DIRECTORIES)
}

fn run_all(
    make: &dyn Fn() -> Box<dyn Store>,
    is_asked: impl Fn(&str) -> bool,
) -> Result<(), String> {
    for (name, check) in CHECKS.into_iter().filter(|(name, _)| is_asked(name)) {
        let store = make();
        check(&*store).map_err(|what| format!("{}: {name}: {what}", store.describe()))?;
    }
    Ok(())
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(what()) }
}

fn key(text: &str) -> Result<Key, String> {
    Key::new(text).map_err(|error| error.to_string())
}

/// The value, or the error in words with the step that met it.
fn done<T>(step: &str, result: Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{step}: {error}"))
}

/// The result must be an error of `kind`.
fn fails<T>(step: &str, kind: ErrorKind, result: Result<T>) -> Outcome {
    match result {
        Ok(_) => Err(format!("{step}: succeeded; {kind:?} was expected")),
        Err(error) => ensure(error.kind() == kind, || {
            format!("{step}: {:?} ({error}); {kind:?} was expected", error.kind())
        }),
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

fn put_and_get(store: &dyn Store) -> Outcome {
    let sizes = [0, 1, 4095, 4096, 4097, 262_143, 262_144, 300_000, 1 << 20, (5 << 20) + 123];
    for size in sizes {
        let key = key(&format!("containers/{:02x}/object-{size}", size % 251))?;
        let bytes = pattern(size);
        done("put", store.put(&key, &bytes))?;
        let got = done("get", store.get(&key))?;
        ensure(got == bytes, || format!("{size} bytes came back as {} others", got.len()))?;
        let got = done("size", store.size(&key))?;
        ensure(got == size as u64, || format!("size of {size} bytes is {got}"))?;
    }
    for text in ["config", "a/b", "a/c/d", "a/c/e/f"] {
        done("put", store.put(&key(text)?, text.as_bytes()))?;
    }
    for text in ["config", "a/b", "a/c/d", "a/c/e/f"] {
        let got = done("get", store.get(&key(text)?))?;
        ensure(got == text.as_bytes(), || format!("{text} holds {got:?}"))?;
    }
    done("settle", store.settle(""))?;
    done("settle", store.settle("containers"))?;
    done("settle what is missing", store.settle("missing"))
}

/// Objects that are made piece by piece are as those that are put whole.
fn pieces(store: &dyn Store) -> Outcome {
    for (number, lengths) in
        [&[][..], &[0], &[1], &[0, 3, 0], &[4096, 1], &[300_000, 0, 262_144, 7]].iter().enumerate()
    {
        let key = key(&format!("index/pieces-{number}"))?;
        let whole = pattern(lengths.iter().sum());
        let (mut start, mut given) = (0, 0);
        let put = store.put_pieces(&key, &mut |piece| {
            let length = lengths.get(given).copied().unwrap_or_default();
            piece.extend_from_slice(&whole[start..start + length]);
            (start, given) = (start + length, given + 1);
            Ok(given < lengths.len())
        });
        done("put_pieces", put)?;
        let got = done("get", store.get(&key))?;
        ensure(got == whole, || format!("pieces of {lengths:?} bytes came back otherwise"))?;
        let again = store.put_pieces(&key, &mut |piece| {
            piece.push(1);
            Ok(false)
        });
        fails("pieces for a name that is taken", ErrorKind::AlreadyExists, again)?;
        ensure(done("get", store.get(&key))? == whole, || "a taken name has changed".into())?;
    }
    let key = key("index/never")?;
    let mut given = 0;
    let put = store.put_pieces(&key, &mut |piece| {
        given += 1;
        piece.extend_from_slice(&pattern(100_000));
        match given {
            1 | 2 => Ok(true),
            _ => Err(Error::damaged("no more pieces")),
        }
    });
    fails("pieces that end in an error", ErrorKind::Damaged, put)?;
    fails("get after that", ErrorKind::NotFound, store.get(&key))?;
    let mut names = BTreeSet::new();
    done(
        "list",
        store.list_names("index", &mut |name| {
            names.insert(name.to_owned());
            Ok(())
        }),
    )?;
    ensure(names.len() == 6, || format!("left behind: {names:?}"))
}

fn names_are_taken_once(store: &dyn Store) -> Outcome {
    let name = key("snapshots/one")?;
    done("put", store.put(&name, b"first"))?;
    fails("second put", ErrorKind::AlreadyExists, store.put(&name, b"second"))?;
    fails("equal put", ErrorKind::AlreadyExists, store.put(&name, b"first"))?;
    let got = done("get", store.get(&name))?;
    ensure(got == b"first", || format!("the object became {got:?}"))
}

fn directories(store: &dyn Store) -> Outcome {
    let name = key("snapshots/one")?;
    done("put", store.put(&name, b"first"))?;
    ensure(store.put(&key("snapshots/one/below")?, b"x").is_err(), || {
        "an object became a directory".to_owned()
    })?;
    ensure(store.put(&key("snapshots")?, b"x").is_err(), || {
        "a directory became an object".to_owned()
    })?;
    let got = done("get", store.get(&name))?;
    ensure(got == b"first", || format!("the object became {got:?}"))
}

fn ranges(store: &dyn Store) -> Outcome {
    let name = key("containers/aa/ranged")?;
    let bytes = pattern(100_000);
    done("put", store.put(&name, &bytes))?;
    for (offset, length) in [(0, 100_000), (0, 1), (99_999, 1), (5, 70_000), (7, 0), (100_000, 0)] {
        // Twice, so that a cache answers too.
        for _ in 0..2 {
            let mut buffer = vec![0xEE; length];
            done("range", store.get_range(&name, offset as u64, &mut buffer))?;
            ensure(buffer == bytes[offset..offset + length], || {
                format!("{length} bytes at {offset} differ")
            })?;
        }
    }
    for (offset, length) in [(0, 100_001), (99_999, 2), (100_001, 0), (u64::MAX, 1), (1 << 40, 9)] {
        let mut buffer = vec![0; length];
        let result = store.get_range(&name, offset, &mut buffer);
        fails("range beyond the end", ErrorKind::Damaged, result)?;
    }
    Ok(())
}

fn tails(store: &dyn Store) -> Outcome {
    let name = key("containers/bb/tailed")?;
    let bytes = pattern(10_000);
    done("put", store.put(&name, &bytes))?;
    for length in [0, 1, 4096, 9_999, 10_000, 10_001, 1 << 20] {
        let (size, tail) = done("tail", store.get_tail(&name, length))?;
        let start = bytes.len().saturating_sub(length);
        ensure(size == 10_000 && tail == bytes[start..], || format!("tail of {length} differs"))?;
    }
    let empty = key("containers/bb/empty")?;
    done("put", store.put(&empty, b""))?;
    let (size, tail) = done("tail of nothing", store.get_tail(&empty, 5))?;
    ensure(size == 0 && tail.is_empty(), || "an empty object has a tail".to_owned())
}

fn absence(store: &dyn Store) -> Outcome {
    done("put", store.put(&key("there/is/one")?, b"x"))?;
    for text in ["missing", "missing/below", "there", "there/is", "there/is/one/below"] {
        let key = key(text)?;
        fails(text, ErrorKind::NotFound, store.get(&key))?;
        fails(text, ErrorKind::NotFound, store.get_tail(&key, 1))?;
        fails(text, ErrorKind::NotFound, store.get_range(&key, 0, &mut [0]))?;
        fails(text, ErrorKind::NotFound, store.size(&key))?;
        // What is below an object, or a directory, may be an error instead.
        if text.starts_with("missing") {
            let decided = done(text, store.decided(&key))?;
            ensure(decided.is_none(), || format!("{text} is decided"))?;
        }
        done("deleting what is absent", store.delete(&key))?;
    }
    done("get", store.get(&key("there/is/one")?)).map(drop)
}

fn names_below(store: &dyn Store, prefix: &str) -> Result<BTreeSet<String>, String> {
    let mut listed = Vec::new();
    let each = &mut |one: Listed| {
        listed.push((one.key.as_str().to_owned(), one.size_bytes));
        Ok(())
    };
    done("list", store.list(prefix, each))?;
    for (name, size) in &listed {
        let real = done("size", store.size(&key(name)?))?;
        ensure(*size == real, || format!("{name} is listed with {size} bytes"))?;
    }
    let names: BTreeSet<String> = listed.iter().map(|(name, _)| name.clone()).collect();
    ensure(names.len() == listed.len(), || "a name is listed twice".to_owned())?;
    let mut bare = BTreeSet::new();
    let each = &mut |name: &str| {
        bare.insert(name.to_owned());
        Ok(())
    };
    done("list of names", store.list_names(prefix, each))?;
    ensure(bare == names, || format!("names below '{prefix}' differ from the listing"))?;
    Ok(names)
}

fn listing(store: &dyn Store) -> Outcome {
    let mut all = BTreeSet::new();
    for number in 0..300 {
        let name = format!("containers/{:02x}/{number:04}", number % 5);
        done("put", store.put(&key(&name)?, &pattern(number)))?;
        all.insert(name);
    }
    for name in ["sessions/s1/announced", "sessions/s1/ready-1", "sessions-other", "containers.x"] {
        done("put", store.put(&key(name)?, b""))?;
    }
    ensure(names_below(store, "containers")? == all, || "containers are missing".to_owned())?;
    ensure(names_below(store, "containers/03")?.len() == 60, || "a shard is wrong".to_owned())?;
    ensure(names_below(store, "sessions")?.len() == 2, || "sessions are wrong".to_owned())?;
    ensure(names_below(store, "sessions/s1")?.len() == 2, || "a session is wrong".to_owned())?;
    ensure(names_below(store, "")?.len() == 304, || "the whole store is wrong".to_owned())?;
    for empty in ["missing", "missing/too", "sessio"] {
        ensure(names_below(store, empty)?.is_empty(), || format!("'{empty}' is not empty"))?;
    }
    for hostile in ["/", "..", "containers/..", "containers/", "/etc"] {
        let result = store.list_names(hostile, &mut |_| Ok(()));
        fails("hostile prefix", ErrorKind::Invalid, result)?;
        fails("hostile prefix", ErrorKind::Invalid, store.list(hostile, &mut |_| Ok(())))?;
    }
    Ok(())
}

fn listing_stops(store: &dyn Store) -> Outcome {
    for number in 0..20 {
        done("put", store.put(&key(&format!("plans/{}/{number}", number % 2))?, b"x"))?;
    }
    let mut shown = 0;
    let stopped = store.list_names("plans", &mut |_| {
        shown += 1;
        if shown == 3 {
            Err(onefold_types::Error::new(ErrorKind::Fenced, "enough"))
        } else {
            Ok(())
        }
    });
    fails("stopped listing", ErrorKind::Fenced, stopped)?;
    ensure(shown == 3, || format!("{shown} names were shown after the stop"))?;
    // Deleting what a listing shows is what collectors do.
    let deleting = store.list("plans", &mut |listed| store.delete(&listed.key));
    done("deleting while listing", deleting)?;
    ensure(names_below(store, "plans")?.is_empty(), || "some plans are left".to_owned())
}

fn deletion(store: &dyn Store) -> Outcome {
    let (name, kept) = (key("sessions/s2/announced")?, key("sessions/s3/announced")?);
    done("put", store.put(&name, b"hello"))?;
    done("put", store.put(&kept, b"other"))?;
    done("range", store.get_range(&name, 1, &mut [0; 3]))?;
    done("get", store.get(&name))?;
    done("delete", store.delete(&name))?;
    done("delete again", store.delete(&name))?;
    fails("get", ErrorKind::NotFound, store.get(&name))?;
    fails("range", ErrorKind::NotFound, store.get_range(&name, 1, &mut [0; 3]))?;
    fails("tail", ErrorKind::NotFound, store.get_tail(&name, 1))?;
    fails("size", ErrorKind::NotFound, store.size(&name))?;
    ensure(names_below(store, "sessions")?.len() == 1, || "the listing is wrong".to_owned())?;
    done("settle", store.settle("sessions"))?;
    let other = key("sessions/s2/ready-7")?;
    done("put where all was deleted", store.put(&other, b""))?;
    ensure(names_below(store, "sessions/s2")?.len() == 1, || "the new one is lost".to_owned())?;
    done("get", store.get(&kept)).map(drop)
}

fn hostile_names(_: &dyn Store) -> Outcome {
    for text in ["", "..", "../x", "a/../b", "/etc/passwd", "a//b", "A", "a\0b", "tmp/x", "reserve"]
    {
        ensure(Key::new(text).is_err(), || format!("{text:?} is taken as a name"))?;
    }
    Ok(())
}

fn decisions(store: &dyn Store) -> Outcome {
    let name = key("outcomes/s1")?;
    ensure(done("decided", store.decided(&name))?.is_none(), || "decided by nobody".to_owned())?;
    for (value, winner) in [(b"a", b"a"), (b"b", b"a"), (b"a", b"a")] {
        let got = done("decide", store.decide(&name, value))?;
        ensure(got == winner, || format!("{value:?} lost to {got:?}"))?;
        let got = done("decided", store.decided(&name))?;
        ensure(got.as_deref() == Some(winner), || format!("decided is {got:?}"))?;
    }
    done("decide on nothing", store.decide(&key("epochs/0")?, b""))?;
    let got = done("decided", store.decided(&key("epochs/0")?))?;
    ensure(got == Some(Vec::new()), || format!("an empty value became {got:?}"))?;
    let mut names = Vec::new();
    let each = &mut |name: &str| {
        names.push(name.to_owned());
        Ok(())
    };
    done("list of decisions", store.list_decided("outcomes", each))?;
    ensure(names == ["outcomes/s1"], || format!("the decisions are {names:?}"))
}

fn concurrency(store: &dyn Store) -> Outcome {
    for round in 0..6 {
        let (decision, object) = (key(&format!("epochs/{round}"))?, key(&format!("one/{round}"))?);
        let barrier = Barrier::new(THREADS);
        let race = |number: usize| -> Result<(Vec<u8>, bool), String> {
            let own = key(&format!("sessions/s{round}/ready-{number}"))?;
            barrier.wait();
            let winner = done("decide", store.decide(&decision, &[number as u8]))?;
            let first = match store.put(&object, &pattern(1000 + number)) {
                Ok(()) => true,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
                Err(error) => return Err(format!("racing put: {error}")),
            };
            done("put", store.put(&own, &pattern(number)))?;
            // Deleting the last file of a directory races with the others making it.
            if number.is_multiple_of(2) {
                done("delete", store.delete(&own))?;
            }
            Ok((winner, first))
        };
        let raced: Result<Vec<_>, String> = thread::scope(|scope| {
            let race = &race;
            let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || race(n))).collect();
            let join = |t: thread::ScopedJoinHandle<'_, _>| t.join().map_err(|_| "panic".into());
            threads.into_iter().map(|thread| join(thread).and_then(|result| result)).collect()
        });
        let raced = raced?;
        let won = done("decided", store.decided(&decision))?;
        ensure(raced.iter().all(|(winner, _)| Some(winner) == won.as_ref()), || {
            "threads saw different winners".to_owned()
        })?;
        let firsts: Vec<usize> = (0..THREADS).filter(|n| raced[*n].1).collect();
        ensure(firsts.len() == 1, || format!("{} puts took one name", firsts.len()))?;
        let got = done("get", store.get(&object))?;
        ensure(got == pattern(1000 + firsts[0]), || "the object is not the winner's".to_owned())?;
        let left = names_below(store, &format!("sessions/s{round}"))?;
        ensure(left.len() == THREADS / 2, || format!("{left:?} are left"))?;
    }
    Ok(())
}
