//! What happened: a log of every command, and counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a command is taken to run before one of its kind has ended.
const UNKNOWN: Duration = Duration::from_millis(150);

/// The log and the counts.
#[derive(Debug)]
pub struct Journal {
    file: File,
    began: Instant,
    /// Commands by kind, and how they ended.
    pub commands: BTreeMap<String, BTreeMap<String, u64>>,
    /// How long commands of a kind ran lately.
    typical: BTreeMap<String, Duration>,
    /// Everything else that is counted.
    pub counts: BTreeMap<String, u64>,
}

impl Journal {
    /// Begins a log.
    pub fn create(path: &Path) -> io::Result<Journal> {
        Ok(Journal {
            file: File::create(path)?,
            began: Instant::now(),
            commands: BTreeMap::new(),
            typical: BTreeMap::new(),
            counts: BTreeMap::new(),
        })
    }

    /// Writes a line. A log that cannot be written is no reason to stop.
    pub fn write(&mut self, line: &str) {
        let seconds = self.began.elapsed().as_secs_f64();
        let _unwritten = writeln!(self.file, "{seconds:9.3} {line}");
    }

    /// About how long a command of this kind will run.
    pub fn typical(&self, kind: &str) -> Duration {
        self.typical.get(kind).copied().unwrap_or(UNKNOWN)
    }

    /// Takes notice of how long a command ran that nothing disturbed.
    pub fn took(&mut self, kind: &str, elapsed: Duration) {
        let before = self.typical(kind);
        self.typical.insert(kind.to_owned(), (before * 3 + elapsed) / 4);
    }

    /// Counts a command that ended.
    pub fn ended(&mut self, kind: &str, how: &str) {
        *self.commands.entry(kind.to_owned()).or_default().entry(how.to_owned()).or_default() += 1;
    }

    /// Counts something.
    pub fn count(&mut self, what: &str, number: u64) {
        *self.counts.entry(what.to_owned()).or_default() += number;
    }

    /// All counts, for people.
    pub fn statistics(&self) -> String {
        let mut text = String::from("commands by kind, each with how it ended\n");
        let mut all = 0;
        for (kind, ends) in &self.commands {
            let total: u64 = ends.values().sum();
            all += total;
            let ends: Vec<String> =
                ends.iter().map(|(how, count)| format!("{how}: {count}")).collect();
            let _infallible = writeln!(text, "  {kind:<24} {total:>6}  ({})", ends.join(", "));
        }
        let _infallible = writeln!(text, "  {:<24} {all:>6}", "all");
        for (what, count) in &self.counts {
            let _infallible = writeln!(text, "{what}: {count}");
        }
        let _infallible = write!(text, "seconds: {:.0}", self.began.elapsed().as_secs_f64());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let mut journal = Journal::create(&path).unwrap();
        journal.ended("gc", "0");
        journal.ended("gc", "0");
        journal.ended("gc", "SIGKILL");
        journal.count("bytes compared", 7);
        journal.took("gc", UNKNOWN * 5);
        assert_eq!(journal.typical("gc"), UNKNOWN * 2);
        journal.write("one line");
        let text = journal.statistics();
        assert!(text.contains("0: 2, SIGKILL: 1") && text.contains("bytes compared: 7"), "{text}");
        assert!(std::fs::read_to_string(path).unwrap().contains(" one line\n"));
    }
}
