//! Hidden snapshots: they keep their space, which nothing else would tell (R86).

use crate::context::Context;
use crate::size::{counted, human};
use crate::time;
use onefold_engine::collection::CollectOptions;
use onefold_engine::collection::only_hidden::{OnlyHidden, only_hidden};
use onefold_engine::session::SnapshotList;
use onefold_engine::session::marks::Marks;
use onefold_engine::{Job, Repository};
use onefold_types::Result;
use serde_json::{Value, json};
use std::sync::Arc;

/// The hidden snapshots of a store.
pub struct Hidden {
    count: u64,
    on_hold: u64,
    /// When the first of them was hidden.
    since_ns: Option<i64>,
    /// What they had to store when they were saved. Others may need it too, and they may need what
    /// others stored: what freeing them gives takes marking (`only`).
    bytes_stored: u64,
    /// What only they need, if that was asked for.
    only: Option<OnlyHidden>,
}

impl Hidden {
    /// Looks for them.
    pub fn find(repository: &Repository) -> Result<Self> {
        let marks = Marks::load(repository)?;
        let list = SnapshotList::load(repository)?;
        let mut found = Self { count: 0, on_hold: 0, since_ns: None, bytes_stored: 0, only: None };
        for snapshot in list.snapshots.iter().filter(|snapshot| snapshot.hidden) {
            let since_ns = marks.hidden_since(snapshot.id);
            found.count += 1;
            found.on_hold += u64::from(snapshot.record.hold);
            found.since_ns = [found.since_ns, since_ns].into_iter().flatten().min();
            found.bytes_stored += snapshot.record.summary.bytes_stored;
        }
        Ok(found)
    }

    /// Finds out what only they need. Marks all chunks twice if there are any.
    pub fn find_only(
        &mut self,
        repository: &Arc<Repository>,
        options: &CollectOptions,
        job: &Job,
    ) -> Result<()> {
        self.only = Some(only_hidden(repository, options, job)?);
        Ok(())
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
        let remedy = match self.on_hold == self.count {
            true => "on hold it stays hidden and keeps that until 'onefold release'",
            false => {
                "'onefold gc --forget-hidden 30d' forgets for good and frees what has been hidden \
                 for so long"
            }
        };
        context.output.note(&format!(
            "{} {noun} hidden{}{held} and {verb} what {pronoun} had stored ({} stored when \
             saved{}); {remedy}",
            counted(self.count, "snapshot"),
            since.unwrap_or_default(),
            human(self.bytes_stored),
            match self.only {
                Some(_) => "",
                None => "; what freeing it would give: 'onefold stats --hidden'",
            }
        ))?;
        match &self.only {
            Some(only) => context.output.note(&self.told_only(only)),
            None => Ok(()),
        }
    }

    fn told_only(&self, only: &OnlyHidden) -> String {
        let needing = match (only.snapshots, self.on_hold) {
            (0, _) => return "all of them are on hold, so none can be freed".to_owned(),
            (1, 0) => "only it needs".to_owned(),
            (_, 0) => "only they need".to_owned(),
            (those, _) => format!("only the {those} that are not on hold need"),
        };
        format!(
            "{needing} {}{} in {}: a collection frees about {} once they are forgotten for good",
            if only.is_exact { "" } else { "about " },
            human(only.plain_bytes),
            counted(only.chunks, "chunk"),
            human(only.stored_bytes)
        )
    }

    /// The same for programs.
    pub fn fields(&self) -> Value {
        json!({
            "snapshots": self.count,
            "on_hold": self.on_hold,
            "since": self.since_ns.map(time::universal),
            "bytes_stored": self.bytes_stored,
            "only": self.only.map(|only| json!({
                "snapshots": only.snapshots,
                "chunks": only.chunks,
                "bytes": only.plain_bytes,
                "exact": only.is_exact,
                "bytes_stored": only.stored_bytes,
            })),
        })
    }
}
