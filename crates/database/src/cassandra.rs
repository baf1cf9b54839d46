//! Apache Cassandra, and whoever speaks the same.
//!
//! A decision is an insertion of a row that must not be there (`IF NOT EXISTS`, agreed upon by a
//! majority of replicas), and a look at what is there then, which ends what is under way (serial
//! consistency). Such an insertion can end without anybody knowing whether it was made; the look
//! tells, and where it finds nothing the insertion is tried again.
//!
//! Entries lie in partitions, which are buckets of prefixes: many of one bucket are written and
//! read at once. They are written without any agreement, since each can be written any number of
//! times.
//!
//! ```text
//! onefold_stores    (store) -> generation, bucket_bits, incarnation
//! onefold_decisions (store, name) -> value
//! onefold_entries   ((store, generation, bucket), prefix, container)
//! onefold_news      ((store, minute), added, container) -> prefixes, for a day
//! onefold_claims    ((store, minute), added, session, part) -> prefixes, for ten minutes
//! ```
//!
//! The keyspace has to be there: how often everything is kept is for whoever runs the cluster to
//! say. Rows of one table are written either with agreement or without, never both.

use crate::engine::{
    ANSWER_MAX, CLAIMS_AGE_MAX, CLAIMS_MAX, CONNECT_MAX, Cursor, Engine, Generation, Known,
    NEWS_AGE_MAX, NEWS_MAX, Waiting, container_of, signed, unpacked, unpacked_claim, unsigned,
};
use crate::location::DatabaseLocation;
use crate::postgresql::generation_of;
use crate::settings::Settings;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use onefold_engine::common_index::{Claim, ClaimOrder, NewContainer};
use onefold_format::notice::pack;
use onefold_store::arbiter::Incarnation;
use onefold_types::{ContainerId, Error, ErrorKind, Result, SessionId, StoreId};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::Peer;
use scylla::policies::host_filter::HostFilter;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests under way at once.
const REQUESTS_AT_ONCE: usize = 32;
/// Entries in one request.
const ENTRIES_AT_ONCE: usize = 128;
/// How often a decision is looked at that nobody seems to have made.
const DECIDE_ROUNDS: u32 = 3;
/// How far clocks of machines may differ for news to arrive: later ones are looked at again.
pub const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(5);
/// How far back whoever asks first is told of what was stored.
const NEWS_FIRST: Duration = Duration::from_secs(3600);
/// A minute, in milliseconds.
const MINUTE_MS: i64 = 60_000;

const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS onefold_stores (
        store blob PRIMARY KEY, generation int, bucket_bits int, incarnation blob)",
    "CREATE TABLE IF NOT EXISTS onefold_decisions (
        store blob, name text, value blob, PRIMARY KEY ((store, name)))",
    "CREATE TABLE IF NOT EXISTS onefold_entries (
        store blob, generation int, bucket int, prefix bigint, container blob,
        PRIMARY KEY ((store, generation, bucket), prefix, container))",
    "CREATE TABLE IF NOT EXISTS onefold_news (
        store blob, minute bigint, added bigint, container blob, prefixes blob,
        PRIMARY KEY ((store, minute), added, container))
        WITH default_time_to_live = 86400",
    "CREATE TABLE IF NOT EXISTS onefold_claims (
        store blob, minute bigint, added bigint, session blob, part int, prefixes blob,
        PRIMARY KEY ((store, minute), added, session, part))
        WITH default_time_to_live = 600",
];
const _: () = assert!(NEWS_AGE_MAX.as_secs() == 86_400);
const _: () = assert!(CLAIMS_AGE_MAX.as_secs() + CLOCKS_DIFFER_MAX.as_secs() < 600);

/// A keyspace of a cluster.
pub struct Cassandra {
    waiting: Waiting,
    location: DatabaseLocation,
    settings: Settings,
    session: Mutex<Option<Arc<Open>>>,
    /// Tells claims of the same millisecond from each other.
    claims_made: AtomicI32,
}

