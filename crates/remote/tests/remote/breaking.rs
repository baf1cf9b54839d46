//! Listings that break off, servers that are none, buckets that are not there, and work that is to
//! stop: what is asked again, how often, and what it is called.

use crate::answers::{BUSY, Reply, Server, key, short};
use onefold_engine::Interrupt;
use onefold_remote::Patience;
use onefold_remote::stopping::STOP_MAX;
use onefold_store::{Asked, Blobs, Decisions, foresee};
use onefold_types::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

const FIRST: &[u8] = b"<ListBucketResult><NextContinuationToken>t</NextContinuationToken>\
    <Contents><Key>p/a/1</Key><Size>1</Size><LastModified>2026-11-25T00:00:00.000Z</LastModified>\
    <ETag>1</ETag></Contents></ListBucketResult>";
const LAST: &[u8] = b"<ListBucketResult><Contents><Key>p/a/2</Key><Size>1</Size>\
    <LastModified>2026-11-25T00:00:00.000Z</LastModified><ETag>1</ETag></Contents>\
    </ListBucketResult>";
const CUT: &[u8] = b"<ListBucketResult><Contents><Key>p/a/2</Key>";

fn page(bytes: &'static [u8]) -> Reply {
    Reply::Answer("200 OK", &["Content-Type: application/xml"], bytes)
}

#[test]
fn a_listing_that_breaks_off_goes_on_where_it_was() {
    for broken in [Reply::Truncated(CUT, 500), page(CUT), Reply::HangUp, BUSY] {
        let server = Server::new(&[page(FIRST), broken.clone(), broken, page(LAST)]);
        let mut names = Vec::new();
        let each = &mut |name: &str| {
            names.push(name.to_owned());
            Ok(())
        };
        server.store().list_names("a", each).unwrap();
        assert_eq!(names, ["a/1", "a/2"]);
        let asked = server.asked();
        let again = asked.iter().filter(|one| one.contains("continuation-token=t")).count();
        assert_eq!((asked.len(), again), (4, 3), "{asked:?}");
    }
}

#[test]
fn a_listing_that_always_breaks_off_fails_within_the_same_patience() {
    let patience = short(|patience| patience.retry = Duration::from_secs(1));
    let server = Server::new(&vec![page(CUT); 100]);
    let began = Instant::now();
    let error = server.store_with(patience).list_names("", &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(server.asked().len() > 1);
}

#[test]
fn what_never_gets_better_is_said_once_and_is_not_to_be_tried_again() {
    const HTML: &[&str] = &["Content-Type: text/html; charset=utf-8"];
    const ELSEWHERE: &[&str] = &["x-amz-bucket-region: eu-central-1"];
    const ONWARD: &[&str] = &["Location: https://u:secret@h.example:1/secret?secret"];
    for (status, headers, body, word) in [
        ("301 Moved Permanently", ELSEWHERE, &b""[..], "'?region=eu-central-1'"),
        ("301 Moved Permanently", &[], b"", "another place"),
        ("307 Temporary Redirect", ONWARD, b"", "'https://h.example:1', which is not followed"),
        ("308 Permanent Redirect", &["Location: /b?x"], b"", "on itself"),
        ("400 Bad Request", ELSEWHERE, b"", "'?region=eu-central-1'"),
        ("400 Bad Request", &[], b"", "'path-style'"),
        ("405 Method Not Allowed", &[], b"", "no server of buckets"),
        ("405 Method Not Allowed", HTML, b"<html>", "no server of buckets"),
        ("404 Not Found", HTML, b"<html>", "no server of buckets"),
        ("501 Not Implemented", &[], b"", "speaks S3"),
    ] {
        let reply = Reply::Answer(status, headers, body);
        let put = |server: &Server| server.store().put(&key("a"), b"one").unwrap_err();
        let get = |server: &Server| server.store().get(&key("a")).unwrap_err();
        let list = |server: &Server| server.store().list_names("", &mut |_| Ok(())).unwrap_err();
        for ask in [put, get, list] {
            let server = Server::new(std::slice::from_ref(&reply));
            let error = ask(&server);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{status}: {error}");
            assert!(error.to_string().contains(word), "{status}: {error}");
            assert!(!error.to_string().contains("secret"), "{status}: {error}");
            assert_eq!(server.asked().len(), 1, "{status}");
        }
    }
    for reply in [Reply::Answer("200 OK", HTML, b"<html>"), page(b"<html></html>")] {
        let server = Server::new(&[reply]);
        let error = server.store().list_names("", &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("no server of buckets"), "{error}");
    }
}

#[test]
fn r135_a_server_without_room_is_asked_once_and_told_as_that() {
    let full = Reply::Answer("507 Insufficient Storage", &[], b"<Error><Code>StorageFull</Code>");
    let server = Server::new(&[full]);
    let error = server.store().put(&key("a"), b"one").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("no more room"), "{error}");
    assert_eq!(server.asked().len(), 1);
}

/// Also where it was foreseen, as every command does that opens a store.
#[test]
fn a_missing_bucket_is_no_missing_object() {
    let no_bucket =
        Reply::Answer("404 Not Found", &[], b"<Error><Code>NoSuchBucket</Code></Error>");
    let server = Server::new(&vec![no_bucket; 4]);
    let store = server.store();
    let _foresight = foresee(&store, vec![Asked::Object(key("a"))]);
    let error = store.decided(&key("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoStore, "{error}");
    assert!(error.to_string().contains("no such bucket"), "{error}");
}

/// STOP_CHECKED and STOP_MAX.
#[test]
fn what_is_read_is_given_up_at_once_and_what_is_written_a_little_later() {
    let late = || Reply::After(STOP_MAX * 4);
    let stopped = |ask: &(dyn Fn(&onefold_remote::BucketStore) -> ErrorKind + Sync)| {
        let server = Server::new(&[late()]);
        let interrupt = Interrupt::default();
        let store = server.store_with(Patience::USUAL).stopped_by(interrupt.clone());
        thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&store));
            thread::sleep(Duration::from_millis(300));
            interrupt.request();
            let began = Instant::now();
            assert_eq!(asking.join().unwrap(), ErrorKind::Interrupted);
            began.elapsed()
        })
    };
    let second = Duration::from_secs(1);
    assert!(stopped(&|store| store.get(&key("a")).unwrap_err().kind()) < second);
    let list = |store: &onefold_remote::BucketStore| {
        store.list_names("", &mut |_| Ok(())).unwrap_err().kind()
    };
    assert!(stopped(&list) < second);
    let put = stopped(&|store| store.put(&key("a"), b"one").unwrap_err().kind());
    assert!((STOP_MAX..STOP_MAX + second * 2).contains(&put), "{put:?}");
}
