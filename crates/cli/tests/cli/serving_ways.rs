//! Ways on which what a client proves itself by could go elsewhere: proxies of the environment,
//! servers that send on, and files that others can read.

use crate::collecting::random_bytes;
use crate::full_devices::Mounted;
use crate::serving::{INIT, Server, prepared, run};
use crate::serving_requests::Asking;
use crate::support::{HANG, Run, Sandbox, within};
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

/// Somebody who listens, and must not be asked.
struct Stranger(TcpListener);

impl Stranger {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    #[track_caller]
    fn was_not_asked(&self, what: &str) {
        let asked = self.0.accept();
        assert!(asked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{what}");
    }
}

#[test]
fn r137_what_goes_to_this_machine_goes_by_no_proxy() {
    let (sandbox, token) = prepared(&["store"]);
    let server = Server::start(&sandbox, &["--listen", "127.0.0.1:0", "--plain", "store"]);
    let (store, stranger) = (server.store("store"), Stranger::new());
    run(&sandbox, &store, &token, &INIT).expect(0);
    let proxy = format!("http://127.0.0.1:{}", stranger.port());
    for host in ["127.0.0.1", "localhost"] {
        let store = store.replace("127.0.0.1", host);
        for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            let mut command = sandbox.command(&["snapshots"]);
            command.env("ONEFOLD_REPOSITORY", &store).env("ONEFOLD_TOKEN", &token);
            command.env(variable, &proxy);
            let ran = sandbox.run_command(command);
            stranger.was_not_asked(variable);
            ran.expect(0);
        }
    }
}

/// Answers whoever asks that what he wants is elsewhere.
fn sends_to(place: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = move |stream: TcpStream| {
        let mut reader = BufReader::new(&stream);
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            if std::mem::take(&mut line) == "\r\n" {
                let head = format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {place}\r\n");
                let _ = (&stream).write_all(format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            thread::spawn(move || answer(stream.unwrap()));
        }
    });
    port
}

