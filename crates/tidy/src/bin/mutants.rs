//! Breaks the code on purpose and says whether the tests notice.
//!
//! ```text
//! cargo run -p onefold-tidy --bin mutants [--list] [NAME...]
//! ```
//!
//! The tree is copied to a scratch directory (`target/mutants`, or `ONEFOLD_MUTANTS`), which keeps
//! its own build directory, so that later runs build little; the tree itself is never touched. Each
//! test that is to notice something must first succeed on the unbroken copy. Then one mutant after
//! the other is applied, its test run with a limit of time, and the file restored. A test that
//! fails or does not end has killed the mutant; one that succeeds has not: SURVIVED. Of some
//! mutants the test must also say a certain thing, as that the program met an error of its own. The
//! exit code says whether all were killed.
//!
//! Concurrency: one run at a time in one scratch directory.

use onefold_tidy::files;
use onefold_tidy::mutants::{self, Mutant};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long a build may take; the first one builds everything.
const BUILD_MAX: Duration = Duration::from_secs(7200);
/// How long a test may take; one that takes longer has failed.
const TEST_MAX: Duration = Duration::from_secs(600);
/// How often to look whether a command has ended.
const PAUSE: Duration = Duration::from_millis(100);

/// What became of a mutant.
enum Fate {
    Killed,
    Hung,
    Survived,
    SaidOtherwise,
    DoesNotApply(String),
    DoesNotCompile,
}

impl Fate {
    fn is_good(&self) -> bool {
        matches!(self, Self::Killed | Self::Hung)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed => out.write_str("killed"),
            Self::Hung => out.write_str("killed (its test did not end in time)"),
            Self::Survived => out.write_str("SURVIVED"),
            Self::SaidOtherwise => out.write_str("FAILED OTHERWISE than it must"),
            Self::DoesNotApply(why) => write!(out, "does not apply: {why}"),
            Self::DoesNotCompile => out.write_str("does not compile"),
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let mut chosen = mutants::list()?;
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let lists = names.iter().any(|name| name == "--list");
    names.retain(|name| name != "--list");
    if let Some(unknown) = names.iter().find(|name| !chosen.iter().any(|one| one.name == **name)) {
        return Err(format!("there is no mutant '{unknown}'; --list names all"));
    }
    chosen.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    if lists {
        chosen.iter().for_each(|mutant| println!("{}: {}", mutant.name, mutant.breaks));
        return Ok(true);
    }
    let scratch = match std::env::var_os("ONEFOLD_MUTANTS") {
        Some(place) => PathBuf::from(place),
        None => files::root().join("target/mutants"),
    };
    let tree = Tree { root: scratch.join("tree"), target: scratch.join("target") };
    tree.copy().map_err(|error| format!("copying to {}: {error}", scratch.display()))?;
    let commands: BTreeSet<Vec<String>> = chosen.iter().map(Mutant::command).collect();
    for command in commands {
        println!("unbroken: cargo {}", command.join(" "));
        if !matches!(tree.test(&command, None), Fate::Survived) {
            return Err("this test fails on the unbroken code and can tell nothing".to_owned());
        }
    }
    let mut all_good = true;
    for mutant in &chosen {
        let started = Instant::now();
        let fate = tree.fate_of(mutant).map_err(|error| format!("{}: {error}", mutant.name))?;
        all_good &= fate.is_good();
        println!("{}: {fate}, {} s", mutant.name, started.elapsed().as_secs());
    }
    Ok(all_good)
}

/// The copy that is broken.
struct Tree {
    root: PathBuf,
    target: PathBuf,
}

impl Tree {
    /// Makes the copy equal to the project. Files that are equal keep their times, so that nothing
    /// is built for nothing.
    fn copy(&self) -> io::Result<()> {
        let wanted = files::below("");
        for file in &wanted {
            let path = self.root.join(&file.path);
            if fs::read(&path).is_ok_and(|bytes| bytes == file.bytes) {
                continue;
            }
            if let Some(above) = path.parent() {
                fs::create_dir_all(above)?;
            }
            fs::write(path, &file.bytes)?;
        }
        let names: BTreeSet<PathBuf> =
            wanted.iter().map(|file| self.root.join(&file.path)).collect();
        remove_others(&self.root, &names)
    }

    fn fate_of(&self, mutant: &Mutant) -> io::Result<Fate> {
        let path = self.root.join(&mutant.file);
        let whole = fs::read_to_string(&path)?;
        let broken = match mutant.apply(&whole) {
            Ok(broken) => broken,
            Err(why) => return Ok(Fate::DoesNotApply(why)),
        };
        fs::write(&path, broken)?;
        let fate = self.test(&mutant.command(), mutant.says.as_deref());
        fs::write(&path, whole)?;
        Ok(fate)
    }

    fn test(&self, command: &[String], says: Option<&str>) -> Fate {
        // `--no-run` goes before the filter, which cargo takes for a name of tests otherwise.
        let (filter, build) = command.split_last().map_or(("", command), |(l, rest)| (l, rest));
        let build = [build, &["--no-run".to_owned()]].concat();
        if self.cargo(&build, BUILD_MAX) != Some(true) {
            return Fate::DoesNotCompile;
        }
        let test = [&build[..build.len() - 1], &[filter.to_owned()]].concat();
        match self.cargo(&test, TEST_MAX) {
            Some(true) => Fate::Survived,
            Some(false) if says.is_none_or(|says| self.has_said(says)) => Fate::Killed,
            Some(false) => Fate::SaidOtherwise,
            None => Fate::Hung,
        }
    }

    /// Where the output of the last command is.
    fn output(&self) -> PathBuf {
        self.target.join("output")
    }

    fn has_said(&self, what: &str) -> bool {
        fs::read(self.output()).is_ok_and(|output| String::from_utf8_lossy(&output).contains(what))
    }

    /// Whether cargo succeeded; `None` if it took too long.
    fn cargo(&self, arguments: &[String], longest: Duration) -> Option<bool> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = fs::create_dir_all(&self.target).and_then(|()| File::create(self.output()));
        let Ok(output) = output else { return Some(false) };
        let child = Command::new(cargo)
            .args(arguments)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let Ok(mut child) = child else { return Some(false) };
        let started = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status.success()),
                Ok(None) if started.elapsed() < longest => std::thread::sleep(PAUSE),
                _ => {
                    end(&mut child);
                    return None;
                }
            }
        }
    }
}

/// Ends a command and all that it has started.
fn end(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = child.wait();
}

fn remove_others(directory: &Path, wanted: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
