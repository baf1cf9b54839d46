//! What every command starts from: options and profile put together, the store opened.
//!
//! A setting comes from the command line, else from the environment, else from the profile, else
//! from the default.

use crate::config_file::{self, Profile};
use crate::descendants;
use crate::known_stores::{self, KnownPath};
use crate::machine_notes;
use crate::options::GlobalOptions;
use crate::output::{Listener, Output};
use crate::password::{self, PasswordSource};
use crate::progress::{self, Display};
use crate::reserve;
use crate::signals;
use crate::size::counted;
use crate::store_path;
use onefold_engine::environment::READERS;
use onefold_engine::repository::Expectation;
use onefold_engine::repository::uncopied::Uncopied;
use onefold_engine::{Environment, Interrupt, Job, MemoryPlan, Repository};
use onefold_store::layers::{ThrottleLimits, Throttled};
use onefold_store::{LocalStore, Store};
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::Access as AccessMode;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// All environment variables the program knows.
const VARIABLES: [&str; 11] = [
    "ONEFOLD_REPOSITORY",
    password::VARIABLE,
    password::VARIABLE_FILE,
    password::VARIABLE_COMMAND,
    "ONEFOLD_PROFILE",
    "ONEFOLD_CONFIG",
    "ONEFOLD_MEMORY",
    "ONEFOLD_THREADS",
    progress::VARIABLE,
    machine_notes::VARIABLE,
    known_stores::VARIABLE,
];

/// More threads than any machine has use for.
const THREADS_MAX: usize = 1024;
/// How long throttled work may go on after a signal.
const STOP_MAX: Duration = Duration::from_millis(800);

/// What a command does with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It only reads: a store that cannot be written will do.
    Read,
    /// It writes.
    Write,
}

/// What every command starts from.
pub struct Context {
    /// Where to talk to.
    pub output: Arc<Output>,
    /// The profile.
    pub profile: Profile,
    /// The division of the memory limit.
    pub memory: MemoryPlan,
    /// How many threads to use.
    pub threads: usize,
    options: GlobalOptions,
    progress: progress::When,
    password: Option<PasswordSource>,
    interrupt: Interrupt,
    may_sleep: Arc<AtomicBool>,
    /// What is to be told of the stores that were opened.
    uncopied: Mutex<Vec<Arc<Uncopied>>>,
}

/// A job under way: its handles, and the display that ends with it.
pub struct RunningJob {
    /// The handles for the engine.
    pub job: Job,
    listener: Arc<Listener>,
    display: Option<Display>,
}

impl RunningJob {
    /// Takes the progress display away, so that results can be printed; the number of problems.
    pub fn finish(mut self) -> u64 {
        drop(self.display.take());
        self.listener.problems()
    }
}

impl Context {
    /// Puts the settings together.
    pub fn new(options: GlobalOptions, output: Arc<Output>) -> Result<Self> {
        warn_of_unknown_variables(&output);
        let profile = config_file::load(options.config.as_deref(), options.profile.as_deref())?;
        let limit_bytes = match options.memory.or(profile.memory) {
            Some(size) => size.in_memory()?,
            None => limits::MEMORY_LIMIT_DEFAULT_BYTES,
        };
        let memory = MemoryPlan::new(limit_bytes)?;
        let asked = options.threads.or(profile.threads).map(usize::from);
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = asked.unwrap_or_else(processors);
        bounded("threads", wanted, THREADS_MAX)?;
        let threads = wanted.min(memory.threads_max());
        if asked.is_some_and(|asked| asked > threads) {
            output.warning(&format!(
                "working with {}: the memory limit allows no more",
                counted(threads as u64, "thread")
            ));
        }
        let password = PasswordSource::from_pair(
            options.password_file.clone(),
            options.password_command.clone(),
        )?;
        Ok(Self {
            memory,
            threads,
            progress: progress::When::from_environment()?,
            password,
            interrupt: Interrupt::default(),
            may_sleep: Arc::default(),
            uncopied: Mutex::default(),
            output,
            profile,
            options,
        })
    }

    /// Where the store is.
    pub fn store_path(&self) -> Result<PathBuf> {
        let path = self
            .options
            .repository
            .clone()
            .or_else(|| self.profile.repository.clone())
            .ok_or_else(|| {
                Error::invalid(
                    "no store is named: give -r DIR, set ONEFOLD_REPOSITORY, or write it into \
                     a profile",
                )
            })?;
        if path.as_os_str().is_empty() {
            return Err(Error::invalid("the name of the store is empty"));
        }
        store_path::refuse_remote(&path)?;
        Ok(path)
    }

