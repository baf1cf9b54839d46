//! Hidden snapshots: they keep their space, which nothing else would tell (R86).

use crate::context::Context;
use crate::size::{counted, human};
use crate::time;
use onefold_engine::Repository;
use onefold_engine::session::SnapshotList;
use onefold_engine::session::marks::Marks;
use onefold_types::Result;
use serde_json::{Value, json};

/// The hidden snapshots of a store.
pub struct Hidden {
    count: u64,
    on_hold: u64,
    /// When the first of them was hidden.
    since_ns: Option<i64>,
    /// What they had to store when they were saved. Others may need it too, and they may need what
    /// others stored: what freeing them gives is known only to a collection.
    bytes_stored: u64,
}

impl Hidden {
    /// Looks for them.
    pub fn find(repository: &Repository) -> Result<Self> {
        let marks = Marks::load(repository)?;
        let list = SnapshotList::load(repository)?;
        let mut found = Self { count: 0, on_hold: 0, since_ns: None, bytes_stored: 0 };
        for snapshot in list.snapshots.iter().filter(|snapshot| snapshot.hidden) {
            let since_ns = marks.hidden_since(snapshot.id);
            found.count += 1;
            found.on_hold += u64::from(snapshot.record.hold);
            found.since_ns = [found.since_ns, since_ns].into_iter().flatten().min();
            found.bytes_stored += snapshot.record.summary.bytes_stored;
        }
        Ok(found)
    }

    /// Says so if there are any, and how their space is freed.
    pub fn tell(&self, context: &Context) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let since = self.since_ns.map(|since_ns| format!(" since {}", time::local(since_ns)));
        let (verb, pronoun, noun) = match self.count {
            1 => ("keeps", "it", "is"),
            _ => ("keep", "they", "are"),
        };
        let held = match self.on_hold {
            0 => String::new(),
            held => format!(", {held} of them on hold"),
        };
        context.output.note(&format!(
            "{} {noun} hidden{}{held} and {verb} what {pronoun} had stored ({} when saved); \
             'onefold gc --forget-hidden 30d' forgets for good and frees \
             what has been hidden for so long",
            counted(self.count, "snapshot"),
            since.unwrap_or_default(),
            human(self.bytes_stored),
        ))
    }

    /// The same for programs.
    pub fn fields(&self) -> Value {
        json!({
            "snapshots": self.count,
            "on_hold": self.on_hold,
            "since": self.since_ns.map(time::universal),
            "bytes_stored": self.bytes_stored,
        })
    }
}
