//! `dump`: one file's bytes, to standard output or into a file.

mod written;

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::options::FilterArguments;
use crate::output::RawStdout;
use crate::reference::{self, Location, Snapshots, unless_forgotten};
use crate::size::ByteSize;
use crate::store_path;
use clap::Args;
use onefold_engine::placement::PlacedItem;
use onefold_engine::restore::DumpOptions;
use onefold_engine::{Job, Repository, restore};
use onefold_format::node::{Entry, EntryKind};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::{Error, Result};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

const AFTER_HELP: &str = "\
EXAMPLES
  onefold dump latest /home/alice/mail.mbox | less
  onefold dump latest:/database.sql | psql
  onefold dump --range 1GiB:64KiB --output part latest /disk.img";

/// Arguments of `dump`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DumpArguments {
    /// The snapshot, or SNAPSHOT:PATH
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    location: OsString,
    /// The file in the snapshot
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
    /// Only LENGTH bytes from OFFSET on; no LENGTH means up to the end
    #[arg(long, value_name = "OFFSET:LENGTH")]
    range: Option<Range>,
    /// What is read when: optimal-chunks, forward, adaptive, container-cache, chunk-cache or
    /// optimal, each with ,memory=BYTES [default: optimal-chunks within the memory limit]
    #[arg(long, value_name = "ENGINE", help_heading = "Experiments")]
    engine: Option<RestoreEngine>,
    /// Write into this file, which is not there yet, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file that is there
    #[arg(long, requires = "output")]
    force: bool,
    #[command(flatten)]
    filter: FilterArguments,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    offset: u64,
    length: u64,
}

impl FromStr for Range {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (offset, length) = text
            .split_once(':')
            .ok_or_else(|| Error::invalid("write the range as OFFSET:LENGTH"))?;
        let length = match length {
            "" => u64::MAX,
            length => length.parse::<ByteSize>()?.0,
        };
        Ok(Self { offset: offset.parse::<ByteSize>()?.0, length })
    }
}

impl DumpArguments {
    fn location(&self) -> Result<Location> {
        let mut location = Location::parse(&self.location)?;
        match (&self.path, location.path.is_empty()) {
            (Some(path), true) => location.path = path.clone().into_vec(),
            (None, false) => {}
            (Some(_), false) => return Err(Error::invalid("two paths are given; give one")),
            (None, true) => {
                return Err(Error::invalid(
                    "name the file as well: SNAPSHOT PATH or SNAPSHOT:PATH",
                ));
            }
        }
        Ok(location)
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &DumpArguments) -> Result<Outcome> {
    let location = arguments.location()?;
    let repository = context.open_near(Access::Read)?;
    let snapshots = Snapshots::load(&repository, &context.output)?;
    let filter = arguments.filter.filter();
    let snapshot = snapshots.resolve(&location.snapshot, &filter)?;
    let (file, placed) = reference::placed(&repository, snapshot, &location.path)?;
    if file.kind != EntryKind::File {
        return Err(Error::invalid(format!(
            "'{}' is not a regular file; use 'restore' for everything else",
            String::from_utf8_lossy(&location.path)
        )));
    }
    snapshots.warn_if_partial(snapshot);
    let running = context.start_job("dumping")?;
    let source = Source {
        repository: &repository,
        file: &file,
        range: arguments.range.unwrap_or(Range { offset: 0, length: u64::MAX }),
        engine: arguments.engine,
        placed,
    };
    match &arguments.output {
        None => {
            let mut stdout = RawStdout(&context.output);
            let written = source.write_to(&mut stdout, &running.job);
            unless_forgotten(&repository, snapshot.id, written)?;
            running.finish();
        }
        Some(path) => {
            if let Some(store) = context.store_directory()? {
                store_path::refuse_inside(path, &store)?;
            }
            let written = written::write(path, arguments.force, &mut |out| {
                source.write_to(out, &running.job)
            });
            let bytes = unless_forgotten(&repository, snapshot.id, written)?;
            running.finish();
            // A message would stand among the file's bytes.
            if written::is_open_here(path) {
                return Ok(Outcome::Complete);
            }
            let shown = path.display().to_string();
            context.output.note(&format!("wrote {bytes} bytes into '{shown}'"))?;
            let fields = json!({ "output": shown, "bytes": bytes });
            context.output.message("summary", fields)?;
        }
    }
    Ok(Outcome::Complete)
}

struct Source<'a> {
    repository: &'a Arc<Repository>,
    file: &'a Entry,
    range: Range,
    engine: Option<RestoreEngine>,
    placed: Option<PlacedItem>,
}

impl Source<'_> {
    fn write_to(&self, out: &mut dyn Write, job: &Job) -> Result<u64> {
        let Range { offset, length } = self.range;
        let options =
            DumpOptions { offset, length, engine: self.engine, placed: self.placed, reach: None };
        restore::dump(self.repository, self.file, &options, out, job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_units_and_an_optional_end() {
        let range = |text: &str| text.parse::<Range>().ok().map(|r| (r.offset, r.length));
        assert_eq!(range("1KiB:10"), Some((1024, 10)));
        assert_eq!(range("5:"), Some((5, u64::MAX)));
        assert_eq!(range("5"), None);
        assert_eq!(range(":5"), None);
    }
}
