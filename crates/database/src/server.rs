//! Real databases in directories of their own, for tests.
//!
//! PostgreSQL is started where it is installed, each on a port of its own. Cassandra is started by
//! the script in `examples/engines` where `CASSANDRA_LIB` says in which directory its jars are; it
//! listens where it always does, so there is one at a time.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where distributions keep it that is not on the path.
const DIRECTORIES: [&str; 2] = ["/usr/local/bin", "/usr/lib/postgresql"];
/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// The password of its user.
pub const PASSWORD: &str = "only for tests";

/// A server that ends with this.
pub struct PostgresServer {
    directory: TempDir,
    port: u16,
    program: PathBuf,
    child: Child,
    starts: usize,
}

impl PostgresServer {
    /// Starts one; `None` where PostgreSQL is not installed, which is said.
    ///
    /// # Panics
    ///
    /// If it is installed and does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("SKIPPED: PostgreSQL is not installed (initdb, postgres)");
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("data");
        let password = directory.path().join("password");
        std::fs::write(&password, PASSWORD).expect("the password");
        open_to_all(directory.path());
        let made = as_nobody(&programs.join("initdb"))
            .args(["--auth=scram-sha-256", "--username=onefold", "--no-sync", "--encoding=UTF8"])
            .arg(format!("--pwfile={}", password.display()))
            .arg("--pgdata")
            .arg(&data)
            .output()
            .expect("initdb");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let program = programs.join("postgres");
        let child = run(&program, &directory, port);
        let mut server = Self { directory, port, program, child, starts: 1 };
        server.wait();
        Some(server)
    }

    /// Its name, for the user that may do everything.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://onefold@127.0.0.1:{}/postgres", self.port)
    }

    /// Kills it with all that it has under way, and starts it again.
    pub fn kill_and_start(&mut self) {
        self.kill();
        self.child = run(&self.program, &self.directory, self.port);
        self.starts += 1;
        self.wait();
    }

    /// Kills it with all that it has under way.
    pub fn kill(&mut self) {
        // The servers of connections end by themselves once the first one is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let stale = self.directory.path().join("data").join("postmaster.pid");
        let until = Instant::now() + START_MAX;
        while stale.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(200));
            let _ = std::fs::remove_file(&stale);
        }
    }

    fn wait(&mut self) {
        let until = Instant::now() + START_MAX;
        while Instant::now() < until {
            let log = std::fs::read_to_string(self.directory.path().join("log"));
            // It says so once for each start.
            let ready = log
                .is_ok_and(|log| log.matches("ready to accept connections").count() >= self.starts);
            if ready {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.directory.path().join("log"));
        panic!("PostgreSQL did not start: {}", log.unwrap_or_default());
    }
}

/// One node of Cassandra, or three that keep three copies, which end with this.
pub struct CassandraServer {
    directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Held by the one that runs.
static ALONE: Mutex<()> = Mutex::new(());

/// The keyspace that tests use.
const KEYSPACE: &str = "onefold";

impl CassandraServer {
    /// Starts it; `None` where that cannot be done, which is said.
    ///
    /// # Panics
    ///
    /// If it is there and does not start.
    #[must_use]
    pub fn start(nodes: u32) -> Option<Self> {
        if std::env::var_os("CASSANDRA_LIB").is_none() {
            eprintln!("SKIPPED: Cassandra is not installed (CASSANDRA_LIB names no jars)");
            return None;
        }
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let server = Self { directory: tempfile::tempdir().expect("a directory"), _alone };
        server.tell(&[&nodes.to_string()]);
        Some(server)
    }

    /// Its name; the keyspace is there once [`Self::make_keyspace`] has made it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("cassandra://127.0.0.1/{KEYSPACE}")
    }

    /// Makes the keyspace, of which so many copies are kept.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn make_keyspace(&self, copies: u32) {
        self.run(&format!(
            "CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"
        ));
    }

    fn run(&self, text: &str) {
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        let done = runtime.block_on(async {
            let session = scylla::client::session_builder::SessionBuilder::new()
                .known_node("127.0.0.1:9042")
                .build()
                .await
                .expect("the server");
            session.query_unpaged(text, ()).await
        });
        done.expect("the statement");
    }

    /// Adds a row of news as a machine would whose clock says this.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn add_news(&self, store: [u8; 16], added_ms: i64, container: [u8; 16]) {
        let hex =
            |bytes: [u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let text = format!(
            "INSERT INTO {KEYSPACE}.onefold_news (store, minute, added, container, prefixes) \
             VALUES (0x{}, {}, {added_ms}, 0x{}, 0x)",
            hex(store),
            added_ms / 60_000,
            hex(container)
        );
        self.run(&text);
    }

    /// Kills a node with all that it has under way.
    pub fn kill(&self, node: u32) {
        self.tell(&["kill", &node.to_string()]);
    }

    /// Starts one again.
    pub fn start_again(&self, node: u32) {
        self.tell(&["start", &node.to_string()]);
    }

    fn tell(&self, words: &[&str]) {
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples/engines/cassandra.sh");
        let done = Command::new("sh")
            .arg(script)
            .arg(self.directory.path())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .expect("the script");
        assert!(done.success(), "Cassandra: {words:?}");
    }
}

impl Drop for CassandraServer {
    fn drop(&mut self) {
        for node in 1..=3_u32 {
            if self.directory.path().join(format!("node{node}")).exists() {
                self.kill(node);
            }
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn programs() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").into_iter();
    let on_path = on_path.flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let elsewhere = DIRECTORIES.iter().flat_map(|directory| {
        let versions = std::fs::read_dir(directory).into_iter().flatten().flatten();
        versions.map(|version| version.path().join("bin"))
    });
    let mut all = on_path.chain(elsewhere);
    all.find(|directory| ["initdb", "postgres"].iter().all(|name| directory.join(name).is_file()))
}

/// PostgreSQL does not run for root.
fn as_nobody(program: &std::path::Path) -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    });
    match is_root {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
            command
        }
        false => Command::new(program),
    }
}

fn open_to_all(directory: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory, all).expect("rights of the directory");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn run(program: &std::path::Path, directory: &TempDir, port: u16) -> Child {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(directory.path().join("log"))
        .expect("a log");
    as_nobody(program)
        .arg("-D")
        .arg(directory.path().join("data"))
        .args(["-p", &port.to_string()])
        .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
        .args(["-c", "log_connections=off"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("postgres")
}
