//! One run: every tool does every step, on the same data, step by step in turn.
//!
//! The tools take turns at each step rather than one doing everything before the next begins, so
//! that a busy minute of the machine hits all of them alike; the order is rotated from run to run.
//! Whatever a tool writes stays inside the run's own directory, which is removed afterwards.

use crate::compare;
use crate::dataset::{Dataset, Generation};
use crate::machine::{self, Ticks};
use crate::measure::{Invocation, Usage, measure};
use crate::results::{
    Conditions, Failure, Layout, Measurement, Operation, Recorder, Size, Verification,
};
use crate::tools::{COMMON_ENVIRONMENT, Found, Line, Values};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::{fs, io};
use tempfile::TempDir;

/// What all runs have in common.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The tools that take part.
    pub tools: &'a [Found],
    /// Whether the generations are stored one by one.
    pub trees: bool,
    /// Whether they are stored as one stream.
    pub stream: bool,
    /// The data.
    pub data: &'a Dataset,
    /// Holds the repositories while they are needed.
    pub work: &'a Path,
    /// Holds what is restored while it is compared; in memory if possible.
    pub restores: &'a Path,
}

/// Performs run `number` (from 1) and records everything about it.
pub fn perform(plan: &Plan<'_>, number: usize, recorder: &mut Recorder) -> io::Result<()> {
    let load_begin = machine::load()?;
    let before = Ticks::now()?;
    let mut run = Run { plan, number, recorder };
    if plan.trees {
        run.trees()?;
    }
    if plan.stream {
        run.streams()?;
    }
    let others = Ticks::now()?.share_of_others(&before);
    let load_end = machine::load()?;
    recorder.conditions(Conditions { run: number, load_begin, load_end, others })
}

/// One tool's own place during one run.
struct Site<'a> {
    found: &'a Found,
    root: PathBuf,
    failed: bool,
}

