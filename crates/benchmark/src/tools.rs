//! The tools that are compared, as data: how each is called, and nothing else.
//!
//! A command line is a list of arguments in which `{repository}`, `{home}`, `{source}`, `{target}`,
//! `{snapshot}` and `{kept}` are filled in. To follow a change of a tool's command line, edit its
//! row here.
//! Backups run in the source directory, restores in the (empty) target directory, and everything
//! else in the tool's own home directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

/// The arguments of one command, without the program.
pub type Line = &'static [&'static str];

/// The name under which the project's own binary takes part.
pub const OWN: &str = "onefold";

/// How one tool, in one configuration, is driven.
#[derive(Debug)]
pub struct Tool {
    /// The name in reports; differs from `binary` where a tool takes part in two configurations.
    pub label: &'static str,
    /// The program looked for in `PATH`, and the name that `--tools` selects.
    pub binary: &'static str,
    /// What the reader has to know of encryption and compression.
    pub configuration: &'static str,
    /// Prints the version.
    pub version: Line,
    /// Environment of every command, besides [`COMMON_ENVIRONMENT`].
    pub environment: &'static [(&'static str, &'static str)],
    /// Makes an empty repository; the commands are measured together.
    pub init: &'static [Line],
    /// Stores the current directory as `{snapshot}`.
    pub backup: Line,
    /// Brings `{snapshot}`, the newest one, to `{target}`.
    pub restore: Line,
    /// Reads and verifies all stored data.
    pub check: Line,
    /// Forgets all snapshots but the newest `{kept}`; the commands are measured together.
    pub forget: &'static [Line],
    /// Frees the space of what was forgotten; the commands are measured together.
    pub collect: &'static [Line],
    /// Stores standard input as one file.
    pub stream: Line,
}

/// Set for every tool, so that caches, settings and temporary files stay inside the run's own
/// directory.
pub const COMMON_ENVIRONMENT: &[(&str, &str)] = &[
    ("HOME", "{home}"),
    ("TMPDIR", "{home}/tmp"),
    ("XDG_CACHE_HOME", "{home}/.cache"),
    ("XDG_CONFIG_HOME", "{home}/.config"),
    ("XDG_DATA_HOME", "{home}/.local/share"),
    ("XDG_STATE_HOME", "{home}/.local/state"),
];

/// Variables starting so are not passed on: the caller's own settings must not change a result.
pub const SCRUBBED_PREFIXES: &[&str] = &["ONEFOLD_", "RESTIC_", "BORG_", "RUSTIC_", "KOPIA_"];

const BORG_ENVIRONMENT: &[(&str, &str)] = &[
    ("BORG_REPO", "{repository}"),
    ("BORG_PASSPHRASE", "benchmark"),
    ("BORG_BASE_DIR", "{home}"),
    ("BORG_CACHE_DIR", "{home}/.cache/borg"),
];

