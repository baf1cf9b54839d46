//! A database as a store sees it: who was first, and what others have stored just now.
//!
//! # Failing
//! A decision has to be made: whoever finds no answer asks again, for [`DECIDE_MAX`]; asking twice
//! is safe, since what is decided is decided. The index in common does not have to be asked: what
//! fails is told to whoever runs the program ([`Database::trouble`]), and the store's own index
//! answers.
//!
//! Concurrency: any number of threads.

use crate::cassandra::Cassandra;
use crate::engine::{Cursor, Engine, Generation};
use crate::location::{DatabaseLocation, Kind};
use crate::postgresql::Postgres;
use crate::settings::Settings;
use onefold_engine::Interrupt;
use onefold_engine::common_index::{Claim, ClaimOrder, CommonIndex, NewContainer};
use onefold_store::arbiter::Incarnation;
use onefold_store::{Arbiter, Key};
use onefold_types::{ContainerId, Error, ErrorKind, Result, SessionId, StoreId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a decision is asked for that finds no answer.
pub const DECIDE_MAX: Duration = Duration::from_secs(30);
/// The first pause before it is asked for again; each is twice the one before.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A database; see the module.
pub struct Database {
    engine: Box<dyn Engine>,
    name: String,
    /// The store, and by which number it is known.
    opened_as: OnceLock<(StoreId, Incarnation)>,
    state: Mutex<State>,
    interrupt: Interrupt,
}

#[derive(Default)]
struct State {
    generation: Option<Generation>,
    cursor: Cursor,
    claims_cursor: Cursor,
    trouble: Option<String>,
}

impl Database {
    /// A database; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// There are no threads to be had.
    pub fn new(location: &DatabaseLocation, settings: Settings) -> Result<Self> {
        let engine: Box<dyn Engine> = match location.kind {
            Kind::Postgres => Box::new(Postgres::new(location, settings)?),
            Kind::Cassandra => Box::new(Cassandra::new(location, settings)?),
        };
        Ok(Self {
            engine,
            name: location.to_string(),
            opened_as: OnceLock::new(),
            state: Mutex::default(),
            interrupt: Interrupt::default(),
        })
    }

    /// The same, which asks no more once this is requested.
    #[must_use]
    pub fn stopped_by(self, interrupt: Interrupt) -> Self {
        Self { interrupt, ..self }
    }

    /// What is asked.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The last thing that failed beside decisions, in words.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> Result<StoreId> {
        let unknown = || Error::invalid("the database was not told which store it is asked about");
        self.opened_as.get().map(|(store, _)| *store).ok_or_else(unknown)
    }

    /// What the database knows of the store, if it is the one that decides for it.
    fn ask_known(&self, store: StoreId, incarnation: &Incarnation) -> Result<Generation> {
        let known = self.engine.known(store)?;
        let known = known.filter(|known| known.incarnation == incarnation);
        known.map(|known| known.generation).ok_or_else(|| self.unknown(store))
    }

    /// One attempt: a database that was replaced or emptied meanwhile decides nothing.
    fn try_decide(&self, store: StoreId, name: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let opened = self.opened_as.get().filter(|(opened, _)| *opened == store);
        let (_, incarnation) = opened.ok_or_else(|| self.unknown(store))?;
        self.ask_known(store, incarnation)?;
        self.engine.decide(store, name.as_str(), value)
    }

    /// The store, and the generation of its index as it was last.
    fn known(&self) -> Result<(StoreId, Generation)> {
        let store = self.opened()?;
        let known = self.state().generation;
        match known {
            Some(generation) => Ok((store, generation)),
            None => Err(self.unknown(store)),
        }
    }

    fn unknown(&self, store: StoreId) -> Error {
        Error::invalid(format!(
            "{} does not know the store {store} as the one it decides for: another database does, \
             or it was lost. If it was lost, end all processes that write to the store, and run \
             'onefold database register'",
            self.name
        ))
    }

    fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.state().trouble = Some(error.to_string());
        }
        result
    }
}

impl Arbiter for Database {
    fn open(&self, store: StoreId, incarnation: &Incarnation) -> Result<()> {
        self.state().generation = Some(self.ask_known(store, incarnation)?);
        match *self.opened_as.get_or_init(|| (store, *incarnation)) == (store, *incarnation) {
            true => Ok(()),
            false => Err(Error::invalid("one database was asked about two stores")),
        }
    }

    fn register(&self, store: StoreId, incarnation: &Incarnation) -> Result<()> {
        self.engine.register(store, incarnation)
    }

    fn decide(&self, store: StoreId, name: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
        loop {
            match self.try_decide(store, name, value) {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable && began.elapsed() < DECIDE_MAX =>
                {
                    self.interrupt.check()?;
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                decided => return decided,
            }
        }
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

impl CommonIndex for Database {
    fn add(&self, container: ContainerId, prefixes: &[u64]) -> Result<()> {
        let (store, generation) = self.known()?;
        let mut entries: Vec<_> = prefixes.iter().map(|prefix| (*prefix, container)).collect();
        entries.sort_unstable();
        entries.dedup();
        let told = self.engine.announce(store, container, prefixes);
        self.noted(told.and_then(|()| self.engine.insert(store, generation, &entries)))
    }

    fn locate(&self, prefixes: &[u64], found: &mut Vec<Vec<ContainerId>>) -> Result<()> {
        let (store, generation) = self.known()?;
        let mut asked = prefixes.to_vec();
        asked.sort_unstable();
        asked.dedup();
        let entries = self.noted(self.engine.locate(store, generation, &asked))?;
        let mut by_prefix: BTreeMap<u64, Vec<ContainerId>> = BTreeMap::new();
        for (prefix, container) in entries {
            by_prefix.entry(prefix).or_default().push(container);
        }
        let of = |prefix| by_prefix.get(prefix).cloned().unwrap_or_default();
        found.extend(prefixes.iter().map(of));
        Ok(())
    }

    fn news(&self) -> Result<Vec<NewContainer>> {
        let store = self.opened()?;
        let since = self.state().cursor;
        // A filling may have ended meanwhile.
        let generation = self.noted(self.engine.known(store))?.map(|known| known.generation);
        let (news, cursor) = self.noted(self.engine.news(store, since))?;
        let mut state = self.state();
        state.generation = generation.or(state.generation);
        state.cursor = cursor;
        Ok(news)
    }

    fn claim(&self, by: SessionId, prefixes: &[u64]) -> Result<(ClaimOrder, Vec<Claim>)> {
        let store = self.opened()?;
        // Told before it is asked: of two that do so at the same time one hears of the other.
        let order = self.noted(self.engine.claim(store, by, prefixes).map_err(with_remedy))?;
        Ok((order, self.claims()?))
    }

    fn claims(&self) -> Result<Vec<Claim>> {
        let store = self.opened()?;
        let since = self.state().claims_cursor;
        let (claims, cursor) = self.noted(self.engine.claims(store, since).map_err(with_remedy))?;
        self.state().claims_cursor = cursor;
        Ok(claims)
    }
}

/// A database from before has no table of claims.
fn with_remedy(error: Error) -> Error {
    let said = error.to_string();
    let is_missing = said.contains("does not exist") || said.contains("unconfigured table");
    match is_missing {
        true => error.context("'onefold database register' makes the table that is missing"),
        false => error,
    }
}
