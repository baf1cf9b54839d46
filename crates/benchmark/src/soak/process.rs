//! One command as a process: started, disturbed, watched, and read after its end.
//!
//! Its output goes into files, so that a process that is stopped blocks nobody.

use super::command::Plan;
use super::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Pieces in which a slow stream is written.
const PIECE_BYTES: usize = 20_000;

/// What happens to a command while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disturbance {
    /// Nothing.
    None,
    /// It gets a signal that ends it.
    Signal {
        /// So long after its start.
        after: Duration,
        /// The signal.
        signal: Signal,
    },
    /// It is stopped, and goes on when others have ended.
    Freeze {
        /// So long after its start.
        after: Duration,
        /// So many other commands.
        commands: u64,
        /// What it gets when it goes on.
        then: Option<Signal>,
    },
}

/// What a command reads from its standard input.
#[derive(Debug)]
pub enum Input {
    /// Nothing.
    Nothing,
    /// A file.
    File(PathBuf),
    /// A pipe that is written slowly: the bytes, and the pause after each piece.
    Slow(Vec<u8>, Duration),
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    /// Its number.
    pub number: u64,
    /// When it was started, as a count of events.
    pub moment: u64,
    /// What it is.
    pub plan: Plan,
    /// Whether it is stopped now: since when, and how many commands had ended by then.
    pub frozen: Option<(Instant, u64)>,
    /// Signals that may have ended it.
    pub signals: Vec<Signal>,
    child: Child,
    began: Instant,
    frozen_for: Duration,
    files: Files,
}

#[derive(Debug)]
struct Files {
    output: PathBuf,
    errors: PathBuf,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the harness sent it a signal that ends it.
    pub disturbed: bool,
    /// What it wrote to its standard output.
    pub output: Vec<u8>,
    /// What it wrote to its standard error.
    pub errors: String,
    /// How long it ran, without the time for which it was stopped.
    pub elapsed: Duration,
}

