//! OpenSSH's own server, on pipes.

use super::key;
use onefold_remote::sftp::CONNECTIONS_MAX;
use onefold_remote::sftp::cleaning::AGE_MAX;
use onefold_remote::{Location, Patience, SftpStore, sftp_server};
use onefold_store::{Blobs, Decisions, LocalStore, Store, conformance};
use onefold_types::ErrorKind;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

fn at(server: &str, directory: &Path) -> SftpStore {
    let name = format!("sftp://host{}", directory.display());
    let Location::Sftp(place) = Location::parse(Path::new(&name)).unwrap() else {
        panic!("{name}")
    };
    SftpStore::connect(&place, Some(server), Patience::USUAL).unwrap()
}

#[test]
fn a_real_server_keeps_the_promises() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let stores = AtomicUsize::new(0);
    let last = std::cell::RefCell::new(root.path().to_owned());
    let make = || -> Box<dyn Store> {
        let number = stores.fetch_add(1, Ordering::SeqCst);
        let place = root.path().join(format!("deep/er {number}"));
        let store = at(server, &place);
        store.claim().unwrap();
        store.prove().unwrap();
        *last.borrow_mut() = place;
        Box::new(store)
    };
    conformance::run(&make).unwrap();
    let left = fs::read_dir(last.borrow().join("tmp")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["first", "second"], "temporary files are left");
}

#[test]
fn it_is_the_store_that_a_local_directory_is() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    // Made there, used here.
    let far = at(server, &root.path().join("far"));
    far.claim().unwrap();
    far.put(&key("config"), b"{}").unwrap();
    far.put(&key("containers/3f/3f9a"), &[7; 100_000]).unwrap();
    far.decide(&key("outcomes/s"), b"won").unwrap();
    let near = LocalStore::open(root.path().join("far")).unwrap();
    assert_eq!(near.get(&key("containers/3f/3f9a")).unwrap(), [7; 100_000]);
    assert_eq!(near.decide(&key("outcomes/s"), b"lost").unwrap(), b"won");
    let mode =
        |path: &str| fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("far"), mode("far/containers"), mode("far/config")), (0o700, 0o700, 0o600));
    // Made here, used there; both at once.
    let near = LocalStore::create(root.path().join("near")).unwrap();
    near.put(&key("config"), b"{}").unwrap();
    near.decide(&key("epochs/1"), b"one").unwrap();
    let far = at(server, &root.path().join("near"));
    far.open().unwrap();
    far.prove().unwrap();
    assert_eq!(far.decide(&key("epochs/1"), b"two").unwrap(), b"one");
    assert_eq!(far.decide(&key("epochs/2"), b"two").unwrap(), b"two");
    assert_eq!(near.decide(&key("epochs/2"), b"one").unwrap(), b"two");
    let error = near.put(&key("config"), b"x").and(far.put(&key("config"), b"x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let mut names = Vec::new();
    let each = &mut |name: &str| {
        names.push(name.to_owned());
        Ok(())
    };
    far.list_names("", each).unwrap();
    names.sort();
    assert_eq!(names, ["config", "epochs/1", "epochs/2"]);
    // A local cleaner leaves what is being written by SFTP alone.
    fs::write(root.path().join("near/tmp/sftp-00000000000000000000000000000000"), b"x").unwrap();
    assert_eq!(near.remove_stale_temporaries().unwrap(), 0);
}

/// AGE_MAX: what is older was left by somebody who is gone.
#[test]
fn what_was_left_behind_is_removed_when_it_is_old() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let store = at(server, &root.path().join("s"));
    store.claim().unwrap();
    let number = "0123456789abcdef0123456789abcdef";
    let second = Duration::from_secs(1);
    for (name, age) in [
        (format!("sftp-{number}"), AGE_MAX + 60 * second),
        (format!("race-{number}"), AGE_MAX + 60 * second),
        (format!("sftp-{}", number.replace('0', "1")), AGE_MAX - 60 * second),
        ("sftp-notes".to_owned(), 2 * AGE_MAX),
        ("first".to_owned(), 2 * AGE_MAX),
    ] {
        let path = root.path().join("s/tmp").join(name);
        let file = fs::File::options().append(true).create(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }
    assert_eq!(store.remove_stale_temporaries().unwrap(), 2);
    let left = fs::read_dir(root.path().join("s/tmp")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    let young = format!("sftp-{}", number.replace('0', "1"));
    assert_eq!(left, ["first", "second", young.as_str(), "sftp-notes"]);
    assert_eq!(store.remove_stale_temporaries().unwrap(), 0);
}

#[test]
fn a_place_that_is_taken_and_one_without_a_store_are_told() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("x"), b"").unwrap();
    let error = at(server, root.path()).claim().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    let error = at(server, root.path()).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoStore, "{error}");
    let reading = at(server, root.path()).reading_only();
    for error in [
        reading.put(&key("a"), b"x").unwrap_err(),
        reading.decide(&key("a"), b"x").unwrap_err(),
        reading.delete(&key("x")).unwrap_err(),
        reading.prove().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    }
}

