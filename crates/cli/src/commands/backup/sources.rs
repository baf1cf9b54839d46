//! What `backup` saves: paths from everywhere they can be named, or a stream.

use super::BackupArguments;
use crate::context::Context;
use crate::password::without_password;
use crate::{descendants, files, store_path};
use onefold_engine::ingest::interruptible::InterruptibleReader;
use onefold_engine::ingest::{Selection, Source};
use onefold_engine::job::Interrupt;
use onefold_engine::patterns::Patterns;
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const STDIN_NAME: &str = "stdin";
/// How often it is asked whether a command has ended that has closed its output.
const WAIT_INTERVAL: Duration = Duration::from_millis(5);

/// All paths to save. Refused if there are none, or if none of them exists (R50); those that do
/// not exist beside others that do are left to the engine, which reports them.
pub fn paths(context: &Context, arguments: &BackupArguments) -> Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = arguments.paths.iter().map(PathBuf::from).collect();
    for list in &arguments.files_from {
        paths.extend(files::read_paths(list, b'\n')?);
    }
    for list in &arguments.files_from0 {
        paths.extend(files::read_paths(list, 0)?);
    }
    let lists_given = !arguments.files_from.is_empty() || !arguments.files_from0.is_empty();
    if paths.is_empty() && !lists_given {
        paths.clone_from(&context.profile.backup.paths);
    }
    if paths.is_empty() {
        return Err(Error::invalid("nothing to save: no path is given"));
    }
    if paths.iter().any(|path| path.as_os_str().is_empty()) {
        return Err(Error::invalid("a path is empty"));
    }
    refuse_if_all_missing(context, &paths)?;
    Ok(paths)
}

fn refuse_if_all_missing(context: &Context, paths: &[PathBuf]) -> Result<()> {
    let mut problems = Vec::new();
    for path in paths {
        match path.symlink_metadata() {
            Ok(_) => return Ok(()),
            Err(cause) => problems.push((path, Error::io("it cannot be read", cause))),
        }
    }
    for (path, error) in &problems {
        context.output.problem(&path.display().to_string(), error);
    }
    Err(Error::new(ErrorKind::Source, "none of the sources can be read; nothing was saved"))
}

/// What to leave out: what the options say, and the store if it lies inside a source (R52).
pub fn selection(
    context: &Context,
    arguments: &BackupArguments,
    paths: &[PathBuf],
) -> Result<Selection> {
    let given = &arguments.selection;
    let profile = &context.profile.backup;
    fn either<T: Clone>(given: &[T], profile: &[T]) -> Vec<T> {
        match given {
            [] => profile.to_vec(),
            given => given.to_vec(),
        }
    }
    let patterns = |given: &[OsString], profile: &[String]| match given {
        [] => profile.iter().map(|pattern| pattern.clone().into_bytes()).collect(),
        given => store_path::as_given(given),
    };
    let mut exact = patterns(&given.exclude, &profile.exclude);
    for file in either(&given.exclude_file, &profile.exclude_file) {
        exact.extend(files::read_lines(&file).context(|| "exclude file")?);
    }
    let store = context.store_directory()?;
    if let Some(store) = &store
        && store_path::is_store_among(paths, store)?
    {
        context.output.warning(&format!(
            "the store '{}' lies inside a source; it is left out",
            store.display()
        ));
    }
    let any_case = store_path::with_home(patterns(&given.iexclude, &profile.iexclude))?;
    let exclude_if_present = either(&given.exclude_if_present, &profile.exclude_if_present);
    let is_name = |name: &String| !name.contains('/') && !matches!(name.as_str(), "" | "." | "..");
    if let Some(wrong) = exclude_if_present.iter().find(|name| !is_name(name)) {
        return Err(Error::invalid(format!(
            "--exclude-if-present takes the name of a file that marks directories; '{wrong}' is \
             none"
        )));
    }
    let size = given.exclude_larger_than.or(profile.exclude_larger_than);
    Ok(Selection {
        excludes: Patterns::build(&store_path::with_home(exact)?, &any_case)?,
        one_file_system: given.one_file_system || profile.one_file_system,
        exclude_larger_than_bytes: size.map(|size| size.0),
        exclude_caches: given.exclude_caches || profile.exclude_caches,
        exclude_if_present,
        read_special: given.read_special || profile.read_special,
        store: store.as_deref().and_then(store_path::identity),
        ..Selection::default()
    })
}

