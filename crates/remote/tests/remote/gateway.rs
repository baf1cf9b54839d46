//! A real server of object stores, where it is installed: `versitygw`, started for each test.

use crate::{location, with_credentials};
use onefold_remote::conditional::Proof;
use onefold_remote::gateway::{ACCESS, Gateway, SECRET};
use onefold_remote::{BucketLocation, BucketStore, Patience};
use onefold_store::{Blobs, Key, Store, conformance};
use onefold_types::ErrorKind;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn start() -> Option<Gateway> {
    Gateway::start().unwrap()
}

fn store_in(gateway: &Gateway, prefix: &str, has_checksums: bool) -> BucketStore {
    let around = with_credentials(ACCESS, SECRET);
    let location = BucketLocation { has_checksums, ..location(gateway.port, prefix) };
    BucketStore::connect(&location, &around, Patience::USUAL).unwrap()
}

#[test]
fn a_real_server_keeps_the_promises() {
    let Some(gateway) = start() else { return };
    let stores = AtomicUsize::new(0);
    for has_checksums in [false, true] {
        let make = || -> Box<dyn Store> {
            let number = stores.fetch_add(1, Ordering::SeqCst);
            let store = store_in(&gateway, &format!("stores/{number}"), has_checksums);
            store.claim().unwrap();
            store.prove(Proof::Again).unwrap();
            Box::new(store)
        };
        conformance::run_flat(&make).unwrap();
    }
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let Some(gateway) = start() else { return };
    let store = store_in(&gateway, "taken", false);
    store.claim().unwrap();
    store.put(&Key::new("config").unwrap(), b"x").unwrap();
    let error = store_in(&gateway, "taken", false).claim().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    store_in(&gateway, "taken-too", false).claim().unwrap();
}

#[test]
fn what_is_wrong_with_bucket_or_credentials_is_said() {
    let Some(gateway) = start() else { return };
    let wrong = |location: &BucketLocation, key: &str, secret: &str| {
        let store = {
            let around = with_credentials(key, secret);
            BucketStore::connect(location, &around, Patience::USUAL).unwrap()
        };
        store.claim().unwrap_err()
    };
    let place = location(gateway.port, "x");
    for (key, secret) in [(ACCESS, "wrong"), ("nobody", SECRET)] {
        let error = wrong(&place, key, secret);
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
        assert!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
    }
    // Who reads is told as much as who writes.
    let key = Key::new("config").unwrap();
    let around = with_credentials(ACCESS, "wrong");
    let store = BucketStore::connect(&place, &around, Patience::USUAL).unwrap();
    let read = store.get(&key).unwrap_err();
    let tail = store.get_tail(&key, 10).unwrap_err();
    for error in [read, tail, store.size(&key).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
        assert!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
    }
    let error = wrong(&BucketLocation { bucket: "other".into(), ..place }, ACCESS, SECRET);
    assert_eq!(error.kind(), ErrorKind::NoStore, "{error}");
    assert!(error.to_string().contains("no such bucket"), "{error}");
}

/// START_MAX: a server that does not begin to listen, and one that is not installed.
#[test]
fn a_server_that_does_not_start_is_no_server() {
    let soon = Duration::from_millis(200);
    let late = Gateway::start_program("true", soon).err().unwrap();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    assert!(Gateway::start_program("no-such-program", soon).unwrap().is_none());
}
