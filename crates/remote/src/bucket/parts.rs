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
//! once ([`PARTS_AT_ONCE`]). Names that lie otherwise are listed as ever. Whoever knows about how
//! many there are need not wait for the first answer.
//!
//! # Invariants
//! Parts are ranges of the names' order that leave nothing out and do not overlap: every name is
//! shown once whatever the estimate was. What is wrong about it costs requests, or time. That the
//! server keeps to that order is looked at in each answer.

use crate::failure::Refusal;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{Error as Answer, ObjectMeta, ObjectStore};
use onefold_types::ErrorKind;
use std::sync::Arc;

/// Names of one answer of a server, at most.
pub(super) const PAGE_NAMES: usize = 1000;
/// Names that a part is to have: a few less than fit into one answer, as chance has it.
pub const PART_NAMES: u64 = 850;
/// Parts of a listing; larger ones take more than one answer.
pub const PARTS_MAX: u64 = 256;
/// Parts that are asked for at once.
const PARTS_AT_ONCE: usize = 16;
/// Digits by which names are divided.
const DIGITS: usize = 4;
/// What is said of a server that does not keep to the order of names.
const OUT_OF_ORDER: &str = "the server lists names in no order: such buckets (as Amazon's \
                            directory buckets) cannot hold a store";
/// How many beginnings of names so many digits tell apart.
const BEGINNINGS: u64 = 1 << (4 * DIGITS);

/// The names behind one, up to another one, which is the part's last.
type Part = (Option<ObjectPath>, Option<ObjectPath>);

/// The names below a directory, in any order; from several places at once if the server can begin
/// anywhere. Then about so many are expected, 0 if nobody knows.
pub(super) fn names(
    objects: Arc<dyn ObjectStore>,
    below: ObjectPath,
    expected: Option<usize>,
) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
    let prefix = Some(&below).filter(|path| !path.as_ref().is_empty());
    let expected = expected.filter(|_| prefix.is_some());
    if let Some(many) = expected.filter(|expected| *expected > PAGE_NAMES) {
        let count = (many as u64).div_ceil(PART_NAMES).min(PARTS_MAX);
        let parts = divided(&below, None, 0, count);
        return listed(objects, below, parts);
    }
    // Some may not be asked again once they have ended.
    let all = objects.list(prefix).fuse().boxed();
    if expected.is_none() {
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
    let listings = parts.into_iter().map(move |part| listed_part(&*objects, &below, part));
    stream::iter(listings).flatten_unordered(PARTS_AT_ONCE).boxed()
}

/// What a part has. A server that gives names in another order would leave some out unseen.
fn listed_part(objects: &dyn ObjectStore, below: &ObjectPath, (from, last): Part) -> Names {
    let listing = match &from {
        Some(from) => objects.list_with_offset(Some(below), from),
        None => objects.list(Some(below)),
    };
    let pages = listing.fuse().ready_chunks(PAGE_NAMES).boxed();
    let pages = stream::try_unfold(Some((pages, None::<ObjectPath>)), move |state| {
        let (from, last) = (from.clone(), last.clone());
        async move {
            let Some((mut pages, mut reached)) = state else {
                return object_store::Result::Ok(None);
            };
            let Some(page) = pages.next().await else { return Ok(None) };
            let mut page: Vec<ObjectMeta> =
                page.into_iter().collect::<object_store::Result<_>>()?;
            for found in &page {
                if reached.as_ref().is_some_and(|reached| is_before(&found.location, reached)) {
                    return Err(Answer::from(Refusal::new(ErrorKind::Unavailable, OUT_OF_ORDER)));
                }
                reached = Some(found.location.clone());
            }
            let is_over =
                page.iter().any(|found| last.as_ref().is_some_and(|last| found.location > *last));
            page.retain(|found| {
                last.as_ref().is_none_or(|last| found.location <= *last)
                    && from.as_ref().is_none_or(|from| found.location > *from)
            });
            let more = (!is_over).then_some((pages, reached));
            Ok(Some((stream::iter(page.into_iter().map(Ok)), more)))
        }
    });
    pages.try_flatten().boxed()
}

