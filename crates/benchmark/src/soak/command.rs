//! A command: its line, what it is about, and what disturbs it.

use super::process::{Disturbance, Input};
use super::random::Random;
use super::store::Reach;
use super::truth::Tree;
use std::sync::Arc;

/// A snapshot that a command was given, and what it must hold.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The snapshot.
    pub id: String,
    /// What it must hold.
    pub truth: Arc<Tree>,
}

/// What a command is about, for whoever judges how it ended.
#[derive(Debug)]
pub enum Subject {
    /// It makes a snapshot of this, unless `may_skip`.
    Save {
        /// What it will hold.
        truth: Arc<Tree>,
        /// Whether nothing may be saved because nothing changed.
        may_skip: bool,
        /// Whether it is a stream, which may be fenced.
        stream: bool,
        /// Snapshots it needs.
        needs: Vec<String>,
        /// Whether it is kept from being forgotten.
        hold: bool,
    },
    /// It must fail, and save nothing: the command whose output it saves fails.
    SaveNothing {
        /// What it would hold if it were saved in error.
        truth: Arc<Tree>,
    },
    /// It changes nothing and tells nothing that is compared.
    Look {
        /// Snapshots it needs.
        needs: Vec<String>,
    },
    /// It lists a snapshot.
    List {
        /// The snapshot.
        of: Seen,
        /// The kind of lines that are paths.
        lines: &'static str,
    },
    /// It compares two snapshots.
    Compare {
        /// One.
        one: Seen,
        /// The other.
        other: Seen,
    },
    /// It writes a part of a file to standard output.
    Dump {
        /// The snapshot.
        id: String,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// It restores.
    Restore {
        /// The snapshot.
        of: Seen,
        /// The directory.
        target: String,
        /// The name under which the directory is kept.
        in_place: Option<String>,
    },
    /// It forgets snapshots, by name or by policy.
    Forget {
        /// The names; nothing if a policy chooses.
        ids: Vec<String>,
        /// Whether for good.
        for_good: bool,
    },
    /// It brings a snapshot back.
    Undelete {
        /// The snapshot.
        id: String,
    },
    /// It holds or releases a snapshot.
    Hold {
        /// The snapshot.
        id: String,
        /// Whether it holds it.
        hold: bool,
    },
    /// It rotates the keys, by the first password.
    Rotate,
    /// It collects; with `reach`, it forgets what is hidden first.
    Collect {
        /// Whether everything hidden may go.
        reach: bool,
    },
    /// It verifies the store.
    Check,
    /// It adds a password in this file.
    KeyAdd {
        /// The file.
        file: String,
    },
    /// It removes a password, an index.
    KeyRemove(usize),
    /// It replaces a password, an index, by that in the file.
    KeyChange(usize, String),
}

/// A command that is to be run.
#[derive(Debug)]
pub struct Plan {
    /// The index of its store; absent if it works on a copy.
    pub store: Option<usize>,
    /// What it is called in statistics.
    pub kind: &'static str,
    /// All arguments.
    pub arguments: Vec<String>,
    /// The index of the password it uses.
    pub password: usize,
    /// Its standard input.
    pub input: Input,
    /// Indices of the sources it reads.
    pub sources: Vec<usize>,
    /// What it is about.
    pub subject: Subject,
    /// What happens to it.
    pub disturbance: Disturbance,
}

impl Plan {
    /// A command that nothing disturbs and that is about nothing.
    pub fn plain(kind: &'static str, arguments: Vec<String>) -> Plan {
        Plan {
            store: None,
            kind,
            arguments,
            password: 0,
            input: Input::Nothing,
            sources: Vec::new(),
            subject: Subject::Look { needs: Vec::new() },
            disturbance: Disturbance::None,
        }
    }

    /// The command line, for the log.
    pub fn line(&self) -> String {
        self.arguments.join(" ")
    }
}

/// A command without what is the same for all.
pub struct Draft {
    /// What it is called in statistics.
    pub kind: &'static str,
    /// Its arguments, but for the store and the password.
    pub arguments: Vec<String>,
    /// Its standard input.
    pub input: Input,
    /// Indices of the sources it reads.
    pub sources: Vec<usize>,
    /// What it is about.
    pub subject: Subject,
}

/// A draft from the words of its command line.
pub fn draft(kind: &'static str, words: &[&str], subject: Subject) -> Draft {
    let arguments = words.iter().map(|word| (*word).to_owned()).collect();
    Draft { kind, arguments, input: Input::Nothing, sources: Vec::new(), subject }
}

impl Draft {
    /// With these words at the end.
    #[must_use]
    pub fn with(mut self, words: &[&str]) -> Draft {
        self.arguments.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// With these words at the end in so many of a hundred cases.
    #[must_use]
    pub fn maybe(self, random: &mut Random, percent: usize, words: &[&str]) -> Draft {
        match random.chance(percent) {
            true => self.with(words),
            false => self,
        }
    }
}

impl Subject {
    /// How far the command reaches if it chooses snapshots by itself.
    pub fn reach(&self) -> Option<Reach> {
        match self {
            Subject::Forget { ids, for_good } if ids.is_empty() => Some(match for_good {
                true => Reach::AnyForGood,
                false => Reach::AnyHidden,
            }),
            Subject::Collect { reach: true } => Some(Reach::HiddenForGood),
            _ => None,
        }
    }
}