#[test]
fn links_in_the_place_of_objects_are_refused() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let store = at(server, &root.path().join("s"));
    store.claim().unwrap();
    store.put(&key("outcomes/a"), b"x").unwrap();
    symlink("a", root.path().join("s/outcomes/b")).unwrap();
    assert_eq!(store.get(&key("outcomes/b")).unwrap_err().kind(), ErrorKind::Io);
    store.decided(&key("outcomes/b")).unwrap_err();
    store.list_names("outcomes", &mut |_| Ok(())).unwrap_err();
    fs::remove_file(root.path().join("s/outcomes/b")).unwrap();
    fs::create_dir(root.path().join("s/outcomes/b")).unwrap();
    store.decided(&key("outcomes/b")).unwrap_err();
    store.list_names("outcomes", &mut |_| Ok(())).unwrap();
    // A file in the place of a directory is no empty directory.
    store.list_names("outcomes/a", &mut |_| Ok(())).unwrap_err();
}

#[test]
fn a_directory_of_many_names_is_listed_whole() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("outcomes")).unwrap();
    for number in 0..2_500 {
        fs::write(root.path().join(format!("outcomes/{number:05}")), b"12").unwrap();
    }
    let (mut names, store) = (std::collections::BTreeSet::new(), at(server, root.path()));
    let each = &mut |one: onefold_store::Listed| {
        assert_eq!(one.size_bytes, 2);
        assert!(names.insert(one.key));
        Ok(())
    };
    store.list("outcomes", each).unwrap();
    assert_eq!(names.len(), 2_500);
}

/// The program dies in the middle of everything: another one goes on.
#[test]
fn a_server_that_is_killed_is_started_again() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let script = root.path().join("server");
    // Each of them ends after half a second.
    fs::write(&script, format!("#!/bin/sh\nexec timeout -s KILL 0.5 {server}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let store = at(&script.display().to_string(), &root.path().join("s"));
    store.claim().unwrap();
    let began = SystemTime::now();
    let mut number: usize = 0;
    while began.elapsed().unwrap() < Duration::from_secs(3) {
        let bytes: Vec<u8> = (0..1_000_000 + number).map(|at| (at * number / 7) as u8).collect();
        store.put(&key(&format!("containers/{number:05}")), &bytes).unwrap();
        let name = key(&format!("outcomes/{number:05}"));
        assert_eq!(store.decide(&name, &number.to_le_bytes()).unwrap(), number.to_le_bytes());
        assert!(store.get(&key(&format!("containers/{number:05}"))).unwrap() == bytes);
        number += 1;
    }
    assert!(number > 3, "{number}");
    let mut names = 0;
    let each = &mut |_: &str| {
        names += 1;
        Ok(())
    };
    store.list_names("", each).unwrap();
    assert_eq!(names, 2 * number);
}

/// A server that was there is waited for when it restarts.
#[test]
fn a_server_that_was_there_is_waited_for() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let (script, down) = (root.path().join("server"), root.path().join("down"));
    let body = format!(
        "#!/bin/sh\n[ ! -e {0} ] || {{ echo 'Connection refused' >&2; exit 255; }}\n\
         exec timeout -s KILL 0.5 {server}\n",
        down.display()
    );
    fs::write(&script, body).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let store = at(&script.display().to_string(), &root.path().join("s"));
    store.claim().unwrap();
    fs::write(&down, "").unwrap();
    std::thread::sleep(Duration::from_millis(700));
    std::thread::scope(|scope| {
        let put = scope.spawn(|| store.put(&key("a"), b"x"));
        std::thread::sleep(Duration::from_secs(2));
        fs::remove_file(&down).unwrap();
        put.join().unwrap().unwrap();
    });
    assert_eq!(store.get(&key("a")).unwrap(), b"x");
}

