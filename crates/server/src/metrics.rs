//! What is counted, for Prometheus.

use onefold_types::{Error, Result};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// What a request was about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
pub enum Kind {
    Put,
    Get,
    List,
    Delete,
    Other,
}

/// A request that was answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Request {
    client: String,
    kind: Kind,
    status: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfClient {
    client: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfStore {
    store: String,
}

/// The server's counters.
pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    received: Family<OfClient, Counter>,
    sent: Family<OfClient, Counter>,
    used: Family<OfClient, Gauge>,
    free: Family<OfStore, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("onefold");
        let requests: Family<Request, Counter> = Family::default();
        registry.register("requests", "Requests that were answered", requests.clone());
        let [received, sent]: [Family<OfClient, Counter>; 2] = Default::default();
        let said = "Bytes of objects that arrived";
        registry.register_with_unit("received", said, Unit::Bytes, received.clone());
        let said = "Bytes of objects that were sent";
        registry.register_with_unit("sent", said, Unit::Bytes, sent.clone());
        let used: Family<OfClient, Gauge> = Family::default();
        let said = "Bytes that a client has put in all";
        registry.register_with_unit("used", said, Unit::Bytes, used.clone());
        let free: Family<OfStore, Gauge> = Family::default();
        let said = "Bytes for which there is room";
        registry.register_with_unit("free", said, Unit::Bytes, free.clone());
        Self { registry, requests, received, sent, used, free }
    }
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, client: &str, kind: Kind, status: u16) {
        let request = Request { client: client.to_owned(), kind, status };
        self.requests.get_or_create(&request).inc();
    }

    /// An object, or a part of one, arrived.
    pub fn received(&self, client: &str, bytes: u64) {
        self.received.get_or_create(&OfClient { client: client.to_owned() }).inc_by(bytes);
    }

    /// An object, or a part of one, is sent.
    pub fn sent(&self, client: &str, bytes: u64) {
        self.sent.get_or_create(&OfClient { client: client.to_owned() }).inc_by(bytes);
    }

    /// All of it, as text.
    pub fn text<'a>(
        &self,
        used: impl IntoIterator<Item = (String, u64)>,
        free: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Result<String> {
        for (client, bytes) in used {
            self.used.get_or_create(&OfClient { client }).set(signed(bytes));
        }
        for (store, bytes) in free {
            let store = store.to_owned();
            self.free.get_or_create(&OfStore { store }).set(signed(bytes));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)
            .map_err(|error| Error::invalid(format!("counters cannot be shown: {error}")))?;
        Ok(text)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
