//! A store that a server of our own serves, from `init` to `gc`, and what its clients may.

use crate::collecting::random_bytes;
use crate::support::{Run, Sandbox};
use onefold_remote::{BucketStore, Location, Patience, Surroundings};
use onefold_store::{Blobs, Key, Store, conformance};
use onefold_types::ErrorKind;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time for a server to start, or to take notice of something.
const PATIENCE: Duration = Duration::from_secs(30);

/// The binary, serving directories of a sandbox, until this is dropped.
pub struct Server {
    process: Child,
    pub address: String,
    /// How many connections it says that it takes.
    pub connections: Option<u64>,
    certificate: Option<PathBuf>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts one that says where it listens.
    pub fn start(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        let mut command = sandbox.command(&["--json", "serve", "--clients", "clients.toml"]);
        Self::start_command(command.args(arguments).stderr(Stdio::inherit()))
    }

    /// Starts one by a command that ends as the one above does.
    pub fn start_command(command: &mut Command) -> Self {
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next().expect("it does not start").unwrap();
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = told["address"].as_str().unwrap().to_owned();
        // Whoever connects need not stand where the server does.
        let directory = command.get_current_dir().unwrap().to_owned();
        let certificate = told["certificate"].as_str().map(|name| directory.join(name));
        let connections = told["connections"].as_u64();
        Self { process, address, connections, certificate }
    }

    /// One with a certificate of its own, on a free port.
    pub fn with_certificate(sandbox: &Sandbox, more: &[&str]) -> Self {
        let usual = ["--listen", "127.0.0.1:0", "--own-certificate", "127.0.0.1,localhost"];
        Self::start(sandbox, &[&usual[..], more].concat())
    }

