//! Look-up strategies: how the fingerprints of one stream become verdicts.
//!
//! | module | strategy | after |
//! | --- | --- | --- |
//! | [`crate::accelerated_filter`] | eager, in either order | FAST'08, 4.4; S0, algorithm 1 |
//! | `lazy` | chunks wait in buckets that one access locates | S0, algorithm 2 |
//! | `sampled` | only hooks are located; chunks wait for one | Sparse Indexing, FAST'09 |
//! | [`auto`] | eager or lazy, by inequality (8) of S0 and live counters | S0, section 4 |
//! | none | every chunk is new: what is added tells nothing of what is there | |
//!
//! A stream has its own [`StreamLookup`], which holds the chunks that wait. Cache and counters are
//! those of an [`AcceleratedFilter`], which all streams of a session may share.
//!
//! Invariants: each fingerprint handed in gets exactly one verdict, at the latest from
//! [`StreamLookup::drain_before`]; never more fingerprints wait than the strategy allows. Eager,
//! lazy and auto are exact: a chunk is new only if the index did not know it after it was handed
//! in, and the second of two equal chunks that wait is [`Verdict::Repeated`]. Sampled may call a
//! known chunk new, which costs space; whatever it calls a duplicate is one. None asks neither
//! cache nor port.
//!
//! What waits here is in memory only. A session that dies has told nobody of a verdict it did not
//! yet have, so nothing of this belongs into a crash's recovery (SX.4).
//!
//! After an error of the port the session must give up; what had no verdict waits on, and whoever
//! drains it meets the error again, or an answer.

pub mod auto;
mod buckets;
mod division;
mod lazy;
mod parameters;
mod sampled;
mod waiting;

pub use crate::accelerated_filter::{FilterOrder, Verdict};
pub use auto::AutoReport;
pub use parameters::{
    AutoParameters, DeviceCosts, LazyParameters, LookupStrategy, PostLookup, SampledParameters,
};

use crate::accelerated_filter::{AcceleratedFilter, FilterCounters};
use crate::ports::IndexPort;
use auto::Auto;
use lazy::Lazy;
use onefold_types::{Fingerprint, Result};
use sampled::Sampled;

/// The look-ups of one stream.
///
/// The filter may be shared with other streams, one at a time.
#[derive(Debug)]
pub struct StreamLookup {
    kind: Kind,
}

/// What a verdict takes: cache and counters, the index behind them, and where verdicts go.
struct Judge<'a> {
    filter: &'a mut AcceleratedFilter,
    port: &'a mut dyn IndexPort,
    resolved: &'a mut Vec<(u64, Verdict)>,
}

#[derive(Debug)]
enum Kind {
    Eager(FilterOrder),
    Lazy(Box<Lazy>),
    Sampled(Box<Sampled>),
    Auto(Box<Auto>),
    None,
}

impl StreamLookup {
    /// A stream that starts with nothing waiting.
    ///
    /// # Errors
    /// A parameter is out of range (`Invalid`); the message names the range.
    pub fn new(strategy: &LookupStrategy) -> Result<Self> {
        strategy.validate()?;
        let kind = match strategy {
            LookupStrategy::Eager(order) => Kind::Eager(*order),
            LookupStrategy::Lazy(parameters) => Kind::Lazy(Box::new(Lazy::new(parameters, false))),
            LookupStrategy::SecondLook(parameters) => {
                Kind::Lazy(Box::new(Lazy::new(parameters, true)))
            }
            LookupStrategy::Sampled(parameters) => {
                Kind::Sampled(Box::new(Sampled::new(parameters)))
            }
            LookupStrategy::Auto(parameters) => Kind::Auto(Box::new(Auto::new(parameters))),
            LookupStrategy::None => Kind::None,
        };
        Ok(Self { kind })
    }

