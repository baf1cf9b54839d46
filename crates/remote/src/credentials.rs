//! Credentials that a command prints, as a profile names it (`credential_process`).
//!
//! The command is a line of the user's own configuration. It is taken apart at blanks, double
//! quotes keep what belongs together, and it is run without a shell: neither variables nor `~` mean
//! anything in it. It prints one JSON object of `"Version": 1` with `AccessKeyId`,
//! `SecretAccessKey` and, where they do not last, `SessionToken` and `Expiration`.
//!
//! # Algorithm
//! What it printed is used until [`RENEWED_BEFORE`] before it expires; then the command is run
//! again, at most once in [`RENEWED_EVERY`] as long as what there is holds. If it fails while what
//! there is holds, that is used on.
//!
//! # Invariants
//! - What is secret is neither shown nor stored. What the command says on its standard error is
//!   shown only if it fails.
//! - The command gets no input, is ended if it takes longer than [`PROCESS_MAX`] or prints more
//!   than [`PRINTED_MAX_BYTES`], and is not told the variables that [`Surroundings`] names as
//!   secret.
//!
//! # Concurrency
//! One run at a time; all who need credentials wait for it.
//!
//! [`Surroundings`]: crate::settings::Surroundings

use crate::failure::Refusal;
use async_trait::async_trait;
use futures_util::future::try_join;
use jiff::Timestamp;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use onefold_types::ErrorKind;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::Mutex;

/// How long the command may take: somebody may be asked something by it.
pub const PROCESS_MAX: Duration = Duration::from_secs(60);
/// What it may print.
pub const PRINTED_MAX_BYTES: usize = 64 << 10;
/// So long before credentials expire new ones are asked for.
pub const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// No more often than that, as long as the old ones hold.
pub const RENEWED_EVERY: Duration = Duration::from_secs(60);
/// Of what it says so much is shown.
const SHOWN_MAX_CHARS: usize = 200;

/// Where credentials come from; never what they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CredentialSource {
    /// These variables.
    Variables(&'static str),
    /// The file of an account.
    File(PathBuf),
    /// Keys of this profile of the shared files.
    Profile(String),
    /// The command of this profile.
    Process(String),
    /// A token in a file, for a role: as these variables say.
    WebIdentity(&'static str),
    /// The role of a container, as its variables say.
    Container,
    /// The role of the machine, which is asked for it.
    Machine,
    /// None: requests are not signed.
    Unsigned,
}

impl CredentialSource {
    /// A word for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Variables(_) => "variables",
            Self::File(_) => "file",
            Self::Profile(_) => "profile",
            Self::Process(_) => "process",
            Self::WebIdentity(_) => "web-identity",
            Self::Container => "container",
            Self::Machine => "machine",
            Self::Unsigned => "none",
        }
    }
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variables(names) | Self::WebIdentity(names) => f.write_str(names),
            Self::File(path) => write!(f, "the file '{}'", path.display()),
            Self::Profile(name) => write!(f, "keys of the profile '{name}'"),
            Self::Process(name) => write!(f, "credential_process of the profile '{name}'"),
            Self::Container => f.write_str("the role of this container"),
            Self::Machine => f.write_str("the role of this machine"),
            Self::Unsigned => f.write_str("none: requests are not signed"),
        }
    }
}

/// The command of a profile, and what it printed last.
pub struct ProcessCredentials {
    profile: String,
    words: Vec<String>,
    hidden: Vec<String>,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    credential: Arc<AwsCredential>,
    expires: Option<Timestamp>,
    since: Instant,
}

impl Kept {
    /// Whether it expires within so long.
    fn expires_within(&self, time: Duration) -> bool {
        let left = |expires: Timestamp| expires.duration_since(Timestamp::now());
        self.expires.is_some_and(|expires| left(expires).as_secs_f64() <= time.as_secs_f64())
    }

    fn is_good(&self) -> bool {
        !self.expires_within(RENEWED_BEFORE)
            || (!self.expires_within(Duration::ZERO) && self.since.elapsed() < RENEWED_EVERY)
    }
}

/// What the command prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u64,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl fmt::Debug for ProcessCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credential_process of '{}'", self.profile)
    }
}