/// Every tool that can take part.
pub const TOOLS: &[Tool] = &[
    Tool {
        label: OWN,
        binary: OWN,
        configuration: "encrypted, default settings",
        version: &["--version"],
        environment: &[("ONEFOLD_REPOSITORY", "{repository}"), ("ONEFOLD_PASSWORD", "benchmark")],
        init: &[&["init"]],
        backup: &["backup", "."],
        restore: &["restore", "latest", "--target", "{target}"],
        check: &["check", "--read-data"],
        forget: &[&["forget", "--final", "--group-by", "host", "--keep-last", "{kept}"]],
        collect: &[&["gc"]],
        stream: &["backup", "--stdin", "--stdin-filename", "all.tar"],
    },
    Tool {
        label: "restic",
        binary: "restic",
        configuration: "encrypted, compression auto (default)",
        version: &["version"],
        environment: &[
            ("RESTIC_REPOSITORY", "{repository}"),
            ("RESTIC_PASSWORD", "benchmark"),
            ("RESTIC_CACHE_DIR", "{home}/.cache/restic"),
        ],
        init: &[&["init"]],
        backup: &["backup", "."],
        restore: &["restore", "latest", "--target", "{target}"],
        check: &["check", "--read-data"],
        forget: &[&["forget", "--group-by", "host", "--keep-last", "{kept}"]],
        collect: &[&["prune"]],
        stream: &["backup", "--stdin", "--stdin-filename", "all.tar"],
    },
    Tool {
        label: "borg lz4",
        binary: "borg",
        configuration: "encrypted (repokey), lz4 (default)",
        version: &["--version"],
        environment: BORG_ENVIRONMENT,
        init: &[&["init", "-e", "repokey"]],
        backup: &["create", "-C", "lz4", "::{snapshot}", "."],
        restore: &["extract", "::{snapshot}"],
        check: &["check", "--verify-data"],
        forget: &[&["prune", "--keep-last", "{kept}"]],
        collect: &[&["compact"]],
        stream: &["create", "-C", "lz4", "::stream", "-"],
    },
    Tool {
        label: "borg zstd,1",
        binary: "borg",
        configuration: "encrypted (repokey), zstd level 1",
        version: &["--version"],
        environment: BORG_ENVIRONMENT,
        init: &[&["init", "-e", "repokey"]],
        backup: &["create", "-C", "zstd,1", "::{snapshot}", "."],
        restore: &["extract", "::{snapshot}"],
        check: &["check", "--verify-data"],
        forget: &[&["prune", "--keep-last", "{kept}"]],
        collect: &[&["compact"]],
        stream: &["create", "-C", "zstd,1", "::stream", "-"],
    },
    Tool {
        label: "kopia",
        binary: "kopia",
        configuration: "encrypted, zstd-fastest",
        version: &["--version"],
        environment: &[
            ("KOPIA_PASSWORD", "benchmark"),
            ("KOPIA_CONFIG_PATH", "{home}/kopia.config"),
            ("KOPIA_CACHE_DIRECTORY", "{home}/.cache/kopia"),
            ("KOPIA_LOG_DIR", "{home}/.cache/kopia-logs"),
            ("KOPIA_CHECK_FOR_UPDATES", "false"),
        ],
        init: &[
            &["repository", "create", "filesystem", "--path", "{repository}"],
            &["policy", "set", "--global", "--compression", "zstd-fastest"],
        ],
        backup: &["snapshot", "create", "."],
        restore: &["restore", "--snapshot-time", "latest", "{source}", "{target}"],
        check: &["snapshot", "verify", "--verify-files-percent=100"],
        forget: &[
            &["policy", "set", "--global", "--keep-latest", "{kept}", "--keep-hourly", "0"],
            &["snapshot", "expire", "--all", "--delete"],
        ],
        collect: &[&["maintenance", "run", "--full", "--safety=none"]],
        stream: &["snapshot", "create", "--stdin-file=all.tar", "{home}"],
    },
    Tool {
        label: "rustic",
        binary: "rustic",
        configuration: "encrypted, default settings",
        version: &["--version"],
        environment: &[
            ("RUSTIC_REPOSITORY", "{repository}"),
            ("RUSTIC_PASSWORD", "benchmark"),
            ("RUSTIC_CACHE_DIR", "{home}/.cache/rustic"),
            ("RUSTIC_NO_PROGRESS", "true"),
        ],
        init: &[&["init"]],
        backup: &["backup", "."],
        restore: &["restore", "latest", "{target}"],
        check: &["check", "--read-data"],
        forget: &[&["forget", "--group-by", "host", "--keep-last", "{kept}"]],
        collect: &[&["prune", "--instant-delete"]],
        stream: &["backup", "-"],
    },
];

/// What the placeholders of a command line stand for.
#[derive(Clone, Debug)]
pub struct Values {
    /// The repository's directory.
    pub repository: String,
    /// The tool's home, caches included.
    pub home: String,
    /// The directory that is stored, or was.
    pub source: String,
    /// The directory that is restored to.
    pub target: String,
    /// The name of the snapshot.
    pub snapshot: String,
    /// How many snapshots are kept when the others are forgotten.
    pub kept: String,
}

impl Values {
    /// Names in place of directories, for reports.
    pub fn for_display() -> Values {
        Values {
            repository: "$REPOSITORY".into(),
            home: "$HOME".into(),
            source: "$SOURCE".into(),
            target: "$TARGET".into(),
            snapshot: "$SNAPSHOT".into(),
            kept: "$KEPT".into(),
        }
    }

