//! What was measured: kept in memory for the report and appended to `raw.jsonl` as it comes.

use crate::measure::Usage;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What a tool was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An empty repository.
    Init,
    /// The first generation.
    First,
    /// One of the generations that follow; all files are new to the tool, so all are read.
    Increment,
    /// The last generation once more.
    Unchanged,
    /// The last generation brought back.
    Restore,
    /// Everything stored read and verified.
    Check,
    /// Half of the snapshots forgotten.
    Forget,
    /// The space of what was forgotten freed.
    Collect,
    /// The last generation brought back after that.
    RestoreCollected,
    /// All generations as one stream, into a repository of its own.
    Stream,
}

impl Operation {
    /// Every operation, in the order of a run.
    pub const ALL: [Operation; 10] = [
        Operation::Init,
        Operation::First,
        Operation::Increment,
        Operation::Unchanged,
        Operation::Restore,
        Operation::Check,
        Operation::Forget,
        Operation::Collect,
        Operation::RestoreCollected,
        Operation::Stream,
    ];

    /// The name in reports and raw data.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Init => "init",
            Operation::First => "first backup",
            Operation::Increment => "increments",
            Operation::Unchanged => "unchanged re-run",
            Operation::Restore => "restore",
            Operation::Check => "check",
            Operation::Forget => "forget half",
            Operation::Collect => "collect",
            Operation::RestoreCollected => "restore after that",
            Operation::Stream => "stream",
        }
    }
}

/// How the data went into a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Generation by generation.
    Trees,
    /// Generation by generation, half of them forgotten and collected.
    Collected,
    /// As one stream.
    Stream,
}

impl Layout {
    /// The name in reports and raw data.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Trees => "trees",
            Layout::Collected => "half collected",
            Layout::Stream => "stream",
        }
    }
}

/// One operation of one tool, once.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The run, from 1.
    pub run: usize,
    /// The tool's label.
    pub tool: &'static str,
    /// What it did.
    pub operation: Operation,
    /// With which generation, if with one.
    pub generation: Option<String>,
    /// What that took.
    pub usage: Usage,
}

/// Bytes of a repository.
#[derive(Clone, Debug)]
pub struct Size {
    /// The run, from 1.
    pub run: usize,
    /// The tool's label.
    pub tool: &'static str,
    /// What it holds.
    pub layout: Layout,
    /// The sum of its files' lengths.
    pub bytes: u64,
}

/// The comparison of what was restored with what was stored.
#[derive(Clone, Debug)]
pub struct Verification {
    /// The run, from 1.
    pub run: usize,
    /// The tool's label.
    pub tool: &'static str,
    /// Every difference.
    pub differences: Vec<String>,
}

/// A tool that did not do what it was asked; it takes no further part in that run's layout.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run, from 1.
    pub run: usize,
    /// The tool's label.
    pub tool: &'static str,
    /// What failed.
    pub operation: Operation,
    /// Why.
    pub message: String,
}

/// How busy the machine was during a run.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The run, from 1.
    pub run: usize,
    /// Load averages when it began.
    pub load_begin: String,
    /// Load averages when it ended.
    pub load_end: String,
    /// The share of all processors' time that went to others, from 0 to 1.
    pub others: f64,
}

/// Everything measured by one invocation.
#[derive(Debug, Default)]
pub struct Results {
    /// Operations.
    pub measurements: Vec<Measurement>,
    /// Repositories.
    pub sizes: Vec<Size>,
    /// Restores.
    pub verifications: Vec<Verification>,
    /// What went wrong.
    pub failures: Vec<Failure>,
    /// The machine, run by run.
    pub conditions: Vec<Conditions>,
}

/// Collects results and writes each down at once, so that a run cut short leaves what it had.
#[derive(Debug)]
pub struct Recorder {
    raw: File,
    /// All results so far.
    pub results: Results,
}

/// The name of the file with raw data, one JSON object a line.
pub const RAW_FILE: &str = "raw.jsonl";

impl Recorder {
    /// Starts the raw data in `directory`, which is made, with `head` as its first line.
    pub fn start(directory: &Path, head: &Value) -> io::Result<Recorder> {
        fs::create_dir_all(directory)?;
        let raw = File::create(directory.join(RAW_FILE))?;
        let mut recorder = Recorder { raw, results: Results::default() };
        recorder.write(head)?;
        Ok(recorder)
    }

    fn write(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.raw, "{value}")
    }

    /// Records an operation.
    pub fn measurement(&mut self, m: Measurement) -> io::Result<()> {
        self.write(&json!({
            "kind": "measurement",
            "run": m.run,
            "tool": m.tool,
            "operation": m.operation.name(),
            "generation": m.generation,
            "cpu_user_seconds": m.usage.user.as_secs_f64(),
            "cpu_system_seconds": m.usage.system.as_secs_f64(),
            "wall_seconds": m.usage.wall.as_secs_f64(),
            "peak_bytes": m.usage.peak_bytes,
        }))?;
        self.results.measurements.push(m);
        Ok(())
    }

    /// Records the size of a repository.
    pub fn size(&mut self, s: Size) -> io::Result<()> {
        self.write(&json!({
            "kind": "size",
            "run": s.run,
            "tool": s.tool,
            "layout": s.layout.name(),
            "bytes": s.bytes,
        }))?;
        self.results.sizes.push(s);
        Ok(())
    }

    /// Records a comparison.
    pub fn verification(&mut self, v: Verification) -> io::Result<()> {
        self.write(&json!({
            "kind": "verification",
            "run": v.run,
            "tool": v.tool,
            "differences": v.differences.len(),
            "first_differences": v.differences.iter().take(10).collect::<Vec<_>>(),
        }))?;
        self.results.verifications.push(v);
        Ok(())
    }

    /// Records a failure.
    pub fn failure(&mut self, f: Failure) -> io::Result<()> {
        self.write(&json!({
            "kind": "failure",
            "run": f.run,
            "tool": f.tool,
            "operation": f.operation.name(),
            "message": f.message,
        }))?;
        self.results.failures.push(f);
        Ok(())
    }

    /// Records how busy the machine was.
    pub fn conditions(&mut self, c: Conditions) -> io::Result<()> {
        self.write(&json!({
            "kind": "conditions",
            "run": c.run,
            "load_begin": c.load_begin,
            "load_end": c.load_end,
            "share_of_others": c.others,
        }))?;
        self.results.conditions.push(c);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_result_becomes_one_line_of_json() {
        let place = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::start(place.path(), &json!({"kind": "head"})).unwrap();
        let usage = Usage {
            user: Duration::from_millis(1500),
            system: Duration::from_millis(250),
            wall: Duration::from_secs(2),
            peak_bytes: 1 << 20,
        };
        let generation = Some("g01".to_string());
        let operation = Operation::Increment;
        recorder
            .measurement(Measurement { run: 1, tool: "restic", operation, generation, usage })
            .unwrap();
        let layout = Layout::Stream;
        recorder.size(Size { run: 1, tool: "restic", layout, bytes: 77 }).unwrap();
        let text = fs::read_to_string(place.path().join(RAW_FILE)).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1]["operation"], "increments");
        assert_eq!(lines[1]["cpu_user_seconds"], 1.5);
        assert_eq!(lines[2]["bytes"], 77);
        assert_eq!(recorder.results.measurements.len(), 1);
    }
}
