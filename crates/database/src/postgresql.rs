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
    ANSWER_MAX, CLAIMS_AGE_MAX, CLAIMS_MAX, CONNECT_MAX, Cursor, Engine, Generation, Known,
    NEWS_AGE_MAX, NEWS_MAX, Waiting, container_of, signed, unpacked, unpacked_claim, unsigned,
};
use crate::location::DatabaseLocation;
use crate::settings::Settings;
use onefold_engine::common_index::{Claim, ClaimOrder, NewContainer};
use onefold_engine::index::claims::CLAIM_PREFIXES_MAX;
use onefold_format::notice::pack;
use onefold_store::arbiter::Incarnation;
use onefold_types::limits::CONTAINER_CHUNKS_MAX;
use onefold_types::{ContainerId, Error, ErrorKind, Result, SessionId, StoreId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, Config, NoTls, Row, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Rows that are deleted at once.
const DELETED_AT_ONCE: i64 = 20_000;
/// Entries in one statement.
const ENTRIES_AT_ONCE: usize = 4096;
/// The prefixes of the fullest container.
const PREFIXES_MAX_BYTES: usize = 8 * CONTAINER_CHUNKS_MAX;
/// Numbers of news are given before they are committed: so many are looked at again.
const NEWS_AGAIN: i64 = 64;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS onefold_stores (
    store bytea PRIMARY KEY,
    generation integer NOT NULL,
    bucket_bits integer NOT NULL,
    incarnation bytea NOT NULL);
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
CREATE UNLOGGED TABLE IF NOT EXISTS onefold_claims (
    number bigserial PRIMARY KEY,
    store bytea NOT NULL, added timestamptz NOT NULL DEFAULT now(),
    session bytea NOT NULL, prefixes bytea NOT NULL);
CREATE INDEX IF NOT EXISTS onefold_claims_of ON onefold_claims (store, number);
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

    /// What a name is decided to be, if it is.
    async fn decided(
        &self,
        store: StoreId,
        name: &str,
    ) -> Result<Option<Row>, tokio_postgres::Error> {
        let text = "SELECT value FROM onefold_decisions WHERE store = $1 AND name = $2";
        let statement = self.prepared(text).await?;
        self.client.query_opt(&statement, &[&store.0.as_slice(), &name]).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What no repetition makes better: who is not let in, and what is not there.
fn refusal(code: Option<&SqlState>) -> Option<ErrorKind> {
    let code = code?;
    let is_wrong_user = *code == SqlState::INVALID_PASSWORD
        || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION;
    match () {
        () if is_wrong_user => Some(ErrorKind::NotPermitted),
        () if *code == SqlState::INVALID_CATALOG_NAME => Some(ErrorKind::Invalid),
        () => None,
    }
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
        config.tcp_user_timeout(ANSWER_MAX).keepalives_idle(ANSWER_MAX);
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

    fn dial<T>(&self, tls: T) -> Result<Client>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let dialled = async { Ok::<_, InWords>(self.config.connect(tls).await) };
        match self.waiting.wait("connecting", CONNECT_MAX, dialled)? {
            Ok((client, task)) => {
                self.waiting.spawn(async { _ = task.await });
                Ok(client)
            }
            Err(why) => {
                let kind = refusal(why.code()).unwrap_or(ErrorKind::Unavailable);
                let said = format!("connecting in {}: {}", self.waiting.name(), InWords(why));
                Err(Error::new(kind, said))
            }
        }
    }

    fn connection(&self) -> Result<Arc<Connection>> {
        let mut connection = lock(&self.connection);
        if let Some(open) = connection.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let opened = match &self.settings.tls {
            None => self.dial(NoTls),
            Some(tls) => self.dial(MakeRustlsConnect::new((**tls).clone())),
        };
        let client = opened.map_err(|error| error.context("the database does not let us in"))?;
        // Whatever the server's own setting is: what is answered has to last.
        let lasting = client.batch_execute("SET synchronous_commit = on").into_words();
        self.waiting.wait("connecting", ANSWER_MAX, lasting)?;
        let open = Arc::new(Connection { client, prepared: Mutex::default() });
        *connection = Some(Arc::clone(&open));
        Ok(open)
    }

    /// A column of a row, which somebody may have made otherwise than it should be.
    fn column<'a, T: FromSql<'a>>(&self, row: &'a Row, number: usize) -> Result<T> {
        row.try_get(number).map_err(|why| {
            let name = self.waiting.name();
            Error::damaged(format!("a table of Onefold in {name} is not as it was made: {why}"))
        })
    }

    /// Asks; what a statement needs is given to it.
    fn ask<T>(
        &self,
        what: &str,
        ask: impl AsyncFnOnce(&Connection) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let connection = self.connection()?;
        let answer = self.waiting.wait(what, ANSWER_MAX, ask(&connection).into_words());
        if answer.is_err() {
            // It may be dead without anybody having said so.
            let mut kept = lock(&self.connection);
            if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &connection)) {
                *kept = None;
            }
        }
        answer
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
    fn register(&self, store: StoreId, incarnation: &Incarnation) -> Result<()> {
        let first = Generation::FIRST;
        self.ask("making tables", async |connection| {
            match connection.client.batch_execute(TABLES).await {
                // Another one makes them at the same moment: then they are there.
                Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
                made => made?,
            }
            let text = "INSERT INTO onefold_stores (store, generation, bucket_bits, incarnation) \
                        VALUES ($1, $2, $3, $4) ON CONFLICT (store) \
                        DO UPDATE SET incarnation = excluded.incarnation";
            let statement = connection.prepared(text).await?;
            let (bits, incarnation) = (i32::from(first.bucket_bits), incarnation.as_slice());
            let id = store.0.as_slice();
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&id, &first.number, &bits, &incarnation];
            connection.client.execute(&statement, &parameters).await.map(drop)
        })
    }

    fn known(&self, store: StoreId) -> Result<Option<Known>> {
        let row = self.ask("looking for the store", async |connection| {
            let text = "SELECT generation, bucket_bits, incarnation FROM onefold_stores \
                        WHERE store = $1";
            let statement = match connection.prepared(text).await {
                // No store was ever made with it.
                Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => return Ok(None),
                statement => statement?,
            };
            connection.client.query_opt(&statement, &[&store.0.as_slice()]).await
        })?;
        let Some(row) = row else { return Ok(None) };
        let (number, bits) = (self.column(&row, 0)?, self.column(&row, 1)?);
        let (generation, incarnation) = (generation_of(number, bits)?, self.column(&row, 2)?);
        Ok(Some(Known { generation, incarnation }))
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
        loop {
            let deleted = self.ask("deleting an old index", async |connection| {
                let text = "DELETE FROM onefold_entries WHERE ctid = ANY (ARRAY (SELECT ctid \
                            FROM onefold_entries WHERE store = $1 AND generation = $2 LIMIT $3))";
                let statement = connection.prepared(text).await?;
                let (id, limit) = (store.0.as_slice(), DELETED_AT_ONCE);
                connection.client.execute(&statement, &[&id, &generation.number, &limit]).await
            })?;
            if deleted == 0 {
                return Ok(());
            }
        }
    }

    fn decide(&self, store: StoreId, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        let row = self.ask("deciding", async |connection| {
            let text = "INSERT INTO onefold_decisions (store, name, value) VALUES ($1, $2, $3) \
                        ON CONFLICT DO NOTHING";
            let statement = connection.prepared(text).await?;
            let id = store.0.as_slice();
            connection.client.execute(&statement, &[&id, &name, &value]).await?;
            connection.decided(store, name).await
        })?;
        let row = row.ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                format!("'{name}' was decided in {} and is not there", self.waiting.name()),
            )
        })?;
        self.column(&row, 0)
    }

    fn decided(&self, store: StoreId, name: &str) -> Result<Option<Vec<u8>>> {
        let row = self.ask("looking at a decision", async |connection| {
            connection.decided(store, name).await
        })?;
        row.map(|row| self.column(&row, 0)).transpose()
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
            for row in &rows {
                let (prefix, container) = (self.column(row, 0)?, self.column(row, 1)?);
                found.extend(container_of(container).map(|id| (unsigned(prefix), id)));
            }
        }
        Ok(found)
    }

    fn announce(&self, store: StoreId, container: ContainerId, prefixes: &[u64]) -> Result<()> {
        let row = pack(prefixes);
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
                let text = "DELETE FROM onefold_news WHERE number = ANY (ARRAY (SELECT number \
                            FROM onefold_news WHERE store = $1 \
                            AND added < now() - make_interval(secs => $2) LIMIT $3))";
                let statement = connection.prepared(text).await?;
                let (age, limit) = (NEWS_AGE_MAX.as_secs_f64(), DELETED_AT_ONCE);
                connection.client.execute(&statement, &[&id, &age, &limit]).await?;
            }
            let text = "SELECT number, container, prefixes FROM onefold_news \
                        WHERE store = $1 AND number > $2 AND octet_length(prefixes) <= $4 \
                        ORDER BY number DESC LIMIT $3";
            let statement = connection.prepared(text).await?;
            let after = since.0.map_or(0, |number| number.saturating_sub(NEWS_AGAIN));
            let (limit, length) = (NEWS_MAX as i64, PREFIXES_MAX_BYTES as i32);
            connection.client.query(&statement, &[&id, &after, &limit, &length]).await
        })?;
        let (mut news, mut newest) = (Vec::new(), since.0.unwrap_or(0));
        for row in &rows {
            newest = newest.max(self.column(row, 0)?);
            news.extend(unpacked(self.column(row, 1)?, self.column(row, 2)?));
        }
        Ok((news, Cursor(Some(newest))))
    }

    /// One after the other, so that numbers rise as claims become visible: whoever does not see a
    /// claim was before it. The table is not logged, so nobody waits for the disk.
    fn claim(&self, store: StoreId, by: SessionId, prefixes: &[u64]) -> Result<ClaimOrder> {
        let row = pack(prefixes);
        let made = self.ask("claiming chunks", async |connection| {
            let text = "INSERT INTO onefold_claims (store, session, prefixes) \
                        SELECT $1, $2, $3 FROM (SELECT pg_advisory_xact_lock($4)) AS alone \
                        RETURNING number";
            let statement = connection.prepared(text).await?;
            let (id, session) = (store.0.as_slice(), by.0.as_slice());
            let (half, _) = store.0.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
            let turn = i64::from_le_bytes(*half);
            connection.client.query_one(&statement, &[&id, &session, &row, &turn]).await
        })?;
        Ok(ClaimOrder(self.column(&made, 0)?, by))
    }

    fn claims(&self, store: StoreId, since: Cursor) -> Result<(Vec<Claim>, Cursor)> {
        let rows = self.ask("asking what others claim", async |connection| {
            let (id, age) = (store.0.as_slice(), CLAIMS_AGE_MAX.as_secs_f64());
            if since.0.is_none() {
                let text = "DELETE FROM onefold_claims WHERE number = ANY (ARRAY (SELECT number \
                            FROM onefold_claims WHERE store = $1 \
                            AND added < now() - make_interval(secs => $2) LIMIT $3))";
                let statement = connection.prepared(text).await?;
                let limit = DELETED_AT_ONCE;
                connection.client.execute(&statement, &[&id, &age, &limit]).await?;
            }
            let text = "SELECT number, session, prefixes FROM onefold_claims \
                        WHERE store = $1 AND number > $2 AND octet_length(prefixes) <= $4 \
                        AND added >= now() - make_interval(secs => $5) \
                        ORDER BY number DESC LIMIT $3";
            let statement = connection.prepared(text).await?;
            let after = since.0.map_or(0, |number| number.saturating_sub(NEWS_AGAIN));
            let (limit, length) = (CLAIMS_MAX as i64, (8 * CLAIM_PREFIXES_MAX) as i32);
            connection.client.query(&statement, &[&id, &after, &limit, &length, &age]).await
        })?;
        let (mut claims, mut newest) = (Vec::new(), since.0.unwrap_or(0));
        for row in &rows {
            let number = self.column(row, 0)?;
            newest = newest.max(number);
            let (by, prefixes) = (self.column(row, 1)?, self.column(row, 2)?);
            claims.extend(unpacked_claim(number, by, prefixes));
        }
        Ok((claims, Cursor(Some(newest))))
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
