//! The room that is set aside in a store for the day its device is full.
//!
//! A collection needs room before it frees any: for copies and for decisions. So every store has a
//! preallocated file that takes two of its containers and the records of some epochs; on a small
//! device it takes a share of it only, so that the device stays of use.
//!
//! Rules:
//!
//! - It is filled after a store has been opened, when its key has shown that it is the right one:
//!   as far as three quarters of what is free go.
//! - What only adds to a store leaves free what its reserve lacks. A job of a share takes it, and
//!   frees more than it takes.
//! - Forgetting takes little pieces of it, one after the other as it needs them, and never more
//!   than half in all: what is forgotten must still be collected. Where there is no such half, it
//!   leaves as much of the device: a plan, an epoch, a sweep and a checkpoint. If that half is all
//!   there is, a command takes one more piece, as far as room for these decisions is left: while
//!   nothing is forgotten nothing can be collected.
//! - A collection takes all of it, in steps, each when it cannot go on without.
//!
//! Where a device has room and no inodes, metadata packs are given up instead: they are copies.
//!
//! Commands of several processes may do this at once: each cuts the file to a length, and what
//! another has cut already is no step.

use onefold_engine::Repository;
use onefold_engine::container::list;
use onefold_store::{Blobs, Key, LocalStore};
use onefold_types::{Result, limits};

/// Room for decisions, which is the least that is set aside.
const DECISIONS_BYTES: u64 = 256 * limits::KIB as u64;
/// Containers that there is room for.
const CONTAINERS: u64 = 2;
/// The share of the device that it takes at most: one part in so many.
const DEVICE_PARTS: u64 = 16;
/// What forgetting takes at a time.
const PIECE_BYTES: u64 = 128 * limits::KIB as u64;
/// Metadata packs that are given up at a time where no file can be made.
const PACKS_AT_A_TIME: usize = 8;
/// Inodes that forgetting leaves: a collection makes so many files before it deletes any.
const NAMES_MIN: u64 = 12;
/// Inodes that forgetting one snapshot takes at most.
const NAMES_PER_SNAPSHOT: u64 = 4;
/// Metadata packs that forgetting leaves to the collection after it.
const PACKS_FOR_COLLECTING: usize = 16;
/// A smaller piece than this is not worth setting aside by itself.
const FILLED_MIN_BYTES: u64 = 64 * limits::KIB as u64;

/// Who asks for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum User {
    /// Something small that lets others make room later.
    Forgetting,
    /// Something small, where nothing is left for [`User::Forgetting`].
    ForgettingAtLast,
    /// What makes room.
    Collecting,
}

/// How much is set aside when there is room.
fn whole_bytes(device_bytes: u64, container_bytes: u64) -> u64 {
    let wanted = CONTAINERS * container_bytes + DECISIONS_BYTES;
    wanted.min((device_bytes / DEVICE_PARTS).max(DECISIONS_BYTES))
}

/// What is left after the next step; `None` if there is none.
fn next_bytes(user: User, present_bytes: u64, whole_bytes: u64) -> Option<u64> {
    let half = whole_bytes / 2;
    match user {
        User::Forgetting => present_bytes.checked_sub(PIECE_BYTES).filter(|left| *left >= half),
        User::ForgettingAtLast => {
            let least = DECISIONS_BYTES.min(half);
            present_bytes.checked_sub(PIECE_BYTES).filter(|left| *left >= least)
        }
        User::Collecting if present_bytes == 0 => None,
        User::Collecting if present_bytes > half => {
            // Records first: with room for them alone what is dead can go.
            let after_records = whole_bytes.saturating_sub(DECISIONS_BYTES).max(half);
            Some(if present_bytes > after_records { after_records } else { half })
        }
        User::Collecting => Some(0),
    }
}

/// How much more is set aside where so much is missing and so much free.
fn filled_bytes(missing_bytes: u64, free_bytes: u64) -> u64 {
    let most = free_bytes / 4 * 3;
    match missing_bytes <= most {
        true => missing_bytes,
        false if most < FILLED_MIN_BYTES => 0,
        false => most - most % FILLED_MIN_BYTES,
    }
}

/// Sets room aside again, as far as there is some.
pub fn fill(store: &LocalStore, container_bytes: usize) -> Result<()> {
    let missing = lacking_bytes(store, container_bytes)?;
    let more = filled_bytes(missing, store.free_bytes()?.unwrap_or(u64::MAX));
    match more {
        0 => Ok(()),
        more => store.ensure_reserve(store.reserve_bytes()? + more),
    }
}

/// How much less is set aside than there should be.
pub fn lacking_bytes(store: &LocalStore, container_bytes: usize) -> Result<u64> {
    let whole = whole_bytes(store.device_bytes()?, container_bytes as u64);
    Ok(whole.saturating_sub(store.reserve_bytes()?))
}

