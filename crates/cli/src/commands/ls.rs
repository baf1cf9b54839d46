//! `ls`: what a snapshot holds.

use crate::context::{Access, Context};
use crate::entry;
use crate::exit::Outcome;
use crate::reference::{Location, Snapshots, directory_of, unless_forgotten};
use crate::time;
use clap::Args;
use onefold_engine::find;
use onefold_engine::session::Snapshot;
use onefold_engine::tree::path;
use onefold_format::node::{Entry, EntryKind};
use onefold_types::Result;
use std::ffi::OsString;

/// Arguments of `ls`.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  onefold ls latest\n  onefold ls -l 1a2b3c4d:/home/alice")]
pub struct LsArguments {
    /// The snapshot, or a place in it: SNAPSHOT:PATH
    #[arg(value_name = "SNAPSHOT[:PATH]", default_value = "latest")]
    location: OsString,
    /// Show permissions, owners, sizes and times
    #[arg(short, long)]
    long: bool,
    /// Go down so many directories, not all the way; 1 lists only what is directly there
    #[arg(short, long, value_name = "N")]
    depth: Option<usize>,
    #[command(flatten)]
    filter: crate::options::FilterArguments,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &LsArguments) -> Result<Outcome> {
    let location = Location::parse(&arguments.location)?;
    let repository = context.open_near(Access::Read)?;
    let output = &context.output;
    let snapshots = Snapshots::load(&repository, output)?;
    let (snapshot, root) = snapshots.locate(&repository, &location, &arguments.filter.filter())?;
    announce(context, snapshot)?;
    let start = clean(&location.path);
    let print = |full_path: &[u8], entry: &Entry| {
        output.row(&entry::line(full_path, entry, arguments.long))?;
        if output.style().json {
            output.message("node", entry::fields(full_path, entry))?;
        }
        Ok(())
    };
    if root.kind != EntryKind::Directory {
        print(&start, &root)?;
        return Ok(Outcome::Complete);
    }
    let running = context.start_job("listing")?;
    let directory = directory_of(&root, &location)?;
    let depth_max = arguments.depth.unwrap_or(usize::MAX);
    let walked = find::walk(&repository, directory, &running.job, &mut |below, entry| {
        output.still_wanted()?;
        let full_path = joined(&start, below);
        print(&full_path, entry)?;
        Ok(path::components(below).count() < depth_max)
    });
    unless_forgotten(&repository, snapshot.id, walked)?;
    Ok(Outcome::with_problems(running.finish()))
}

fn announce(context: &Context, snapshot: &Snapshot) -> Result<()> {
    let output = &context.output;
    if output.style().verbose {
        output.note(&format!(
            "snapshot {} of {} by {}@{}",
            snapshot.id.short(),
            time::local(snapshot.record.started_ns),
            snapshot.record.user,
            snapshot.record.host
        ))?;
    }
    let fields = super::snapshots::fields(snapshot);
    output.message("snapshot", fields)
}

/// The path with one slash before each component; empty for the root.
#[must_use]
pub fn clean(text: &[u8]) -> Vec<u8> {
    let mut cleaned = Vec::with_capacity(text.len() + 1);
    for component in path::components(text) {
        cleaned.push(b'/');
        cleaned.extend_from_slice(component);
    }
    cleaned
}

/// A path below another, seen from the snapshot's root.
#[must_use]
pub fn joined(start: &[u8], below: &[u8]) -> Vec<u8> {
    let mut full_path = start.to_vec();
    full_path.extend_from_slice(&clean(below));
    full_path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_from_the_root() {
        assert_eq!(clean(b""), b"");
        assert_eq!(clean(b"a//./b/"), b"/a/b");
        assert_eq!(joined(b"/a", b"/b/c"), b"/a/b/c");
        assert_eq!(joined(b"", b"b"), b"/b");
    }
}