impl<'a> Site<'a> {
    fn create(found: &'a Found, parent: &Path) -> io::Result<Site<'a>> {
        let root = parent.join(found.label().replace([' ', ','], "-"));
        fs::create_dir_all(root.join("home/tmp"))?;
        Ok(Site { found, root, failed: false })
    }

    fn repository(&self) -> PathBuf {
        self.root.join("repository")
    }

    fn values(&self) -> Values {
        Values {
            repository: self.repository().display().to_string(),
            home: self.root.join("home").display().to_string(),
            source: String::new(),
            target: String::new(),
            snapshot: String::new(),
            kept: String::new(),
            forgotten: Vec::new(),
        }
    }

    fn execute(
        &self,
        line: Line,
        directory: &Path,
        values: &Values,
        input: Option<ChildStdout>,
    ) -> io::Result<Usage> {
        let settings = COMMON_ENVIRONMENT.iter().chain(self.found.tool.environment);
        measure(Invocation {
            program: self.found.program.clone(),
            arguments: self.found.arguments(line, values),
            environment: settings.map(|(k, v)| ((*k).to_string(), values.fill(v))).collect(),
            directory: directory.to_path_buf(),
            log: self.root.join("log"),
            input,
        })
    }

    fn init(&self) -> io::Result<Usage> {
        self.all(self.found.tool.init, &self.values())
    }

    fn all(&self, lines: &[Line], values: &Values) -> io::Result<Usage> {
        let mut total = Usage::default();
        for line in lines {
            total = total.and(self.execute(line, &self.root.join("home"), values, None)?);
        }
        Ok(total)
    }

    fn forget(&self, kept: usize, forgotten: &[Generation]) -> io::Result<Usage> {
        let forgotten = forgotten.iter().map(|g| g.path.display().to_string()).collect();
        let values = Values { kept: kept.to_string(), forgotten, ..self.values() };
        self.all(self.found.tool.forget, &values)
    }

    fn collect(&self) -> io::Result<Usage> {
        self.all(self.found.tool.collect, &self.values())
    }

    fn backup(&self, generation: &Generation, snapshot: &str) -> io::Result<Usage> {
        let source = generation.path.display().to_string();
        let values = Values { source, snapshot: snapshot.to_string(), ..self.values() };
        self.execute(self.found.tool.backup, &generation.path, &values, None)
    }

    fn restore(&self, from: &Generation, snapshot: &str, target: &Path) -> io::Result<Usage> {
        let values = Values {
            source: from.path.display().to_string(),
            target: target.display().to_string(),
            snapshot: snapshot.to_string(),
            ..self.values()
        };
        self.execute(self.found.tool.restore, target, &values, None)
    }

    fn check(&self) -> io::Result<Usage> {
        let home = self.root.join("home");
        self.execute(self.found.tool.check, &home, &self.values(), None)
    }

    /// Stores everything as one stream. The CPU time of `tar` is not part of the result.
    fn stream(&self, data: &Dataset) -> io::Result<Usage> {
        let mut tar = data.tar().spawn()?;
        let input = tar.stdout.take();
        let home = self.root.join("home");
        let outcome = self.execute(self.found.tool.stream, &home, &self.values(), input);
        let status = tar.wait()?;
        let usage = outcome?;
        if !status.success() {
            return Err(io::Error::other(format!("tar: {status}")));
        }
        Ok(usage)
    }
}

struct Run<'a, 'r> {
    plan: &'a Plan<'a>,
    number: usize,
    recorder: &'r mut Recorder,
}

impl<'a> Run<'a, '_> {
    fn trees(&mut self) -> io::Result<()> {
        let place = TempDir::with_prefix_in("trees-", self.plan.work)?;
        let mut sites = self.sites(place.path())?;
        let data = self.plan.data;
        self.each(&mut sites, Operation::Init, None, Site::init)?;
        let first = data.first();
        self.each(&mut sites, Operation::First, Some(first), |s| s.backup(first, &first.name))?;
        for next in data.increments() {
            let operation = Operation::Increment;
            self.each(&mut sites, operation, Some(next), |s| s.backup(next, &next.name))?;
        }
        let last = data.last();
        let again = format!("{}-again", last.name);
        self.each(&mut sites, Operation::Unchanged, Some(last), |s| s.backup(last, &again))?;
        for site in &mut sites {
            self.restore(site, last, &again)?;
        }
        self.each(&mut sites, Operation::Check, None, Site::check)?;
        self.sizes(&sites, Layout::Trees)?;
        // Every generation and the last one once more; half of them stay.
        let kept = data.generations.len().div_ceil(2);
        let count = data.generations.len() + 1 - kept;
        // The last one's directory has two snapshots, of which one stays at least.
        let forgotten = &data.generations[..count.min(data.generations.len() - 1)];
        self.each(&mut sites, Operation::Forget, None, |site| site.forget(kept, forgotten))?;
        self.each(&mut sites, Operation::Collect, None, Site::collect)?;
        self.sizes(&sites, Layout::Collected)?;
        for site in &mut sites {
            self.verify(site, last, &again)?;
        }
        Ok(())
    }

    fn streams(&mut self) -> io::Result<()> {
        let place = TempDir::with_prefix_in("stream-", self.plan.work)?;
        let mut sites = self.sites(place.path())?;
        for site in &mut sites {
            // An init that fails shows as a failure of the stream: init as such is measured above.
            let outcome = site.init();
            let data = self.plan.data;
            let outcome = outcome.and_then(|_| {
                rustix::fs::sync();
                site.stream(data)
            });
            self.record(site, Operation::Stream, None, outcome)?;
        }
        self.sizes(&sites, Layout::Stream)
    }