/// Whether a name stands before one that was given before it. Of objects that consoles make for
/// directories the stroke at the end is gone, so that they seem to.
fn is_before(name: &ObjectPath, earlier: &ObjectPath) -> bool {
    name < earlier && !earlier.as_ref().starts_with(name.as_ref())
}

/// The parts in which what comes behind a full first answer is listed; none if its names do not
/// lie as names do that are spread evenly.
fn parts(below: &ObjectPath, first: &[&ObjectPath]) -> Vec<Part> {
    let beginnings: Option<Vec<u64>> = first.iter().map(|name| beginning(below, name)).collect();
    let beginnings = beginnings.unwrap_or_default();
    let (Some(lowest), Some(highest), Some(last)) =
        (beginnings.first().copied(), beginnings.last().copied(), first.last())
    else {
        return Vec::new();
    };
    // Names that are spread evenly begin at the beginning.
    let ascends = first.is_sorted_by(|one, next| one < next) && beginnings.is_sorted();
    if !ascends || lowest > highest.saturating_sub(lowest) {
        return Vec::new();
    }
    let rest = BEGINNINGS - highest - 1;
    let names = rest.saturating_mul(first.len() as u64) / highest.max(1);
    let count = names.div_ceil(PART_NAMES).clamp(1, PARTS_MAX).min(rest);
    if count < 2 {
        return Vec::new();
    }
    divided(below, Some(ObjectPath::clone(last)), highest + 1, count)
}

