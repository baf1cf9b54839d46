//! Stores in buckets that replace objects, beside a database that decides.

use crate::collecting::random_bytes;
use crate::support::{Run, Sandbox};
use onefold_database::database::DECIDE_MAX;
use onefold_database::server::{CassandraServer, PASSWORD, PostgresServer};
use onefold_remote::google_server::{GoogleServer, TOKEN};
use std::process::Stdio;

/// A bucket that replaces objects, a database, and a machine.
struct Machine<'a> {
    sandbox: Sandbox,
    bucket: &'a GoogleServer,
    database: String,
}

impl<'a> Machine<'a> {
    fn new(bucket: &'a GoogleServer, database: &str) -> Self {
        Self { sandbox: Sandbox::empty(), bucket, database: database.to_owned() }
    }

    fn store(&self) -> String {
        format!("{}&database={}", self.bucket.store("hosts"), self.database)
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.sandbox.command(arguments);
        command.env("ONEFOLD_REPOSITORY", self.store());
        command.env("GOOGLE_ACCESS_TOKEN", TOKEN).env("PGPASSWORD", PASSWORD);
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.sandbox.run_command(self.command(arguments))
    }

    fn init(&self) {
        self.run(&["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"]).expect(0);
    }

    /// A file that differs from others everywhere.
    fn write(&self, name: &str, seed: u64, bytes: usize) {
        self.sandbox.write(name, &random_bytes(seed, bytes));
    }
}

fn replacing() -> GoogleServer {
    let server = GoogleServer::start().unwrap();
    server.replace_objects();
    server
}

#[test]
fn a_bucket_that_replaces_objects_holds_a_store_beside_postgresql() {
    let Some(server) = PostgresServer::start() else { return };
    does_what_a_directory_does(&server.url());
}

#[test]
fn a_bucket_that_replaces_objects_holds_a_store_beside_cassandra() {
    let Some(server) = CassandraServer::start(1) else { return };
    server.make_keyspace(1);
    does_what_a_directory_does(&server.url());
}

fn does_what_a_directory_does(database: &str) {
    let bucket = replacing();
    let machine = Machine::new(&bucket, database);
    let run = |arguments: &[&str]| machine.run(arguments);
    // Without a database it cannot be one.
    let mut alone = machine.command(&["init"]);
    alone.env("ONEFOLD_REPOSITORY", bucket.store("alone"));
    let refused = machine.sandbox.run_command(alone).expect(1);
    assert!(refused.stderr.contains("cannot hold a store"), "{}", refused.stderr);
    machine.init();
    run(&["init"]).expect(1);
    machine.write("source/large", 1, 3_000_000);
    machine.sandbox.write("source/small", b"one");
    run(&["backup", "source"]).expect(0);
    machine.sandbox.write("source/small", b"two");
    machine.write("source/other", 2, 300_000);
    run(&["backup", "source"]).expect(0);
    run(&["restore", "latest", "-t", "restored"]).expect(0);
    assert!(machine.sandbox.path("restored").is_dir());
    run(&["diff", "latest~1", "latest"]).expect(0);
    run(&["check", "--read-data"]).expect(0);
    let info = run(&["--json", "info"]).expect(0).message("info");
    assert_eq!(
        (&info["decisions"], &info["place"]["conditional_put"]),
        (&"database".into(), &"no".into())
    );
    run(&["database", "fill"]).expect(0);
    run(&["forget", "latest~1", "--final"]).expect(0);
    run(&["gc"]).expect(0);
    run(&["check", "--read-data"]).expect(0);
    assert_eq!(run(&["--json", "snapshots"]).expect(0).messages("snapshot").len(), 1);
    // Filled anew it has forgotten what the collection deleted, and is asked as before.
    let filled = run(&["--json", "database", "fill"]).expect(0).message("filled");
    assert!(filled["generation"].as_i64().unwrap() > 1, "{filled}");
    let known = run(&["--json", "backup", "source", "--force"]).expect(0).message("summary");
    assert_eq!(known["chunks_new"], 0, "{known}");
}

