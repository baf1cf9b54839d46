//! What `hold`, `release`, `tag` and `describe` share: which snapshots are meant, what is said
//! about them, and what is told of it.
//!
//! All snapshots are looked up before the first is changed. Saying again what is said already is no
//! error, and writes nothing.

use crate::context::{Context, user_at_host};
use crate::exit::Outcome;
use crate::options::FilterArguments;
use crate::reference::Snapshots;
use crate::size::counted;
use clap::Args;
use onefold_engine::session::changes::Attributes;
use onefold_engine::{Repository, retention};
use onefold_policy::selection::{SnapshotFilter, SnapshotReference};
use onefold_types::{Error, ErrorKind, Result, SessionId};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The snapshots to change.
#[derive(Args, Debug)]
pub struct SubjectArguments {
    /// The snapshots; none: all that --host, --path and --tag select
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<SnapshotReference>,
    #[command(flatten)]
    filter: FilterArguments,
    /// Only show what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

impl SubjectArguments {
    /// The snapshots meant, each once. Hidden ones are only meant if `with_hidden` says so and they
    /// are named.
    pub fn resolve(&self, all: &Snapshots, with_hidden: bool) -> Result<Vec<SessionId>> {
        let filter = self.filter.filter();
        if self.snapshots.is_empty() {
            if filter == SnapshotFilter::default() {
                return Err(Error::invalid(
                    "no snapshots are given: name them, or select them with --host, --path or \
                     --tag; nothing was changed",
                ));
            }
            let selected: Vec<SessionId> =
                all.selected(&filter).iter().map(|snapshot| snapshot.id).collect();
            return match selected.is_empty() {
                true => Err(Error::new(ErrorKind::NotFound, "no snapshot fits")),
                false => Ok(selected),
            };
        }
        let mut chosen = Vec::new();
        for reference in &self.snapshots {
            let id = match (with_hidden, reference) {
                (true, SnapshotReference::Name(_)) => all.resolve_any(reference)?.id,
                _ => all.resolve(reference, &filter)?.id,
            };
            if !chosen.contains(&id) {
                chosen.push(id);
            }
        }
        Ok(chosen)
    }
}

/// What is to be said, of whom, and in which words that is told.
pub struct Saying<'a> {
    /// The snapshots.
    pub snapshots: &'a [SessionId],
    /// What becomes of what is said about each.
    pub apply: &'a dyn Fn(&mut Attributes),
    /// What has come of it.
    pub done: &'a dyn Fn(&Attributes) -> String,
    /// The same of one of which that was said before.
    pub said: &'a str,
    /// Whether nothing is to be changed.
    pub dry_run: bool,
    /// Whether room set aside may be used: on a full device only for what frees some.
    pub relieves: bool,
}

/// What is said about a snapshot in the end, and whether that is new.
type Said = BTreeMap<SessionId, (Attributes, bool)>;

impl Saying<'_> {
    /// Says it, and tells.
    pub fn run(
        &self,
        context: &Context,
        repository: &Repository,
        all: &Snapshots,
    ) -> Result<Outcome> {
        let said = match self.dry_run {
            true => self.foresee(all),
            false => self.say(context, repository)?,
        };
        let output = &context.output;
        if !self.dry_run {
            output.set_done("what was to be said about the snapshots is said");
        }
        let mut changed = Vec::new();
        for id in self.snapshots {
            let Some((attributes, is_new)) = said.get(id) else { continue };
            let what = match (is_new, self.dry_run) {
                (true, false) => (self.done)(attributes),
                (true, true) => format!("would be changed: {}", (self.done)(attributes)),
                (false, _) => self.said.to_owned(),
            };
            output.note(&format!("snapshot {}: {what}", id.short()))?;
            let fields = json!({
                "snapshot": id.to_string(),
                "changed": is_new,
                "hold": attributes.hold,
                "tags": attributes.tags,
                "description": attributes.description,
            });
            output.message("changed", fields)?;
            changed.extend(is_new.then(|| id.to_string()));
        }
        if self.dry_run {
            let count = counted(changed.len() as u64, "snapshot");
            output.note(&format!("would change {count}; nothing was changed"))?;
        }
        output.message("summary", json!({ "changed": changed, "dry_run": self.dry_run }))?;
        Ok(Outcome::Complete)
    }

    fn foresee(&self, all: &Snapshots) -> Said {
        let foreseen = |id: &SessionId| {
            let record = &all.list.get(*id)?.record;
            let before = Attributes {
                hold: record.hold,
                tags: record.tags.clone(),
                description: record.description.clone(),
            };
            let mut after = before.clone();
            (self.apply)(&mut after);
            let is_new = after != before || all.list.changes.of(*id).is_lost;
            Some((*id, (after, is_new)))
        };
        self.snapshots.iter().filter_map(foreseen).collect()
    }

    fn say(&self, context: &Context, repository: &Repository) -> Result<Said> {
        let by = user_at_host();
        let said: RefCell<Said> = RefCell::default();
        let work = |piece: &[SessionId]| {
            for one in retention::change(repository, piece, &by, self.apply)? {
                let mut said = said.borrow_mut();
                // A piece that ran out of room is repeated, and then has less to change.
                let before = said.get(&one.snapshot).is_some_and(|(_, is_new)| *is_new);
                said.insert(one.snapshot, (one.attributes, one.is_new || before));
            }
            Ok(())
        };
        match self.relieves {
            true => context.in_pieces(repository, self.snapshots, || Ok(()), work)?,
            false => work(self.snapshots)?,
        }
        Ok(said.into_inner())
    }
}
