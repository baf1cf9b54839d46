//! `forget`: hides snapshots, by name or by policy; with `--final` it forgets them for good.
//!
//! Plan, then execute: the whole plan is printed before anything is touched, and if any group is
//! refused nothing is touched at all (R49).

use crate::bounds::BoundArguments;
use crate::commands::gc;
use crate::config_file::ForgetProfile;
use crate::context::{Access, Context, user_at_host};
use crate::exit::Outcome;
use crate::options::FilterArguments;
use crate::reference::Snapshots;
use crate::size::counted;
use crate::table::Table;
use crate::time;
use clap::Args;
use jiff::tz::TimeZone;
use onefold_engine::collection::{CollectOptions, SpaceGoal};
use onefold_engine::retention::candidate;
use onefold_engine::session::forgetting;
use onefold_engine::session::{Snapshot, tombstones};
use onefold_engine::{Repository, retention};
use onefold_policy::retention::{
    Candidate, Count, Decision, GroupBy, GroupPlan, KeepPolicy, KeepSpan, RetentionRequest,
    plan_retention,
};
use onefold_policy::selection::{SnapshotFilter, SnapshotReference};
use onefold_policy::tag_list::TagList;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use serde_json::json;
use std::sync::Arc;

const AFTER_HELP: &str = "\
Hidden snapshots come back with 'undelete'. With --final they never do, and a policy then also
forgets those hidden before that it does not keep. Neither frees space by itself: --prune does,
which is --final and 'onefold gc' in one. Counts are numbers or 'unlimited'; spans look like
1y5m7d2h. Snapshots on hold stay.

EXAMPLES
  onefold forget --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run
  onefold forget --keep-daily 7 --keep-weekly 5 --prune
  onefold forget --keep-within-daily 1m --host web1
  onefold forget 1a2b3c4d";

/// Arguments of `forget`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ForgetArguments {
    /// Forget these, whatever the policy
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<SnapshotReference>,
    #[command(flatten)]
    filter: FilterArguments,
    /// What makes snapshots a group, of which each is judged by itself [default: host,paths]
    #[arg(short, long, value_name = "host,paths,tags")]
    group_by: Option<GroupBy>,
    /// Only show what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Forget for good: 'undelete' will not bring them back
    #[arg(long = "final")]
    for_good: bool,
    /// Forget for good, then collect: frees the space at once
    #[arg(long, conflicts_with = "give_up")]
    prune: bool,
    /// Accept that nothing remains of a group
    #[arg(long)]
    allow_empty_group: bool,
    /// Give up a snapshot whose record is lost, so that collections go on without it (may be
    /// repeated)
    #[arg(long, value_name = "ID", conflicts_with_all = ["snapshots", "for_good"])]
    give_up: Vec<String>,
    // Last, because its heading holds for whatever follows.
    #[command(flatten)]
    keep: KeepArguments,
}

/// The rules.
#[derive(Args, Debug)]
#[command(next_help_heading = "What to keep")]
struct KeepArguments {
    /// The newest N
    #[arg(short = 'l', long, value_name = "N")]
    keep_last: Option<Count>,
    /// The newest of each of the last N hours that have one
    #[arg(short = 'H', long, value_name = "N")]
    keep_hourly: Option<Count>,
    /// The same by days
    #[arg(short = 'd', long, value_name = "N")]
    keep_daily: Option<Count>,
    /// The same by weeks
    #[arg(short = 'w', long, value_name = "N")]
    keep_weekly: Option<Count>,
    /// The same by months
    #[arg(short = 'm', long, value_name = "N")]
    keep_monthly: Option<Count>,
    /// The same by quarters
    #[arg(long, value_name = "N")]
    keep_quarterly: Option<Count>,
    /// The same by years
    #[arg(short = 'y', long, value_name = "N")]
    keep_yearly: Option<Count>,
    /// All of this span before the newest
    #[arg(long, value_name = "SPAN")]
    keep_within: Option<KeepSpan>,
    /// One an hour of this span before the newest
    #[arg(long, value_name = "SPAN")]
    keep_within_hourly: Option<KeepSpan>,
    /// One a day
    #[arg(long, value_name = "SPAN")]
    keep_within_daily: Option<KeepSpan>,
    /// One a week
    #[arg(long, value_name = "SPAN")]
    keep_within_weekly: Option<KeepSpan>,
    /// One a month
    #[arg(long, value_name = "SPAN")]
    keep_within_monthly: Option<KeepSpan>,
    /// One a quarter
    #[arg(long, value_name = "SPAN")]
    keep_within_quarterly: Option<KeepSpan>,
    /// One a year
    #[arg(long, value_name = "SPAN")]
    keep_within_yearly: Option<KeepSpan>,
    /// Those with all these tags (may be repeated)
    #[arg(long, value_name = "TAG,..")]
    keep_tag: Vec<TagList>,
    /// This one (may be repeated)
    #[arg(long, value_name = "SNAPSHOT")]
    keep_id: Vec<SnapshotReference>,
}