impl Finished {
    /// How it ended, in a word.
    pub fn how(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => code.to_string(),
            (None, Some(2)) => "SIGINT".to_owned(),
            (None, Some(9)) => "SIGKILL".to_owned(),
            (None, Some(15)) => "SIGTERM".to_owned(),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        }
    }

    /// The lines of standard output that are JSON.
    pub fn lines(&self) -> Vec<Value> {
        json_lines(&String::from_utf8_lossy(&self.output))
    }

    /// The lines of one kind.
    pub fn messages(&self, kind: &str) -> Vec<Value> {
        let mut lines = self.lines();
        lines.retain(|line| line["message_type"] == kind);
        lines
    }

    /// The last line of one kind.
    pub fn message(&self, kind: &str) -> Option<Value> {
        self.messages(kind).pop()
    }

    /// The kinds of all errors that were told.
    pub fn error_kinds(&self) -> Vec<String> {
        let is_error =
            |line: &Value| line["message_type"] == "error" || line["message_type"] == "exit_error";
        let lines = json_lines(&self.errors);
        let errors = lines.iter().filter(|line| is_error(line));
        errors.map(|line| line["kind"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The beginning of what it said.
    pub fn words(&self) -> String {
        self.errors.trim().chars().take(600).collect()
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Where commands run.
#[derive(Debug)]
pub struct Place {
    /// The program.
    pub onefold: PathBuf,
    /// The directory for everything.
    pub work: PathBuf,
}

impl Place {
    /// Starts a command.
    pub fn start(&self, number: u64, moment: u64, plan: Plan) -> io::Result<Running> {
        let file = |ending: &str| self.work.join(format!("output/{number}.{ending}"));
        let files = Files { output: file("out"), errors: file("err") };
        let mut command = Command::new(&self.onefold);
        // A group of its own: the kernel hangs up on groups that lose their parent while a member
        // is stopped, and what a terminal sends is for the harness alone.
        command.args(&plan.arguments).current_dir(&self.work).process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ONEFOLD_") {
                command.env_remove(name);
            }
        }
        command.env("ONEFOLD_CACHE_DIR", self.work.join("cache")).env("HOME", &self.work);
        command.env("TMPDIR", self.work.join("output"));
        command.stdout(File::create(&files.output)?).stderr(File::create(&files.errors)?);
        command.stdin(match &plan.input {
            Input::Nothing => Stdio::null(),
            Input::File(path) => Stdio::from(File::open(path)?),
            Input::Slow(..) => Stdio::piped(),
        });
        let mut child = command.spawn()?;
        if let (Input::Slow(bytes, pause), Some(mut pipe)) = (&plan.input, child.stdin.take()) {
            let (bytes, pause) = (bytes.clone(), *pause);
            thread::spawn(move || {
                for piece in bytes.chunks(PIECE_BYTES) {
                    // The reader has ended early.
                    if pipe.write_all(piece).is_err() {
                        return;
                    }
                    thread::sleep(pause);
                }
            });
        }
        let (began, frozen_for) = (Instant::now(), Duration::ZERO);
        let (signals, frozen) = (Vec::new(), None);
        Ok(Running { number, moment, plan, frozen, signals, child, began, frozen_for, files })
    }
}

impl Running {
    fn send(&mut self, signal: Signal) {
        // The child has not been waited for, so its number is still its own.
        let pid = Pid::from_child(&self.child);
        let _gone_already = kill_process(pid, signal);
        if signal != Signal::STOP && signal != Signal::CONT {
            self.signals.push(signal);
        }
    }

    /// How long it has run, without the time for which it was stopped.
    pub fn elapsed(&self) -> Duration {
        let now = self.frozen.map_or(Duration::ZERO, |(since, _)| since.elapsed());
        self.began.elapsed().saturating_sub(self.frozen_for + now)
    }

    /// Does to it what is due. `ended` is how many commands have ended; `hurry` is true if nothing
    /// may stay stopped.
    pub fn disturb(&mut self, ended: u64, hurry: bool) {
        match self.plan.disturbance {
            Disturbance::Signal { after, signal } if self.elapsed() >= after => {
                self.plan.disturbance = Disturbance::None;
                self.send(signal);
            }
            Disturbance::Freeze { after, commands, then } => match self.frozen {
                None if self.elapsed() >= after && !hurry => {
                    self.send(Signal::STOP);
                    self.frozen = Some((Instant::now(), ended));
                }
                Some((_, before)) if hurry || ended >= before + commands => {
                    self.plan.disturbance = Disturbance::None;
                    then.into_iter().for_each(|signal| self.send(signal));
                    self.resume();
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn resume(&mut self) {
        if let Some((since, _)) = self.frozen.take() {
            self.frozen_for += since.elapsed();
            self.send(Signal::CONT);
        }
    }

    /// Kills it, because it has hung or the harness ends.
    pub fn kill(&mut self) {
        self.send(Signal::KILL);
    }

    /// Its end, if it has ended.
    pub fn poll(&mut self) -> io::Result<Option<Finished>> {
        match self.child.try_wait()? {
            Some(status) => self.read(status).map(Some),
            None => Ok(None),
        }
    }

    fn read(&self, status: ExitStatus) -> io::Result<Finished> {
        let output = fs::read(&self.files.output)?;
        let errors = String::from_utf8_lossy(&fs::read(&self.files.errors)?).into_owned();
        fs::remove_file(&self.files.output)?;
        fs::remove_file(&self.files.errors)?;
        Ok(Finished {
            code: status.code(),
            signal: status.signal(),
            disturbed: !self.signals.is_empty(),
            output,
            errors,
            elapsed: self.elapsed(),
        })
    }

    /// Where its threads are, for whoever asks why it hangs.
    pub fn whereabouts(&self) -> String {
        let tasks = format!("/proc/{}/task", self.child.id());
        let of = |task: &Path| {
            let read = |name| fs::read_to_string(task.join(name)).unwrap_or_default();
            format!("{} {} {}", read("comm").trim(), read("wchan"), read("syscall").trim())
        };
        let tasks = fs::read_dir(tasks).into_iter().flatten().flatten();
        tasks.map(|task| of(&task.path())).collect::<Vec<_>>().join("; ")
    }
}

/// What happens to a command, by chance: most are left alone.
pub fn disturbance(random: &mut Random, span: Duration) -> Disturbance {
    const ENDS: [Signal; 4] = [Signal::KILL, Signal::KILL, Signal::INT, Signal::TERM];
    let after = random.moment(span);
    let signal = random.pick(&ENDS).copied().unwrap_or(Signal::KILL);
    match random.below(100) {
        0..12 => Disturbance::Signal { after, signal },
        12..24 => Disturbance::Freeze {
            after,
            commands: random.skewed(1, 14) as u64,
            then: random.chance(15).then_some(signal),
        },
        _ => Disturbance::None,
    }
}
