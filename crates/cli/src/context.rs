//! What every command starts from: options and profile put together, the store opened.
//!
//! A setting comes from the command line, else from the environment, else from the profile, else
//! from the default.

pub use crate::access::{Access, OtherStore};
mod near;
mod room;

use crate::config_file::{self, Profile};
use crate::descendants;
use crate::known_stores::{self, KnownPath};
use crate::machine_notes;
use crate::opening::{Means, OpenedStore};
use crate::options::GlobalOptions;
use crate::output::{Listener, Output};
use crate::password::{self, CredentialSource};
use crate::progress::{self, Display};
use crate::signals;
use crate::size::counted;
use onefold_database::Database;
use onefold_engine::environment::{Interval, READERS};
use onefold_engine::repository::uncopied::Uncopied;
use onefold_engine::repository::{Credential, Expectation};
use onefold_engine::restore::request_costs::Reach;
use onefold_engine::{Environment, Interrupt, Job, MemoryPlan, Repository};
use onefold_remote::Location;
use onefold_remote::settings::onefold;
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
const VARIABLES: [&str; 24] = [
    "ONEFOLD_REPOSITORY",
    "ONEFOLD_SFTP_COMMAND",
    "ONEFOLD_DATABASE_PLAIN",
    onefold::TOKEN,
    onefold::TOKEN_FILE,
    onefold::SECOND[0],
    onefold::SECOND[1],
    password::VARIABLE,
    password::VARIABLE_FILE,
    password::VARIABLE_COMMAND,
    password::VARIABLE_KEY_FILE,
    "ONEFOLD_TO_REPOSITORY",
    password::VARIABLES_TO[0],
    password::VARIABLES_TO[1],
    password::VARIABLES_TO[2],
    password::VARIABLES_TO[3],
    "ONEFOLD_PROFILE",
    "ONEFOLD_CONFIG",
    "ONEFOLD_MEMORY",
    "ONEFOLD_THREADS",
    "ONEFOLD_CACHE_SIZE",
    progress::VARIABLE,
    machine_notes::VARIABLE,
    known_stores::VARIABLE,
];

/// More threads than any machine has use for.
const THREADS_MAX: usize = 1024;
/// How often a session looks for a newer epoch where each look is paid for.
const FAR_TICK: Duration = Duration::from_secs(5);
/// Of what is above the least memory limit, the part that is kept of what was read ahead.
const READ_AHEAD_PART: usize = 8;
const READ_AHEAD_MAX_BYTES: usize = 64 * limits::MIB;
/// How long throttled work may go on after a signal.
const STOP_MAX: Duration = Duration::from_millis(800);

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
    /// What is kept of what a store elsewhere was asked for.
    read_ahead_bytes: usize,
    /// Whether the store is reached over a network.
    is_far: bool,
    options: GlobalOptions,
    progress: progress::When,
    credential: Option<CredentialSource>,
    interrupt: Interrupt,
    may_sleep: Arc<AtomicBool>,
    /// What is to be told of the stores that were opened.
    uncopied: Mutex<Vec<Arc<Uncopied>>>,
    /// What was asked beside them.
    databases: Mutex<Vec<Arc<Database>>>,
    /// The last store in a directory that was opened for writing.
    written: Mutex<Option<Arc<LocalStore>>>,
}

/// A job under way: its handles, and the display that ends with it.
pub struct RunningJob {
    /// The handles for the engine.
    pub job: Job,
    listener: Arc<Listener>,
    display: Option<Display>,
}