impl KeepArguments {
    fn is_given(&self) -> bool {
        let counts = [
            self.keep_last,
            self.keep_hourly,
            self.keep_daily,
            self.keep_weekly,
            self.keep_monthly,
            self.keep_quarterly,
            self.keep_yearly,
        ];
        let spans = [
            self.keep_within,
            self.keep_within_hourly,
            self.keep_within_daily,
            self.keep_within_weekly,
            self.keep_within_monthly,
            self.keep_within_quarterly,
            self.keep_within_yearly,
        ];
        counts.iter().any(Option::is_some)
            || spans.iter().any(Option::is_some)
            || !self.keep_tag.is_empty()
            || !self.keep_id.is_empty()
    }

    /// The policy; each rule that is not given here is the profile's.
    fn policy(&self, profile: &ForgetProfile, all: &Snapshots) -> Result<KeepPolicy> {
        let ids = self
            .keep_id
            .iter()
            .map(|reference| Ok(all.resolve(reference, &SnapshotFilter::default())?.id));
        Ok(KeepPolicy {
            last: self.keep_last.or(profile.keep_last),
            hourly: self.keep_hourly.or(profile.keep_hourly),
            daily: self.keep_daily.or(profile.keep_daily),
            weekly: self.keep_weekly.or(profile.keep_weekly),
            monthly: self.keep_monthly.or(profile.keep_monthly),
            quarterly: self.keep_quarterly.or(profile.keep_quarterly),
            yearly: self.keep_yearly.or(profile.keep_yearly),
            within: self.keep_within.or(profile.keep_within),
            within_hourly: self.keep_within_hourly.or(profile.keep_within_hourly),
            within_daily: self.keep_within_daily.or(profile.keep_within_daily),
            within_weekly: self.keep_within_weekly.or(profile.keep_within_weekly),
            within_monthly: self.keep_within_monthly.or(profile.keep_within_monthly),
            within_quarterly: self.keep_within_quarterly.or(profile.keep_within_quarterly),
            within_yearly: self.keep_within_yearly.or(profile.keep_within_yearly),
            tags: match self.keep_tag.is_empty() {
                true => profile.keep_tag.clone(),
                false => self.keep_tag.clone(),
            },
            ids: ids.collect::<Result<_>>()?,
        })
    }
}