/// So many parts of all that comes behind a name, if there is one, whose digits are below some.
fn divided(below: &ObjectPath, after: Option<ObjectPath>, lowest: u64, count: u64) -> Vec<Part> {
    let boundary = |part: u64| {
        let digits = lowest + (BEGINNINGS - lowest) * part / count;
        below.clone().join(format!("{digits:0width$x}", width = DIGITS))
    };
    let mut parts = Vec::new();
    let mut from = after;
    for part in 1..count {
        let to = Some(boundary(part));
        parts.push((from, to.clone()));
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

    fn wait_for(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work);
    }

    /// So many names that are spread evenly, each with this behind it.
    fn spread(directory: &str, count: u64, behind: &str) -> Vec<String> {
        let step = u64::from(u32::MAX) / count;
        (0..count).map(|number| format!("{directory}/{:08x}{behind}", number * step)).collect()
    }

    async fn shown(names: &[String], below: &str, expected: usize) -> Vec<String> {
        let objects = Arc::new(InMemory::new());
        for name in names {
            let path = ObjectPath::from(name.as_str());
            objects.put(&path, PutPayload::default()).await.unwrap();
        }
        let all = super::names(objects, ObjectPath::from(below), Some(expected));
        let mut shown: Vec<String> =
            all.map(|found| found.unwrap().location.to_string()).collect().await;
        shown.sort();
        shown
    }

    #[test]
    fn every_name_is_shown_once() {
        wait_for(async {
            let containers: Vec<String> =
                (0..5000).map(|number| format!("d/{:02x}/{number:08x}", number % 256)).collect();
            let clumped: Vec<String> =
                (0..3000).map(|number| format!("d/019a{number:08x}")).collect();
            let lopsided: Vec<String> = spread("d", 2000, "")
                .into_iter()
                .chain((0..3000).map(|it| format!("d/ffff{it}")))
                .collect();
            let others: Vec<String> = (0..2500).map(|number| format!("d/name {number}")).collect();
            let mut with_markers = spread("d", 3000, "-a");
            with_markers.extend(spread("d", 3000, "-a").iter().map(|name| name.replace("-a", "")));
            let at_boundaries: Vec<String> =
                (0..BEGINNINGS).step_by(16).map(|it| format!("d/{it:04x}")).collect();
            for names in [
                spread("d", PAGE_NAMES as u64, ""),
                spread("d", PAGE_NAMES as u64 + 1, ""),
                spread("d", 8_000, "/announced"),
                containers,
                clumped,
                lopsided,
                others,
                at_boundaries,
                with_markers,
            ] {
                let mut beside = names.clone();
                beside.extend(["c".to_owned(), "e".to_owned(), "da/0".to_owned()]);
                let mut wanted = names;
                wanted.sort();
                for expected in [0, PAGE_NAMES, PAGE_NAMES + 1, 5000] {
                    let shown = shown(&beside, "d", expected).await;
                    assert_eq!(shown, wanted, "of {:?} and so on", wanted.first());
                }
            }
        });
    }

    #[test]
    fn as_many_parts_as_there_may_be_leave_nothing_out() {
        wait_for(async {
            let few = spread("d", 100, "");
            assert_eq!(shown(&few, "d", usize::MAX).await, few);
        });
    }

    /// A server that begins anywhere and keeps to no order.
    #[derive(Debug)]
    struct Disorderly(InMemory);

    impl std::fmt::Display for Disorderly {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("disorderly")
        }
    }

    fn turned(names: Names) -> Names {
        let pages = names.ready_chunks(10).map(|mut page| {
            page.reverse();
            stream::iter(page)
        });
        pages.flatten().boxed()
    }

    #[async_trait::async_trait]
    impl ObjectStore for Disorderly {
        fn list(&self, prefix: Option<&ObjectPath>) -> Names {
            turned(self.0.list(prefix))
        }
        fn list_with_offset(&self, prefix: Option<&ObjectPath>, offset: &ObjectPath) -> Names {
            turned(self.0.list_with_offset(prefix, offset))
        }
        async fn put_opts(
            &self,
            location: &ObjectPath,
            payload: PutPayload,
            options: object_store::PutOptions,
        ) -> object_store::Result<object_store::PutResult> {
            self.0.put_opts(location, payload, options).await
        }
        async fn put_multipart_opts(
            &self,
            _: &ObjectPath,
            _: object_store::PutMultipartOptions,
        ) -> object_store::Result<Box<dyn object_store::MultipartUpload>> {
            unreachable!()
        }
        async fn get_opts(
            &self,
            _: &ObjectPath,
            _: object_store::GetOptions,
        ) -> object_store::Result<object_store::GetResult> {
            unreachable!()
        }
        fn delete_stream(
            &self,
            _: BoxStream<'static, object_store::Result<ObjectPath>>,
        ) -> BoxStream<'static, object_store::Result<ObjectPath>> {
            unreachable!()
        }
        async fn list_with_delimiter(
            &self,
            _: Option<&ObjectPath>,
        ) -> object_store::Result<object_store::ListResult> {
            unreachable!()
        }
        async fn copy_opts(
            &self,
            _: &ObjectPath,
            _: &ObjectPath,
            _: object_store::CopyOptions,
        ) -> object_store::Result<()> {
            unreachable!()
        }
    }

    #[test]
    fn a_server_without_order_is_listed_in_one_piece_or_refused() {
        wait_for(async {
            let objects = Arc::new(Disorderly(InMemory::new()));
            for name in spread("d", 3000, "") {
                objects.put(&ObjectPath::from(name), PutPayload::default()).await.unwrap();
            }
            let names = |expected| {
                let all = super::names(objects.clone(), ObjectPath::from("d"), Some(expected));
                all.try_collect::<Vec<_>>()
            };
            assert_eq!(names(0).await.unwrap().len(), 3000);
            let refused = names(3000).await.unwrap_err();
            assert!(refused.to_string().contains("in no order"), "{refused}");
        });
    }

    #[test]
    fn a_full_answer_tells_how_many_parts_there_are() {
        let below = ObjectPath::from("d");
        let of = |count: u64| {
            let step = u64::from(u32::MAX) / count;
            let names: Vec<_> = (0..PAGE_NAMES as u64)
                .map(|number| ObjectPath::from(format!("d/{:08x}", number * step)))
                .collect();
            parts(&below, &names.iter().collect::<Vec<_>>()).len() as u64
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
        // In order, and with digits that fall.
        assert!(!divided(["01", "0z"].map(|name| format!("d/{name}")).to_vec()));
        assert!(!divided(["0000", "0fff", "0z"].map(|name| format!("d/{name}")).to_vec()));
    }
}
