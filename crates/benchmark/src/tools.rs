//! The tools that are compared, as data: how each is called, and nothing else.
//!
//! A command line is a list of arguments in which `{repository}`, `{home}`, `{source}`, `{target}`,
//! `{snapshot}` and `{kept}` are filled in; the arguments `{init}` and `{backup}` become those that
//! make the variant, and `{forgotten}` becomes the directories whose snapshots are to go. The tools
//! themselves are in [`table`].
//!
//! Backups run in the source directory, restores in the (empty) target directory, and everything
//! else in the tool's own home directory.

mod table;

pub use table::TOOLS;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The arguments of one command, without the program.
pub type Line = &'static [&'static str];

/// The project's own binary, and the label of its default variant.
pub const OWN: &str = "onefold";

/// Stands for the arguments that a variant adds when a repository is made.
const INIT: &str = "{init}";
/// Stands for the arguments that a variant adds to a backup.
const BACKUP: &str = "{backup}";
/// Stands for all directories whose snapshots are forgotten, each an argument.
const FORGOTTEN: &str = "{forgotten}";

/// So much of the digest of a binary tells it from others.
const DIGEST_DIGITS: usize = 12;

/// One configuration in which a tool takes part.
#[derive(Debug)]
pub struct Variant {
    /// The name in reports: the tool's, then what sets the variant apart.
    pub label: &'static str,
    /// What the reader has to know of encryption and compression.
    pub configuration: &'static str,
    /// Whether it takes part always, or only where all variants are asked for.
    pub standard: bool,
    /// What stands in for `{init}`.
    pub init: Line,
    /// What stands in for `{backup}`.
    pub backup: Line,
}

/// How one tool is driven.
#[derive(Debug)]
pub struct Tool {
    /// The program looked for in `PATH`, and the name that `--tools` selects.
    pub binary: &'static str,
    /// Its configurations, the standard ones first.
    pub variants: &'static [Variant],
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
    /// The directories whose snapshots are forgotten, for tools that keep each one's apart.
    pub forgotten: Vec<String>,
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
            forgotten: vec!["$FORGOTTEN".into()],
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

/// A variant of a tool that is present on this machine.
#[derive(Clone, Debug)]
pub struct Found {
    /// How the tool is driven.
    pub tool: &'static Tool,
    /// The configuration.
    pub variant: &'static Variant,
    /// The program file, absolute.
    pub program: PathBuf,
    /// The first line of what it prints as its version.
    pub version: String,
}

impl Found {
    /// The name in reports.
    pub fn label(&self) -> &'static str {
        self.variant.label
    }

    /// Whether this is the project's own binary.
    pub fn is_own(&self) -> bool {
        self.tool.binary == OWN
    }

    /// A command line with everything filled in.
    pub fn arguments(&self, line: Line, values: &Values) -> Vec<String> {
        let fill = |argument: &&str| values.fill(argument);
        let expanded = line.iter().map(|argument| match *argument {
            INIT => self.variant.init.iter().map(fill).collect(),
            BACKUP => self.variant.backup.iter().map(fill).collect(),
            FORGOTTEN => values.forgotten.clone(),
            _ => vec![fill(argument)],
        });
        expanded.collect::<Vec<_>>().concat()
    }
}

/// The outcome of looking for tools.
#[derive(Debug)]
pub struct Search {
    /// Present and answering, in the table's order.
    pub found: Vec<Found>,
    /// Binaries of the tools asked for and not found.
    pub missing: Vec<&'static str>,
}

/// Finds the tools whose binary is named in `wanted` (every tool if empty), in their standard
/// configurations or in all.
///
/// `own` is the project's binary, if given; otherwise it is looked for in `PATH` like the others.
/// A name in `wanted` that no tool has is an error.
pub fn search(wanted: &[String], own: Option<&Path>, all_variants: bool) -> io::Result<Search> {
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
        let Some(program) = program else {
            result.missing.push(tool.binary);
            continue;
        };
        let version = version_of(tool, &program)?;
        for variant in tool.variants.iter().filter(|variant| all_variants || variant.standard) {
            let (program, version) = (program.clone(), version.clone());
            result.found.push(Found { tool, variant, program, version });
        }
    }
    Ok(result)
}