#[test]
fn several_machines_fill_a_database_together() {
    let Some(server) = PostgresServer::start() else { return };
    let bucket = replacing();
    let machine = Machine::new(&bucket, &server.url());
    machine.init();
    machine.write("source/large", 1, 6_000_000);
    machine.run(&["backup", "source"]).expect(0);
    let alone = machine.run(&["--json", "database", "fill"]).expect(0).message("filled");
    let entries = alone["entries"].as_u64().unwrap();
    assert!(entries > 100, "{alone}");
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let mut command = machine.command(&["--json", "database", "fill", "--together"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut all = 0;
    for worker in workers {
        let output = worker.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let filled: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_ne!(filled["generation"], alone["generation"]);
        all += filled["entries"].as_u64().unwrap();
    }
    // One that comes when the others have ended begins another filling: all of it, then.
    assert!(all.is_multiple_of(entries), "{all} entries instead of {entries}");
    let known = machine.run(&["--json", "backup", "source", "--force"]).expect(0);
    assert_eq!(known.message("summary")["chunks_new"], 0);
}

#[test]
fn a_store_is_reached_as_it_was_made_or_only_read() {
    let Some(server) = PostgresServer::start() else { return };
    let bucket = replacing();
    let machine = Machine::new(&bucket, &server.url());
    machine.init();
    machine.sandbox.write("source/a", b"one");
    machine.run(&["backup", "source"]).expect(0);
    let run_on = |store: &str, arguments: &[&str]| {
        let mut command = machine.command(arguments);
        command.env("ONEFOLD_REPOSITORY", store);
        machine.sandbox.run_command(command)
    };
    let plain = bucket.store("hosts");
    for arguments in [&["backup", "source"][..], &["snapshots"], &["database", "fill"]] {
        let refused = run_on(&plain, arguments).expect(1);
        let told = refused.stderr.contains("database=") || refused.stderr.contains("cannot hold");
        assert!(told, "{arguments:?}: {}", refused.stderr);
    }
    // Reading asks no database: any name will do.
    let anywhere = format!("{plain}&database=postgres://127.0.0.1:1/x");
    run_on(&anywhere, &["snapshots"]).expect(0);
    run_on(&anywhere, &["restore", "latest", "-t", "restored"]).expect(0);
    let refused = run_on(&anywhere, &["backup", "source"]).expect(13);
    assert!(refused.stderr.contains("127.0.0.1:1"), "{}", refused.stderr);
    // A store that decides for itself has no use for one.
    let honest = GoogleServer::start().unwrap();
    let own = honest.store("own");
    run_on(&own, &["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"]).expect(0);
    let with = format!("{own}&database={}", server.url());
    for arguments in [&["backup", "source"][..], &["database", "register"]] {
        let refused = run_on(&with, arguments).expect(1);
        assert!(refused.stderr.contains("decides for itself"), "{}", refused.stderr);
    }
    for (name, word) in [
        ("mysql://host/x", "its kind is not known"),
        ("postgres://u:secret@host/x", "does not belong into a name"),
    ] {
        let refused = run_on(&format!("{plain}&database={name}"), &["backup", "source"]).expect(1);
        let is_right = refused.stderr.contains(word) && !refused.stderr.contains("secret");
        assert!(is_right, "{}", refused.stderr);
    }
}

#[test]
fn a_database_that_was_lost_is_replaced_by_another_one() {
    let Some(lost) = PostgresServer::start() else { return };
    let Some(other) = PostgresServer::start() else { return };
    let bucket = replacing();
    let mut machine = Machine::new(&bucket, &lost.url());
    machine.init();
    machine.sandbox.write("source/a", b"one");
    machine.run(&["backup", "source"]).expect(0);
    drop(lost);
    machine.database = other.url();
    let refused = machine.run(&["backup", "source"]).expect(1);
    assert!(refused.stderr.contains("database register"), "{}", refused.stderr);
    machine.run(&["--read-only", "database", "register"]).expect(1);
    machine.run(&["--json", "database", "register"]).expect(0).message("registered");
    machine.run(&["database", "register"]).expect(0);
    machine.sandbox.write("source/a", b"two");
    machine.run(&["backup", "source"]).expect(0);
    machine.run(&["forget", "latest~1", "--final"]).expect(0);
    machine.run(&["gc"]).expect(0);
    machine.run(&["check", "--read-data"]).expect(0);
    assert_eq!(machine.run(&["--json", "snapshots"]).expect(0).messages("snapshot").len(), 1);
}

/// One that was only thought to be lost still knows the store: machines that name it are refused.
#[test]
fn a_database_that_was_replaced_decides_nothing_any_more() {
    let Some(old) = PostgresServer::start() else { return };
    let Some(new) = PostgresServer::start() else { return };
    let bucket = replacing();
    let mut machine = Machine::new(&bucket, &old.url());
    machine.init();
    machine.sandbox.write("source/a", b"one");
    machine.database = new.url();
    machine.run(&["database", "register"]).expect(0);
    machine.run(&["backup", "source"]).expect(0);
    machine.database = old.url();
    let refused = machine.run(&["backup", "source"]).expect(1);
    assert!(refused.stderr.contains("another database does"), "{}", refused.stderr);
    // A plain name for the variable of TLS is known.
    let mut plain = machine.command(&["snapshots"]);
    plain.env("ONEFOLD_DATABASE_PLAIN", "true");
    let told = machine.sandbox.run_command(plain).expect(0);
    assert!(!told.stderr.contains("not known"), "{}", told.stderr);
}

/// Both sessions have begun before anything of the other one is there: only the database tells.
#[test]
fn what_another_machine_is_storing_is_not_stored_again() {
    let Some(server) = PostgresServer::start() else { return };
    let bucket = replacing();
    let (one, other) = (Machine::new(&bucket, &server.url()), Machine::new(&bucket, &server.url()));
    one.init();
    let there = |name: &str| bucket.objects().iter().filter(|(at, _)| at.contains(name)).count();
    let wait_for = |name: &str, count: usize| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while there(name) < count {
            assert!(std::time::Instant::now() < until, "no {name} arrives");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let begin = |machine: &Machine<'_>| {
        let mut command = machine.command(&["--json", "backup", "--stdin"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let bytes = random_bytes(7, 24 << 20);
    let (mut late, mut early) = (begin(&other), begin(&one));
    let mut to_late = late.stdin.take().unwrap();
    let mut to_early = early.stdin.take().unwrap();
    // Each has begun once it says that it is ready.
    wait_for("/ready-", 2);
    std::io::Write::write_all(&mut to_early, &bytes).unwrap();
    wait_for("containers/", 4);
    std::io::Write::write_all(&mut to_late, &bytes).unwrap();
    drop(to_late);
    let ended = Run::of(late.wait_with_output().unwrap()).expect(0);
    let new = ended.message("summary")["bytes_new"].as_u64().unwrap();
    assert!(new < (bytes.len() / 2) as u64, "{new} bytes were stored again");
    drop(to_early);
    Run::of(early.wait_with_output().unwrap()).expect(0);
    one.run(&["check", "--read-data"]).expect(0);
    for reference in ["latest", "latest~1"] {
        let restored = other.run(&["dump", reference, "stdin"]).expect(0);
        assert!(restored.stdout.len() > 1 << 20);
    }
}

/// What does not have to be asked is passed over with a warning; what has to be is waited for.
#[test]
fn a_database_that_goes_away_is_told_and_loses_nothing() {
    let Some(mut server) = PostgresServer::start() else { return };
    let bucket = replacing();
    let machine = Machine::new(&bucket, &server.url());
    machine.init();
    machine.write("source/a", 3, 20 << 20);
    machine.run(&["backup", "source"]).expect(0);
    let mut command = machine.command(&["backup", "--stdin"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut under_way = command.spawn().unwrap();
    let mut input = under_way.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &random_bytes(4, 12 << 20)).unwrap();
    server.kill();
    std::io::Write::write_all(&mut input, &random_bytes(5, 12 << 20)).unwrap();
    drop(input);
    // It commits once somebody says who was first.
    std::thread::sleep(std::time::Duration::from_secs(3));
    server.kill_and_start();
    let ended = Run::of(under_way.wait_with_output().unwrap()).expect(0);
    assert!(ended.stderr.contains("may be stored twice"), "{}", ended.stderr);
    machine.run(&["check", "--read-data"]).expect(0);
    assert_eq!(machine.run(&["--json", "snapshots"]).expect(0).messages("snapshot").len(), 2);
}

/// A decision is asked for as long as is said, and not longer: nothing is saved then, and nothing
/// that was is lost.
#[test]
fn a_database_that_stays_away_ends_a_backup() {
    let Some(mut server) = PostgresServer::start() else { return };
    let bucket = replacing();
    let machine = Machine::new(&bucket, &server.url());
    machine.init();
    machine.sandbox.write("source/a", b"one");
    machine.run(&["backup", "source"]).expect(0);
    let mut command = machine.command(&["backup", "--stdin"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut under_way = command.spawn().unwrap();
    let mut input = under_way.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &random_bytes(4, 12 << 20)).unwrap();
    // Whatever it asks for the first decision in vain, it does so after this.
    let began = std::time::Instant::now();
    server.kill();
    drop(input);
    let ended = Run::of(under_way.wait_with_output().unwrap()).expect(13);
    let took = began.elapsed();
    // The decision, and the last look of whoever gives the session up.
    assert!(took >= DECIDE_MAX && took < DECIDE_MAX * 10, "{took:?}: {}", ended.stderr);
    assert!(ended.stderr.contains("postgres://127.0.0.1"), "{}", ended.stderr);
    assert_eq!(machine.run(&["--json", "snapshots"]).expect(0).messages("snapshot").len(), 1);
    server.kill_and_start();
    machine.run(&["backup", "source", "--force"]).expect(0);
    machine.run(&["check", "--read-data"]).expect(0);
}
