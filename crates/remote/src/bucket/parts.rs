//! Names below a directory, from several places at once.
//!
//! A server gives a thousand names with each answer, in order, and each answer says where the next
//! one begins: a million names are a thousand round trips one after the other. But names here are
//! drawn by chance, so the first thousand say about how many there are, and where the others lie.
//!
//! # Algorithm
//! The first answer is waited for. If it is full, and the hexadecimal digits with which its names
//! begin lie as names that are spread evenly do, the rest of the digits is divided into parts of
//! about [`PART_NAMES`] names, each of which is listed from its beginning to its end, so many at
//! once ([`PARTS_AT_ONCE`]). Names that lie otherwise are listed as ever.
//!
//! # Invariants
//! Parts are ranges of the names' order that leave nothing out and do not overlap: every name is
//! shown once whatever the estimate was. What is wrong about it costs requests, or time.

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStore};
use std::sync::Arc;

/// Names of one answer of a server, at most.
pub(super) const PAGE_NAMES: usize = 1000;
/// Names that a part is to have: a few less than fit into one answer, as chance has it.
const PART_NAMES: u64 = 850;
/// Parts of a listing; larger ones take more than one answer.
const PARTS_MAX: u64 = 256;
/// Parts that are asked for at once.
const PARTS_AT_ONCE: usize = 16;
/// Digits by which names are divided.
const DIGITS: usize = 4;
/// How many beginnings of names so many digits tell apart.
const BEGINNINGS: u64 = 1 << (4 * DIGITS);

/// The names behind one, up to another one, which is the part's last.
type Part = (ObjectPath, Option<ObjectPath>);

/// The names below a directory, in any order; from several places at once if the server can begin
/// anywhere.
pub(super) fn names(
    objects: Arc<dyn ObjectStore>,
    below: ObjectPath,
    begins_anywhere: bool,
) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
    let prefix = Some(&below).filter(|path| !path.as_ref().is_empty());
    // Some may not be asked again once they have ended.
    let all = objects.list(prefix).fuse().boxed();
    if !begins_anywhere || prefix.is_none() {
        return all;
    }
    let first_and_rest = async move {
        let (first, rest) = first_page(all).await?;
        let locations: Vec<_> = first.iter().map(|found| &found.location).collect();
        let is_full = first.len() >= PAGE_NAMES;
        let parts = if is_full { parts(&below, &locations) } else { Vec::new() };
        let rest = if parts.is_empty() { rest } else { listed(objects, below, parts) };
        let shown = stream::iter(first.into_iter().map(Ok)).chain(rest);
        Ok::<_, object_store::Error>(shown)
    };
    stream::once(first_and_rest).try_flatten().boxed()
}

type Names = BoxStream<'static, object_store::Result<ObjectMeta>>;

async fn first_page(mut all: Names) -> object_store::Result<(Vec<ObjectMeta>, Names)> {
    let first = all.by_ref().take(PAGE_NAMES).try_collect().await?;
    Ok((first, all))
}

/// What the parts of a listing have, each as it arrives.
fn listed(objects: Arc<dyn ObjectStore>, below: ObjectPath, parts: Vec<Part>) -> Names {
    let listings = parts.into_iter().map(move |(from, last)| {
        let is_within = move |found: &object_store::Result<ObjectMeta>| match (found, &last) {
            (Ok(found), Some(last)) => found.location <= *last,
            _ => true,
        };
        let listing = objects.list_with_offset(Some(&below), &from);
        listing.take_while(move |found| std::future::ready(is_within(found)))
    });
    stream::iter(listings).flatten_unordered(PARTS_AT_ONCE).boxed()
}

/// The parts in which what comes behind a full first answer is listed; none if its names do not
/// lie as names do that are spread evenly.
fn parts(below: &ObjectPath, first: &[&ObjectPath]) -> Vec<Part> {
    let beginning_of = |name: Option<&&ObjectPath>| name.and_then(|name| beginning(below, name));
    let (Some(lowest), Some(highest), Some(last)) =
        (beginning_of(first.first()), beginning_of(first.last()), first.last())
    else {
        return Vec::new();
    };
    // Names that are spread evenly begin at the beginning.
    let ascends = first.is_sorted_by(|one, next| one < next);
    if !ascends || lowest > highest - lowest {
        return Vec::new();
    }
    let rest = BEGINNINGS - highest - 1;
    let names = rest.saturating_mul(first.len() as u64) / highest.max(1);
    let count = names.div_ceil(PART_NAMES).clamp(1, PARTS_MAX).min(rest);
    if count < 2 {
        return Vec::new();
    }
    let boundary = |part: u64| {
        let digits = highest + 1 + rest * part / count;
        below.clone().join(format!("{digits:0width$x}", width = DIGITS))
    };
    let mut parts = Vec::new();
    let mut from = ObjectPath::clone(last);
    for part in 1..count {
        let to = boundary(part);
        parts.push((from, Some(to.clone())));
        from = to;
    }
    parts.push((from, None));
    parts
}

