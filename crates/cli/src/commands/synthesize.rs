//! `synthesize`: a new snapshot from elements of others (FAST'17, section 2.3).

use super::copy_snapshot::{options, report};
use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::options::RecordArguments;
use crate::reference::{Location, Snapshots};
use clap::Args;
use onefold_engine::synthesis::{self, Element};
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

/// Splits at the last '='; without one the element keeps its path.
fn parse_element(text: &OsString) -> Result<(Location, Vec<u8>)> {
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
    let parsed = arguments.parts.iter().map(parse_element).collect::<Result<Vec<_>>>()?;
    let repository = context.open(Access::Write)?;
    context.leave_what_reserve_lacks(&repository)?;
    let snapshots = Snapshots::load(&repository, &context.output)?;
    let elements = parsed
        .into_iter()
        .map(|(location, to)| {
            let filter = SnapshotFilter::default();
            Ok(Element {
                snapshot: snapshots.resolve(&location.snapshot, &filter)?.id,
                path: location.path,
                to,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let running = context.start_job("synthesizing")?;
    let options = options(&arguments.record);
    let id = synthesis::synthesize(&repository, &elements, &options, &running.job)?;
    running.finish();
    report(context, id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_split_at_the_last_equals_sign() {
        let element = |text: &str| {
            let (location, to) = parse_element(&OsString::from(text)).unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (location.snapshot.to_string(), text(&location.path), text(&to))
        };
        let expected = |a: &str, b: &str, c: &str| (a.into(), b.into(), c.into());
        assert_eq!(element("latest"), expected("latest", "", ""));
        assert_eq!(element("latest:/a"), expected("latest", "/a", "/a"));
        assert_eq!(element("latest:/a=/b"), expected("latest", "/a", "/b"));
        assert_eq!(element("latest=/b"), expected("latest", "", "/b"));
        assert_eq!(element("1a:/x=y="), expected("1a", "/x=y", ""));
        assert!(parse_element(&OsString::from("=/b")).is_err());
    }
}
