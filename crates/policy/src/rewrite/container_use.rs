//! How much of each old container a version used, and in how many places; or of each frame, if
//! that is what rewriting counts by ([`UnitId`]).
//!
//! Recorded while a version is written or read, in stream order; the next version's rewriting asks
//! it (HAR, ATC'14, section 4.2: a container that one backup uses sparsely is used sparsely by the
//! next). A container is used in a new *span* if the stream did not use it for the bytes that a
//! restore's cache is sure to hold; a restore has to read it about once for each span.
//!
//! Memory: some sixty bytes for each container the version refers to.

use super::UnitId;
use std::collections::BTreeMap;

/// Bytes of the stream after which a container that was not used is used in a new span: the forward
/// assembly area of S2.32.
pub const SPAN_BYTES: u64 = 32 << 20;

/// How a version used one container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes of the version's chunks that need the container: those in it, each once, and those
    /// that are differences against what is in it.
    pub referred_bytes: u64,
    /// Plain bytes of all the container's chunks; 0 if not known.
    pub payload_bytes: u64,
    /// Separate places of the stream where the container is used; 0 if not known.
    pub spans: u32,
}

impl Usage {
    /// Whether less than half of the container was used (HAR's threshold); `None` if its payload is
    /// not known.
    #[must_use]
    pub fn is_sparse(&self) -> Option<bool> {
        (self.payload_bytes > 0).then_some(self.referred_bytes < self.payload_bytes / 2)
    }
}

/// How a version used the containers.
#[derive(Clone, Debug)]
pub struct ContainerUse {
    containers: BTreeMap<UnitId, Recorded>,
    span_bytes: u64,
    position_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Recorded {
    usage: Usage,
    last_bytes: u64,
}

impl ContainerUse {
    /// Nothing recorded; spans are told apart by [`SPAN_BYTES`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_span(SPAN_BYTES)
    }

    /// Nothing recorded; a restore's cache is sure to hold so many bytes.
    #[must_use]
    pub fn with_span(span_bytes: u64) -> Self {
        Self { containers: BTreeMap::new(), span_bytes, position_bytes: 0 }
    }

    /// The next chunk of the stream lies in this container. `is_first` says whether the stream
    /// has not had the chunk before.
    pub fn refer(&mut self, container: UnitId, size_bytes: u32, is_first: bool) {
        self.use_next(container, u64::from(size_bytes), is_first);
    }

    /// The next bytes of the stream, several chunks, lie in this container; repeated ones count
    /// again.
    pub fn refer_run(&mut self, container: UnitId, bytes: u64) {
        self.use_next(container, bytes, true);
    }

    /// Chunks of so many bytes, which lie elsewhere, are differences against what lies in this
    /// container.
    pub fn rest_on(&mut self, container: UnitId, bytes: u64) {
        let usage = &mut self.containers.entry(container).or_default().usage;
        usage.referred_bytes = usage.referred_bytes.saturating_add(bytes);
        usage.spans = usage.spans.max(1);
    }

    fn use_next(&mut self, container: UnitId, bytes: u64, is_first: bool) {
        let recorded = self.containers.entry(container).or_default();
        let is_near = self.position_bytes.saturating_sub(recorded.last_bytes) < self.span_bytes;
        if recorded.usage.spans == 0 || !is_near {
            recorded.usage.spans = recorded.usage.spans.saturating_add(1);
        }
        self.position_bytes = self.position_bytes.saturating_add(bytes);
        recorded.last_bytes = self.position_bytes;
        if is_first {
            recorded.usage.referred_bytes = recorded.usage.referred_bytes.saturating_add(bytes);
        }
    }

    /// What the container holds in all.
    pub fn set_payload(&mut self, container: UnitId, payload_bytes: u64) {
        self.containers.entry(container).or_default().usage.payload_bytes = payload_bytes;
    }

    /// Sets all that is known of a container, for records from elsewhere.
    pub fn insert(&mut self, container: UnitId, usage: Usage) {
        self.containers.insert(container, Recorded { usage, last_bytes: 0 });
    }

    /// How the container was used; `None` if it was not.
    #[must_use]
    pub fn get(&self, container: &UnitId) -> Option<Usage> {
        self.containers.get(container).map(|recorded| recorded.usage)
    }

    /// All containers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (UnitId, Usage)> + '_ {
        self.containers.iter().map(|(container, recorded)| (*container, recorded.usage))
    }

    /// Containers used.
    #[must_use]
    pub fn len(&self) -> usize {
        self.containers.len()
    }

    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }
}

impl Default for ContainerUse {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<(UnitId, Usage)> for ContainerUse {
    fn from_iter<I: IntoIterator<Item = (UnitId, Usage)>>(usages: I) -> Self {
        let mut all = Self::new();
        for (container, usage) in usages {
            all.insert(container, usage);
        }
        all
    }
}