    /// A fresh place for every tool, in the order of this run.
    fn sites(&self, parent: &Path) -> io::Result<Vec<Site<'a>>> {
        let tools = self.plan.tools;
        rotation(tools.len(), self.number).map(|i| Site::create(&tools[i], parent)).collect()
    }

    /// Has every tool that has not failed so far do one operation.
    fn each<'s>(
        &mut self,
        sites: &mut [Site<'s>],
        operation: Operation,
        generation: Option<&Generation>,
        action: impl Fn(&Site<'s>) -> io::Result<Usage>,
    ) -> io::Result<()> {
        for site in sites.iter_mut().filter(|site| !site.failed) {
            // What others have written is not to be paid for by the next.
            rustix::fs::sync();
            let outcome = action(site);
            self.record(site, operation, generation, outcome)?;
        }
        Ok(())
    }

    fn restore(&mut self, site: &mut Site<'_>, last: &Generation, from: &str) -> io::Result<()> {
        self.restore_as(site, last, from, Operation::Restore)
    }

    /// Restores what must have survived a collection.
    fn verify(&mut self, site: &mut Site<'_>, last: &Generation, from: &str) -> io::Result<()> {
        self.restore_as(site, last, from, Operation::RestoreCollected)
    }

    fn restore_as(
        &mut self,
        site: &mut Site<'_>,
        last: &Generation,
        from: &str,
        operation: Operation,
    ) -> io::Result<()> {
        if site.failed {
            return Ok(());
        }
        let target = TempDir::with_prefix_in("onefold-benchmark-", self.plan.restores)?;
        rustix::fs::sync();
        let outcome = site.restore(last, from, target.path());
        self.record(site, operation, Some(last), outcome)?;
        if site.failed {
            return Ok(());
        }
        let differences = compare::differences(&last.path, target.path())?;
        let tool = site.found.label();
        if let Some(difference) = differences.first() {
            eprintln!("  {tool}: {} differences, first: {difference}", differences.len());
        }
        self.recorder.verification(Verification { run: self.number, tool, differences })
    }

    fn record(
        &mut self,
        site: &mut Site<'_>,
        operation: Operation,
        generation: Option<&Generation>,
        outcome: io::Result<Usage>,
    ) -> io::Result<()> {
        let (run, tool) = (self.number, site.found.label());
        let generation = generation.map(|generation| generation.name.clone());
        let what = format!("{} {}", operation.name(), generation.as_deref().unwrap_or(""));
        match outcome {
            Ok(usage) => {
                eprintln!(
                    "run {run}: {tool:<14} {what:<20} {:>7.2} CPU s {:>7.2} wall s {:>5.0} MiB",
                    usage.cpu_seconds(),
                    usage.wall.as_secs_f64(),
                    usage.peak_mib()
                );
                self.recorder.measurement(Measurement { run, tool, operation, generation, usage })
            }
            Err(error) => {
                site.failed = true;
                let message = self.without_paths(&error.to_string());
                eprintln!("run {run}: {tool:<14} {what:<20} FAILED: {message}");
                self.recorder.failure(Failure { run, tool, operation, message })
            }
        }
    }

    fn sizes(&mut self, sites: &[Site<'_>], layout: Layout) -> io::Result<()> {
        for site in sites.iter().filter(|site| !site.failed) {
            let bytes = bytes_in(&site.repository())?;
            let (run, tool) = (self.number, site.found.label());
            self.recorder.size(Size { run, tool, layout, bytes })?;
        }
        Ok(())
    }

    /// A message as it may be published: this machine's directories by name only.
    fn without_paths(&self, message: &str) -> String {
        let text = |path: &Path| path.display().to_string();
        message
            .replace(&text(self.plan.work), "$WORK")
            .replace(&text(&self.plan.data.directory), "$DATA")
            .replace(&text(self.plan.restores), "$RESTORES")
    }
}

/// Indices of `count` tools, beginning one further with every run.
fn rotation(count: usize, run: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| (i + run - 1) % count)
}

fn bytes_in(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_in(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_rotates() {
        let order = |run| rotation(3, run).collect::<Vec<_>>();
        assert_eq!(order(1), [0, 1, 2]);
        assert_eq!(order(2), [1, 2, 0]);
        assert_eq!(order(4), order(1));
        assert_eq!(rotation(0, 1).count(), 0);
    }

    #[test]
    fn a_repository_is_as_large_as_its_files() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("data")).unwrap();
        fs::write(place.path().join("data/pack"), vec![0; 700]).unwrap();
        fs::write(place.path().join("config"), vec![0; 11]).unwrap();
        assert_eq!(bytes_in(place.path()).unwrap(), 711);
    }
}