#[test]
fn what_is_wrong_with_the_program_is_said_and_not_tried_for_ever() {
    let root = tempfile::tempdir().unwrap();
    let script = root.path().join("ssh");
    let failing = |text: &str| {
        let count = root.path().join("count");
        let _ = fs::remove_file(&count);
        let body = format!("#!/bin/sh\necho x >>{}\n{text}\n", count.display());
        fs::write(&script, body).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let place = onefold_remote::SftpLocation {
            user: None,
            host: "host".into(),
            port: None,
            path: "/x".into(),
        };
        let command = script.display().to_string();
        // On a busy machine a script may take its time to begin.
        let patience = Patience { answer: Duration::from_secs(5), ..super::patience() };
        let store = SftpStore::connect(&place, Some(&command), patience).unwrap();
        let error = store.open().unwrap_err();
        let again = store.open().unwrap_err();
        assert_eq!(error.kind(), again.kind(), "{again}");
        (error, fs::read_to_string(&count).unwrap().lines().count())
    };
    let (error, tries) = failing("echo 'Host key verification failed.' >&2; exit 255");
    assert_eq!((error.kind(), tries), (ErrorKind::NotPermitted, 1), "{error}");
    assert!(error.to_string().contains("by hand"), "{error}");
    let (error, tries) = failing("echo 'u@h: Permission denied (publickey).' >&2; exit 255");
    assert_eq!((error.kind(), tries), (ErrorKind::NotPermitted, 1), "{error}");
    assert!(error.to_string().contains("Permission denied (publickey)"), "{error}");
    let (error, tries) =
        failing("echo 'connect to host h port 22: Connection refused' >&2; exit 255");
    assert_eq!((error.kind(), tries), (ErrorKind::Unavailable, 1), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let (error, tries) = failing("echo 'Connection closed by remote host' >&2; exit 255");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("closed by") && tries > 2, "{tries}: {error}");
    // What speaks, but no SFTP.
    let (error, _) = failing("echo 'Welcome to this machine, and good luck'; sleep 9");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("does not speak SFTP"), "{error}");
    let place = onefold_remote::SftpLocation {
        user: None,
        host: "host".into(),
        port: None,
        path: "/x".into(),
    };
    let missing = SftpStore::connect(&place, Some("no-such-program"), Patience::USUAL).unwrap();
    let error = missing.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn so_many_connections_are_made_where_eight_write_and_one_where_one_reads() {
    let Some(server) = sftp_server::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let (script, count) = (root.path().join("server"), root.path().join("count"));
    let body = format!("#!/bin/sh\necho x >>{}\nexec {server}\n", count.display());
    fs::write(&script, body).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let made = || fs::read_to_string(&count).unwrap().lines().count();
    let store = at(&script.display().to_string(), &root.path().join("s"));
    store.claim().unwrap();
    store.put(&key("config"), b"x").unwrap();
    std::thread::scope(|scope| {
        for number in 0..2 * CONNECTIONS_MAX {
            let name = key(&format!("containers/{number}"));
            scope.spawn(|| store.put(&{ name }, &vec![7; 8 << 20]).unwrap());
        }
    });
    let writing = made();
    assert!((2..=CONNECTIONS_MAX).contains(&writing), "{writing}");
    drop(store);
    let store = at(&script.display().to_string(), &root.path().join("s"));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(store.get(&key("config")).unwrap(), b"x"));
        }
    });
    assert_eq!(made(), writing + 1);
}
