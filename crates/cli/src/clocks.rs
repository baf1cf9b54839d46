//! What is told of snapshots whose dates cannot be right.
//!
//! A snapshot's date comes from the clock of the machine that saved it. Dates decide what is
//! `latest` and what a policy keeps, so it is said where they do not fit the order in which
//! snapshots were saved, which no clock decides.

use crate::output::Output;
use crate::time;
use onefold_engine::session::Snapshot;
use onefold_policy::retention::is_dated_before;

/// Snapshots that a warning names.
const NAMED: usize = 5;

/// Warns of snapshots that are dated in the future, and of those that are dated before snapshots
/// that were saved earlier.
pub fn warn(output: &Output, snapshots: &[&Snapshot], now_ns: i64) {
    let (future, early) = misdated(snapshots, now_ns);
    if !future.is_empty() {
        output.warning(&format!(
            "dated in the future: {}; until then 'latest' means the last of them, and no policy \
             counts them. A clock was wrong; 'onefold forget' with the name hides such a snapshot",
            named(&future)
        ));
    }
    if !early.is_empty() {
        output.warning(&format!(
            "dated before snapshots that were saved earlier: {}; 'latest' and policies take them \
             for older than they are. A clock was wrong",
            named(&early)
        ));
    }
}

/// Warns if what is meant by `latest` is dated in the future, or another one was saved after it.
pub fn warn_of_latest(output: &Output, snapshots: &[&Snapshot], now_ns: i64) {
    let latest = snapshots.iter().max_by_key(|one| (one.record.started_ns, one.id));
    let saved = snapshots.iter().filter(|one| one.is_dated_by_clock());
    let last = saved.max_by_key(|one| one.saved_order());
    let (Some(latest), Some(last)) = (latest, last) else { return };
    let is_future = is_dated_before(now_ns, latest.record.started_ns);
    let is_passed_over = (1..last.sequence).contains(&latest.sequence)
        && is_dated_before(last.record.started_ns, latest.record.started_ns);
    if is_future || is_passed_over {
        let when = if is_future { ", in the future" } else { "" };
        output.warning(&format!(
            "'latest' goes by dates, and means snapshot {}{when}; saved last was snapshot {}. A \
             clock was wrong",
            shown(latest),
            shown(last)
        ));
    }
}

/// Snapshots that are dated in the future, and those that are dated before others that were saved
/// earlier.
fn misdated<'a>(snapshots: &[&'a Snapshot], now_ns: i64) -> (Vec<&'a Snapshot>, Vec<&'a Snapshot>) {
    let is_future = |one: &&Snapshot| is_dated_before(now_ns, one.record.started_ns);
    let (future, mut others): (Vec<&Snapshot>, Vec<&Snapshot>) =
        snapshots.iter().copied().partition(is_future);
    others.retain(|one| one.is_dated_by_clock());
    others.sort_unstable_by_key(|one| one.sequence);
    let mut early = Vec::new();
    // The latest date of all that were saved earlier; those with one number were saved together.
    let mut latest_ns = i64::MIN;
    for together in others.chunk_by(|a, b| a.sequence == b.sequence) {
        let is_early = |one: &&&Snapshot| is_dated_before(one.record.started_ns, latest_ns);
        early.extend(together.iter().filter(is_early));
        let dates = together.iter().map(|one| one.record.started_ns);
        latest_ns = dates.fold(latest_ns, i64::max);
    }
    (future, early)
}

fn named(snapshots: &[&Snapshot]) -> String {
    let mut names: Vec<String> = snapshots.iter().take(NAMED).map(|one| shown(one)).collect();
    if snapshots.len() > names.len() {
        names.push(format!("and {} more", snapshots.len() - names.len()));
    }
    names.join(", ")
}

fn shown(snapshot: &Snapshot) -> String {
    format!("{} ({})", snapshot.id.short(), time::local(snapshot.record.started_ns))
}
