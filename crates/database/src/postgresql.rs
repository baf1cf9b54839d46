//! PostgreSQL.
//!
//! A decision is an insertion that does nothing where there is a row, and a look at what is there
//! then. Both are committed before they are answered (`synchronous_commit`), and the key of the
//! table lets only one win. After an error nobody knows whether a row was made: asking again finds
//! it.
//!
//! Whoever asks has one connection, made anew after it broke; statements of several threads share
//! it.

use crate::engine::{
    ANSWER_MAX, CONNECT_MAX, Cursor, Engine, Generation, NEWS_AGE_MAX, NEWS_MAX, Waiting,
    container_of, packed, signed, unpacked, unsigned,
};
use crate::location::DatabaseLocation;
use crate::settings::Settings;
use onefold_engine::common_index::NewContainer;
use onefold_types::{ContainerId, Error, ErrorKind, Result, StoreId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Entries in one statement.
const ENTRIES_AT_ONCE: usize = 4096;
/// Numbers of news are given before they are committed: so many are looked at again.
const NEWS_AGAIN: i64 = 64;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS onefold_stores (
    store bytea PRIMARY KEY,
    generation integer NOT NULL,
    bucket_bits integer NOT NULL);
CREATE TABLE IF NOT EXISTS onefold_decisions (
    store bytea, name text, value bytea NOT NULL,
    PRIMARY KEY (store, name));
CREATE TABLE IF NOT EXISTS onefold_entries (
    store bytea, generation integer, prefix bigint, container bytea,
    PRIMARY KEY (store, generation, prefix, container));
CREATE TABLE IF NOT EXISTS onefold_news (
    number bigserial PRIMARY KEY,
    store bytea NOT NULL, added timestamptz NOT NULL DEFAULT now(),
    container bytea NOT NULL, prefixes bytea NOT NULL);
CREATE INDEX IF NOT EXISTS onefold_news_of ON onefold_news (store, number);
";

/// A database of PostgreSQL.
pub struct Postgres {
    waiting: Waiting,
    config: Config,
    settings: Settings,
    connection: Mutex<Option<Arc<Connection>>>,
}

struct Connection {
    client: Client,
    /// Statements that are prepared, by their texts.
    prepared: Mutex<Vec<(&'static str, Statement)>>,
}

impl Connection {
    async fn prepared(&self, text: &'static str) -> Result<Statement, tokio_postgres::Error> {
        let known = {
            let prepared = lock(&self.prepared);
            prepared.iter().find(|(other, _)| *other == text).map(|(_, found)| found.clone())
        };
        match known {
            Some(statement) => Ok(statement),
            None => {
                let statement = self.client.prepare(text).await?;
                lock(&self.prepared).push((text, statement.clone()));
                Ok(statement)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error of the server in its own words, which `Display` leaves out.
struct InWords(tokio_postgres::Error);

impl std::fmt::Display for InWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.as_db_error(), std::error::Error::source(&self.0)) {
            (Some(said), _) => write!(f, "{}", said.message()),
            (None, Some(cause)) => write!(f, "{}: {cause}", self.0),
            (None, None) => write!(f, "{}", self.0),
        }
    }
}

impl Postgres {
    /// A database; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// There are no threads to be had.
    pub fn new(location: &DatabaseLocation, settings: Settings) -> Result<Self> {
        let mut config = Config::new();
        for (host, port) in &location.hosts {
            config.host(host).port(*port);
        }
        config.dbname(&location.name).application_name("onefold").connect_timeout(CONNECT_MAX);
        config.ssl_mode(match settings.tls {
            Some(_) => tokio_postgres::config::SslMode::Require,
            None => tokio_postgres::config::SslMode::Disable,
        });
        if let Some(user) = &settings.user {
            config.user(user);
        }
        if let Some(password) = &settings.password {
            config.password(password);
        }
        let waiting = Waiting::new(location.to_string())?;
        Ok(Self { waiting, config, settings, connection: Mutex::new(None) })
    }

    fn connection(&self) -> Result<Arc<Connection>> {
        let mut connection = lock(&self.connection);
        if let Some(open) = connection.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let opened = match &self.settings.tls {
            None => self.waiting.wait(
                "connecting",
                CONNECT_MAX,
                async {
                    let (client, task) = self.config.connect(NoTls).await?;
                    self.waiting.spawn(async { _ = task.await });
                    Ok::<_, tokio_postgres::Error>(client)
                }
                .into_words(),
            ),
            Some(tls) => self.waiting.wait(
                "connecting",
                CONNECT_MAX,
                async {
                    let tls = MakeRustlsConnect::new((**tls).clone());
                    let (client, task) = self.config.connect(tls).await?;
                    self.waiting.spawn(async { _ = task.await });
                    Ok::<_, tokio_postgres::Error>(client)
                }
                .into_words(),
            ),
        };
        let client = opened.map_err(|error| error.context("the database does not let us in"))?;
        // Whatever the server's own setting is: what is answered has to last.
        let lasting = client.batch_execute("SET synchronous_commit = on").into_words();
        self.waiting.wait("connecting", ANSWER_MAX, lasting)?;
        let open = Arc::new(Connection { client, prepared: Mutex::default() });
        *connection = Some(Arc::clone(&open));
        Ok(open)
    }

    /// Asks; what a statement needs is given to it.
    fn ask<T>(
        &self,
        what: &str,
        ask: impl AsyncFnOnce(&Connection) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let connection = self.connection()?;
        self.waiting.wait(what, ANSWER_MAX, ask(&connection).into_words())
    }
}

/// Gives errors in their own words.
trait IntoWords<T>: Future<Output = Result<T, tokio_postgres::Error>> + Sized {
    async fn into_words(self) -> Result<T, InWords> {
        self.await.map_err(InWords)
    }
}

impl<T, F: Future<Output = Result<T, tokio_postgres::Error>>> IntoWords<T> for F {}

impl Engine for Postgres {
    fn register(&self, store: StoreId) -> Result<bool> {
        let first = Generation::FIRST;
        self.ask("making tables", async |connection| {
            match connection.client.batch_execute(TABLES).await {
                // Another one makes them at the same moment: then they are there.
                Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
                made => made?,
            }
            let text = "INSERT INTO onefold_stores (store, generation, bucket_bits) \
                        VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            let statement = connection.prepared(text).await?;
            let bits = i32::from(first.bucket_bits);
            let id = store.0.as_slice();
            let made = connection.client.execute(&statement, &[&id, &first.number, &bits]).await?;
            Ok(made == 1)
        })
    }

    fn generation(&self, store: StoreId) -> Result<Option<Generation>> {
        let row = self.ask("looking for the store", async |connection| {
            let text = "SELECT generation, bucket_bits FROM onefold_stores WHERE store = $1";
            let statement = match connection.prepared(text).await {
                // No store was ever made with it.
                Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => return Ok(None),
                statement => statement?,
            };
            connection.client.query_opt(&statement, &[&store.0.as_slice()]).await
        })?;
        row.map(|row| generation_of(row.get(0), row.get(1))).transpose()
    }

    fn switch(&self, store: StoreId, from: Generation, to: Generation) -> Result<bool> {
        self.ask("going over to another index", async |connection| {
            let text = "UPDATE onefold_stores SET generation = $3, bucket_bits = $4 \
                        WHERE store = $1 AND generation = $2";
            let statement = connection.prepared(text).await?;
            let (id, bits) = (store.0.as_slice(), i32::from(to.bucket_bits));
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&id, &from.number, &to.number, &bits];
            Ok(connection.client.execute(&statement, &parameters).await? == 1)
        })
    }

    fn drop_generation(&self, store: StoreId, generation: Generation) -> Result<()> {
        self.ask("deleting an old index", async |connection| {
            let text = "DELETE FROM onefold_entries WHERE store = $1 AND generation = $2";
            let statement = connection.prepared(text).await?;
            let id = store.0.as_slice();
            connection.client.execute(&statement, &[&id, &generation.number]).await.map(drop)
        })
    }

    fn decide(&self, store: StoreId, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        let row = self.ask("deciding", async |connection| {
            let text = "INSERT INTO onefold_decisions (store, name, value) VALUES ($1, $2, $3) \
                        ON CONFLICT DO NOTHING";
            let statement = connection.prepared(text).await?;
            let id = store.0.as_slice();
            connection.client.execute(&statement, &[&id, &name, &value]).await?;
            let text = "SELECT value FROM onefold_decisions WHERE store = $1 AND name = $2";
            let statement = connection.prepared(text).await?;
            connection.client.query_opt(&statement, &[&id, &name]).await
        })?;
        row.map(|row| row.get(0)).ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                format!("'{name}' was decided in {} and is not there", self.waiting.name()),
            )
        })
    }

    fn insert(
        &self,
        store: StoreId,
        generation: Generation,
        entries: &[(u64, ContainerId)],
    ) -> Result<()> {
        for some in entries.chunks(ENTRIES_AT_ONCE) {
            let prefixes: Vec<i64> = some.iter().map(|(prefix, _)| signed(*prefix)).collect();
            let containers: Vec<&[u8]> = some.iter().map(|(_, id)| id.0.as_slice()).collect();
            self.ask("adding to the index", async |connection| {
                let text = "INSERT INTO onefold_entries (store, generation, prefix, container) \
                            SELECT $1, $2, * FROM unnest($3::bigint[], $4::bytea[]) \
                            ON CONFLICT DO NOTHING";
                let statement = connection.prepared(text).await?;
                let id = store.0.as_slice();
                let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                    [&id, &generation.number, &prefixes, &containers];
                connection.client.execute(&statement, &parameters).await.map(drop)
            })?;
        }
        Ok(())
    }

    fn locate(
        &self,
        store: StoreId,
        generation: Generation,
        prefixes: &[u64],
    ) -> Result<Vec<(u64, ContainerId)>> {
        let mut found = Vec::with_capacity(prefixes.len());
        for some in prefixes.chunks(ENTRIES_AT_ONCE) {
            let asked: Vec<i64> = some.iter().map(|prefix| signed(*prefix)).collect();
            let rows = self.ask("looking into the index", async |connection| {
                let text = "SELECT prefix, container FROM onefold_entries \
                            WHERE store = $1 AND generation = $2 AND prefix = ANY($3)";
                let statement = connection.prepared(text).await?;
                let id = store.0.as_slice();
                connection.client.query(&statement, &[&id, &generation.number, &asked]).await
            })?;
            found.extend(
                rows.iter()
                    .filter_map(|row| Some((unsigned(row.get(0)), container_of(row.get(1))?))),
            );
        }
        Ok(found)
    }

    fn announce(&self, store: StoreId, container: ContainerId, prefixes: &[u64]) -> Result<()> {
        let row = packed(prefixes);
        self.ask("telling of a container", async |connection| {
            let text = "INSERT INTO onefold_news (store, container, prefixes) VALUES ($1, $2, $3)";
            let statement = connection.prepared(text).await?;
            let (id, container) = (store.0.as_slice(), container.0.as_slice());
            connection.client.execute(&statement, &[&id, &container, &row]).await.map(drop)
        })
    }

    fn news(&self, store: StoreId, since: Cursor) -> Result<(Vec<NewContainer>, Cursor)> {
        let rows = self.ask("asking what is new", async |connection| {
            let id = store.0.as_slice();
            if since.0.is_none() {
                let text = "DELETE FROM onefold_news WHERE store = $1 \
                            AND added < now() - make_interval(secs => $2)";
                let statement = connection.prepared(text).await?;
                let age = NEWS_AGE_MAX.as_secs_f64();
                connection.client.execute(&statement, &[&id, &age]).await?;
            }
            let text = "SELECT number, container, prefixes FROM onefold_news \
                        WHERE store = $1 AND number > $2 ORDER BY number DESC LIMIT $3";
            let statement = connection.prepared(text).await?;
            let after = since.0.map_or(0, |number| number.saturating_sub(NEWS_AGAIN));
            let limit = NEWS_MAX as i64;
            connection.client.query(&statement, &[&id, &after, &limit]).await
        })?;
        let newest = rows.iter().map(|row| row.get::<_, i64>(0)).max();
        let news = rows.iter().filter_map(|row| unpacked(row.get(1), row.get(2))).collect();
        Ok((news, Cursor(newest.max(since.0).or(Some(0)))))
    }
}

/// A row about a store.
pub(crate) fn generation_of(number: i32, bits: i32) -> Result<Generation> {
    let known = u8::try_from(bits).ok().filter(|bits| crate::engine::BUCKET_BITS.contains(bits));
    match known {
        Some(bucket_bits) if number > 0 => Ok(Generation { number, bucket_bits }),
        _ => Err(Error::damaged(format!(
            "the database says impossible things of the store (generation {number}, {bits} bits)"
        ))),
    }
}
