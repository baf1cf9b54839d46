//! Installs the peers through the package managers of this machine, each tried once.
//!
//! What is there already is left alone, and what cannot be had is reported and passed over. Nothing
//! is fetched other than by the package managers themselves.

use crate::tools::on_path;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Packages that the builds of some peers need.
const LIBRARIES: &[&str] =
    &["libacl1-dev", "libssl-dev", "libxxhash-dev", "libzstd-dev", "liblz4-dev", "pkg-config"];

/// How one peer is had.
struct Recipe {
    /// The program that is there afterwards.
    binary: &'static str,
    /// The package manager it comes by.
    manager: &'static str,
    install: fn(prefix: &Path) -> io::Result<()>,
}

const RECIPES: &[Recipe] = &[
    Recipe { binary: "restic", manager: "apt-get", install: restic },
    Recipe { binary: "borg", manager: "python3", install: borg },
    Recipe { binary: "rustic", manager: "cargo", install: rustic },
    Recipe { binary: "kopia", manager: "go", install: kopia },
];

/// Installs every peer that is not in `PATH`, into `prefix` where the package manager lets one
/// choose. Returns the outcome of each, as a line for people.
pub fn install_peers(prefix: &Path) -> Vec<String> {
    let present = |recipe: &Recipe| on_path(recipe.binary).is_some();
    if RECIPES.iter().all(present) {
        return RECIPES.iter().map(|recipe| format!("{}: present", recipe.binary)).collect();
    }
    let libraries = packages(LIBRARIES);
    if let Err(error) = &libraries {
        eprintln!("libraries: {error}; some builds may fail for it");
    }
    RECIPES.iter().map(|recipe| format!("{}: {}", recipe.binary, one(recipe, prefix))).collect()
}

fn one(recipe: &Recipe, prefix: &Path) -> String {
    if on_path(recipe.binary).is_some() {
        return "present".to_string();
    }
    if on_path(recipe.manager).is_none() {
        return format!("not installed: it comes by {}, which is not here", recipe.manager);
    }
    match (recipe.install)(prefix) {
        Ok(()) if on_path(recipe.binary).is_some() => "installed".to_string(),
        Ok(()) => format!("installed, but {} is not in PATH", prefix.join("bin").display()),
        Err(error) => format!("not installed: {error}"),
    }
}

fn packages(names: &[&str]) -> io::Result<()> {
    run(Command::new("apt-get").arg("update"))?;
    run(Command::new("apt-get").args(["install", "-y", "--no-install-recommends"]).args(names))
}

fn restic(_prefix: &Path) -> io::Result<()> {
    packages(&["restic"])
}

fn borg(prefix: &Path) -> io::Result<()> {
    let environment = prefix.join("lib/onefold-benchmark-borg");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    run(Command::new(environment.join("bin/pip")).args(["install", "borgbackup"]))?;
    std::fs::create_dir_all(prefix.join("bin"))?;
    symlink(environment.join("bin/borg"), prefix.join("bin/borg"))
}

fn rustic(prefix: &Path) -> io::Result<()> {
    run(Command::new("cargo").args(["install", "rustic-rs", "--locked", "--root"]).arg(prefix))
}

fn kopia(prefix: &Path) -> io::Result<()> {
    let module = "github.com/kopia/kopia@latest";
    run(Command::new("go").args(["install", module]).env("GOBIN", prefix.join("bin")))
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    if !status.success() {
        return Err(io::Error::other(format!("{name}: {status}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{OWN, TOOLS};

    #[test]
    fn every_peer_has_a_recipe() {
        for tool in TOOLS.iter().filter(|tool| tool.binary != OWN) {
            assert!(RECIPES.iter().any(|recipe| recipe.binary == tool.binary), "{}", tool.binary);
        }
    }

    #[test]
    fn a_recipe_that_fails_is_reported() {
        let recipe = Recipe {
            binary: "no-such-program",
            manager: "sh",
            install: |_| run(&mut Command::new("false")),
        };
        let outcome = one(&recipe, Path::new("/nowhere"));
        assert_eq!(outcome, "not installed: false: exit status: 1");
        let recipe = Recipe { manager: "no-such-manager", ..recipe };
        assert!(one(&recipe, Path::new("/nowhere")).contains("no-such-manager"));
    }
}