/// The filter of the options, field by field the profile's where none is given.
fn filter_of(arguments: &FilterArguments, profile: &ForgetProfile) -> SnapshotFilter {
    fn either<T: Clone>(given: &[T], profile: &[T]) -> Vec<T> {
        match given {
            [] => profile.to_vec(),
            given => given.to_vec(),
        }
    }
    SnapshotFilter {
        hosts: either(&arguments.hosts, &profile.host),
        tags: either(&arguments.tags, &profile.tag),
        paths: either(&arguments.paths, &profile.path),
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &ForgetArguments) -> Result<Outcome> {
    let profile = &context.profile.forget;
    let by_name = !arguments.snapshots.is_empty();
    // The profile speaks of its policy: who names a snapshot says how.
    let by_policy = !by_name && arguments.give_up.is_empty();
    let prune = arguments.prune || (by_policy && profile.prune);
    let for_good = arguments.for_good || prune || (by_policy && profile.for_good);
    if (by_name || !arguments.give_up.is_empty()) && arguments.keep.is_given() {
        return Err(Error::invalid(
            "snapshots and a policy are given; forget either by name or by policy",
        ));
    }
    let access = match arguments.dry_run {
        true => Access::Read,
        false => Access::Write,
    };
    let repository = context.open(access)?;
    let all = Snapshots::load_unaided(&repository, &context.output)?;
    if !arguments.give_up.is_empty() {
        return give_up(context, &repository, &all, arguments);
    }
    all.warn_of_clocks(&filter_of(&arguments.filter, profile));
    let chosen = match by_name {
        true => choose_by_name(context, &repository, &all, arguments, for_good)?,
        false => choose_by_policy(context, &repository, &all, arguments, for_good)?,
    };
    let end = End { for_good, prune, dry_run: arguments.dry_run };
    execute(context, &repository, &chosen, end)?;
    match prune && !arguments.dry_run {
        true => collect(context, &repository),
        false => Ok(Outcome::Complete),
    }
}

/// Frees the space of what was forgotten, as `gc` does by the profile's settings.
fn collect(context: &Context, repository: &Arc<Repository>) -> Result<Outcome> {
    gc::step_back();
    let settings = &context.profile.gc;
    let bounds = BoundArguments::default().or(&settings.bounds);
    let goal = settings.space_goal.map_or_else(SpaceGoal::default, |goal| goal.0);
    let options = CollectOptions { goal, ..gc::options(context, &bounds) };
    let report = gc::collect(context, repository, Access::Write, &options)?;
    gc::summarize(context, &report, false)?;
    context.output.message("collection", gc::fields(&report, false))?;
    Ok(gc::outcome_of(&report))
}

/// Gives up sessions whose records are lost. All are looked up before the first is given up.
fn give_up(
    context: &Context,
    repository: &Repository,
    all: &Snapshots,
    arguments: &ForgetArguments,
) -> Result<Outcome> {
    let mut chosen = Vec::new();
    for beginning in &arguments.give_up {
        let mut found = all.list.lost.iter();
        let mut matching = found
            .by_ref()
            .filter(|id| !beginning.is_empty() && id.to_string().starts_with(beginning));
        match (matching.next(), matching.next()) {
            (Some(id), None) => chosen.push(*id),
            // Of a session only its containers may tell.
            (None, _) if beginning.parse::<SessionId>().is_ok() => {
                chosen.extend(beginning.parse::<SessionId>())
            }
            (None, _) => {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!(
                        "no record that is lost has an id that begins with '{beginning}'; \
                         'onefold check' names those that are"
                    ),
                ));
            }
            _ => {
                return Err(Error::invalid(format!(
                    "several records that are lost have ids that begin with '{beginning}'"
                )));
            }
        }
    }
    let count = counted(chosen.len() as u64, "snapshot");
    if arguments.dry_run {
        for id in &chosen {
            forgetting::refuse_unless_lost(repository, *id)?;
        }
        context.output.note(&format!("would give up {count}; nothing was changed"))?;
    } else {
        let by = user_at_host();
        context.with_reserve(repository, || {
            chosen.iter().try_for_each(|id| forgetting::give_up(repository, *id, &by))
        })?;
        context.output.set_done(format!("{count} given up"));
        let line = format!("gave up {count}: whatever their records named may be collected");
        context.output.note(&line)?;
    }
    context.output.message(
        "summary",
        json!({
            "given_up": chosen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "dry_run": arguments.dry_run,
        }),
    )?;
    Ok(Outcome::Complete)
}

fn choose_by_name(
    context: &Context,
    repository: &Repository,
    all: &Snapshots,
    arguments: &ForgetArguments,
    for_good: bool,
) -> Result<Vec<SessionId>> {
    let filter = arguments.filter.filter();
    let mut chosen = Vec::new();
    for reference in &arguments.snapshots {
        // What is hidden already can still be forgotten for good.
        let found = match (for_good, reference) {
            (true, SnapshotReference::Name(_)) => all.resolve_any(reference),
            _ => all.resolve(reference, &filter),
        };
        let snapshot = match found {
            Ok(snapshot) => snapshot,
            Err(error) => {
                // A request that was stopped in the middle can be repeated.
                let id = forgotten_before(repository, reference, &error)?.filter(|_| for_good);
                chosen.push(id.ok_or(error)?);
                continue;
            }
        };
        if snapshot.record.hold {
            return Err(Error::invalid(format!(
                "snapshot {} is on hold; nothing was forgotten",
                snapshot.id.short()
            )));
        }
        if !chosen.contains(&snapshot.id) {
            chosen.push(snapshot.id);
            let fields =
                json!({ "snapshot": snapshot.id.to_string(), "keep": false, "reasons": [] });
            context.output.message("decision", fields)?;
        }
    }
    Ok(chosen)
}

