//! A server from its start to its end.
//!
//! # Algorithm
//! One runtime for requests; a thread beside it, which no request can hold up, writes counts, reads
//! the file of clients again when it has changed, and removes what was kept for long enough. A file
//! that cannot be read or understood changes nothing: the clients that were known stay, and the
//! operator is told.
//!
//! Of connections no more are taken at once than there are places (`connections.rs`), the
//! rest is closed; one that says nothing ends after half a minute.
//!
//! To end, no more connections are taken, and requests that are on their way have
//! [`Patience::end`]; what they have not written by then leaves nothing behind.

use crate::asking::Shared;
use crate::certificate;
use crate::clients::Clients;
use crate::connections::{BoundedAcceptor, Places, connections_max};
use crate::limits::{CONNECTIONS_MAX, Patience};
use crate::requests::answer;
use crate::served::{Rules, Served};
use crate::usage::Usage;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use hyper::body::Incoming;
use onefold_types::error::Context as _;
use onefold_types::{Error, Result};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tower::service_fn;

/// What runs beside requests does so this often.
const TURN: Duration = Duration::from_secs(1);
/// How long it goes on at the most once it is over.
const NOTICED: Duration = Duration::from_millis(50);
/// How often it is looked for what was kept for long enough.
const EXPIRY_TURN: Duration = Duration::from_secs(600);

/// By what clients know the server.
#[derive(Clone, Debug)]
pub enum Identity {
    /// A certificate and its key, in files.
    Given {
        /// The chain, in PEM.
        certificate: PathBuf,
        /// The key, in PEM.
        key: PathBuf,
    },
    /// One of its own, for these names, in the directory of the file of clients.
    Own(Vec<String>),
    /// None, where something before it has one: only this machine may ask.
    Plain,
}

/// What is served, to whom, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directories of stores.
    pub directories: Vec<PathBuf>,
    /// The file of clients.
    pub clients: PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
    /// By what clients know it.
    pub identity: Identity,
    /// What holds for each store.
    pub rules: Rules,
    /// How much of bodies is held at once.
    pub bodies_bytes: u64,
    /// How long it waits for what.
    pub patience: Patience,
}

/// A server.
pub struct Running {
    runtime: Option<Runtime>,
    beside: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    handle: Handle<SocketAddr>,
    ended: oneshot::Receiver<io::Result<()>>,
    shared: Arc<Shared>,
    /// Where it listens.
    pub address: SocketAddr,
    /// The certificate that clients are to trust, if it is one of its own.
    pub own_certificate: Option<PathBuf>,
    /// What it is called, and which stores it serves.
    pub stores: Vec<String>,
    /// Connections that it takes at once.
    pub connections_max: usize,
}

/// Tells the operator.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

impl Running {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// What keeps a store, the clients or the certificate from being read, or the address from
    /// being had; `Invalid` for two stores of one name, and for a server without a certificate
    /// that others could reach.
    pub fn start(options: &Options, report: Report) -> Result<Self> {
        if matches!(options.identity, Identity::Plain) && !options.address.ip().is_loopback() {
            return Err(Error::invalid(
                "without a certificate anybody on the way could read the tokens: listen on \
                 127.0.0.1 behind a proxy that has one, or give one",
            ));
        }
        let mut stores = BTreeMap::new();
        for directory in &options.directories {
            let served = Served::open(directory, options.rules, options.patience.durable)?;
            let name = served.name.clone();
            if stores.insert(name.clone(), Arc::new(served)).is_some() {
                return Err(Error::invalid(format!(
                    "two directories are called '{name}', and clients could not tell them apart"
                )));
            }
        }
        let names: Vec<String> = stores.keys().cloned().collect();
        let connections_max = places_for(&stores, &*report);
        let clients = Watched::read(&options.clients)?;
        let mut used = options.clients.clone().into_os_string();
        used.push(".used");
        let patience = options.patience;
        let (known, usage) = (Arc::clone(&clients.clients), Usage::read(used.into())?);
        let shared = Arc::new(Shared::new(stores, known, usage, options.bodies_bytes, patience));
        let runtime = Runtime::new().context(|| "starting threads for requests".to_owned())?;
        let (pair, own_certificate) = pair(options)?;
        let tls = pair.map(|pair| runtime.block_on(tls(&pair))).transpose()?;
        // Whoever finds that somebody listens finds the certificate as well.
        let listening = || format!("listening on {}", options.address);
        let listener = TcpListener::bind(options.address).context(listening)?;
        let address = listener.local_addr().context(listening)?;
        let handle = Handle::new();
        let (sender, ended) = oneshot::channel();
        let places = Places::new(connections_max, tls.is_none());
        let serving = serve(listener, tls, Arc::clone(&shared), handle.clone(), places.into());
        runtime.spawn(async move {
            let _ = sender.send(serving.await);
        });
        let (beside, is_over) = (Arc::clone(&shared), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&is_over);
        let beside = thread::Builder::new()
            .name("onefold-beside".to_owned())
            .spawn(move || beside_requests(&beside, clients, &*report, &stopped))
            .context(|| "starting a thread".to_owned())?;
        let (runtime, beside) = (Some(runtime), Some(beside));
        Ok(Self {
            runtime,
            beside,
            is_over,
            handle,
            ended,
            shared,
            address,
            own_certificate,
            stores: names,
            connections_max,
        })
    }

