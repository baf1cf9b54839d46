//! Whether a bucket keeps what was put first: found out by trying, never assumed.
//!
//! The protocol needs names that are decided once. On an object store that is a put with
//! `If-None-Match: *`, or what its service has for that, and not every server obeys that: some
//! answer that all is well and replace the object, or let two of several win that put at the same
//! moment.
//!
//! # Algorithm
//! A new store makes the object `tmp/first` and makes it again, which must be refused; then
//! [`RACERS`] threads put one other name at once, and exactly one may win. Whoever opens the store
//! for writing later puts `tmp/first` again: one request, which must be refused. If it is not, the
//! object was lost, or another server answers now: all is tried as on the first day.
//!
//! Names below `tmp` are no keys, so none of this is ever taken for the store's own.

use crate::bucket::{BucketStore, Put};
use onefold_store::Store;
use onefold_types::{Error, Result};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Where all of this is, below the store's prefix.
pub const DIRECTORY: &str = "tmp";
/// The object that nobody may replace.
const FIRST: &str = "first";
/// What names of objects begin with that several put at once.
const RACE: &str = "race-";
/// Threads that race for one name.
pub const RACERS: usize = 8;

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// All of it: the store is new.
    First,
    /// Whether it is still so.
    Again,
}

/// Tries.
pub fn prove(store: &BucketStore, proof: Proof) -> Result<()> {
    if store.put_at(FIRST, content()?)? == Put::Taken && proof == Proof::Again {
        return Ok(());
    }
    if store.put_at(FIRST, content()?)? == Put::Made {
        return Err(refused(store, "an object was replaced by a put that must not replace any"));
    }
    let winners = race(store)?;
    match winners {
        1 => Ok(()),
        _ => Err(refused(store, &format!("{winners} of {RACERS} won a name that only one may"))),
    }
}

/// Whether an object of this name was made here.
pub fn is_own(name: &str) -> bool {
    let is_number = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    name == FIRST || name.strip_prefix(RACE).is_some_and(is_number)
}

fn random_name() -> Result<String> {
    let mut number = [0; 16];
    getrandom::fill(&mut number)
        .map_err(|error| Error::invalid(format!("the system gives no random bytes: {error}")))?;
    Ok(hex::encode(number))
}

/// What nobody else puts: whose answer was lost, and finds this, has put it.
fn content() -> Result<Vec<u8>> {
    Ok(format!("a put that replaces this must be refused: {}\n", random_name()?).into_bytes())
}

/// Name and bytes of an object that something is tried with.
pub(crate) fn trial() -> Result<(String, Vec<u8>)> {
    Ok((format!("{RACE}{}", random_name()?), content()?))
}

/// How many of several that put one name at once are told that it is theirs.
fn race(store: &BucketStore) -> Result<usize> {
    let (name, _) = trial()?;
    let (barrier, winners) = (Barrier::new(RACERS), AtomicUsize::new(0));
    let run = || -> Result<()> {
        barrier.wait();
        if store.put_own_at(&name, content()?)? == Put::Made {
            winners.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..RACERS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    // Whoever may not delete leaves it: nobody ever looks at it.
    let _ = store.delete_at(&name);
    for outcome in outcomes {
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    Ok(winners.into_inner())
}

fn refused(store: &BucketStore, why: &str) -> Error {
    Error::invalid(format!(
        "{} cannot hold a store: {why}. Snapshots and collections are decided once, which needs a \
         server that obeys {}; name a database that \
         decides beside it ('&database=...'), use another server, or a directory",
        store.describe(),
        store.service().condition()
    ))
}
