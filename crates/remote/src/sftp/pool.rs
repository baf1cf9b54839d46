//! Connections to one server: how many, which one, and what happens when one breaks.
//!
//! # Algorithm
//! One connection is made when something is asked, further ones up to [`CONNECTIONS_MAX`] when
//! something is written while all of the others are at work: a server does one thing after the
//! other, and making durable takes long. Work whose connection broke is done again on another one,
//! with growing pauses; so it must be such that it can be. That ends [`Patience::retry`] after the
//! first break: what takes long has a second try however long the first one went well.
//!
//! # Invariants
//! A refusal that asking does not change (a login, a key, a name) is remembered: nothing is asked
//! again. Where no server is, that is said at once, unless it was there before.
//! After trouble nothing is asked for a moment, and then with less patience: a server that
//! greets and stands still is asked a trifle first, and has [`Patience::trouble`] for it.
//!
//! # Concurrency
//! Any number of threads; one makes a connection at a time.

use super::connection::{Connection, Done, Fault};
use super::dial::{Dial, Process};
use super::failure::{failed, is_nobody, no_connection};
use crate::patience::Patience;
use crate::stopping::Effect;
use onefold_types::{Error, ErrorKind, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections at once.
pub const CONNECTIONS_MAX: usize = 4;
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a program may take to say why there is no connection.
const WORDS_MAX: Duration = Duration::from_secs(2);

/// Connections; see the module.
pub struct Pool {
    dial: Box<dyn Dial>,
    name: String,
    root: String,
    patience: Patience,
    state: Mutex<State>,
    dialing: tokio::sync::Mutex<()>,
}

struct State {
    connections: Vec<Arc<Connection>>,
    most: usize,
    refused: Option<(ErrorKind, String)>,
    /// When something was asked for in vain, and what was said then.
    trouble: Option<(Instant, String)>,
    /// Whether there was ever a connection.
    was_reached: bool,
}

/// A connection that is at work.
struct Taken(Arc<Connection>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Pool {
    /// `root` is where the store is, `name` what users call that.
    pub fn new(dial: Box<dyn Dial>, name: &str, root: &str, patience: Patience) -> Self {
        let state = State {
            connections: Vec::new(),
            most: CONNECTIONS_MAX,
            refused: None,
            trouble: None,
            was_reached: false,
        };
        let (name, root, state) = (name.to_owned(), root.to_owned(), Mutex::new(state));
        Self { dial, name, root, patience, state, dialing: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does work on a connection, again on another one if that breaks.
    pub async fn run<T>(
        &self,
        what: &str,
        effect: Effect,
        mut work: impl AsyncFnMut(&Arc<Connection>) -> Done<T>,
    ) -> Result<T> {
        let (mut first_break, mut pause) = (None, PAUSE_MIN);
        loop {
            let taken = self.take(effect == Effect::Write).await?;
            match work(&taken.0).await {
                Ok(value) => return Ok(value),
                Err(fault @ Fault::Lost(_)) => {
                    let since = first_break.get_or_insert_with(Instant::now);
                    if since.elapsed() + pause >= self.patience.retry {
                        let error = failed(&self.said(what), fault);
                        self.state().trouble = Some((Instant::now(), error.to_string()));
                        return Err(error);
                    }
                }
                Err(fault) => return Err(failed(&self.said(what), fault)),
            }
            drop(taken);
            tokio::time::sleep(jitter(pause)).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    pub fn said(&self, what: &str) -> String {
        format!("{what} in {}", self.name)
    }

    /// The connection with the least to do, made if need be.
    async fn take(&self, writes: bool) -> Result<Taken> {
        if let Some(idle) = self.idle(writes) {
            return Ok(idle);
        }
        let is_first = self.state().connections.is_empty();
        let _turn = match is_first {
            true => self.dialing.lock().await,
            // Whoever can work meanwhile does.
            false => match self.dialing.try_lock() {
                Ok(turn) => turn,
                Err(_) => match self.idle(false) {
                    Some(other) => return Ok(other),
                    None => self.dialing.lock().await,
                },
            },
        };
        if let Some(idle) = self.idle(writes) {
            return Ok(idle);
        }
        let is_another = !self.state().connections.is_empty();
        let made = match self.connect(is_another).await {
            Ok(made) => Arc::new(made),
            Err(error) => match self.idle(false) {
                // The server takes no more of them.
                Some(other) => {
                    let mut state = self.state();
                    state.most = state.connections.len().max(1);
                    return Ok(other);
                }
                None => return Err(error),
            },
        };
        made.users.fetch_add(1, Ordering::SeqCst);
        self.state().connections.push(Arc::clone(&made));
        Ok(Taken(made))
    }

    /// A connection that there is.
    pub fn any(&self) -> Option<Arc<Connection>> {
        let state = self.state();
        state.connections.iter().find(|connection| !connection.is_lost()).cloned()
    }

    fn idle(&self, writes: bool) -> Option<Taken> {
        let mut state = self.state();
        state.connections.retain(|connection| !connection.is_lost());
        let users = |one: &Arc<Connection>| one.users.load(Ordering::SeqCst);
        let least = state.connections.iter().min_by_key(|one| users(one))?;
        if writes && users(least) > 0 && state.connections.len() < state.most {
            return None;
        }
        least.users.fetch_add(1, Ordering::SeqCst);
        Some(Taken(Arc::clone(least)))
    }

    /// Connects, again and again if that can help and there is no other connection.
    async fn connect(&self, is_another: bool) -> Result<Connection> {
        let (refused, trouble) = {
            let state = self.state();
            (state.refused.clone(), state.trouble.clone())
        };
        if let Some((kind, said)) = refused {
            return Err(Error::new(kind, said));
        }
        let retry_max = match trouble {
            // It is as it was a moment ago.
            Some((since, said)) if since.elapsed() < self.patience.trouble => {
                return Err(Error::new(ErrorKind::Unavailable, said));
            }
            Some((since, _)) if since.elapsed() < self.patience.trouble_age => {
                self.patience.trouble
            }
            _ => self.patience.retry,
        };
        let (began, mut pause) = (Instant::now(), PAUSE_MIN);
        loop {
            let error = match self.connect_once().await {
                Ok(made) => {
                    let mut state = self.state();
                    (state.trouble, state.was_reached) = (None, true);
                    return Ok(made);
                }
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Unavailable {
                // A further connection may be refused for reasons of its own.
                if !is_another {
                    self.state().refused = Some((error.kind(), error.to_string()));
                }
                return Err(error);
            }
            let is_first = !self.state().was_reached;
            let is_hopeless = is_another || (is_first && is_nobody(&error));
            if is_hopeless || began.elapsed() + pause >= retry_max {
                if !is_another {
                    self.state().trouble = Some((Instant::now(), error.to_string()));
                }
                return Err(error);
            }
            tokio::time::sleep(jitter(pause)).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    async fn connect_once(&self) -> Result<Connection> {
        let line = self.dial.dial().map_err(|cause| {
            let what = format!("reaching {}: starting what leads to the server", self.name);
            // Not of a kind that says anything about a store.
            Error::io(what, cause).with_kind(ErrorKind::Invalid)
        })?;
        match Connection::begin(line, self.patience).await {
            Ok(made) => self.tried(made).await,
            Err((process, why)) => {
                let said = match process {
                    Some(process) => last_words(process).await,
                    None => Vec::new(),
                };
                Err(no_connection(&self.name, &why, &said))
            }
        }
    }

    /// After trouble a greeting is not enough: the server has to answer about the store's place.
    async fn tried(&self, made: Connection) -> Result<Connection> {
        if self.state().trouble.is_none() {
            return Ok(made);
        }
        let looked = tokio::time::timeout(self.patience.trouble, made.look_at(&self.root)).await;
        match looked {
            Ok(Ok(_) | Err(Fault::Refused(..))) => Ok(made),
            Ok(Err(Fault::Lost(_) | Fault::Other(_))) | Err(_) => {
                made.lose();
                let said = "it greets, and then does not answer";
                Err(Error::new(ErrorKind::Unavailable, format!("{}: {said}", self.name)))
            }
        }
    }

    /// Lets go of all connections.
    pub fn close(&self) {
        let connections = std::mem::take(&mut self.state().connections);
        connections.iter().for_each(|one| one.close());
        connections.iter().for_each(|one| one.end());
    }
}

/// What a program says that is about to end.
async fn last_words(mut process: Process) -> Vec<String> {
    let began = Instant::now();
    while process.ended().is_none() && began.elapsed() < WORDS_MAX {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What it wrote at its end is on its way.
    tokio::time::sleep(Duration::from_millis(50)).await;
    process.said()
}

/// Between half and all of a pause, so that not all come back at once.
fn jitter(pause: Duration) -> Duration {
    let mut number = [0; 1];
    let _ = getrandom::fill(&mut number);
    pause.mul_f64(0.5 + f64::from(number[0]) / 512.0)
}
