//! Machines that save through our own server at the same time: they tell each other what they
//! store, and nothing rests on that.

use crate::serving::{INIT, Server, client, prepared, run};
use crate::serving_requests::Asking;
use crate::support::Run;
use onefold_format::notice::NOTICE_PREFIXES_MAX;
use std::fs;
use std::path::Path;

const PLAIN: [&str; 4] = ["--listen", "127.0.0.1:0", "--plain", "store"];

fn stored_bytes(directory: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        bytes += if path.is_dir() { stored_bytes(&path) } else { path.metadata().unwrap().len() };
    }
    bytes
}

#[test]
fn what_machines_save_at_the_same_time_through_a_server_is_stored_once() {
    let (sandbox, all) = prepared(&["store"]);
    let server = Server::start(&sandbox, &PLAIN);
    let name = server.store("store");
    run(&sandbox, &name, &all, &INIT).expect(0);
    let mut bytes = vec![0_u8; 24_000_000];
    let mut state = 7_u64;
    for piece in bytes.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let mixed = (state ^ (state >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        piece.copy_from_slice(&mixed.to_le_bytes()[..piece.len()]);
    }
    sandbox.write("source/large", &bytes);
    let under_way: Vec<_> = ["one", "two", "three"]
        .into_iter()
        .map(|host| {
            let token = client(&sandbox, host, "read,append", &[]);
            let mut command = sandbox.command(&["backup", "source", "--host", host]);
            command.env("ONEFOLD_REPOSITORY", &name).env("ONEFOLD_TOKEN", token);
            command
        })
        .collect();
    // Clients are known to the server within a second.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let under_way: Vec<_> =
        under_way.into_iter().map(|mut command| command.spawn().unwrap()).collect();
    for backup in under_way {
        let backup = Run::of(backup.wait_with_output().unwrap());
        assert_eq!(backup.code, 0, "{}", backup.stderr);
    }
    let stored = stored_bytes(&sandbox.path("store/containers"));
    assert!((24_000_000..25_500_000).contains(&stored), "{stored} bytes are stored");
    run(&sandbox, &name, &all, &["check", "--read-data"]).expect(0);
    for host in ["one", "two", "three"] {
        let target = format!("restored-{host}");
        let restore = ["restore", "latest", "--host", host, "--target", &target];
        run(&sandbox, &name, &all, &restore).expect(0);
        let restored = fs::read(sandbox.path(&target).join("source/large")).unwrap();
        assert!(restored == bytes, "{host}");
    }
}

/// Also NOTICE_PREFIXES_MAX: with one more it is refused.
#[test]
fn what_is_told_is_told_by_whoever_may_append_and_bounded() {
    let asking = Asking::new();
    let name = "01".repeat(16);
    let tell = format!("PUT /store/tmp/notices/claims/{name}");
    let most = vec![7; 8 * NOTICE_PREFIXES_MAX];
    let told = asking.ask(&tell, "", &most);
    assert_eq!(told.status, 200, "{}", told.head);
    assert!(told.head.to_lowercase().contains("etag: \"1"), "{}", told.head);
    assert_eq!(asking.ask(&tell, "", &[&most[..], &[7; 8]].concat()).status, 400);
    assert_eq!(asking.ask(&tell, "", &[7; 9]).status, 400);
    let heard = asking.ask("GET /store/tmp/notices/claims/0", "", b"");
    assert_eq!(heard.status, 200);
    assert!(heard.body.len() >= most.len());
    assert_eq!(asking.ask("GET /store/tmp/notices/news/0", "", b"").body, "");
    for (request, status) in [
        ("GET /store/tmp/notices/claims/x", 404),
        ("GET /store/tmp/notices/other/0", 404),
        ("GET /store/tmp/notices/claims", 404),
        ("PUT /store/tmp/notices/claims/0", 404),
        ("DELETE /store/tmp/notices/claims/0", 405),
        ("HEAD /store/tmp/notices/claims/0", 405),
    ] {
        assert_eq!(asking.ask(request, "", b"").status, status, "{request}");
    }
    let reader = client(&asking.sandbox, "reader", "read", &[]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let headers = "Content-Length: 0\r\n";
    for request in [&tell, "GET /store/tmp/notices/claims/0"] {
        assert_eq!(asking.ask_as(&reader, request, headers, b"").status, 403, "{request}");
    }
    assert_eq!(asking.ask_as("", &tell, headers, b"").status, 401);
    assert_eq!(asking.files(), [""; 0], "nothing of it is on the disk");
}