/// What forgetting leaves free of the device beside what is set aside: together they are enough for
/// the decisions of a collection.
pub fn left_by_forgetting(store: &LocalStore, container_bytes: usize) -> Result<u64> {
    let whole = whole_bytes(store.device_bytes()?, container_bytes as u64);
    Ok(DECISIONS_BYTES.min(whole / 2).saturating_sub(store.reserve_bytes()?))
}

/// Whether fewer inodes are left than forgetting so many snapshots takes, and a collection then.
pub fn is_short_of_names(store: &LocalStore, snapshots: u64) -> Result<bool> {
    Ok(store.names_left()? < NAMES_MIN + NAMES_PER_SNAPSHOT * snapshots)
}

/// Gives a piece of it back to the device; `false` if there is no more for this user.
pub fn give_up(store: &LocalStore, repository: &Repository, user: User) -> Result<bool> {
    if is_short_of_names(store, 0)? {
        return give_up_names(repository, user);
    }
    let container_bytes = repository.configuration().container_size_bytes as u64;
    let whole = whole_bytes(store.device_bytes()?, container_bytes);
    match next_bytes(user, store.reserve_bytes()?, whole) {
        Some(left) => store.shrink_reserve(left).map(|()| true),
        None => Ok(false),
    }
}

/// Where no file can be made any more, room is of no use: removes some metadata packs, which are
/// copies; `false` if there are none for this user. A collection needs some that forgetting leaves.
fn give_up_names(repository: &Repository, user: User) -> Result<bool> {
    let mut packs = list::list_packs(repository)?;
    if user != User::Collecting {
        packs.truncate(packs.len().saturating_sub(PACKS_FOR_COLLECTING));
    }
    for name in packs.iter().take(PACKS_AT_A_TIME) {
        repository.store().delete(&Key::new(name.as_str())?)?;
    }
    Ok(!packs.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = limits::MIB as u64;

    fn steps(user: User, whole: u64) -> Vec<u64> {
        steps_from(user, whole, whole)
    }

    fn steps_from(user: User, present: u64, whole: u64) -> Vec<u64> {
        std::iter::successors(Some(present), |present| next_bytes(user, *present, whole)).collect()
    }

    #[test]
    fn r67_the_reserve_is_two_containers_or_a_share_of_a_small_device() {
        assert_eq!(whole_bytes(1 << 40, 4 * MIB), 8 * MIB + DECISIONS_BYTES);
        assert_eq!(whole_bytes(16 * MIB, 4 * MIB), MIB);
        assert_eq!(whole_bytes(MIB, 4 * MIB), DECISIONS_BYTES);
        assert_eq!(whole_bytes(1 << 40, MIB / 16), MIB / 8 + DECISIONS_BYTES);
    }

    #[test]
    fn r113_the_reserve_is_put_back_as_far_as_there_is_room() {
        assert_eq!(filled_bytes(MIB, 2 * MIB), MIB);
        assert_eq!(filled_bytes(MIB, MIB), 768 * 1024);
        assert_eq!(filled_bytes(MIB, MIB / 2), 384 * 1024);
        assert_eq!(filled_bytes(MIB, FILLED_MIN_BYTES), 0);
        assert_eq!(filled_bytes(1, 2), 0);
        assert_eq!(filled_bytes(1, FILLED_MIN_BYTES), 1);
        assert_eq!(filled_bytes(0, MIB), 0);
    }

    #[test]
    fn r113_forgetting_takes_what_decisions_do_not_need_where_there_is_nothing_else() {
        let whole = MIB + DECISIONS_BYTES;
        assert_eq!(next_bytes(User::Forgetting, whole / 2, whole), None);
        let left = steps_from(User::ForgettingAtLast, whole / 2, whole);
        assert_eq!(left.last(), Some(&DECISIONS_BYTES));
        assert_eq!(next_bytes(User::ForgettingAtLast, DECISIONS_BYTES / 2, DECISIONS_BYTES), None);
    }

    #[test]
    fn r67_forgetting_takes_half_of_the_reserve_in_pieces_and_collecting_all_of_it_in_steps() {
        for whole in [DECISIONS_BYTES, MIB, 8 * MIB + DECISIONS_BYTES] {
            let forgotten = steps(User::Forgetting, whole);
            assert!(forgotten.windows(2).all(|pair| pair[0] - pair[1] == PIECE_BYTES));
            let left = *forgotten.last().unwrap();
            assert!(left >= whole / 2 && left < whole / 2 + PIECE_BYTES, "{whole}: {left}");
            let collected = steps(User::Collecting, whole);
            assert_eq!(collected.last(), Some(&0));
            assert!(collected.len() <= 4 && collected.is_sorted_by(|one, next| one > next));
            assert_eq!(steps(User::Collecting, whole).len(), collected.len());
        }
        let whole = 8 * MIB + DECISIONS_BYTES;
        assert_eq!(steps(User::Collecting, whole), [whole, 8 * MIB, whole / 2, 0]);
    }
}