    /// Why it has ended by itself, if it has.
    pub fn has_ended(&mut self) -> Option<String> {
        match self.ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => None,
            Ok(Err(error)) => Some(error.to_string()),
            _ => Some("it was stopped".to_owned()),
        }
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// What was counted could not be written.
    pub fn end(mut self) -> Result<()> {
        let end = self.shared.patience.end;
        let last = Instant::now() + end;
        self.handle.graceful_shutdown(Some(end));
        while self.has_ended().is_none() && Instant::now() < last {
            thread::sleep(Duration::from_millis(10));
        }
        // Writers that still wait for the network are given up.
        self.shared.uploads.clear();
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(beside) = self.beside.take() {
            let _ = beside.join();
        }
        if let Some(runtime) = self.runtime.take() {
            let left = last.saturating_duration_since(Instant::now());
            runtime.shutdown_timeout(left.max(Duration::from_millis(500)));
        }
        self.shared.stores.values().try_for_each(|served| served.end())?;
        self.shared.usage.write()
    }
}

/// How many connections there may be, which is said if there are fewer than usual.
fn places_for(
    stores: &BTreeMap<String, Arc<Served>>,
    report: &(dyn Fn(&str) + Send + Sync),
) -> usize {
    let open_files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize);
    let of_stores = stores.values().map(|served| served.store.open_files_max()).sum();
    let most = connections_max(open_files, of_stores);
    if most < CONNECTIONS_MAX {
        report(&format!(
            "this process may have {open_files} files open, so it takes {most} connections at \
             once and not {CONNECTIONS_MAX}: raise the limit (ulimit -n, LimitNOFILE)"
        ));
    }
    most
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Files of the certificate, if there is one; and where it is, if it is the server's own.
fn pair(options: &Options) -> Result<(Option<certificate::Pair>, Option<PathBuf>)> {
    match &options.identity {
        Identity::Plain => Ok((None, None)),
        Identity::Given { certificate, key } => {
            let (certificate, key) = (certificate.clone(), key.clone());
            Ok((Some(certificate::Pair { certificate, key }), None))
        }
        Identity::Own(names) => {
            let directory = options.clients.parent().filter(|it| !it.as_os_str().is_empty());
            let pair = certificate::own(directory.unwrap_or(Path::new(".")), names)?;
            let shown = pair.certificate.clone();
            Ok((Some(pair), Some(shown)))
        }
    }
}

/// The certificate as connections need it: over what they speak, nothing else is offered.
async fn tls(pair: &certificate::Pair) -> Result<RustlsConfig> {
    let shown = pair.certificate.display();
    let config = RustlsConfig::from_pem_file(&pair.certificate, &pair.key).await;
    let config = config.context(|| format!("reading the certificate in '{shown}' and its key"))?;
    let mut inner = config.get_inner().as_ref().clone();
    inner.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.reload_from_config(Arc::new(inner));
    Ok(config)
}

