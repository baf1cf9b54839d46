//! Places for new stores: none inside another store, none around one, and none where something is.

use object_store::memory::InMemory;
use onefold_engine::repository::Preset;
use onefold_engine::{Environment, InitOptions, MemoryPlan, Repository};
use onefold_remote::BucketStore;
use onefold_remote::bucket::PREFIX_PARTS_MAX;
use onefold_store::{Blobs, Key};
use onefold_types::{ErrorKind, limits};
use std::sync::Arc;

fn at(objects: &Arc<InMemory>, prefix: &str) -> BucketStore {
    BucketStore::over(Arc::clone(objects) as _, prefix, prefix).unwrap()
}

fn make(objects: &Arc<InMemory>, prefix: &str) {
    let store = at(objects, prefix);
    store.claim().unwrap();
    let options = InitOptions::of(Preset::default()).unwrap();
    let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES).unwrap();
    let password = Some(&b"password"[..]);
    Repository::create(Arc::new(store), &options, password, Environment::system(), memory).unwrap();
}

fn put(objects: &Arc<InMemory>, prefix: &str, name: &str, bytes: &[u8]) {
    at(objects, prefix).put(&Key::new(name).unwrap(), bytes).unwrap();
}

fn refused(objects: &Arc<InMemory>, prefix: &str) -> String {
    let error = at(objects, prefix).claim().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    error.to_string()
}

#[test]
fn no_store_is_made_inside_another_or_around_one() {
    let objects = Arc::new(InMemory::new());
    make(&objects, "a/b");
    for inside in ["a/b/c", "a/b/c/d"] {
        let said = refused(&objects, inside);
        assert!(said.contains("inside another store"), "{said}");
    }
    for around in ["a", "", "a/b", "a/b/tmp"] {
        let said = refused(&objects, around);
        assert!(said.contains("is not empty"), "{said}");
    }
    at(&objects, "a/c").claim().unwrap();
    // One copy of its configuration is enough for a store, and one below "tmp" is one as well.
    at(&objects, "a/b").delete(&Key::new("config").unwrap()).unwrap();
    assert!(refused(&objects, "a/b/c").contains("a/b/config.copy"));
    let objects = Arc::new(InMemory::new());
    make(&objects, "tmp");
    assert!(refused(&objects, "").contains("is not empty"));
    let objects = Arc::new(InMemory::new());
    make(&objects, "");
    assert!(refused(&objects, "a/b").contains("inside another store"));
}

#[test]
fn what_others_call_a_configuration_is_none() {
    let objects = Arc::new(InMemory::new());
    put(&objects, "", "config", b"{}");
    put(&objects, "a", "config", b"");
    put(&objects, "a", "config.copy", &vec![b' '; 1 << 20]);
    at(&objects, "a/b").claim().unwrap();
    // What an attempt has left that came no further.
    at(&objects, "a/b").claim().unwrap();
}

/// PREFIX_PARTS_MAX, and one more.
#[test]
fn a_prefix_has_a_bounded_number_of_parts() {
    let objects = Arc::new(InMemory::new());
    let most = vec!["a"; PREFIX_PARTS_MAX].join("/");
    at(&objects, &most).claim().unwrap();
    let error = at(&objects, &format!("{most}/b")).claim().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
}