#[test]
fn r137_no_store_is_followed_to_where_a_server_sends() {
    let (sandbox, stranger) = (Sandbox::empty(), Stranger::new());
    let place = format!("http://localhost:{}", stranger.port());
    let port = sends_to(format!("{place}/bucket/config?secret"));
    let here = format!("http://127.0.0.1:{port}");
    let variables = [
        ("ONEFOLD_TOKEN", "secret"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_SESSION_TOKEN", "secret"),
        ("GOOGLE_ACCESS_TOKEN", "secret"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
    ];
    for store in [
        format!("{here}/store"),
        format!("s3://bucket/p?endpoint={here}"),
        format!("gs://bucket/p?endpoint={here}"),
        format!("az://bucket/p?account=account&endpoint={here}/account"),
    ] {
        let mut command = sandbox.command(&["snapshots"]);
        command.envs(variables).env("ONEFOLD_REPOSITORY", &store);
        let Run { code, stderr, .. } = sandbox.run_command(command);
        stranger.was_not_asked(&store);
        assert_eq!(code, 1, "{store}: {stderr}");
        assert!(stderr.contains(&place) && !stderr.contains("secret"), "{store}: {stderr}");
    }
}

#[test]
fn r135_no_answer_tells_where_a_store_lies() {
    let asking = Asking::new();
    let root = asking.sandbox.path("").display().to_string();
    let create = "If-None-Match: *\r\n";
    assert_eq!(asking.ask("PUT /store/a", create, b"bytes").status, 200);
    std::os::unix::fs::symlink("/nowhere", asking.sandbox.path("store/link")).unwrap();
    for request in [
        "GET /store/none",
        "GET /store/none/deeper",
        "GET /store/a/deeper",
        "PUT /store/a/deeper",
        "GET /store/link",
        "PUT /store/link/deeper",
        "DELETE /store/link",
    ] {
        let answer = asking.ask(request, create, b"x");
        assert!(answer.status >= 400, "{request}: {}", answer.head);
        assert!(answer.body.contains("<Message>"), "{request}: {}", answer.body);
        assert!(!answer.body.contains(root.trim_end_matches('/')), "{request}: {}", answer.body);
    }
}

#[test]
fn r135_a_disk_of_the_server_that_is_full_is_told_as_that() {
    let (sandbox, token) = prepared(&[]);
    let device = Mounted::new("tmpfs", 8 << 20, &sandbox.path("image"), &sandbox.path("device"));
    let _device = match device {
        Ok(device) => device,
        Err(why) => return eprintln!("SKIPPED: a full disk of a server was not tested: {why}"),
    };
    fs::create_dir(sandbox.path("device/store")).unwrap();
    let server = Server::start(&sandbox, &["--listen", "127.0.0.1:0", "--plain", "device/store"]);
    let name = server.store("store");
    run(&sandbox, &name, &token, &INIT).expect(0);
    sandbox.write("source/larger", &random_bytes(1, 20_000_000));
    let said = run(&sandbox, &name, &token, &["backup", "source"]).expect(1).stderr;
    assert!(said.contains("the server's disk is full"), "{said}");
    assert!(said.contains("'forget --final' and 'gc'"), "{said}");
    fs::remove_file(sandbox.path("source/larger")).unwrap();
    fs::remove_file(sandbox.path("source/large")).unwrap();
    run(&sandbox, &name, &token, &["gc", "--wait", "0s", "--allow-empty"]).expect(0);
    run(&sandbox, &name, &token, &["backup", "source"]).expect(0);
}

#[test]
fn r136_a_token_goes_to_a_file_that_only_its_owner_reads() {
    let sandbox = Sandbox::empty();
    let add = |name: &str, file: &str| {
        let rights = ["client", "add", name, "--clients", "clients.toml", "--rights", "read"];
        sandbox.run(&[&rights[..], &["--token-file", file]].concat())
    };
    let said = add("laptop", "laptop.token").expect(0).stdout;
    assert!(said.contains("laptop.token") && !said.contains("onefold-"), "{said}");
    let token = fs::read_to_string(sandbox.path("laptop.token")).unwrap();
    assert!(token.starts_with("onefold-") && token.ends_with('\n'), "{token}");
    let mode = fs::metadata(sandbox.path("laptop.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // What is there stays, and so do the clients.
    let clients = fs::read(sandbox.path("clients.toml")).unwrap();
    add("other", "laptop.token").expect(1);
    add("laptop", "again.token").expect(1);
    add("other", "nowhere/token").expect(1);
    assert_eq!(fs::read_to_string(sandbox.path("laptop.token")).unwrap(), token);
    assert_eq!(fs::read(sandbox.path("clients.toml")).unwrap(), clients);
    assert!(!sandbox.path("again.token").exists());
    fs::create_dir(sandbox.path("store")).unwrap();
    let server = Server::start(&sandbox, &["--listen", "127.0.0.1:0", "--plain", "store"]);
    let mut command = sandbox.command(&["snapshots"]);
    command
        .env("ONEFOLD_REPOSITORY", server.store("store"))
        .env("ONEFOLD_TOKEN_FILE", sandbox.path("laptop.token"));
    sandbox.run_command(command).expect(10);
}

#[test]
fn r136_a_certificate_of_other_names_is_not_kept_without_a_word() {
    let (sandbox, _) = prepared(&["store"]);
    let names = |names: &str| {
        let usual = ["--listen", "127.0.0.1:0", "--own-certificate", names, "store"];
        usual.map(str::to_owned)
    };
    let start = |given: &str| {
        let given = names(given);
        Server::start(&sandbox, &given.each_ref().map(String::as_str))
    };
    drop(start("127.0.0.1,backup.example"));
    let made = fs::read(sandbox.path("certificate.pem")).unwrap();
    drop(start("backup.example"));
    let mut arguments = vec!["serve".to_owned(), "--clients".to_owned(), "clients.toml".to_owned()];
    arguments.extend(names("other.example"));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let mut command = sandbox.command(&arguments);
    // One that starts does not end by itself.
    let ended = within(HANG, command.spawn().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("not for 'other.example'"), "{}", ended.stderr);
    assert_eq!(fs::read(sandbox.path("certificate.pem")).unwrap(), made);
}