impl ProcessCredentials {
    /// The command line of a profile; `hidden` are variables that it is not told.
    ///
    /// # Errors
    ///
    /// `Invalid` if it cannot be taken apart.
    pub fn new(profile: &str, line: &str, hidden: &[String]) -> onefold_types::Result<Self> {
        let words = shlex::split(line).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| {
            onefold_types::Error::invalid(format!(
                "'credential_process' of the profile '{profile}' is no command line: a quote is \
                 not closed, or there is nothing in it"
            ))
        })?;
        let (profile, hidden) = (profile.to_owned(), hidden.to_vec());
        Ok(Self { profile, words, hidden, kept: Mutex::default() })
    }

    fn refused(&self, kind: ErrorKind, why: &str) -> Refusal {
        Refusal::new(kind, format!("'credential_process' of the profile '{}' {why}", self.profile))
    }

    async fn run(&self) -> Result<Kept, Refusal> {
        let cannot = |error: std::io::Error| {
            self.refused(ErrorKind::Invalid, &format!("cannot be run: {error}"))
        };
        let [program, arguments @ ..] = self.words.as_slice() else {
            return Err(self.refused(ErrorKind::Invalid, "is empty"));
        };
        let mut command = Command::new(program);
        for name in &self.hidden {
            command.env_remove(name);
        }
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(cannot)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let done = async {
            let (printed, said) = try_join(read(stdout), read(stderr)).await?;
            Ok((printed, said, child.wait().await?))
        };
        let done = tokio::time::timeout(PROCESS_MAX, done).await;
        let late = || {
            let why = format!("was not done within {PROCESS_MAX:.0?}, and was ended");
            self.refused(ErrorKind::Unavailable, &why)
        };
        let (printed, said, status) = done.map_err(|_| late())?.map_err(cannot)?;
        // Who is not listened to any more may fail for that.
        if !status.success() && printed.len() <= PRINTED_MAX_BYTES {
            let said = String::from_utf8_lossy(&said);
            let said: String = said.chars().take(SHOWN_MAX_CHARS).collect();
            let why = format!("failed ({status}): {}", said.trim());
            return Err(self.refused(ErrorKind::NotPermitted, &why));
        }
        self.understand(&printed)
    }

    fn understand(&self, printed: &[u8]) -> Result<Kept, Refusal> {
        let wrong = |why: &str| self.refused(ErrorKind::Invalid, why);
        if printed.len() > PRINTED_MAX_BYTES {
            return Err(wrong(&format!("prints more than {} KiB", PRINTED_MAX_BYTES >> 10)));
        }
        // What is wrong is not told by its text, which may be a secret.
        let printed: Printed = serde_json::from_slice(printed).map_err(|error| {
            wrong(&format!(
                "does not print credentials as JSON (line {}, column {}): it takes 'Version', \
                 'AccessKeyId', 'SecretAccessKey', and may have 'SessionToken', 'Expiration'",
                error.line(),
                error.column()
            ))
        })?;
        if printed.version != 1 {
            let why = format!("prints 'Version' {}, and only 1 is known", printed.version);
            return Err(wrong(&why));
        }
        let expires = printed.expiration.filter(|expires| !expires.is_empty());
        let expires = expires.map(|expires| expires.parse::<Timestamp>()).transpose();
        let kept = Kept {
            credential: Arc::new(AwsCredential {
                key_id: printed.access_key_id,
                secret_key: printed.secret_access_key,
                token: printed.session_token.filter(|token| !token.is_empty()),
            }),
            expires: expires.map_err(|_| wrong("prints an 'Expiration' that is no time"))?,
            since: Instant::now(),
        };
        match kept.expires_within(Duration::ZERO) {
            true => Err(self.refused(
                ErrorKind::NotPermitted,
                "prints credentials that have expired: see its own log-in",
            )),
            false => Ok(kept),
        }
    }
}

