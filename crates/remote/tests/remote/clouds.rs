//! Google's and Azure's interfaces: a server of our own that speaks the first, Azurite for the
//! second where it is installed, and one that looks like Google and keeps no promise.

use crate::answers::{BUSY, Reply, Server, holding, key, short};
use onefold_remote::bucket::PART_BYTES;
use onefold_remote::conditional::Proof;
use onefold_remote::gateway::{AZURITE_KEY, Azurite, CONTAINER_SAS, FakeGoogle, READING_SAS};
use onefold_remote::google_server::{GoogleServer, TOKEN};
use onefold_remote::{BucketStore, Location, Patience, Surroundings};
use onefold_store::{Asked, Blobs, Decisions, Store, conformance, foresee};
use onefold_types::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const KEY: (&str, &str) = ("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY);
const ALLOWED: (&str, &str) = ("GOOGLE_ACCESS_TOKEN", TOKEN);

fn store(name: &str, variable: (&str, &str)) -> BucketStore {
    store_with(name, variable, Patience::USUAL)
}

fn store_with(name: &str, (variable, value): (&str, &str), patience: Patience) -> BucketStore {
    let Location::Bucket(location) = Location::parse(Path::new(name)).unwrap() else {
        panic!("{name}")
    };
    let variables = vec![(variable.to_owned(), value.to_owned())];
    let around = Surroundings { variables, home: None, secret: Vec::new() };
    BucketStore::connect(&location, &around, patience).unwrap()
}

fn keeps_the_promises(name: &dyn Fn(&str) -> String, variable: (&str, &str)) {
    let stores = AtomicUsize::new(0);
    let make = || -> Box<dyn Store> {
        let number = stores.fetch_add(1, Ordering::SeqCst);
        let store = store(&name(&format!("stores/{number}")), variable);
        store.claim().unwrap();
        store.prove(Proof::Again).unwrap();
        Box::new(store)
    };
    conformance::run_flat(&make).unwrap();
}

/// What a directory of others would do to a listing, a long object, a tail, and a second store.
fn holds_a_store(name: &dyn Fn(&str) -> String, variable: (&str, &str)) {
    let at = |prefix: &str| store(&name(prefix), variable);
    let one = at("a/one");
    one.claim().unwrap();
    at("a/one-of-others").put(&key("x"), b"x").unwrap();
    let whole: Vec<u8> = (0..2 * PART_BYTES + 5).map(|at| (at / 7 + at / 1000) as u8).collect();
    let mut left = whole.as_slice();
    let mut next = |piece: &mut Vec<u8>| {
        let (now, later) = left.split_at(left.len().min(1 << 20));
        piece.extend_from_slice(now);
        left = later;
        Ok(!later.is_empty())
    };
    one.put_pieces(&key("index/long"), &mut next).unwrap();
    assert!(one.get(&key("index/long")).unwrap() == whole);
    let mut again = |piece: &mut Vec<u8>| {
        piece.resize(PART_BYTES + 1, 0);
        Ok(false)
    };
    let error = one.put_pieces(&key("index/long"), &mut again).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    one.put(&key("empty"), b"").unwrap();
    let length = whole.len() as u64;
    let last = &whole[whole.len() - 9..];
    for foreseen in [false, true] {
        let tails = ["index/long", "empty", "none"].map(|name| Asked::Tail(key(name), 9));
        let _foresight = foreseen.then(|| foresee(&one, tails.into()));
        assert_eq!(one.get_tail(&key("index/long"), 9).unwrap(), (length, last.to_vec()));
        assert_eq!(one.get_tail(&key("empty"), 9).unwrap(), (0, Vec::new()));
        let error = one.get_tail(&key("none"), 9).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    let mut names = Vec::new();
    let each = &mut |name: &str| {
        names.push(name.to_owned());
        Ok(())
    };
    one.list_names("", each).unwrap();
    names.sort_unstable();
    assert_eq!(names, ["empty", "index/long"]);
    assert_eq!(at("a/one").claim().unwrap_err().kind(), ErrorKind::AlreadyExists);
    let found = one.capabilities();
    for trial in [found.conditional_put, found.ranged_reads, found.lists_at_once, found.deletes] {
        trial.unwrap();
    }
}

#[test]
fn a_server_that_speaks_as_google_does_keeps_the_promises() {
    let server = GoogleServer::start().unwrap();
    keeps_the_promises(&|prefix| server.store(prefix), ALLOWED);
    holds_a_store(&|prefix| server.store(prefix), ALLOWED);
}

#[test]
fn azurite_keeps_the_promises() {
    let Some(server) = Azurite::start().unwrap() else { return };
    keeps_the_promises(&|prefix| server.store(prefix), KEY);
    holds_a_store(&|prefix| server.store(prefix), ("AZURE_STORAGE_SAS_TOKEN", CONTAINER_SAS));
}

/// It replaces what must not be replaced, or its answers are not those of Google.
#[test]
fn what_only_looks_like_google_is_refused() {
    let Some(server) = FakeGoogle::start().unwrap() else { return };
    let name = format!("gs://bucket/a?endpoint=http://127.0.0.1:{}", server.port);
    let error = store(&name, ("GOOGLE_SKIP_SIGNATURE", "true")).claim().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn what_is_wrong_with_a_container_or_its_key_is_said() {
    let Some(server) = Azurite::start().unwrap() else { return };
    let name = server.store("a");
    let wrong = store(&name, (KEY.0, "d3Jvbmc="));
    let errors = [
        wrong.claim().unwrap_err(),
        wrong.get(&key("a")).unwrap_err(),
        wrong.get_tail(&key("a"), 9).unwrap_err(),
        wrong.put(&key("a"), b"a").unwrap_err(),
        wrong.delete(&key("a")).unwrap_err(),
        store(&name, ("AZURE_STORAGE_SAS_TOKEN", READING_SAS)).claim().unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
        let said = error.to_string();
        assert!(said.contains("AZURE_STORAGE_ACCOUNT_KEY"), "{said}");
        assert!(!said.contains("sig=") && !said.contains("d3Jvbmc"), "{said}");
    }
    let missing = store(&name.replace("//bucket/", "//missing/"), KEY);
    // Also where it is only asked how long an object is, which is answered without words.
    let foresight = foresee(&missing, vec![Asked::Tail(key("b"), 9)]);
    let errors = [
        missing.claim().unwrap_err(),
        missing.get(&key("a")).unwrap_err(),
        missing.get_tail(&key("a"), 9).unwrap_err(),
        missing.get_tail(&key("b"), 9).unwrap_err(),
        missing.size(&key("a")).unwrap_err(),
        missing.decide(&key("a"), b"one").unwrap_err(),
    ];
    drop(foresight);
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NoStore, "{error}");
        assert!(error.to_string().contains("no such bucket"), "{error}");
    }
}

#[test]
fn what_is_wrong_with_a_bucket_of_google_or_its_token_is_said() {
    let server = GoogleServer::start().unwrap();
    let name = server.store("a");
    let wrong = store(&name, (ALLOWED.0, "wrong-token"));
    for error in [wrong.claim().unwrap_err(), wrong.get(&key("a")).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
        let said = error.to_string();
        assert!(said.contains(ALLOWED.0) && !said.contains("wrong-token"), "{said}");
    }
    let missing = store(&name.replace("//bucket/", "//missing/"), ALLOWED);
    assert_eq!(missing.claim().unwrap_err().kind(), ErrorKind::NoStore);
}

/// A server that goes and comes back, as one that is started again does.
#[test]
fn a_server_that_is_gone_is_waited_for_and_found_again() {
    let soon = short(|patience| patience.retry = Duration::from_millis(500));
    let (google, azure) = (GoogleServer::start().unwrap(), Azurite::start().unwrap());
    let tries = |store: &BucketStore, go: &mut dyn FnMut(bool)| {
        store.put(&key("a"), b"one").unwrap();
        go(true);
        for error in [store.get(&key("a")).unwrap_err(), store.put(&key("b"), b"").unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        go(false);
        assert_eq!(store.get(&key("a")).unwrap(), b"one");
        assert_eq!(store.put(&key("a"), b"one").unwrap_err().kind(), ErrorKind::AlreadyExists);
    };
    let store = store_with(&google.store("a"), ALLOWED, soon);
    tries(&store, &mut |is_gone| google.set_gone(is_gone));
    let Some(mut azure) = azure else { return };
    let store = store_with(&azure.store("a"), KEY, soon);
    tries(&store, &mut |is_gone| match is_gone {
        true => azure.stop(),
        false => azure.start_again().unwrap(),
    });
}

/// ROLE_TRIES: nobody listens where the machine's own credentials would be.
#[test]
fn a_machine_without_credentials_is_soon_told_from_one_that_has_some() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let identity = ("IDENTITY_ENDPOINT", &*format!("http://{closed}/token"));
    let name = "az://bucket/p?account=a&endpoint=http://localhost:1";
    let (store, began) = (store(name, identity), Instant::now());
    let _foresight = foresee(&store, vec![Asked::Object(key("a"))]);
    let error = store.get(&key("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
    assert!(error.to_string().contains("AZURE_STORAGE_ACCOUNT_KEY"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// The same as of S3 (`answers.rs`), by each service's own words.
fn scripted(service: &str, replies: &[Reply]) -> (Server, BucketStore) {
    let server = Server::new(replies);
    let (name, variable) = match service {
        "gs" => (format!("gs://bucket/p?endpoint=http://127.0.0.1:{}", server.port), ALLOWED),
        _ => {
            let port = server.port;
            (format!("az://bucket/p?account=a&endpoint=http://127.0.0.1:{port}"), KEY)
        }
    };
    let store = store(&name, variable);
    (server, store)
}

const MADE: Reply = Reply::Answer("201 Created", &["ETag: \"1\""], b"");
const NO_MORE: &[&str] = &["x-ms-error-code: BlobAlreadyExists"];

#[test]
fn a_put_is_one_request_that_must_not_replace_anything() {
    for (service, put, get) in [
        ("gs", "PUT /bucket/p%2Fa if-generation 0", "GET /bucket/p%2Fa"),
        ("az", "PUT /bucket/p/a unless *", "GET /bucket/p/a"),
    ] {
        let (server, store) = scripted(service, &[MADE]);
        store.put(&key("a"), b"one").unwrap();
        assert_eq!(server.asked(), [put]);
        let taken = match service {
            "gs" => Reply::Answer("412 Precondition Failed", &[], b""),
            _ => Reply::Answer("409 Conflict", NO_MORE, b""),
        };
        let (server, store) = scripted(service, std::slice::from_ref(&taken));
        let error = store.put(&key("a"), b"one").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert_eq!(server.asked(), [put]);
        for (found, is_own) in [(&b"one"[..], true), (b"two", false)] {
            let replies = [BUSY, taken.clone(), holding(found)];
            let (server, store) = scripted(service, &replies);
            assert_eq!(store.put(&key("a"), b"one").is_ok(), is_own);
            assert_eq!(server.asked(), [put, put, get]);
        }
        let (_server, store) = scripted(service, &[Reply::HangUp, taken, holding(b"one")]);
        store.put(&key("a"), b"one").unwrap();
    }
}

/// To the client all conflicts mean that a name is taken.
#[test]
fn a_conflict_about_something_else_is_no_name_that_is_taken() {
    const DELETED: &[&str] = &["x-ms-error-code: ContainerBeingDeleted"];
    const LEASED: &[&str] = &["x-ms-error-code: LeaseIdMissing"];
    for (status, headers, kind) in [
        ("409 Conflict", DELETED, ErrorKind::NoStore),
        ("412 Precondition Failed", LEASED, ErrorKind::Invalid),
    ] {
        let (server, store) = scripted("az", &[Reply::Answer(status, headers, b"")]);
        let error = store.decide(&key("a"), b"one").unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(server.asked().len(), 1);
    }
}

#[test]
fn what_arrives_cut_off_is_never_taken_for_the_object() {
    let cut = Reply::Truncated(b"on", 3);
    for service in ["gs", "az"] {
        let replies = vec![cut.clone(); 5];
        let (_server, store) = scripted(service, &replies);
        let error = store.get(&key("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

const FIRST: &[u8] = b"<EnumerationResults><Blobs><Blob><Name>p/a/1</Name><Properties>\
    <Last-Modified>Wed, 25 Nov 2026 00:00:00 GMT</Last-Modified><Content-Length>1\
    </Content-Length><Content-Type>x</Content-Type></Properties></Blob></Blobs>\
    <NextMarker>t</NextMarker></EnumerationResults>";
const LAST: &[u8] = b"<EnumerationResults><Blobs><Blob><Name>p/a/2</Name><Properties>\
    <Last-Modified>Wed, 25 Nov 2026 00:00:00 GMT</Last-Modified><Content-Length>1\
    </Content-Length><Content-Type>x</Content-Type></Properties></Blob></Blobs>\
    <NextMarker/></EnumerationResults>";
const CUT: &[u8] = b"<EnumerationResults><Blobs><Blob><Name>p/a/2</Name>";

#[test]
fn a_listing_of_azure_that_breaks_off_goes_on_where_it_was() {
    let page = |bytes| Reply::Answer("200 OK", &["Content-Type: application/xml"], bytes);
    for broken in [Reply::Truncated(CUT, 500), page(CUT), Reply::HangUp, BUSY] {
        let replies = [page(FIRST), broken.clone(), broken, page(LAST)];
        let (server, store) = scripted("az", &replies);
        let mut names = Vec::new();
        let each = &mut |name: &str| {
            names.push(name.to_owned());
            Ok(())
        };
        store.list_names("a", each).unwrap();
        assert_eq!(names, ["a/1", "a/2"]);
        let asked = server.asked();
        let again = asked.iter().filter(|one| one.contains("marker=t")).count();
        assert_eq!((asked.len(), again), (4, 3), "{asked:?}");
    }
    let (_server, store) = scripted("az", &[page(b"<ListBucketResult></ListBucketResult>")]);
    let error = store.list_names("", &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("Azure Blob Storage"), "{error}");
}

/// Where a server sends to may have been made of what was asked, and that may hold a secret.
#[test]
fn a_signed_link_is_in_no_message() {
    const ELSEWHERE: &[&str] = &["Location: http://elsewhere.example/x?sig=secret"];
    for reply in [
        Reply::Answer("301 Moved Permanently", ELSEWHERE, b""),
        Reply::Answer("400 Bad Request", &[], b""),
        Reply::Answer("403 Forbidden", &[], b""),
    ] {
        let server = Server::new(&vec![reply; 3]);
        let name = format!("az://bucket/p?account=a&endpoint=http://127.0.0.1:{}", server.port);
        let sas = ("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=secret");
        let store = store_with(&name, sas, Patience::USUAL);
        let errors = [
            store.get(&key("a")).unwrap_err(),
            store.put(&key("a"), b"a").unwrap_err(),
            store.list_names("", &mut |_| Ok(())).unwrap_err(),
        ];
        for error in errors {
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(server.asked().iter().all(|asked| asked.contains("sig=secret")));
    }
}