impl RunningJob {
    /// How many items there was something to be told of, beside problems.
    #[must_use]
    pub fn warnings(&self) -> u64 {
        self.listener.warnings()
    }

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
        let named = options.repository.as_deref().or(profile.repository.as_deref());
        let is_far =
            named.is_some_and(|name| Location::parse(name).is_ok_and(|place| place.is_far()));
        let read_ahead_bytes = if is_far { read_ahead_bytes(limit_bytes) } else { 0 };
        let memory = MemoryPlan::new(limit_bytes - read_ahead_bytes)?;
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
        let credential = CredentialSource::from_settings(
            options.password_file.clone(),
            options.password_command.clone(),
            options.key_file.clone(),
        )?;
        Ok(Self {
            memory,
            read_ahead_bytes,
            is_far,
            threads,
            progress: progress::When::from_environment()?,
            credential,
            interrupt: Interrupt::default(),
            may_sleep: Arc::default(),
            uncopied: Mutex::default(),
            databases: Mutex::default(),
            written: Mutex::default(),
            output,
            profile,
            options,
        })
    }

    /// Where the store is.
    pub fn location(&self) -> Result<Location> {
        let path = self
            .options
            .repository
            .clone()
            .or_else(|| self.profile.repository.clone())
            .ok_or_else(|| {
                Error::invalid(
                    "no store is named: give -r STORE, set ONEFOLD_REPOSITORY, or write it into \
                     a profile",
                )
            })?;
        if path.as_os_str().as_encoded_bytes().trim_ascii().is_empty() {
            return Err(Error::invalid("the name of the store is empty"));
        }
        Location::parse(&path)
    }

    /// The directory that the store is in, if it is in one.
    pub fn store_directory(&self) -> Result<Option<PathBuf>> {
        Ok(self.location()?.directory().map(Path::to_owned))
    }

    /// How stores elsewhere are reached.
    #[must_use]
    pub fn means(&self) -> Means<'_> {
        let command = self.options.sftp_command.as_deref();
        Means {
            sftp_command: command.or(self.profile.sftp_command.as_deref()),
            read_ahead_bytes: self.read_ahead_bytes,
            interrupt: &self.interrupt,
            is_second: false,
        }
    }

    /// The password for a store to be made.
    pub fn initial_password(&self) -> Result<onefold_engine::repository::Password> {
        password::initial(self.credential.as_ref(), self.profile.credential_source()?.as_ref())
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
        self.open_reached(access, limits).map(|(repository, _)| repository)
    }

    /// The same, and how it is reached.
    pub fn open_reached(
        &self,
        access: Access,
        limits: ThrottleLimits,
    ) -> Result<(Arc<Repository>, OpenedStore)> {
        self.open_by(access, |store| match limits == ThrottleLimits::default() {
            true => store,
            false => Arc::new(Throttled::new(store, limits)),
        })
    }

    /// The same, through a layer.
    fn open_by(
        &self,
        access: Access,
        layer: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Result<(Arc<Repository>, OpenedStore)> {
        let location = self.location()?;
        let reads_only = self.options.read_only;
        let opened = OpenedStore::open(&location, access, reads_only, &self.means())?;
        let store = layer(opened.port());
        let profile_source = self.profile.credential_source()?;
        let repository = self.open_one(
            store,
            &location,
            password::is_given(self.credential.as_ref(), profile_source.as_ref()),
            || password::current(self.credential.as_ref(), profile_source.as_ref()),
            self.memory,
        )?;
        if access == Access::Write {
            opened.prepare(repository.configuration().container_size_bytes);
            self.note_written(&opened);
        }
        Ok((self.with_what_is_common(repository, &opened), opened))
    }

    /// Whether it was said that nothing is to be written.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        self.options.read_only
    }

    /// Opens the store, and another one beside it: both together keep to the memory limit.
    pub fn open_two(
        &self,
        other: &Location,
        other_credential: Option<&CredentialSource>,
        role: OtherStore,
    ) -> Result<(Arc<Repository>, Arc<Repository>)> {
        let limit_bytes = self.memory.limit_bytes;
        let memory = MemoryPlan::of_each_of_two(limit_bytes)?;
        let location = self.location()?;
        let profile_source = self.profile.credential_source()?;
        let (means, plain) = (self.means(), Means { read_ahead_bytes: 0, ..self.means() });
        means.refuse_one_command_for(&location, other)?;
        // What is read further than asked serves whoever reads a store in order.
        let (own_access, other_access) = role.accesses();
        let (own_means, other_means) = match role {
            OtherStore::CopyTo => (means, plain),
            OtherStore::HealFrom => (plain, means),
        };
        let other_means = Means { is_second: true, ..other_means };
        let reads_only = |access| access == Access::Read || self.options.read_only;
        let own_opened =
            OpenedStore::open(&location, own_access, reads_only(own_access), &own_means)?;
        let own = self.open_one(
            own_opened.port(),
            &location,
            password::is_given(self.credential.as_ref(), profile_source.as_ref()),
            || password::current(self.credential.as_ref(), profile_source.as_ref()),
            memory,
        )?;
        let named = || format!("{}, '{other}'", role.name());
        let other_opened =
            OpenedStore::open(other, other_access, other_access == Access::Read, &other_means)
                .context(|| format!("{}{}", named(), role.remedy()))?;
        let second = self
            .open_one(
                other_opened.port(),
                other,
                password::is_second_given(other_credential),
                || password::second(other_credential, role.name()),
                memory,
            )
            .context(named)?;
        let (written, of) = match role {
            OtherStore::CopyTo => (&other_opened, &second),
            OtherStore::HealFrom => (&own_opened, &own),
        };
        written.prepare(of.configuration().container_size_bytes);
        self.note_written(written);
        let own = self.with_what_is_common(own, &own_opened);
        Ok((own, self.with_what_is_common(second, &other_opened)))
    }

    /// A store with the index that its machines have in common, if there is one.
    fn with_what_is_common(
        &self,
        repository: Arc<Repository>,
        opened: &OpenedStore,
    ) -> Arc<Repository> {
        if let Some(notices) = opened.notices() {
            return Arc::new(repository.with_common_index(Arc::new(notices)));
        }
        let Some(database) = opened.database() else { return repository };
        let mut databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        databases.push(Arc::clone(database));
        Arc::new(repository.with_common_index(Arc::clone(database) as _))
    }

    /// Says what databases could not be asked that need not be.
    pub fn tell_trouble(&self) {
        let databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        for trouble in databases.iter().filter_map(|database| database.trouble()) {
            self.output.warning(&format!(
                "{trouble}; what others store at the same time was not seen, and may be stored \
                 twice"
            ));
        }
    }

    fn open_one(
        &self,
        store: Arc<dyn Store>,
        location: &Location,
        is_credential_given: bool,
        credential: impl FnOnce() -> Result<Credential>,
        memory: MemoryPlan,
    ) -> Result<Arc<Repository>> {
        let mut known = KnownPath::load(location);
        let expectation = match is_credential_given {
            true => Expectation::Encrypted {
                because: "a password or a key file is given",
                but_for: &[],
            },
            false => known.expectation(),
        };
        let environment = self.environment_of(location.is_far());
        let repository =
            Repository::open_expecting(store, expectation, credential, environment, memory)?;
        let repository = repository.remembering_in(known_stores::remembered_in());
        known.meet(&repository, false, &self.output);
        let uncopied = Arc::clone(repository.uncopied());
        self.uncopied.lock().unwrap_or_else(PoisonError::into_inner).push(uncopied);
        Ok(Arc::new(repository))
    }

    /// Small objects are read at once, and news are looked for often; each is a request elsewhere.
    fn environment_of(&self, is_far: bool) -> Environment {
        match is_far {
            true => Environment { ticker: Arc::new(Interval(FAR_TICK)), ..Environment::system() },
            false => Environment { readers: READERS.min(self.threads), ..Environment::system() },
        }
    }

    /// Threads of work that mostly waits for the store.
    #[must_use]
    pub fn reading_threads(&self) -> usize {
        let waiting = if self.is_far { READERS } else { 0 };
        self.threads.max(waiting).min(self.memory.threads_max())
    }

    /// Threads on each side where two stores are worked with at once.
    pub fn threads_of_two(&self) -> Result<usize> {
        let memory = MemoryPlan::of_each_of_two(self.memory.limit_bytes)?;
        Ok(self.threads.min(memory.threads_max()))
    }

    /// How far requests reach where that need not be learnt.
    #[must_use]
    pub fn reach(&self) -> Option<Reach> {
        self.is_far.then_some(Reach::FAR)
    }

    /// Says which decisions have one copy instead of two because the second could not be put.
    pub fn tell_uncopied(&self) {
        let opened = self.uncopied.lock().unwrap_or_else(PoisonError::into_inner);
        for line in opened.iter().flat_map(|uncopied| uncopied.take()) {
            self.output.warning(&line);
        }
    }

    /// Opens an encrypted store for writing, and tells what opened it.
    pub fn open_with_credential(&self) -> Result<(Arc<Repository>, Credential)> {
        let repository = self.open(Access::Write)?;
        if repository.configuration().encryption == "none" {
            return Err(Error::invalid("the store is not encrypted, so it has no keys"));
        }
        let profile_source = self.profile.credential_source()?;
        let credential = password::current(self.credential.as_ref(), profile_source.as_ref())?;
        if !repository.opens_current_key(credential.secret())? {
            return Err(Error::new(
                ErrorKind::WrongPassword,
                "what was given the second time does not open the key in use",
            ));
        }
        Ok((repository, credential))
    }

    /// Whether the store was or would be opened for reading only.
    pub fn is_read_only(&self) -> Result<bool> {
        let is_fixed = |path: PathBuf| rustix::fs::access(path, AccessMode::WRITE_OK).is_err();
        Ok(self.options.read_only || self.store_directory()?.is_some_and(is_fixed))
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
}

/// What is kept of what was read ahead, so that the least limit is left for all else.
fn read_ahead_bytes(limit_bytes: usize) -> usize {
    let spare = limit_bytes.saturating_sub(limits::MEMORY_LIMIT_MIN_BYTES);
    (spare / READ_AHEAD_PART).min(READ_AHEAD_MAX_BYTES)
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