    /// The password for a store to be made.
    pub fn initial_password(&self) -> Result<onefold_engine::repository::Password> {
        password::initial(self.password.as_ref(), self.profile.password_source()?.as_ref())
    }

    /// Opens the store.
    pub fn open(&self, access: Access) -> Result<Arc<Repository>> {
        self.open_throttled(access, ThrottleLimits::default())
    }

    /// Opens the store so that no more than this is used of the device.
    pub fn open_throttled(
        &self,
        access: Access,
        limits: ThrottleLimits,
    ) -> Result<Arc<Repository>> {
        let path = self.store_path()?;
        let local = Arc::new(self.open_store(&path, access)?);
        let mut store: Arc<dyn Store> = Arc::clone(&local) as _;
        if limits != ThrottleLimits::default() {
            store = Arc::new(Throttled::new(store, limits));
        }
        let profile_source = self.profile.password_source()?;
        let given = password::is_given(self.password.as_ref(), profile_source.as_ref());
        let mut known = KnownPath::load(&path);
        let repository = Repository::open_expecting(
            store,
            match given {
                true => Expectation::Encrypted { because: "a password is given", but_for: &[] },
                false => known.expectation(),
            },
            || password::current(self.password.as_ref(), profile_source.as_ref()),
            Environment { readers: READERS.min(self.threads), ..Environment::system() },
            self.memory,
        )?;
        known.meet(&repository, false, &self.output);
        let uncopied = Arc::clone(repository.uncopied());
        self.uncopied.lock().unwrap_or_else(PoisonError::into_inner).push(uncopied);
        if access == Access::Write {
            // Neither keeps a command from its work: a device may be too full for a reserve.
            let _ = local.remove_stale_temporaries();
            let _ = reserve::fill(&local, repository.configuration().container_size_bytes);
        }
        Ok(Arc::new(repository))
    }

    /// Says which decisions have one copy instead of two because the second could not be put.
    pub fn tell_uncopied(&self) {
        let opened = self.uncopied.lock().unwrap_or_else(PoisonError::into_inner);
        for line in opened.iter().flat_map(|uncopied| uncopied.take()) {
            self.output.warning(&line);
        }
    }

    /// Opens an encrypted store for writing, and tells the password that opened it.
    pub fn open_with_password(
        &self,
    ) -> Result<(Arc<Repository>, onefold_engine::repository::Password)> {
        let repository = self.open(Access::Write)?;
        if repository.configuration().encryption == "none" {
            return Err(Error::invalid("the store is not encrypted, so it has no passwords"));
        }
        let profile_source = self.profile.password_source()?;
        let password = password::current(self.password.as_ref(), profile_source.as_ref())?;
        if !repository.is_current_password(&password)? {
            return Err(Error::new(
                ErrorKind::WrongPassword,
                "the password given the second time is not that of the key in use",
            ));
        }
        Ok((repository, password))
    }

    fn open_store(&self, path: &Path, access: Access) -> Result<LocalStore> {
        let refused = |why: &str| {
            Err(Error::new(
                ErrorKind::ReadOnly,
                format!("the store '{}' cannot be written: {why}", path.display()),
            ))
        };
        let writable = rustix::fs::access(path, AccessMode::WRITE_OK);
        match (access, self.options.read_only, writable) {
            (Access::Write, true, _) => refused("--read-only is given"),
            (Access::Read, true, _) | (Access::Read, _, Err(_)) => LocalStore::open_read_only(path),
            // Only these two speak of writing; for all others opening has the better words.
            (Access::Write, _, Err(rustix::io::Errno::ROFS)) => {
                refused("it is on a file system that is mounted read-only")
            }
            (Access::Write, _, Err(rustix::io::Errno::ACCESS)) => refused("permission denied"),
            _ => LocalStore::open(path),
        }
    }