    /// Fills in the placeholders of one argument.
    pub fn fill(&self, template: &str) -> String {
        template
            .replace("{repository}", &self.repository)
            .replace("{home}", &self.home)
            .replace("{source}", &self.source)
            .replace("{target}", &self.target)
            .replace("{snapshot}", &self.snapshot)
            .replace("{kept}", &self.kept)
    }
}

/// A tool that is present on this machine.
#[derive(Debug)]
pub struct Found {
    /// How it is driven.
    pub tool: &'static Tool,
    /// The program file, absolute.
    pub program: PathBuf,
    /// The first line of what it prints as its version.
    pub version: String,
}

impl Found {
    /// Whether this is the project's own binary.
    pub fn is_own(&self) -> bool {
        self.tool.binary == OWN
    }
}

/// The outcome of looking for tools.
#[derive(Debug)]
pub struct Search {
    /// Present and answering, in the table's order.
    pub found: Vec<Found>,
    /// Labels of the tools asked for and not found.
    pub missing: Vec<&'static str>,
}

/// Finds the tools whose binary is named in `wanted` (every tool if empty).
///
/// `own` is the project's binary, if given; otherwise it is looked for in `PATH` like the others.
/// A name in `wanted` that no tool has is an error.
pub fn search(wanted: &[String], own: Option<&Path>) -> io::Result<Search> {
    if let Some(name) = wanted.iter().find(|name| TOOLS.iter().all(|t| t.binary != **name)) {
        return Err(io::Error::other(format!("no tool is called {name:?}")));
    }
    let asked = |tool: &Tool| {
        let own_given = tool.binary == OWN && own.is_some();
        wanted.is_empty() || own_given || wanted.iter().any(|name| name == tool.binary)
    };
    let mut result = Search { found: Vec::new(), missing: Vec::new() };
    for tool in TOOLS.iter().filter(|tool| asked(tool)) {
        let program = match own {
            Some(path) if tool.binary == OWN => Some(path.canonicalize()?),
            _ => on_path(tool.binary),
        };
        match program {
            Some(program) => {
                let version = version_of(tool, &program)?;
                result.found.push(Found { tool, program, version });
            }
            None => result.missing.push(tool.label),
        }
    }
    Ok(result)
}

/// The first program of that name in `PATH`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let directories = env::var_os("PATH")?;
    env::split_paths(&directories).map(|directory| directory.join(name)).find(|file| {
        rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
    })
}

fn version_of(tool: &Tool, program: &Path) -> io::Result<String> {
    let output = Command::new(program).args(tool.version).output()?;
    if !output.status.success() {
        let message = format!("{} does not tell its version: {}", tool.label, output.status);
        return Err(io::Error::other(message));
    }
    Ok(first_line(&String::from_utf8_lossy(&output.stdout)))
}

fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique() {
        for (i, tool) in TOOLS.iter().enumerate() {
            assert!(TOOLS[..i].iter().all(|other| other.label != tool.label), "{}", tool.label);
        }
    }

    #[test]
    fn every_placeholder_of_the_table_is_known() {
        let values = Values::for_display();
        for tool in TOOLS {
            let lines = [tool.backup, tool.restore, tool.check, tool.stream];
            let lists = [tool.init, tool.forget, tool.collect].into_iter().flatten().copied();
            let arguments = lists.chain(lines).flatten().copied();
            let settings = COMMON_ENVIRONMENT.iter().chain(tool.environment).map(|(_, v)| *v);
            for template in arguments.chain(settings) {
                assert!(!values.fill(template).contains('{'), "{}: {template}", tool.label);
            }
        }
    }

    #[test]
    fn placeholders_are_filled_inside_an_argument() {
        let values = Values { snapshot: "g03".into(), ..Values::for_display() };
        assert_eq!(values.fill("::{snapshot}"), "::g03");
        assert_eq!(values.fill("{home}/.cache"), "$HOME/.cache");
    }

    #[test]
    fn an_unknown_name_is_refused() {
        assert!(search(&["nothing-of-the-kind".to_string()], None).is_err());
    }

    #[test]
    fn the_version_is_the_first_line_with_text() {
        assert_eq!(first_line("\n  borg 1.4.5 \nmore\n"), "borg 1.4.5");
        assert_eq!(first_line(""), "unknown");
    }
}