/// A session, with the statements that it knows by now.
struct Open {
    session: Session,
    prepared: Mutex<Vec<(&'static str, PreparedStatement)>>,
}

/// Leaves out nodes on other machines, which would be reached unprotected.
struct OnlyHere;

impl HostFilter for OnlyHere {
    fn accept(&self, peer: &Peer) -> bool {
        peer.address.ip().is_loopback()
    }
}

/// Why something could not be had.
struct Failed(String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn failed(why: impl fmt::Display) -> Failed {
    Failed(why.to_string())
}

impl Open {
    /// A statement that may be repeated, answered by a majority of replicas.
    async fn statement(&self, text: &'static str) -> Result<PreparedStatement, Failed> {
        let find = |prepared: &Vec<(&'static str, PreparedStatement)>| {
            prepared.iter().find(|(other, _)| *other == text).map(|(_, found)| found.clone())
        };
        let known = find(&self.prepared.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(statement) = known {
            return Ok(statement);
        }
        let mut statement = self.session.prepare(text).await.map_err(failed)?;
        statement.set_consistency(Consistency::Quorum);
        statement.set_serial_consistency(Some(SerialConsistency::Serial));
        statement.set_is_idempotent(true);
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.push((text, statement.clone()));
        Ok(statement)
    }

    async fn ask(
        &self,
        text: &'static str,
        values: impl SerializeRow,
    ) -> Result<QueryResult, Failed> {
        let statement = self.statement(text).await?;
        self.session.execute_unpaged(&statement, values).await.map_err(failed)
    }

    /// The same of what was agreed upon: what is under way is ended first.
    async fn ask_agreed(
        &self,
        text: &'static str,
        values: impl SerializeRow,
    ) -> Result<QueryResult, Failed> {
        let mut statement = self.statement(text).await?;
        statement.set_consistency(Consistency::Serial);
        self.session.execute_unpaged(&statement, values).await.map_err(failed)
    }

    /// The row of a store.
    async fn store(&self, store: StoreId) -> Result<Option<(i32, i32, Vec<u8>)>, Failed> {
        let text = "SELECT generation, bucket_bits, incarnation FROM onefold_stores \
                    WHERE store = ?";
        let rows = self.ask_agreed(text, (store.0.as_slice(),)).await?;
        let rows = rows.into_rows_result().map_err(failed)?;
        rows.maybe_first_row::<(i32, i32, Vec<u8>)>().map_err(failed)
    }

    async fn decided(&self, store: StoreId, name: &str) -> Result<Option<Vec<u8>>, Failed> {
        let text = "SELECT value FROM onefold_decisions WHERE store = ? AND name = ?";
        let rows = self.ask_agreed(text, (store.0.as_slice(), name)).await?;
        let rows = rows.into_rows_result().map_err(failed)?;
        Ok(rows.maybe_first_row::<(Vec<u8>,)>().map_err(failed)?.map(|(value,)| value))
    }

    /// What was announced in a minute after a moment.
    async fn news_of(
        &self,
        store: StoreId,
        minute: i64,
        after: i64,
    ) -> Result<Vec<(i64, NewContainer)>, Failed> {
        let text = "SELECT added, container, prefixes FROM onefold_news \
                    WHERE store = ? AND minute = ? AND added > ? ORDER BY added DESC LIMIT ?";
        let limit = NEWS_MAX as i32;
        let rows = self.ask(text, (store.0.as_slice(), minute, after, limit)).await?;
        let rows = rows.into_rows_result().map_err(failed)?;
        let mut news = Vec::new();
        for row in rows.rows::<(i64, &[u8], &[u8])>().map_err(failed)? {
            let (added, container, prefixes) = row.map_err(failed)?;
            news.extend(unpacked(container, prefixes).map(|container| (added, container)));
        }
        Ok(news)
    }

    /// What was claimed in a minute after a moment.
    async fn claims_of(
        &self,
        store: StoreId,
        minute: i64,
        after: i64,
    ) -> Result<Vec<Claim>, Failed> {
        let text = "SELECT added, session, prefixes FROM onefold_claims \
                    WHERE store = ? AND minute = ? AND added > ? ORDER BY added DESC LIMIT ?";
        let limit = CLAIMS_MAX as i32;
        let rows = self.ask(text, (store.0.as_slice(), minute, after, limit)).await?;
        let rows = rows.into_rows_result().map_err(failed)?;
        let mut claims = Vec::new();
        for row in rows.rows::<(i64, &[u8], &[u8])>().map_err(failed)? {
            let (added, by, prefixes) = row.map_err(failed)?;
            claims.extend(unpacked_claim(added, by, prefixes));
        }
        Ok(claims)
    }
}

impl Cassandra {
    /// A keyspace; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// There are no threads to be had.
    pub fn new(location: &DatabaseLocation, settings: Settings) -> Result<Self> {
        let waiting = Waiting::new(location.to_string())?;
        let (location, session) = (location.clone(), Mutex::new(None));
        Ok(Self { waiting, location, settings, session, claims_made: AtomicI32::new(0) })
    }

    fn open(&self) -> Result<Arc<Open>> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = session.as_ref() {
            return Ok(Arc::clone(open));
        }
        let hosts = self.location.hosts.iter().map(|(host, port)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        });
        let mut builder = SessionBuilder::new()
            .known_nodes(hosts)
            .use_keyspace(&self.location.name, false)
            .connection_timeout(CONNECT_MAX)
            .tls_context(self.settings.tls.clone());
        if self.settings.only_here {
            builder = builder.host_filter(Arc::new(OnlyHere));
        }
        if let (Some(user), Some(password)) = (&self.settings.user, &self.settings.password) {
            builder = builder.user(user, password);
        }
        let built = self.waiting.wait("connecting", CONNECT_MAX * 2, builder.build());
        let built = built.map_err(|error| {
            error.context(format!(
                "the database does not let us in (a keyspace '{0}' has to be there: CREATE \
                 KEYSPACE {0} WITH replication = ...)",
                self.location.name
            ))
        })?;
        let open = Arc::new(Open { session: built, prepared: Mutex::default() });
        *session = Some(Arc::clone(&open));
        Ok(open)
    }

    fn ask<T>(&self, what: &str, ask: impl AsyncFnOnce(&Open) -> Result<T, Failed>) -> Result<T> {
        let open = self.open()?;
        self.waiting.wait(what, ANSWER_MAX, ask(&open))
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Engine for Cassandra {
    fn register(&self, store: StoreId, incarnation: &Incarnation) -> Result<()> {
        let open = self.open()?;
        for table in TABLES {
            let made = async { open.session.query_unpaged(table, ()).await.map_err(failed) };
            self.waiting.wait("making tables", ANSWER_MAX * 2, made)?;
        }
        let first = Generation::FIRST;
        self.ask("making the store known", async |open| {
            let (id, incarnation) = (store.0.as_slice(), incarnation.as_slice());
            let text = "INSERT INTO onefold_stores (store, generation, bucket_bits, incarnation) \
                        VALUES (?, ?, ?, ?) IF NOT EXISTS";
            let bits = i32::from(first.bucket_bits);
            open.ask(text, (id, first.number, bits, incarnation)).await?;
            let text = "UPDATE onefold_stores SET incarnation = ? WHERE store = ? IF EXISTS";
            open.ask(text, (incarnation, id)).await?;
            match open.store(store).await? {
                Some((.., there)) if there == incarnation => Ok(()),
                _ => Err(failed("another one makes it known at the same time; try again")),
            }
        })
    }

    fn known(&self, store: StoreId) -> Result<Option<Known>> {
        let row = self.ask("looking for the store", async |open| {
            match open.store(store).await {
                // No store was ever made with it.
                Err(Failed(why)) if why.contains("onefold_stores does not exist") => Ok(None),
                Err(Failed(why)) if why.contains("unconfigured table") => Ok(None),
                found => found,
            }
        })?;
        let Some((number, bits, incarnation)) = row else { return Ok(None) };
        Ok(Some(Known { generation: generation_of(number, bits)?, incarnation }))
    }

    fn switch(&self, store: StoreId, from: Generation, to: Generation) -> Result<bool> {
        let row = self.ask("going over to another index", async |open| {
            let text = "UPDATE onefold_stores SET generation = ?, bucket_bits = ? \
                        WHERE store = ? IF generation = ?";
            let bits = i32::from(to.bucket_bits);
            open.ask(text, (to.number, bits, store.0.as_slice(), from.number)).await?;
            open.store(store).await
        })?;
        Ok(row.is_some_and(|(number, ..)| number == to.number))
    }

    fn drop_generation(&self, store: StoreId, generation: Generation) -> Result<()> {
        let open = self.open()?;
        let buckets = 1_i64 << generation.bucket_bits;
        // One deletion for each bucket, whatever is in it: a bounded number of tombstones.
        let deleted = async {
            let text =
                "DELETE FROM onefold_entries WHERE store = ? AND generation = ? AND bucket = ?";
            let statement = open.statement(text).await?;
            let delete = |bucket: i64| {
                let (open, statement) = (&open, &statement);
                async move {
                    let bucket = i32::try_from(bucket).unwrap_or(i32::MAX);
                    let values = (store.0.as_slice(), generation.number, bucket);
                    let done = open.session.execute_unpaged(statement, values).await;
                    done.map(drop).map_err(failed)
                }
            };
            let deletions = stream::iter((0..buckets).map(delete));
            deletions.buffer_unordered(REQUESTS_AT_ONCE).try_collect::<()>().await
        };
        // A thousand a second at the least.
        let at_most = ANSWER_MAX + Duration::from_secs(buckets.unsigned_abs() / 1000);
        self.waiting.wait("deleting an old index", at_most, deleted)
    }

    fn decide(&self, store: StoreId, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        for _ in 0..DECIDE_ROUNDS {
            let decided = self.ask("deciding", async |open| {
                let text = "INSERT INTO onefold_decisions (store, name, value) \
                     VALUES (?, ?, ?) IF NOT EXISTS";
                // Whatever comes of it, what is there then tells.
                let inserted = open.ask(text, (store.0.as_slice(), name, value)).await;
                match (open.decided(store, name).await, inserted) {
                    (Ok(None), Err(error)) => Err(error),
                    (found, _) => found,
                }
            })?;
            if let Some(decided) = decided {
                return Ok(decided);
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("'{name}' was decided in {} and is not there", self.waiting.name()),
        ))
    }

    fn decided(&self, store: StoreId, name: &str) -> Result<Option<Vec<u8>>> {
        self.ask("looking at a decision", async |open| open.decided(store, name).await)
    }

    fn insert(
        &self,
        store: StoreId,
        generation: Generation,
        entries: &[(u64, ContainerId)],
    ) -> Result<()> {
        let mut requests: Vec<(i32, &[(u64, ContainerId)])> = Vec::new();
        let same = |a: &(u64, ContainerId), b: &(u64, ContainerId)| {
            generation.bucket(a.0) == generation.bucket(b.0)
        };
        for bucket in entries.chunk_by(same) {
            let number = bucket.first().map_or(0, |(prefix, _)| generation.bucket(*prefix));
            requests.extend(bucket.chunks(ENTRIES_AT_ONCE).map(|some| (number, some)));
        }
        self.ask("adding to the index", async |open| {
            let text = "INSERT INTO onefold_entries (store, generation, bucket, prefix, container) \
                        VALUES (?, ?, ?, ?, ?)";
            let statement = &open.statement(text).await?;
            let write = |(bucket, some): (i32, &[(u64, ContainerId)])| {
                // All of one partition: written as one, or not at all.
                let mut batch = Batch::new(BatchType::Unlogged);
                batch.set_consistency(Consistency::Quorum);
                batch.set_is_idempotent(true);
                let values: Vec<_> = some
                    .iter()
                    .map(|(prefix, container)| {
                        batch.append_statement(statement.clone());
                        let container = container.0.to_vec();
                        (store.0.to_vec(), generation.number, bucket, signed(*prefix), container)
                    })
                    .collect();
                async move { open.session.batch(&batch, values).await.map(drop).map_err(failed) }
            };
            let writes = stream::iter(requests.into_iter().map(write));
            writes.buffer_unordered(REQUESTS_AT_ONCE).try_collect::<()>().await
        })
    }

    fn locate(
        &self,
        store: StoreId,
        generation: Generation,
        prefixes: &[u64],
    ) -> Result<Vec<(u64, ContainerId)>> {
        let mut buckets: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
        for prefix in prefixes {
            buckets.entry(generation.bucket(*prefix)).or_default().push(signed(*prefix));
        }
        let requests = buckets.iter().flat_map(|(bucket, prefixes)| {
            prefixes.chunks(ENTRIES_AT_ONCE).map(move |some| (*bucket, some))
        });
        self.ask("looking into the index", async |open| {
            let text = "SELECT prefix, container FROM onefold_entries WHERE store = ? \
                        AND generation = ? AND bucket = ? AND prefix IN ?";
            let mut statement = open.statement(text).await?;
            // A hint: one replica that knows it is enough.
            statement.set_consistency(Consistency::One);
            let statement = &statement;
            let read = |(bucket, some): (i32, &[i64])| {
                let values = (store.0.to_vec(), generation.number, bucket, some.to_vec());
                async move {
                    let rows = open.session.execute_unpaged(statement, values).await;
                    let rows = rows.map_err(failed)?.into_rows_result().map_err(failed)?;
                    let mut found = Vec::new();
                    for row in rows.rows::<(i64, &[u8])>().map_err(failed)? {
                        let (prefix, container) = row.map_err(failed)?;
                        found.extend(container_of(container).map(|id| (unsigned(prefix), id)));
                    }
                    Ok::<_, Failed>(found)
                }
            };
            let reads = stream::iter(requests.map(read));
            reads.buffer_unordered(REQUESTS_AT_ONCE).try_concat().await
        })
    }

    fn announce(&self, store: StoreId, container: ContainerId, prefixes: &[u64]) -> Result<()> {
        let (now, row) = (now_ms(), pack(prefixes));
        self.ask("telling of a container", async |open| {
            let text = "INSERT INTO onefold_news (store, minute, added, container, prefixes) \
                        VALUES (?, ?, ?, ?, ?)";
            let (id, container) = (store.0.as_slice(), container.0.as_slice());
            open.ask(text, (id, now / MINUTE_MS, now, container, row)).await.map(drop)
        })
    }

    fn news(&self, store: StoreId, since: Cursor) -> Result<(Vec<NewContainer>, Cursor)> {
        let minutes = Minutes::since(since, NEWS_FIRST);
        let found = self.ask("asking what is new", async |open| {
            minutes
                .newest(NEWS_MAX, async |minute, after| open.news_of(store, minute, after).await)
                .await
        })?;
        let cursor = minutes.cursor(found.iter().map(|(added, _)| *added).max());
        Ok((found.into_iter().map(|(_, container)| container).collect(), cursor))
    }

    /// By the clock of whoever claims: one that is behind claims before others who were first, and
    /// these store the same again.
    fn claim(&self, store: StoreId, by: SessionId, prefixes: &[u64]) -> Result<ClaimOrder> {
        let (now, row) = (now_ms(), pack(prefixes));
        let part = self.claims_made.fetch_add(1, Ordering::Relaxed);
        self.ask("claiming chunks", async |open| {
            let text = "INSERT INTO onefold_claims (store, minute, added, session, part, prefixes) \
                        VALUES (?, ?, ?, ?, ?, ?)";
            let (id, session) = (store.0.as_slice(), by.0.as_slice());
            open.ask(text, (id, now / MINUTE_MS, now, session, part, row)).await.map(drop)
        })?;
        Ok(ClaimOrder(now, by))
    }

    fn claims(&self, store: StoreId, since: Cursor) -> Result<(Vec<Claim>, Cursor)> {
        let minutes = Minutes::since(since, CLAIMS_AGE_MAX);
        let claims = self.ask("asking what others claim", async |open| {
            minutes
                .newest(CLAIMS_MAX, async |minute, after| {
                    open.claims_of(store, minute, after).await
                })
                .await
        })?;
        let cursor = minutes.cursor(claims.iter().map(|(order, _)| order.0).max());
        Ok((claims, cursor))
    }
}

/// The minutes in which something may have been told since somebody asked last.
struct Minutes {
    now: i64,
    since: Option<i64>,
    first: i64,
    /// What was told later than this counts.
    after: i64,
}

impl Minutes {
    /// Those since then, and no more than lie so far back.
    fn since(since: Cursor, at_most: Duration) -> Self {
        let now = now_ms();
        let first = now.saturating_sub(ms(at_most));
        let after = since.0.unwrap_or(first).max(first).saturating_sub(ms(CLOCKS_DIFFER_MAX));
        Self { now, since: since.0, first, after }
    }

    /// What `of` says of each minute, the newest first, and no more than so much at once. Clocks
    /// that are ahead count as well.
    async fn newest<T>(
        &self,
        most: usize,
        of: impl AsyncFn(i64, i64) -> Result<Vec<T>, Failed>,
    ) -> Result<Vec<T>, Failed> {
        let last = self.now.saturating_add(ms(CLOCKS_DIFFER_MAX)) / MINUTE_MS;
        let mut found = Vec::new();
        for minute in ((self.after / MINUTE_MS)..=last).rev() {
            found.extend(of(minute, self.after).await?);
            if found.len() >= most {
                break;
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// How far it was read. One whose clock is ahead does not have others passed over.
    fn cursor(&self, newest: Option<i64>) -> Cursor {
        let newest = newest.map(|newest| newest.min(self.now)).max(self.since);
        Cursor(Some(newest.unwrap_or(self.first)))
    }
}