/// Has the project's own variants run a copy of their binary in `directory`, and adds the digest of
/// what is measured to their versions.
///
/// A build that ends while a run goes on would otherwise change what is measured, unnoticed: the
/// version is the same from one build to the next.
pub fn pin_own(found: &mut [Found], directory: &Path) -> io::Result<()> {
    let Some(own) = found.iter().find(|found| found.is_own()) else { return Ok(()) };
    let copy = directory.join(format!("{OWN}-under-test"));
    fs::copy(&own.program, &copy)?;
    // Piece by piece: this program's own peak is the least that can be measured.
    let hash = blake3::Hasher::new().update_reader(fs::File::open(&copy)?)?.finalize();
    let digest = &hash.to_hex()[..DIGEST_DIGITS];
    for found in found.iter_mut().filter(|found| found.is_own()) {
        found.program.clone_from(&copy);
        found.version.push_str(", binary ");
        found.version.push_str(digest);
    }
    Ok(())
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
        let message = format!("{} does not tell its version: {}", tool.binary, output.status);
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

    fn all() -> Vec<Found> {
        let of = |tool: &'static Tool| {
            tool.variants.iter().map(move |variant| {
                let (program, version) = (PathBuf::from("/"), "1".to_string());
                Found { tool, variant, program, version }
            })
        };
        TOOLS.iter().flat_map(of).collect()
    }

    #[test]
    fn labels_are_unique_and_begin_with_the_tool() {
        let all = all();
        for (i, found) in all.iter().enumerate() {
            let label = found.label();
            assert!(all[..i].iter().all(|other| other.label() != label), "{label}");
            let rest = label.strip_prefix(found.tool.binary);
            assert!(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')), "{label}");
        }
    }

    #[test]
    fn every_tool_has_a_standard_variant_and_ours_is_the_default() {
        for tool in TOOLS {
            assert!(tool.variants[0].standard, "{}", tool.binary);
            assert!(tool.variants.is_sorted_by_key(|v| !v.standard), "{}", tool.binary);
        }
        let own = all().into_iter().find(|found| found.label() == OWN).unwrap();
        assert!(own.is_own() && own.variant.init.is_empty() && own.variant.backup.is_empty());
    }

    #[test]
    fn every_placeholder_of_the_table_is_known() {
        let values = Values::for_display();
        for found in all() {
            let tool = found.tool;
            let lines = [tool.backup, tool.restore, tool.check, tool.stream];
            let lists = [tool.init, tool.forget, tool.collect].into_iter().flatten().copied();
            let arguments = lists.chain(lines).flat_map(|line| found.arguments(line, &values));
            let settings = COMMON_ENVIRONMENT.iter().chain(tool.environment);
            let settings = settings.map(|(_, value)| values.fill(value));
            for text in arguments.chain(settings) {
                assert!(!text.contains('{'), "{}: {text}", found.label());
            }
        }
    }

    #[test]
    fn variants_of_a_tool_differ_in_what_is_called() {
        let values = Values::for_display();
        let calls = |found: &Found| {
            let lines = found.tool.init.iter().chain([&found.tool.backup, &found.tool.stream]);
            lines.map(|line| found.arguments(line, &values)).collect::<Vec<_>>()
        };
        let all = all();
        for (i, found) in all.iter().enumerate() {
            let of_tool = all[..i].iter().filter(|f| f.tool.binary == found.tool.binary);
            for other in of_tool {
                assert_ne!(calls(found), calls(other), "{}", found.label());
            }
        }
    }

    #[test]
    fn the_arguments_of_a_variant_stand_where_the_table_has_them() {
        let all = all();
        let found = all.iter().find(|found| found.label() == "borg zstd,9").unwrap();
        let values = Values { snapshot: "g03".into(), ..Values::for_display() };
        let line = found.arguments(found.tool.backup, &values);
        assert_eq!(line, ["create", "-C", "zstd,9", "::g03", "."]);
        let plain = all.iter().find(|found| found.label() == "restic").unwrap();
        assert_eq!(plain.arguments(plain.tool.backup, &values), ["backup", "."]);
        let values = Values { forgotten: vec!["/g00".into(), "/g01".into()], ..values };
        assert_eq!(plain.arguments(&["rm", "{forgotten}"], &values), ["rm", "/g00", "/g01"]);
    }

    #[test]
    fn placeholders_are_filled_inside_an_argument() {
        let values = Values { snapshot: "g03".into(), ..Values::for_display() };
        assert_eq!(values.fill("::{snapshot}"), "::g03");
        assert_eq!(values.fill("{home}/.cache"), "$HOME/.cache");
    }

    #[test]
    fn an_unknown_name_is_refused() {
        assert!(search(&["nothing-of-the-kind".to_string()], None, false).is_err());
    }

    #[test]
    fn variants_take_part_where_they_are_asked_for() {
        let shell = Path::new("/bin/true");
        let none = ["onefold".to_string()];
        let labels = |all_variants| {
            let found = search(&none, Some(shell), all_variants).unwrap().found;
            found.iter().map(Found::label).collect::<Vec<_>>()
        };
        assert_eq!(labels(false), [OWN]);
        let all = labels(true);
        assert!(all.len() > 1 && all[0] == OWN, "{all:?}");
    }

    #[test]
    fn what_is_measured_stays_though_the_binary_is_built_anew() {
        let place = tempfile::tempdir().unwrap();
        let binary = place.path().join("built");
        fs::copy("/bin/true", &binary).unwrap();
        let mut found = search(&["onefold".into()], Some(&binary), true).unwrap().found;
        let before = found[0].version.clone();
        pin_own(&mut found, place.path()).unwrap();
        fs::write(&binary, "something else").unwrap();
        let contents = fs::read("/bin/true").unwrap();
        let digest = blake3::hash(&contents).to_hex();
        for found in &found {
            assert_eq!(fs::read(&found.program).unwrap(), contents);
            assert_eq!(found.version, format!("{before}, binary {}", &digest[..DIGEST_DIGITS]));
        }
        let output = Command::new(&found[0].program).output().unwrap();
        assert!(output.status.success());
    }

    #[test]
    fn the_version_is_the_first_line_with_text() {
        assert_eq!(first_line("\n  borg 1.4.5 \nmore\n"), "borg 1.4.5");
        assert_eq!(first_line(""), "unknown");
    }
}