    /// Runs `work`; while the device is full, gives back a piece of the room set aside for that day
    /// and runs it again. For small things that must work at zero bytes free (R28).
    pub fn with_reserve(
        &self,
        repository: &Repository,
        work: impl Fn() -> Result<()>,
    ) -> Result<()> {
        loop {
            match work() {
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    if !self.give_up_reserve(repository, reserve::User::Forgetting)? {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    /// The same for many small things, one by one where inodes are short: a collection needs some,
    /// and must be able to begin after any of them. `check` refuses them all before one is done;
    /// where they are done at once, `work` does that itself.
    pub fn in_pieces<T>(
        &self,
        repository: &Repository,
        all: &[T],
        check: impl FnOnce() -> Result<()>,
        work: impl Fn(&[T]) -> Result<()>,
    ) -> Result<()> {
        let store = LocalStore::open(self.store_path()?)?;
        let is_short = reserve::is_short_of_names(&store, all.len() as u64)?;
        if is_short {
            check()?;
        }
        for piece in all.chunks(if is_short { 1 } else { all.len().max(1) }) {
            if is_short
                && reserve::is_short_of_names(&store, 0)?
                && !self.give_up_reserve(repository, reserve::User::Forgetting)?
            {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "too few inodes are left on the store's device: run 'onefold gc', which frees \
                     some, then the same again",
                ));
            }
            self.with_reserve(repository, || work(piece))?;
        }
        Ok(())
    }

    /// Gives a piece of the room set aside back to the device; `false` if there is no more.
    pub fn give_up_reserve(&self, repository: &Repository, user: reserve::User) -> Result<bool> {
        reserve::give_up(&LocalStore::open(self.store_path()?)?, repository, user)
    }

    /// Whether the store was or would be opened for reading only.
    pub fn is_read_only(&self) -> Result<bool> {
        let path = self.store_path()?;
        Ok(self.options.read_only || rustix::fs::access(path, AccessMode::WRITE_OK).is_err())
    }

    /// Whether a signal asked the command to stop.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_requested()
    }

    /// Starts a job that shows its progress as `what`, and that signals stop.
    pub fn start_job(&self, what: &'static str) -> Result<RunningJob> {
        self.catch_signals()?;
        let listener = Arc::new(Listener::new(Arc::clone(&self.output)));
        let job = Job {
            interrupt: self.interrupt.clone(),
            progress: Arc::default(),
            observer: Arc::clone(&listener) as Arc<dyn onefold_engine::Observer>,
        };
        let display = Display::start(what, self.progress, &self.output, &job.progress);
        Ok(RunningJob { job, listener, display: Some(display) })
    }

    /// The first signal asks the job to stop at a safe point, the second ends the program. Stores
    /// are safe either way; the first also leaves no temporary file behind.
    fn catch_signals(&self) -> Result<()> {
        let interrupt = self.interrupt.clone();
        let output = Arc::clone(&self.output);
        let may_sleep = Arc::clone(&self.may_sleep);
        signals::catch(move || {
            if interrupt.is_requested() {
                descendants::end_all();
                std::process::exit(i32::from(crate::exit::INTERRUPTED));
            }
            interrupt.request();
            output.warning("stopping; the same signal again ends the program at once");
            if may_sleep.load(Ordering::Relaxed) {
                let output = Arc::clone(&output);
                std::thread::spawn(move || {
                    std::thread::sleep(STOP_MAX);
                    output.error(&Error::new(ErrorKind::Interrupted, "interrupted"));
                    descendants::end_all();
                    std::process::exit(i32::from(crate::exit::INTERRUPTED));
                });
            }
        })
    }

    /// Says that the work is throttled: it may sleep so long between two safe points that nobody
    /// would wait for one after a signal.
    pub fn expect_sleep(&self) -> Result<()> {
        self.may_sleep.store(true, Ordering::Relaxed);
        self.catch_signals()
    }

    /// Where new passwords come from.
    pub fn additional_password(
        &self,
        arguments: &crate::options::NewPasswordArguments,
    ) -> Result<onefold_engine::repository::Password> {
        let source = PasswordSource::from_pair(
            arguments.new_password_file.clone(),
            arguments.new_password_command.clone(),
        )?;
        password::additional(source.as_ref()).context(|| "the new password")
    }
}

/// Refuses a number that would only be a mistake, before it becomes threads and memory.
pub fn bounded(what: &str, number: usize, most: usize) -> Result<()> {
    match number <= most {
        true => Ok(()),
        false => Err(Error::invalid(format!("{number} {what} are too many: at most {most}"))),
    }
}

/// A misspelt variable would be ignored in silence.
fn warn_of_unknown_variables(output: &Output) {
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        if name.starts_with("ONEFOLD_") && !VARIABLES.contains(&name) {
            output.warning(&format!("the environment variable {name} is not known"));
        }
    }
}

/// The machine's name.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The user's name, or number where there is none.
#[must_use]
pub fn user_name() -> String {
    uzers::get_current_username().map_or_else(
        || uzers::get_current_uid().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// The user and the machine, for records.
#[must_use]
pub fn user_at_host() -> String {
    format!("{}@{}", user_name(), host_name())
}

/// The program's name and version, for records.
#[must_use]
pub fn program() -> String {
    format!("onefold {}", env!("CARGO_PKG_VERSION"))
}