/// The snapshot that was not found because it is forgotten for good; only a whole id tells.
fn forgotten_before(
    repository: &Repository,
    reference: &SnapshotReference,
    error: &Error,
) -> Result<Option<SessionId>> {
    match reference.to_string().parse() {
        Ok(id) if error.kind() == ErrorKind::NotFound => {
            Ok(tombstones::is_forgotten(repository, id)?.then_some(id))
        }
        _ => Ok(None),
    }
}

fn choose_by_policy(
    context: &Context,
    repository: &Repository,
    all: &Snapshots,
    arguments: &ForgetArguments,
    for_good: bool,
) -> Result<Vec<SessionId>> {
    let profile = &context.profile.forget;
    let policy = arguments.keep.policy(profile, all)?;
    if policy.is_empty() {
        return Err(Error::invalid(
            "neither snapshots nor a policy are given: name snapshots, or say what to keep with \
             --keep-last, --keep-daily and so on; nothing was forgotten",
        ));
    }
    let filter = filter_of(&arguments.filter, profile);
    let candidates: Vec<Candidate> = all.selected(&filter).into_iter().map(candidate).collect();
    let request = RetentionRequest {
        policy,
        group_by: arguments.group_by.or(profile.group_by).unwrap_or_default(),
        allow_empty_group: arguments.allow_empty_group,
    };
    let now_ns = repository.environment().clock.now_ns();
    let groups = plan_retention(&candidates, &request, &TimeZone::system(), now_ns)?;
    let mut chosen = Vec::new();
    let mut refused = Vec::new();
    for group in &groups {
        match &group.decisions {
            Ok(decisions) => {
                print_group(context, all, group, decisions)?;
                let removed = decisions.iter().filter(|decision| !decision.keep);
                chosen.extend(removed.map(|decision| decision.id));
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    if for_good {
        chosen.extend(choose_hidden(context, all, &filter, &request, now_ns)?);
    }
    match refused.is_empty() {
        true => Ok(chosen),
        false => Err(Error::invalid(format!(
            "{}; nothing was forgotten (--allow-empty-group forgets them all the same)",
            refused.join("; ")
        ))),
    }
}

/// The hidden snapshots that the policy would not keep either, if nothing were hidden. What is
/// hidden displaces nothing that is not, so these are judged apart; those of a group of which
/// nothing would remain stay.
fn choose_hidden(
    context: &Context,
    all: &Snapshots,
    filter: &SnapshotFilter,
    request: &RetentionRequest,
    now_ns: i64,
) -> Result<Vec<SessionId>> {
    let mut candidates = retention::candidates(&all.list, true);
    candidates.retain(|candidate| filter.matches(candidate));
    let is_hidden = |id: &SessionId| all.list.get(*id).is_some_and(|snapshot| snapshot.hidden);
    let groups = plan_retention(&candidates, request, &TimeZone::system(), now_ns)?;
    let decisions = groups.iter().filter_map(|group| group.decisions.as_ref().ok()).flatten();
    let chosen: Vec<SessionId> = decisions
        .filter(|decision| !decision.keep && is_hidden(&decision.id))
        .map(|decision| decision.id)
        .collect();
    for id in &chosen {
        context.output.note(&format!("forget {} (hidden before)", id.short()))?;
        let fields = json!({
            "snapshot": id.to_string(),
            "keep": false,
            "hidden": true,
            "reasons": [],
        });
        context.output.message("decision", fields)?;
    }
    Ok(chosen)
}

fn print_group(
    context: &Context,
    all: &Snapshots,
    group: &GroupPlan,
    decisions: &[Decision],
) -> Result<()> {
    let output = &context.output;
    let kept = decisions.iter().filter(|decision| decision.keep).count();
    output.note(&format!(
        "\n{}: keep {kept}, forget {}",
        super::snapshots::describe(&group.key),
        decisions.len() - kept
    ))?;
    let mut table = Table::new(&["", "ID", "Time", "Tags", "Reasons"]);
    for decision in decisions {
        let snapshot = all.list.get(decision.id);
        let text = |of: fn(&Snapshot) -> String| snapshot.map(of).unwrap_or_default();
        table.row(vec![
            if decision.keep { "keep" } else { "forget" }.to_owned(),
            decision.id.short(),
            text(|snapshot| time::local(snapshot.record.started_ns)),
            text(|snapshot| snapshot.record.tags.join(",")),
            decision.reasons.join(", "),
        ]);
        let fields = json!({
            "snapshot": decision.id.to_string(),
            "keep": decision.keep,
            "reasons": decision.reasons,
            "group": { "host": group.key.host, "paths": group.key.paths, "tags": group.key.tags },
        });
        output.message("decision", fields)?;
    }
    match output.style().quiet {
        true => Ok(()),
        false => table.print(output),
    }
}

/// How snapshots are forgotten.
struct End {
    for_good: bool,
    /// Whether a collection follows at once.
    prune: bool,
    dry_run: bool,
}

fn execute(
    context: &Context,
    repository: &Repository,
    chosen: &[SessionId],
    end: End,
) -> Result<()> {
    let End { for_good, prune, dry_run } = end;
    let output = &context.output;
    let count = counted(chosen.len() as u64, "snapshot");
    if !dry_run && !chosen.is_empty() {
        let by = user_at_host();
        let check = || retention::refuse_held(repository, chosen);
        let done = context.in_pieces(repository, chosen, check, |piece| match for_good {
            true => retention::forget_final(repository, piece, &by),
            false => retention::forget(repository, piece, &by),
        });
        done.map_err(|error| naming_done(error, repository, chosen, for_good))?;
        output.set_done(match for_good {
            true => format!("{count} forgotten for good"),
            false => format!("{count} hidden"),
        });
    }
    let line = match (chosen.is_empty(), dry_run, for_good) {
        (true, _, _) => "\nnothing to forget".to_owned(),
        (_, true, _) => format!("\nwould forget {count}; nothing was changed"),
        (_, _, true) if prune => format!("\nforgot {count} for good; now their space is freed"),
        (_, _, true) => {
            format!("\nforgot {count} for good; a later collection frees the space")
        }
        _ => format!(
            "\nhid {count}; 'onefold undelete' brings them back. They keep their space until \
             'onefold gc --forget-hidden 30d' or 'onefold forget --prune' has forgotten them for \
             good"
        ),
    };
    output.note(&line)?;
    output.message(
        "summary",
        json!({
            "forgotten": chosen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "final": for_good,
            "dry_run": dry_run,
        }),
    )
}

/// An error of forgetting, and which snapshots are forgotten all the same.
fn naming_done(
    error: Error,
    repository: &Repository,
    chosen: &[SessionId],
    for_good: bool,
) -> Error {
    let done = retention::done_of(repository, chosen, for_good).unwrap_or_default();
    let what = if for_good { "forgotten for good" } else { "hidden" };
    let short = |ids: &[SessionId]| -> String {
        ids.iter().map(|id| id.short()).collect::<Vec<_>>().join(", ")
    };
    // What is forgotten for good is hidden first.
    let hidden = retention::done_of(repository, chosen, false).unwrap_or_default();
    let hidden: Vec<SessionId> = hidden.into_iter().filter(|id| !done.contains(id)).collect();
    if done.is_empty() && hidden.is_empty() {
        return error;
    }
    let hidden = match hidden.is_empty() {
        true => String::new(),
        false => format!(", {} hidden ({})", hidden.len(), short(&hidden)),
    };
    error.context(format!(
        "{} of {} are {what} all the same ({}){hidden}; once that is mended, the same command goes \
         on",
        done.len(),
        counted(chosen.len() as u64, "snapshot"),
        short(&done)
    ))
}