    /// Hands in the next fingerprint of the stream under the owner's ticket; tickets rise. Verdicts
    /// that are known now are appended to `resolved`, in any order.
    ///
    /// The owner has looked for the chunk among those of its open containers before (S1.24).
    ///
    /// # Errors
    /// The port failed; the stream cannot go on.
    pub fn push(
        &mut self,
        filter: &mut AcceleratedFilter,
        port: &mut dyn IndexPort,
        ticket: u64,
        fingerprint: &Fingerprint,
        resolved: &mut Vec<(u64, Verdict)>,
    ) -> Result<()> {
        let judge = &mut Judge { filter, port, resolved };
        let waiting = match &mut self.kind {
            Kind::Eager(order) => {
                let verdict = judge.filter.judge_in_order(*order, judge.port, fingerprint)?;
                judge.resolved.push((ticket, verdict));
                return Ok(());
            }
            Kind::Lazy(lazy) => {
                lazy.push(judge, ticket, fingerprint)?;
                lazy.waiting()
            }
            Kind::Sampled(sampled) => {
                sampled.push(judge, ticket, fingerprint)?;
                sampled.waiting()
            }
            Kind::Auto(auto) => return auto.push(judge, ticket, fingerprint),
            Kind::None => {
                judge.resolved.push((ticket, Verdict::New));
                return Ok(());
            }
        };
        filter.counters_mut().chunks_held += u64::from(waiting > 0);
        Ok(())
    }

    /// Resolves at least what waits under tickets below `ticket`, for an owner that has to let go
    /// of its oldest chunks, or of all: at the end of the stream. It can go on afterwards.
    ///
    /// # Errors
    /// The port failed; the stream cannot go on.
    pub fn drain_before(
        &mut self,
        ticket: u64,
        filter: &mut AcceleratedFilter,
        port: &mut dyn IndexPort,
        resolved: &mut Vec<(u64, Verdict)>,
    ) -> Result<()> {
        let judge = &mut Judge { filter, port, resolved };
        match &mut self.kind {
            Kind::Eager(_) | Kind::None => Ok(()),
            Kind::Lazy(lazy) => lazy.drain_before(ticket, judge),
            Kind::Sampled(sampled) => {
                sampled.drain_before(ticket, judge);
                Ok(())
            }
            Kind::Auto(auto) => auto.drain_before(ticket, judge),
        }
    }

    /// Fingerprints that wait for a verdict.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match &self.kind {
            Kind::Eager(_) | Kind::None => 0,
            Kind::Lazy(lazy) => lazy.waiting(),
            Kind::Sampled(sampled) => sampled.waiting(),
            Kind::Auto(auto) => auto.waiting(),
        }
    }

    /// What [`LookupStrategy::Auto`] knows and has chosen; `None` for other strategies.
    #[must_use]
    pub fn auto_report(&self) -> Option<AutoReport> {
        match &self.kind {
            Kind::Auto(auto) => Some(auto.report()),
            _ => None,
        }
    }

    /// How the stream is looked up, and why, in one paragraph of plain English.
    #[must_use]
    pub fn explain(&self, counters: &FilterCounters) -> String {
        match &self.kind {
            Kind::Eager(FilterOrder::CacheFirst) => explain_fixed(
                "eagerly, each chunk as it comes: first in the cache, then in the summary vector",
                counters,
            ),
            Kind::Eager(FilterOrder::FilterFirst) => explain_fixed(
                "eagerly, each chunk as it comes: first in the summary vector, then in the cache",
                counters,
            ),
            Kind::Lazy(lazy) => explain_fixed(&lazy.describe(), counters),
            Kind::Sampled(sampled) => explain_fixed(&sampled.describe(), counters),
            Kind::Auto(auto) => auto.report().to_string(),
            Kind::None => {
                "Chunks are not looked up, as was asked for: each is stored anew.".to_owned()
            }
        }
    }
}

fn explain_fixed(how: &str, counters: &FilterCounters) -> String {
    format!(
        "Chunks are looked up {how}, as was asked for. So far {} look-ups took {} accesses of the \
         device.",
        counters.lookups,
        counters.device_reads()
    )
}
