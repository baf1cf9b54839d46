//! `synthesize`: a new snapshot from parts of others (FAST'17, section 2.3).

use super::copy_snapshot::{options, report};
use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::options::RecordArguments;
use crate::reference::{Location, Snapshots};
use clap::Args;
use onefold_engine::synthesis::{self, Part};
use onefold_policy::selection::SnapshotFilter;
use onefold_types::Result;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const AFTER_HELP: &str = "\
A part without =TO keeps its path. A later part goes over an earlier one. The last '=' separates;
nothing behind it stands for the root.

EXAMPLE
  onefold synthesize latest~1 latest:/etc=/etc 1a2b3c4d:/home/alice=/alice";

/// Arguments of `synthesize`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct SynthesizeArguments {
    /// Parts of snapshots, and where they go
    #[arg(value_name = "SNAPSHOT[:PATH][=TO]", required = true)]
    parts: Vec<OsString>,
    #[command(flatten)]
    record: RecordArguments,
}

/// Splits at the last '='; without one the part keeps its path.
fn parse_part(text: &OsString) -> Result<(Location, Vec<u8>)> {
    let bytes = text.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b'=') {
        Some(position) => {
            let location = Location::parse(&OsString::from_vec(bytes[..position].to_vec()))?;
            Ok((location, bytes[position + 1..].to_vec()))
        }
        None => {
            let location = Location::parse(text)?;
            let to = location.path.clone();
            Ok((location, to))
        }
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &SynthesizeArguments) -> Result<Outcome> {
    let parsed = arguments.parts.iter().map(parse_part).collect::<Result<Vec<_>>>()?;
    let repository = context.open(Access::Write)?;
    let snapshots = Snapshots::load(&repository, &context.output)?;
    let parts = parsed
        .into_iter()
        .map(|(location, to)| {
            let filter = SnapshotFilter::default();
            Ok(Part {
                snapshot: snapshots.resolve(&location.snapshot, &filter)?.id,
                path: location.path,
                to,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let running = context.start_job("synthesizing")?;
    let options = options(&arguments.record);
    let id = synthesis::synthesize(&repository, &parts, &options, &running.job)?;
    running.finish();
    report(context, id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_split_at_the_last_equals_sign() {
        let part = |text: &str| {
            let (location, to) = parse_part(&OsString::from(text)).unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (location.snapshot.to_string(), text(&location.path), text(&to))
        };
        let expected = |a: &str, b: &str, c: &str| (a.into(), b.into(), c.into());
        assert_eq!(part("latest"), expected("latest", "", ""));
        assert_eq!(part("latest:/a"), expected("latest", "/a", "/a"));
        assert_eq!(part("latest:/a=/b"), expected("latest", "/a", "/b"));
        assert_eq!(part("latest=/b"), expected("latest", "", "/b"));
        assert_eq!(part("1a:/x=y="), expected("1a", "/x=y", ""));
        assert!(parse_part(&OsString::from("=/b")).is_err());
    }
}