async fn serve(
    listener: TcpListener,
    tls: Option<RustlsConfig>,
    shared: Arc<Shared>,
    handle: Handle<SocketAddr>,
    places: Arc<Places>,
) -> io::Result<()> {
    let Patience { head, answer: taken, .. } = shared.patience;
    let bounded = BoundedAcceptor(taken);
    // One service for each connection, which holds its place.
    let make = service_fn(move |peer: SocketAddr| {
        let place = places.take(peer.ip()).map(Arc::new);
        let shared = Arc::clone(&shared);
        async move {
            let place = place.ok_or_else(|| io::Error::other("there are too many connections"))?;
            Ok::<_, io::Error>(service_fn(move |request: Request<Incoming>| {
                let (place, shared) = (Arc::clone(&place), Arc::clone(&shared));
                async move {
                    let mut response = answer(shared, request.map(Body::new)).await;
                    if place.is_scarce() {
                        let close = HeaderValue::from_static("close");
                        response.headers_mut().insert(header::CONNECTION, close);
                    }
                    Ok::<_, Infallible>(response)
                }
            }))
        }
    });
    match tls {
        None => {
            let mut server = axum_server::from_tcp(listener)?.acceptor(bounded).handle(handle);
            server.http_builder().http1().header_read_timeout(head);
            server.http1_only().first_request_timeout(head).serve(make).await
        }
        Some(config) => {
            let server = axum_server::from_tcp_rustls(listener, config)?;
            let server = server.map(|tls| tls.handshake_timeout(head).acceptor(bounded));
            let mut server = server.handle(handle);
            server.http_builder().http1().header_read_timeout(head);
            server.http1_only().first_request_timeout(head).serve(make).await
        }
    }
}

fn beside_requests(
    shared: &Shared,
    mut clients: Watched,
    report: &(dyn Fn(&str) + Send + Sync),
    is_over: &AtomicBool,
) {
    let mut expired: Option<Instant> = None;
    while !is_over.load(Ordering::SeqCst) {
        if expired.is_none_or(|last| last.elapsed() >= EXPIRY_TURN) {
            expired = Some(Instant::now());
            for served in shared.stores.values() {
                if let Err(error) = served.remove_expired() {
                    report(&error.to_string());
                }
            }
        }
        if let Err(error) = shared.usage.write() {
            report(&error.to_string());
        }
        shared.stores.values().for_each(|served| served.let_go());
        shared.uploads.sweep(shared.patience.pause);
        match clients.read_again() {
            Ok(true) => {
                let mut known = shared.clients.write().unwrap_or_else(PoisonError::into_inner);
                *known = Arc::clone(&clients.clients);
            }
            Ok(false) => {}
            Err(error) => report(&format!("{error}; the clients that were known stay")),
        }
        let turn = Instant::now() + TURN;
        while Instant::now() < turn && !is_over.load(Ordering::SeqCst) {
            thread::sleep(NOTICED);
        }
    }
}

/// The file of clients, and what it was when it was read.
struct Watched {
    path: PathBuf,
    seen: Option<Seen>,
    clients: Arc<Clients>,
}

#[derive(Clone, PartialEq, Eq)]
struct Seen(u64, u64, Option<SystemTime>);

impl Watched {
    fn read(path: &Path) -> Result<Self> {
        let seen = Self::look(path);
        let clients = Arc::new(Clients::read(path)?);
        Ok(Self { path: path.to_owned(), seen, clients })
    }

    fn look(path: &Path) -> Option<Seen> {
        use std::os::unix::fs::MetadataExt as _;
        let found = fs::metadata(path).ok()?;
        Some(Seen(found.ino(), found.len(), found.modified().ok()))
    }

    /// Whether it has changed. A failure is told once for each state of the file.
    fn read_again(&mut self) -> Result<bool> {
        let now = Self::look(&self.path);
        if now == self.seen {
            return Ok(false);
        }
        self.seen = now;
        self.clients = Arc::new(Clients::read(&self.path)?);
        Ok(true)
    }
}
