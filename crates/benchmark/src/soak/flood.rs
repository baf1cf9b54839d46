//! More files than a container may have chunks, each of a few bytes: saved, restored, and moved
//! together by a collection.

use super::Soak;
use super::judge;
use super::random::Random;
use super::truth;
use std::path::Path;
use std::{fs, io};

/// Files, in directories of a thousand.
const FILES: usize = 70_000;
const FILE_BYTES: usize = 8;
/// Files that change between two backups: enough to spoil every container, so that all is copied.
const CHANGED: usize = 7_000;

impl Soak {
    /// Saves many tiny files in a store of its own, and sees that a collection loses none.
    pub(super) fn flood(&mut self) -> io::Result<()> {
        let source = self.place.work.join("flood");
        let path = self.place.work.join("store-flood");
        let mut random = Random::new(self.seed, super::AT_REST);
        for number in 0..FILES {
            if number % 1000 == 0 {
                fs::create_dir_all(source.join((number / 1000).to_string()))?;
            }
            write(&source, number, &mut random)?;
        }
        let on = |rest: &[&str]| -> Vec<String> {
            let path = path.display().to_string();
            ["-r", &path, "--json"].iter().chain(rest).map(|word| (*word).to_owned()).collect()
        };
        self.run_now("init", on(&["init", "--encryption", "none"]))?;
        let from = source.display().to_string();
        self.run_now("backup, many files", on(&["backup", &from]))?;
        self.flooded(&source, on(&[]), "a backup")?;
        for number in (0..FILES).step_by(FILES / CHANGED) {
            write(&source, number, &mut random)?;
        }
        self.run_now("backup, many files", on(&["backup", &from]))?;
        let words = ["forget", "--final", "--keep-last", "1"];
        self.run_now("forget, many files", on(&words))?;
        let words = ["gc", "--space-goal", "all", "--wait", "0s"];
        self.run_now("gc, many files", on(&words))?;
        self.flooded(&source, on(&[]), "a collection")?;
        judge::remove(&source)?;
        judge::remove(&path)
    }

    /// Compares the newest snapshot with the source.
    fn flooded(&mut self, source: &Path, access: Vec<String>, after: &str) -> io::Result<()> {
        let (finished, found) = self.restored(access, "latest")?;
        let name = source.display().to_string();
        let name = name.trim_start_matches('/');
        let mut wanted = truth::below(&truth::scan(source)?, name);
        let ends = name.match_indices('/').map(|(end, _)| end);
        wanted.extend(ends.map(|end| (name[..end].to_owned(), truth::Entry::Directory)));
        let told = truth::differences(&wanted, &found);
        if finished.code == Some(0) && told.is_none() {
            return Ok(());
        }
        let (words, told) = (judge::failed(&finished), told.unwrap_or_default());
        self.violation(None, &format!("many tiny files, after {after}: {words}; {told}"))
    }
}

fn write(source: &Path, number: usize, random: &mut Random) -> io::Result<()> {
    let path = source.join((number / 1000).to_string()).join(number.to_string());
    fs::write(path, random.noise(FILE_BYTES))
}