    /// A store of it, as users name it.
    pub fn store(&self, name: &str) -> String {
        match &self.certificate {
            Some(certificate) => {
                let certificate = certificate.display();
                format!("https://{}/{name}?certificate={certificate}", self.address)
            }
            None => format!("http://{}/{name}", self.address),
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

/// Adds a client; its token.
pub fn client(sandbox: &Sandbox, name: &str, rights: &str, more: &[&str]) -> String {
    let usual = ["client", "add", name, "--clients", "clients.toml", "--rights", rights];
    let added = sandbox.run(&[&usual[..], more].concat()).expect(0);
    added.stdout.lines().next().unwrap().to_owned()
}

/// Runs a command on a store that is served.
pub fn run(sandbox: &Sandbox, store: &str, token: &str, arguments: &[&str]) -> Run {
    let mut command = sandbox.command(arguments);
    command.env("ONEFOLD_REPOSITORY", store).env("ONEFOLD_TOKEN", token);
    sandbox.run_command(command)
}

pub const INIT: [&str; 5] = ["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"];

/// A sandbox with directories to serve and something to save, and a client that may do everything.
pub fn prepared(stores: &[&str]) -> (Sandbox, String) {
    let sandbox = Sandbox::empty();
    stores.iter().for_each(|name| fs::create_dir(sandbox.path(name)).unwrap());
    sandbox.write("source/one", b"one");
    sandbox.write("source/large", &random_bytes(1, 3_000_000));
    let token = client(&sandbox, "all", "read,append,collect,metrics", &[]);
    (sandbox, token)
}

pub fn connect(store: &str, token: &str) -> BucketStore {
    let Location::Bucket(location) = Location::parse(Path::new(store)).unwrap() else { panic!() };
    let variables = vec![("ONEFOLD_TOKEN".to_owned(), token.to_owned())];
    let around = Surroundings { variables, ..Surroundings::default() };
    BucketStore::connect(&location, &around, Patience::USUAL).unwrap()
}

#[test]
fn a_server_keeps_the_promises_of_a_store() {
    let names: Vec<_> = (0..20).map(|number| format!("store-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (sandbox, token) = prepared(&names);
    let server = Server::with_certificate(&sandbox, &names);
    let made = AtomicUsize::new(0);
    let make = || -> Box<dyn Store> {
        let name = names[made.fetch_add(1, Ordering::SeqCst)];
        let store = connect(&server.store(name), &token);
        store.claim().unwrap();
        Box::new(store)
    };
    // Names are not flat: a directory is one.
    conformance::run(&make).unwrap();
}

#[test]
fn objects_of_any_length_arrive_and_come_back() {
    let (sandbox, token) = prepared(&["store"]);
    let server = Server::with_certificate(&sandbox, &["store"]);
    let store = connect(&server.store("store"), &token);
    // Held whole, or passed through; uploaded at once, or in parts.
    let whole = 8 << 20;
    for length in [0, 1, whole - 1, whole, whole + 1, 3 * whole + 5] {
        let bytes = random_bytes(1, length);
        let [put, pieces] = ["put", "pieces"].map(|how| Key::new(format!("{how}/{length}")));
        let (put, pieces) = (put.unwrap(), pieces.unwrap());
        store.put(&put, &bytes).unwrap();
        let mut rest = bytes.chunks(1 << 20);
        store
            .put_pieces(&pieces, &mut |into| {
                into.extend_from_slice(rest.next().unwrap_or_default());
                Ok(rest.len() > 0)
            })
            .unwrap();
        for key in [put, pieces] {
            assert!(store.get(&key).unwrap() == bytes, "{key}");
            assert!(fs::read(sandbox.path("store").join(key.as_str())).unwrap() == bytes, "{key}");
            let error = store.put(&key, b"other").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        }
    }
    let free = store.free_bytes().unwrap().unwrap();
    assert!(free > 0, "{free}");
}

#[test]
fn a_store_that_is_served_does_what_one_in_a_directory_does() {
    let (sandbox, token) = prepared(&["store", "other"]);
    let server = Server::with_certificate(&sandbox, &["store", "other"]);
    let name = server.store("store");
    let run = |arguments: &[&str]| run(&sandbox, &name, &token, arguments);
    assert!(run(&["snapshots"]).expect(10).stderr.contains("onefold init"));
    let made = run(&INIT).expect(0);
    assert!(made.stdout.contains(name.split('?').next().unwrap()), "{}", made.stdout);
    run(&["init"]).expect(1);
    run(&["backup", "source"]).expect(0);
    let large = fs::read(sandbox.path("source/large")).unwrap();
    fs::remove_file(sandbox.path("source/large")).unwrap();
    run(&["backup", "source"]).expect(0);
    run(&["check", "--read-data"]).expect(0);
    let listed = run(&["--json", "snapshots"]).expect(0).messages("snapshot");
    run(&["restore", listed[0]["id"].as_str().unwrap(), "--target", "restored"]).expect(0);
    assert!(fs::read(sandbox.path("restored/source/large")).unwrap() == large);
    run(&["forget", "--keep-last", "1", "--final"]).expect(0);
    let size = || {
        let told = run(&["--json", "stats"]).expect(0).message("statistics");
        told["bytes_stored"].as_u64().unwrap()
    };
    let before = size();
    run(&["gc", "--wait", "0s"]).expect(0);
    assert!(size() < before, "nothing was freed");
    run(&["maintain"]).expect(0);
    run(&["check", "--read-data"]).expect(0);
    run(&["--read-only", "backup", "source"]).expect(11);
    let told = run(&["--json", "info"]).expect(0).message("info");
    assert_eq!((&told["kind"], &told["place"]["client"]), (&"server".into(), &"all".into()));
    assert_eq!(told["place"]["rights"].as_array().unwrap().len(), 4, "{told}");
    assert!(told["place"]["free_bytes"].as_u64().unwrap() > 0, "{told}");
    // The same store without the server, and the other one without this one.
    let mut here = sandbox.command(&["check", "--read-data"]);
    here.env("ONEFOLD_REPOSITORY", sandbox.path("store"));
    sandbox.run_command(here).expect(0);
    assert!(fs::read_dir(sandbox.path("other")).unwrap().next().is_none());
}

#[test]
fn a_client_does_what_it_may_and_is_told_what_it_may_not() {
    let (sandbox, all) = prepared(&["store", "other"]);
    let reader = client(&sandbox, "reader", "read", &[]);
    let appender = client(&sandbox, "appender", "append", &[]);
    let elsewhere = client(&sandbox, "elsewhere", "read,append", &["--store", "other"]);
    let server = Server::with_certificate(&sandbox, &["store", "other"]);
    let name = server.store("store");
    let run = |token: &str, arguments: &[&str]| run(&sandbox, &name, token, arguments);
    let denied = |token: &str, arguments: &[&str], word: &str| {
        let said = run(token, arguments).expect(11).stderr;
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert!(!said.contains(token), "{said}");
    };
    denied(&reader, &INIT, "has no right 'append'");
    run(&all, &INIT).expect(0);
    run(&all, &["backup", "source"]).expect(0);
    denied(&reader, &["backup", "source"], "has no right 'append'");
    run(&reader, &["restore", "latest", "--target", "restored"]).expect(0);
    run(&reader, &["check", "--read-data"]).expect(0);
    // Who may only append saves, and reads nothing of what anybody saved.
    let saved = run(&appender, &["--json", "backup", "source", "--lookup", "none", "--force"]);
    let id = saved.expect(0).message("summary")["snapshot"].as_str().unwrap().to_owned();
    for arguments in [
        &["restore", "latest", "--target", "nowhere"][..],
        &["ls", "latest"],
        &["dump", "latest", "source/one"],
        &["check", "--read-data"],
        &["gc", "--wait", "0s"],
    ] {
        // What others have read on this machine is theirs to show.
        let said = run(&appender, &[&["--cache-size", "0"][..], arguments].concat());
        assert_ne!(said.code, 0, "{arguments:?}: {}", said.stdout);
        assert!(!said.stdout.contains("one"), "{arguments:?}: {}", said.stdout);
    }
    assert!(!sandbox.path("nowhere/source/one").exists());
    run(&reader, &["restore", &id, "--target", "appended"]).expect(0);
    assert_eq!(fs::read(sandbox.path("appended/source/one")).unwrap(), b"one");
    // A store that a client may not know of is none.
    let said = run(&elsewhere, &["snapshots"]).expect(10).stderr;
    assert!(said.contains("serves no store of that name"), "{said}");
    denied("onefold-nobody", &["snapshots"], "ONEFOLD_TOKEN");
    let nobody = run("", &["snapshots"]).expect(11);
    assert!(nobody.stderr.contains("ONEFOLD_TOKEN_FILE"), "{}", nobody.stderr);
    // Nothing is deleted without that right.
    let key = Key::new("config").unwrap();
    for token in [&reader, &appender] {
        let error = connect(&name, token).delete(&key).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
    }
    assert!(sandbox.path("store/config").exists());
}

#[test]
fn a_client_that_is_removed_has_no_rights_a_moment_later() {
    let (sandbox, all) = prepared(&["store"]);
    let server = Server::with_certificate(&sandbox, &["store"]);
    let name = server.store("store");
    run(&sandbox, &name, &all, &INIT).expect(0);
    let late = client(&sandbox, "late", "read", &[]);
    let until = |token: &str, code: i32| {
        let began = Instant::now();
        while run(&sandbox, &name, token, &["snapshots"]).code != code {
            assert!(began.elapsed() < PATIENCE, "it takes no notice");
        }
    };
    until(&late, 0);
    // What cannot be understood changes nothing.
    let clients = fs::read_to_string(sandbox.path("clients.toml")).unwrap();
    sandbox.write("clients.toml", b"[all]\nrights = 1");
    std::thread::sleep(Duration::from_secs(2));
    run(&sandbox, &name, &all, &["snapshots"]).expect(0);
    sandbox.write("clients.toml", clients.as_bytes());
    sandbox.run(&["client", "remove", "late", "--clients", "clients.toml"]).expect(0);
    until(&late, 11);
    run(&sandbox, &name, &all, &["snapshots"]).expect(0);
    sandbox.run(&["client", "remove", "late", "--clients", "clients.toml"]).expect(1);
    let listed = sandbox.run(&["client", "list", "--clients", "clients.toml"]).expect(0).stdout;
    assert!(listed.contains("all") && !listed.contains("late"), "{listed}");
}

#[test]
fn a_quota_holds_for_a_client_and_for_a_store() {
    let (sandbox, all) = prepared(&["store"]);
    let small = client(&sandbox, "small", "read,append", &["--quota", "1MB"]);
    let server = Server::with_certificate(&sandbox, &["store", "--quota", "20MB"]);
    let name = server.store("store");
    run(&sandbox, &name, &all, &INIT).expect(0);
    let said = run(&sandbox, &name, &small, &["backup", "source"]).expect(1).stderr;
    assert!(said.contains("'small' has put") && said.contains("no more room"), "{said}");
    run(&sandbox, &name, &all, &["backup", "source"]).expect(0);
    sandbox.write("source/larger", &random_bytes(1, 30_000_000)[10_000_000..]);
    let said = run(&sandbox, &name, &all, &["backup", "source"]).expect(1).stderr;
    assert!(said.contains("may hold 20000000"), "{said}");
    run(&sandbox, &name, &all, &["check", "--read-data"]).expect(0);
    assert_eq!(run(&sandbox, &name, &all, &["--json", "snapshots"]).messages("snapshot").len(), 1);
}

#[test]
fn a_certificate_that_clients_do_not_trust_is_said() {
    let (sandbox, all) = prepared(&["store"]);
    let server = Server::with_certificate(&sandbox, &["store"]);
    let untrusted = server.store("store").split('?').next().unwrap().to_owned();
    let said = run(&sandbox, &untrusted, &all, &["snapshots"]);
    assert!(said.code == 1 && said.stderr.contains("certificate"), "{}", said.stderr);
    let plain = untrusted.replace("https://", "http://");
    let said = run(&sandbox, &plain, &all, &["snapshots"]);
    assert_ne!(said.code, 0, "{}", said.stdout);
    // The certificate stays the same the next time.
    let before = fs::read(sandbox.path("certificate.pem")).unwrap();
    drop(server);
    let server = Server::with_certificate(&sandbox, &["store"]);
    assert_eq!(fs::read(sandbox.path("certificate.pem")).unwrap(), before);
    run(&sandbox, &server.store("store"), &all, &INIT).expect(0);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(sandbox.path("key.pem")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o077, 0, "others can read the key");
}

/// All files below a directory.
fn containers(directory: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let shards = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = shards.flat_map(|shard| fs::read_dir(shard).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn what_a_collection_deletes_can_be_copied_back() {
    let (sandbox, all) = prepared(&["store"]);
    let server = Server::with_certificate(&sandbox, &["store", "--keep-deleted", "1h"]);
    let name = server.store("store");
    let run = |arguments: &[&str]| run(&sandbox, &name, &all, arguments);
    run(&INIT).expect(0);
    let saved = run(&["--json", "backup", "source"]).expect(0).message("summary");
    let id = saved["snapshot"].as_str().unwrap().to_owned();
    fs::remove_file(sandbox.path("source/large")).unwrap();
    run(&["backup", "source"]).expect(0);
    run(&["forget", &id]).expect(0);
    let before = containers(&sandbox.path("store/containers"));
    // Someone who may collect hides a snapshot for good, and has its data deleted.
    run(&["gc", "--wait", "0s", "--forget-hidden", "0s"]).expect(0);
    run(&["restore", &id, "--target", "gone"]).expect(1);
    let after = containers(&sandbox.path("store/containers"));
    let lost: Vec<_> = before.iter().filter(|(name, _)| !after.contains_key(*name)).collect();
    assert!(!lost.is_empty(), "nothing was deleted");
    let linked = Command::new("cp")
        .args(["-aln", "store.deleted/.", "store/"])
        .current_dir(sandbox.path("."))
        .status();
    assert!(linked.unwrap().success());
    let back = containers(&sandbox.path("store/containers"));
    assert!(lost.iter().all(|(name, bytes)| back.get(*name) == Some(*bytes)));
    run(&["check", "--read-data"]).expect(0);
    // The next collection deletes again what nobody needs.
    run(&["gc", "--wait", "0s", "--space-goal", "all"]).expect(0);
    run(&["check", "--read-data"]).expect(0);
}

#[test]
fn a_server_that_is_killed_and_started_again_has_lost_nothing() {
    let (sandbox, all) = prepared(&["store"]);
    let server = Server::with_certificate(&sandbox, &["store"]);
    let (name, address) = (server.store("store"), server.address.clone());
    run(&sandbox, &name, &all, &INIT).expect(0);
    let saved = random_bytes(1, 48_000_000);
    for (number, part) in saved.chunks(6_000_000).enumerate() {
        sandbox.write(&format!("source/{number}"), part);
    }
    let mut command = sandbox.command(&["backup", "source"]);
    command.env("ONEFOLD_REPOSITORY", &name).env("ONEFOLD_TOKEN", &all);
    let backup = command.spawn().unwrap();
    let began = Instant::now();
    while fs::read_dir(sandbox.path("store/containers"))
        .is_ok_and(|mut found| found.next().is_none())
    {
        assert!(began.elapsed() < PATIENCE, "no container comes");
    }
    drop(server);
    let certificate = ["--listen", &address, "--own-certificate", "127.0.0.1,localhost"];
    let server = Server::start(&sandbox, &[&certificate[..], &["store"]].concat());
    let backup = Run::of(backup.wait_with_output().unwrap());
    // It asked again until somebody answered.
    assert_eq!(backup.code, 0, "{}", backup.stderr);
    run(&sandbox, &name, &all, &["check", "--read-data"]).expect(0);
    run(&sandbox, &name, &all, &["restore", "latest", "--target", "restored"]).expect(0);
    for entry in fs::read_dir(sandbox.path("source")).unwrap() {
        let entry = entry.unwrap();
        let restored = sandbox.path("restored/source").join(entry.file_name());
        assert!(fs::read(entry.path()).unwrap() == fs::read(restored).unwrap());
    }
    // A signal ends it.
    let mut server = server;
    server.signal("-TERM");
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_that_would_be_no_good_does_not_start() {
    let (sandbox, _) = prepared(&["store"]);
    fs::create_dir_all(sandbox.path("deeper/store")).unwrap();
    fs::create_dir(sandbox.path("a b")).unwrap();
    sandbox.write("foreign/file", b"x");
    let refused = |arguments: &[&str], code: i32, word: &str| {
        let said = sandbox.run(&[&["serve"], arguments].concat()).expect(code).stderr;
        assert!(said.contains(word), "{arguments:?}: {said}");
    };
    let with = ["--clients", "clients.toml", "--listen", "127.0.0.1:0", "--plain"];
    refused(&[&with[..4], &["store"]].concat(), 1, "--own-certificate");
    refused(&[&with[..], &["missing"]].concat(), 1, "missing");
    refused(&[&with[..], &["foreign"]].concat(), 10, "holds no store");
    refused(&[&with[..], &["a b"]].concat(), 1, "give the directory another one");
    refused(&[&with[..], &["store", "deeper/store"]].concat(), 1, "two directories");
    let open = ["--clients", "clients.toml", "--listen", "0.0.0.0:0", "--plain", "store"];
    refused(&open, 1, "could read the tokens");
    refused(&["--clients", "none.toml", "--plain", "store"], 1, "none.toml");
    sandbox.write("clients.toml", b"[x");
    refused(&[&with[..], &["store"]].concat(), 1, "cannot be understood");
}