/// Standard input, or the output of a command.
pub fn stream(arguments: &BackupArguments, interrupt: &Interrupt) -> Result<Source> {
    let name = stream_name(arguments.stdin_filename.as_ref())?;
    if !arguments.stdin_from_command {
        return Ok(Source::Stream {
            name,
            reader: Box::new(InterruptibleReader::new(io::stdin(), interrupt.clone())),
            finish: Box::new(|| Ok(())),
        });
    }
    let [program, rest @ ..] = arguments.paths.as_slice() else {
        return Err(Error::invalid("no command is given"));
    };
    let shown = program.display().to_string();
    descendants::adopt_orphans();
    let mut child = without_password(&mut Command::new(program))
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|cause| {
            Error::io(format!("running '{shown}'"), cause).with_kind(ErrorKind::Source)
        })?;
    let stdout = child.stdout.take();
    let running = RunningCommand { child: Arc::new(Mutex::new(child)), shown, succeeded: false };
    let waiting = interrupt.clone();
    let from = stdout.ok_or_else(|| Error::new(ErrorKind::Io, "the command has no output"))?;
    Ok(Source::Stream {
        name,
        reader: Box::new(InterruptibleReader::new(from, interrupt.clone())),
        finish: Box::new(move || running.finish(&waiting)),
    })
}

fn stream_name(given: Option<&OsString>) -> Result<Vec<u8>> {
    let name = given.map_or(STDIN_NAME.as_bytes(), |name| name.as_bytes());
    let cleaned = crate::commands::ls::clean(name);
    let leads_upwards = cleaned.split(|byte| *byte == b'/').any(|component| component == b"..");
    if cleaned.is_empty() || leads_upwards || name.ends_with(b"/") {
        return Err(Error::invalid(format!(
            "'{}' cannot be the name of a file",
            String::from_utf8_lossy(name)
        )));
    }
    // The engine puts it below the root.
    Ok(cleaned[1..].to_vec())
}

/// A command whose output is saved. Unless it succeeds it is ended with all that it has started, so
/// that nothing of ours stays behind.
struct RunningCommand {
    child: Arc<Mutex<Child>>,
    shown: String,
    succeeded: bool,
}

impl RunningCommand {
    /// Waits for the end of the command; it must have succeeded. A request to stop ends it: it may
    /// have nothing to say for long.
    fn finish(mut self, interrupt: &Interrupt) -> Result<()> {
        let status = loop {
            let ended = {
                let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
                child.try_wait().context(|| format!("waiting for '{}'", self.shown))?
            };
            match ended {
                Some(status) => break status,
                None => interrupt.check()?,
            }
            std::thread::sleep(WAIT_INTERVAL);
        };
        self.succeeded = status.success();
        match self.succeeded {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Source,
                format!("the command '{}' failed: {status}; nothing was saved", self.shown),
            )),
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if self.succeeded {
            return;
        }
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // If it has failed the status is known, and neither call does anything.
        let _ = child.kill();
        let _ = child.wait();
        descendants::end_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_streams_stay_in_the_snapshot() {
        let name = |text: &str| stream_name(Some(&OsString::from(text))).ok();
        assert_eq!(stream_name(None).unwrap(), b"stdin");
        assert_eq!(name("dump.sql").unwrap(), b"dump.sql");
        assert_eq!(name("/db//dump.sql").unwrap(), b"db/dump.sql");
        for refused in ["", "/", ".", "../x", "a/", "a/../b"] {
            assert!(name(refused).is_none(), "{refused:?}");
        }
    }
}