/// Reads what a command prints, and one byte more than it may.
async fn read(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(PRINTED_MAX_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

#[async_trait]
impl CredentialProvider for ProcessCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_good()) {
            return Ok(Arc::clone(&kept.credential));
        }
        match (self.run().await, &mut *kept) {
            (Ok(new), kept) => Ok(Arc::clone(&kept.insert(new).credential)),
            (Err(_), Some(old)) if !old.expires_within(Duration::ZERO) => {
                old.since = Instant::now();
                Ok(Arc::clone(&old.credential))
            }
            (Err(refusal), _) => Err(refusal.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::failed;
    use crate::service::Service;
    use std::fs;
    use std::path::Path;
    use tokio::runtime::{Builder, Runtime};

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// A command that notes each run, and prints what is in the file `printed`.
    fn command(place: &Path) -> ProcessCredentials {
        let script = place.join("a command.sh");
        let text = format!(
            "echo \"$1 ${{SECRET-none}} ${{PLAIN-none}}\" >> '{0}/runs'\nexec cat '{0}/printed'\n",
            place.display()
        );
        fs::write(&script, text).unwrap();
        let line = format!("/bin/sh \"{}\" \"$HOME and ~\"", script.display());
        ProcessCredentials::new("p", &line, &["SECRET".to_owned()]).unwrap()
    }

    fn runs(place: &Path) -> Vec<String> {
        let runs = fs::read_to_string(place.join("runs")).unwrap_or_default();
        runs.lines().map(str::to_owned).collect()
    }

    fn print(place: &Path, key: &str, expires_in: Option<i64>) {
        let at = |seconds| Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        let expires = expires_in.map(|it| format!(", \"Expiration\": \"{}\"", at(it)));
        let text = format!(
            "{{\"Version\": 1, \"AccessKeyId\": \"{key}\", \"SecretAccessKey\": \"s\", \
             \"SessionToken\": \"t\"{}}}",
            expires.unwrap_or_default()
        );
        fs::write(place.join("printed"), text).unwrap();
    }

    fn key(runtime: &Runtime, credentials: &ProcessCredentials) -> String {
        runtime.block_on(credentials.get_credential()).unwrap().key_id.clone()
    }

    fn refusal(runtime: &Runtime, credentials: &ProcessCredentials) -> onefold_types::Error {
        let answer = runtime.block_on(credentials.get_credential()).unwrap_err();
        failed(Service::S3, "reading", &answer)
    }

    #[test]
    fn a_command_is_run_without_a_shell_once_and_again_when_its_answer_expires() {
        let (place, runtime) = (tempfile::tempdir().unwrap(), runtime());
        let place = place.path();
        let credentials = command(place);
        print(place, "one", None);
        assert_eq!(key(&runtime, &credentials), "one");
        print(place, "two", None);
        assert_eq!(key(&runtime, &credentials), "one", "it does not expire");
        assert_eq!(runs(place), ["$HOME and ~ none none"]);
        let before = RENEWED_BEFORE.as_secs() as i64;
        let credentials = command(place);
        print(place, "three", Some(before + 60));
        assert_eq!(key(&runtime, &credentials), "three");
        assert_eq!(key(&runtime, &credentials), "three");
        assert_eq!(runs(place).len(), 2);
        // It expires soon, and is asked for again no more often than every minute.
        let credentials = command(place);
        print(place, "four", Some(before - 60));
        assert_eq!(key(&runtime, &credentials), "four");
        print(place, "five", Some(before + 60));
        assert_eq!(key(&runtime, &credentials), "four");
        let back = |credentials: &ProcessCredentials| {
            let mut kept = credentials.kept.blocking_lock();
            kept.as_mut().unwrap().since -= RENEWED_EVERY;
        };
        back(&credentials);
        assert_eq!(key(&runtime, &credentials), "five");
        assert_eq!(runs(place).len(), 4);
        // What holds is used on if there is nothing newer; what has expired is not.
        let credentials = command(place);
        print(place, "six", Some(before - 60));
        assert_eq!(key(&runtime, &credentials), "six");
        fs::remove_file(place.join("printed")).unwrap();
        back(&credentials);
        assert_eq!(key(&runtime, &credentials), "six");
        credentials.kept.blocking_lock().as_mut().unwrap().expires = Some(Timestamp::now());
        let error = refusal(&runtime, &credentials);
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
        assert!(error.to_string().contains("'p' failed (exit status: 1): cat: "), "{error}");
    }

    #[test]
    fn a_command_that_takes_longer_than_it_may_is_ended() {
        // Time stands still but for what is waited for.
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        let (place, runtime) = (tempfile::tempdir().unwrap(), runtime.unwrap());
        let waits = place.path().join("printed");
        fs::write(&waits, "").unwrap();
        let line = format!("tail -f \"{}\"", waits.display());
        let credentials = ProcessCredentials::new("p", &line, &[]).unwrap();
        let (began, ended) = runtime.block_on(async {
            let began = tokio::time::Instant::now();
            let answer = credentials.get_credential().await.unwrap_err();
            let error = failed(Service::S3, "reading", &answer);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("was not done within 60s"), "{error}");
            (began, tokio::time::Instant::now())
        });
        assert!(ended - began >= PROCESS_MAX);
        // Signals are obeyed when they are.
        let name = waits.display().to_string();
        let is_running = || {
            let all = fs::read_dir("/proc").unwrap().filter_map(|it| it.ok());
            let lines = all.filter_map(|it| fs::read_to_string(it.path().join("cmdline")).ok());
            lines.filter(|line| line.starts_with("tail")).any(|line| line.contains(&name))
        };
        let until = Instant::now() + Duration::from_secs(10);
        while is_running() {
            assert!(Instant::now() < until, "it still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn what_a_command_prints_is_bounded_and_understood_or_refused() {
        let (place, runtime) = (tempfile::tempdir().unwrap(), runtime());
        let place = place.path();
        let fits = format!("{{}}{}", " ".repeat(PRINTED_MAX_BYTES - 2));
        let long = format!("{fits} ");
        for (printed, kind, word) in [
            ("secret!", ErrorKind::Invalid, "does not print credentials as JSON"),
            (fits.as_str(), ErrorKind::Invalid, "does not print credentials as JSON"),
            (long.as_str(), ErrorKind::Invalid, "prints more than 64 KiB"),
            (
                "{\"Version\":2,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"secret!\"}",
                ErrorKind::Invalid,
                "'Version' 2",
            ),
        ] {
            fs::write(place.join("printed"), printed).unwrap();
            let error = refusal(&runtime, &command(place));
            let said = error.to_string();
            assert!(error.kind() == kind && said.contains(word), "{said}");
            assert!(!said.contains("secret!"), "{said}");
        }
        print(place, "old", Some(-1));
        let error = refusal(&runtime, &command(place));
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
        for (line, word) in [("/no/such/program", "cannot be run"), ("", ""), ("a \"b", "")] {
            match ProcessCredentials::new("p", line, &[]) {
                Ok(credentials) => {
                    let error = refusal(&runtime, &credentials);
                    assert!(error.to_string().contains(word), "{error}");
                }
                Err(error) => {
                    assert!(word.is_empty() && error.kind() == ErrorKind::Invalid, "{error}");
                }
            }
        }
    }
}
