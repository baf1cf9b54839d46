//! Pages of names, in their order.
//!
//! # Algorithm
//! A page is made of a listing of the directory: of the names behind the last page's, the first
//! [`PAGE_MAX_NAMES`], or as many as [`PAGE_MAX_BYTES`] hold. The pages of a large store are long,
//! since each is a listing anew; no more names are held than a page has. A page says behind which
//! name the next one begins, which need not be one of its own: names that are on their way are left
//! out.

use crate::answers::{ETAG, Failure, MODIFIED, xml};
use crate::asking::Query;
use crate::served::Served;
use axum::response::Response;
use onefold_store::{Key, Listed};
use std::fmt::Write as _;

/// Names on one page.
pub const PAGE_MAX_NAMES: usize = 30_000;
/// What a page is filled up to: half of what clients read of one.
pub const PAGE_MAX_BYTES: usize = 8 << 20;
/// What stands around a name.
const AROUND_BYTES: usize = 160;

/// Answers with a page.
pub fn page(served: &Served, query: &Query) -> Result<Response, Failure> {
    let (names, next) = names(served, query, PAGE_MAX_NAMES)?;
    Ok(xml(written(served, query, &names, next.as_ref())))
}

/// The names of a page, and the name behind which the next one begins.
fn names(
    served: &Served,
    query: &Query,
    most: usize,
) -> Result<(Vec<Listed>, Option<Key>), Failure> {
    let prefix = query.get("prefix").map_or("", String::as_str);
    let directory = match prefix.strip_suffix('/') {
        Some(directory) => directory,
        None if prefix.is_empty() => "",
        None => return Err(Failure::request("a prefix is a directory, and ends with '/'")),
    };
    let asked = query.get("max-keys").and_then(|most| most.parse().ok());
    let most = most.min(asked.unwrap_or(most)).max(1);
    let after = query.get("continuation-token").or_else(|| query.get("start-after"));
    let (first, next) = served.list(directory, after.map(String::as_str), most)?;
    Ok(fitting(first, next))
}

/// So many of the first names as a page holds, and behind which the next one begins.
fn fitting(mut names: Vec<Listed>, next: Option<Key>) -> (Vec<Listed>, Option<Key>) {
    let (found, mut bytes) = (names.len(), 0);
    let fitting = names.iter().take_while(|listed| {
        bytes += listed.key.as_str().len() + AROUND_BYTES;
        bytes <= PAGE_MAX_BYTES
    });
    names.truncate(fitting.count());
    let next = match names.len() == found {
        true => next,
        false => names.last().map(|listed| listed.key.clone()),
    };
    (names, next)
}

/// Names have nothing that XML would take for its own.
fn written(served: &Served, query: &Query, names: &[Listed], next: Option<&Key>) -> String {
    let prefix = query.get("prefix").map_or("", String::as_str);
    let mut text = format!(
        "<ListBucketResult><Name>{}</Name><Prefix>{prefix}</Prefix><KeyCount>{}</KeyCount>\
         <IsTruncated>{}</IsTruncated>",
        served.name,
        names.len(),
        next.is_some()
    );
    if let Some(next) = next {
        let _ = write!(text, "<NextContinuationToken>{next}</NextContinuationToken>");
    }
    for Listed { key, size_bytes } in names {
        let _ = write!(
            text,
            "<Contents><Key>{key}</Key><Size>{size_bytes}</Size>\
             <LastModified>{MODIFIED}</LastModified><ETag>{ETAG}</ETag></Contents>"
        );
    }
    text.push_str("</ListBucketResult>");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::Rules;
    use onefold_store::Blobs as _;
    use onefold_store::key::COMPONENT_MAX_BYTES;
    use std::time::Duration;

    #[test]
    fn pages_have_every_name_once_and_in_order() {
        let place = tempfile::tempdir().unwrap();
        let served = Served::open(place.path(), Rules::default(), Duration::ZERO).unwrap();
        let mut put: Vec<_> = (0..10).map(|n| format!("a/{}/{n}", n % 3)).collect();
        for name in &put {
            served.store.put(&Key::new(name.as_str()).unwrap(), b"x").unwrap();
        }
        served.store.put(&Key::new("ab/1").unwrap(), b"x").unwrap();
        put.sort();
        for most in [1, 3, 9, 10, 11] {
            let mut query = Query::from([("prefix".to_owned(), "a/".to_owned())]);
            let (mut found, mut pages) = (Vec::new(), 0);
            loop {
                let (names, next) = names(&served, &query, most).unwrap();
                assert!(names.len() <= most);
                let text = written(&served, &query, &names, next.as_ref());
                pages += 1;
                found.extend(names.into_iter().map(|listed| listed.key.as_str().to_owned()));
                assert_eq!(text.contains("<NextContinuationToken>"), next.is_some());
                let Some(next) = next else { break };
                query.insert("continuation-token".to_owned(), next.as_str().to_owned());
            }
            assert_eq!((found, pages), (put.clone(), put.len().div_ceil(most)));
        }
        let query = Query::from([("prefix".to_owned(), "a".to_owned())]);
        assert!(names(&served, &query, 9).is_err());
    }

    #[test]
    fn a_page_of_the_longest_names_is_one_that_clients_read() {
        let place = tempfile::tempdir().unwrap();
        let served = Served::open(place.path(), Rules::default(), Duration::ZERO).unwrap();
        let long = "n".repeat(COMPONENT_MAX_BYTES);
        let one = Key::new(format!("{long}/{long}/{long}/{long}")).unwrap();
        let count = PAGE_MAX_BYTES / (one.as_str().len() + AROUND_BYTES) + 1;
        let name = |n: usize| format!("{long}/{long}/{long}/{n:0>COMPONENT_MAX_BYTES$}");
        let all: Vec<_> = (0..count)
            .map(|n| Listed { key: Key::new(name(n)).unwrap(), size_bytes: u64::MAX })
            .collect();
        let query = Query::new();
        let (page, next) = fitting(all.clone(), None);
        assert_eq!((page.len(), next.as_ref()), (count - 1, page.last().map(|it| &it.key)));
        assert!(written(&served, &query, &page, next.as_ref()).len() <= 2 * PAGE_MAX_BYTES);
        let (page, next) = fitting(all.into_iter().skip(1).collect(), None);
        assert_eq!((page.len(), next), (count - 1, None));
    }

    /// Whoever fills a page with names that are on their way hides nothing behind it.
    #[test]
    fn a_page_without_names_leads_to_the_next_one() {
        let place = tempfile::tempdir().unwrap();
        let served = Served::open(place.path(), Rules::default(), Duration::ZERO).unwrap();
        let [first, second] = ["a", "b"].map(|name| Key::new(name).unwrap());
        served.store.put(&second, b"x").unwrap();
        let put = |store: &onefold_store::LocalStore| {
            store.put(&first, b"x")?;
            let (page, next) = names(&served, &Query::new(), 1).unwrap();
            assert_eq!((page.len(), next.as_ref()), (0, Some(&first)));
            Ok(())
        };
        served.put(&first, "me", put).unwrap();
    }
}