/// The digits with which a name begins, as a number; fewer than there could be count as followed by
/// zeros. `None` if it begins with none.
fn beginning(below: &ObjectPath, name: &ObjectPath) -> Option<u64> {
    let rest = name.as_ref().strip_prefix(below.as_ref())?.strip_prefix('/')?;
    let digits: Vec<u64> = rest
        .chars()
        .take(DIGITS)
        .map_while(|digit| digit.to_digit(16).filter(|_| !digit.is_ascii_uppercase()))
        .map(u64::from)
        .collect();
    let number = digits.iter().fold(0, |number, digit| number << 4 | digit);
    (!digits.is_empty()).then(|| number << (4 * (DIGITS - digits.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use object_store::{ObjectStoreExt as _, PutPayload};

    /// So many names that are spread evenly, each with this behind it.
    fn spread(directory: &str, count: u64, behind: &str) -> Vec<String> {
        let step = u64::from(u32::MAX) / count;
        (0..count).map(|number| format!("{directory}/{:08x}{behind}", number * step)).collect()
    }

    async fn shown(names: &[String], below: &str) -> Vec<String> {
        let objects = Arc::new(InMemory::new());
        for name in names {
            let path = ObjectPath::from(name.as_str());
            objects.put(&path, PutPayload::default()).await.unwrap();
        }
        let all = super::names(objects, ObjectPath::from(below), true);
        let mut shown: Vec<String> =
            all.map(|found| found.unwrap().location.to_string()).collect().await;
        shown.sort();
        shown
    }

    #[tokio::test]
    async fn every_name_is_shown_once() {
        let containers: Vec<String> =
            (0..5000).map(|number| format!("d/{:02x}/{number:08x}", number % 256)).collect();
        let clumped: Vec<String> = (0..3000).map(|number| format!("d/019a{number:08x}")).collect();
        let lopsided: Vec<String> = spread("d", 2000, "")
            .into_iter()
            .chain((0..3000).map(|it| format!("d/ffff{it}")))
            .collect();
        let others: Vec<String> = (0..2500).map(|number| format!("d/name {number}")).collect();
        let at_boundaries: Vec<String> = (0..BEGINNINGS).map(|it| format!("d/{it:04x}")).collect();
        for names in [
            spread("d", PAGE_NAMES as u64, ""),
            spread("d", PAGE_NAMES as u64 + 1, ""),
            spread("d", 20_000, "/announced"),
            containers,
            clumped,
            lopsided,
            others,
            at_boundaries,
        ] {
            let mut beside = names.clone();
            beside.extend(["c".to_owned(), "e".to_owned(), "da/0".to_owned()]);
            let mut wanted = names;
            wanted.sort();
            assert_eq!(shown(&beside, "d").await, wanted, "of {:?} and so on", wanted.first());
        }
    }

    #[test]
    fn a_full_answer_tells_how_many_parts_there_are() {
        let below = ObjectPath::from("d");
        let of = |count: u64| {
            let names: Vec<_> = spread("d", count, "").into_iter().map(ObjectPath::from).collect();
            let first: Vec<_> = names.iter().take(PAGE_NAMES).collect();
            parts(&below, &first).len() as u64
        };
        // With 1,500 names one more answer does, in parts or not.
        assert_eq!(of(1_500), 0);
        assert_eq!(of(10_000), 11);
        assert_eq!(of(100_000_000), PARTS_MAX);
    }

    #[test]
    fn names_that_are_not_spread_evenly_are_not_divided() {
        let below = ObjectPath::from("d");
        let divided = |names: Vec<String>| {
            let names: Vec<_> = names.into_iter().map(ObjectPath::from).collect();
            !parts(&below, &names.iter().collect::<Vec<_>>()).is_empty()
        };
        assert!(divided(spread("d", 10_000, "").into_iter().take(1000).collect()));
        assert!(!divided((0..1000).map(|number| format!("d/019a{number:08x}")).collect()));
        assert!(!divided((0..1000).map(|number| format!("d/name {number:04}")).collect()));
        let mut backwards: Vec<_> = spread("d", 10_000, "").into_iter().take(1000).collect();
        backwards.swap(1, 2);
        assert!(!divided(backwards));
    }
}
