//! `find`: files by name, in all snapshots.

use crate::context::{Access, Context};
use crate::entry;
use crate::exit::Outcome;
use crate::options::FilterArguments;
use crate::reference::{Snapshots, unless_forgotten};
use crate::time;
use clap::Args;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use onefold_engine::find;
use onefold_engine::session::Snapshot;
use onefold_policy::selection::SnapshotReference;
use onefold_types::{Error, ErrorKind, Result};
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const AFTER_HELP: &str = "\
A pattern without a slash is compared with names, one with a slash with whole paths; '*' stands
for anything but a slash, '**' also for slashes, '?' for one character, '[a-z]' for one of a set.

EXAMPLES
  onefold find '*.ods'
  onefold find -i --snapshot latest '/home/**/invoice*'";

/// Arguments of `find`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct FindArguments {
    /// What to look for
    #[arg(value_name = "PATTERN", required = true)]
    patterns: Vec<String>,
    /// Look in this snapshot only (may be repeated)
    #[arg(long = "snapshot", value_name = "SNAPSHOT")]
    snapshots: Vec<SnapshotReference>,
    /// Take upper and lower case as equal
    #[arg(short, long)]
    ignore_case: bool,
    /// Show permissions, owners, sizes and times
    #[arg(short, long)]
    long: bool,
    #[command(flatten)]
    filter: FilterArguments,
}

/// Patterns for names and for whole paths.
struct Wanted {
    names: GlobSet,
    paths: GlobSet,
}

impl Wanted {
    fn build(patterns: &[String], ignore_case: bool) -> Result<Self> {
        let wrong = |error: globset::Error| Error::invalid(error.to_string());
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let glob = GlobBuilder::new(pattern)
                .literal_separator(true)
                .backslash_escape(true)
                .case_insensitive(ignore_case)
                .build()
                .map_err(wrong)?;
            match pattern.contains('/') {
                true => paths.add(glob),
                false => names.add(glob),
            };
        }
        Ok(Self { names: names.build().map_err(wrong)?, paths: paths.build().map_err(wrong)? })
    }

    fn matches(&self, full_path: &[u8], name: &[u8]) -> bool {
        let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
        self.names.is_match(as_path(name)) || self.paths.is_match(as_path(full_path))
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &FindArguments) -> Result<Outcome> {
    let wanted = Wanted::build(&arguments.patterns, arguments.ignore_case)?;
    let repository = context.open_near(Access::Read)?;
    let output = &context.output;
    let snapshots = Snapshots::load(&repository, output)?;
    let filter = arguments.filter.filter();
    let searched: Vec<&Snapshot> = match arguments.snapshots.as_slice() {
        [] => snapshots.selected(&filter),
        references => references
            .iter()
            .map(|reference| snapshots.resolve(reference, &filter))
            .collect::<Result<_>>()?,
    };
    let running = context.start_job("searching")?;
    let mut found = 0u64;
    for snapshot in &searched {
        let mut found_here = 0u64;
        let root = snapshot.record.root;
        let walked = find::walk(&repository, root, &running.job, &mut |below, entry| {
            output.still_wanted()?;
            let full_path = super::ls::clean(below);
            if wanted.matches(&full_path, &entry.name) {
                if found_here == 0 {
                    head(context, snapshot)?;
                }
                found_here += 1;
                output.row(&entry::line(&full_path, entry, arguments.long))?;
                if output.style().json {
                    let mut fields = entry::fields(&full_path, entry);
                    fields["snapshot"] = snapshot.id.to_string().into();
                    output.message("match", fields)?;
                }
            }
            Ok(true)
        });
        match unless_forgotten(&repository, snapshot.id, walked) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                output.note(&format!("note: {error}"))?;
            }
            other => other.map(drop)?,
        }
        found += found_here;
    }
    let problems = running.finish();
    output.message("summary", json!({ "snapshots": searched.len(), "matches": found }))?;
    if found == 0 {
        output.note("nothing found")?;
    }
    Ok(Outcome::with_problems(problems))
}

fn head(context: &Context, snapshot: &Snapshot) -> Result<()> {
    let time = time::local(snapshot.record.started_ns);
    let host = &snapshot.record.host;
    let line = format!("snapshot {} of {time} on {host}:", snapshot.id.short());
    context.output.note(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, ignore_case: bool, full_path: &str) -> bool {
        let name = full_path.rsplit('/').next().unwrap();
        let wanted = Wanted::build(&[pattern.to_owned()], ignore_case).unwrap();
        wanted.matches(full_path.as_bytes(), name.as_bytes())
    }

    #[test]
    fn patterns_match_names_or_whole_paths() {
        assert!(matches("*.txt", false, "/a/b.txt"));
        assert!(!matches("*.TXT", false, "/a/b.txt"));
        assert!(matches("*.TXT", true, "/a/b.txt"));
        assert!(matches("/a/*", false, "/a/b.txt"));
        assert!(!matches("/a/*", false, "/a/b/c"));
        assert!(matches("/a/**", false, "/a/b/c"));
        assert!(!matches("a", false, "/a/b"));
        assert!(Wanted::build(&["[".to_owned()], false).is_err());
    }
}
