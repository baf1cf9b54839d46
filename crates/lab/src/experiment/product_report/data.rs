//! Data sets of two natures: many files, and one large image.

use crate::experiment::Setting;
use crate::product::{Item, Opened, Product, ReadingTime, Took, stream, timed};
use crate::source::generator::{Generator, Parameters, Preset, Schedule};
use crate::source::tree;
use onefold_engine::ingest::{Selection, Source};
use onefold_engine::job::Job;
use onefold_engine::restore::{self, RestoreOptions};
use onefold_types::error::Context;
use onefold_types::{Error, Result, SessionId};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where files are restored to, so that writing them is no matter of a disk.
const MEMORY: &str = "/dev/shm";
/// The name of an image in its snapshots.
const IMAGE: &str = "image";

/// A data set.
pub enum Data {
    /// Directories, one for each generation.
    Files {
        /// Where they are, oldest first.
        directories: Vec<PathBuf>,
        /// Files of the newest.
        files: usize,
        /// Where they were made, if they were.
        made: Option<tempfile::TempDir>,
    },
    /// An image of a mail server's disk (S1.36, Table 4, left), made anew whenever it is needed.
    Image {
        /// What makes it.
        generator: Box<Generator>,
        /// Chunk numbers by generation.
        numbers: Vec<Vec<u64>>,
    },
}

impl Data {
    /// The directories that were given, or others that are made.
    ///
    /// # Errors
    /// They cannot be read, or made.
    pub fn files(setting: &Setting) -> Result<Self> {
        let (directories, made) = match &setting.data {
            Some(parent) => (tree::versions(parent)?, None),
            None => {
                let made = tempfile::tempdir().context(|| "making a directory for data")?;
                let generations = make_files(made.path(), setting.tiny)?;
                (generations, Some(made))
            }
        };
        let files = directories.last().map(|newest| tree::files(newest)).transpose()?;
        Ok(Self::Files { directories, files: files.map_or(0, |files| files.len()), made })
    }

    /// An image that is made.
    ///
    /// # Errors
    /// None: its parameters are possible.
    pub fn image(setting: &Setting) -> Result<Self> {
        let (chunks, generations) = if setting.tiny { (1_500, 4) } else { (16_000, 12) };
        let parameters = Parameters {
            generations,
            generations_min: generations,
            ..Parameters::preset(Preset::Exchange, chunks)
        };
        let generator = Generator::new(parameters)?;
        let mut numbers = Vec::new();
        generator.replay_files(0, &mut |_, files| {
            numbers.push(files.concat());
            Ok(())
        })?;
        Ok(Self::Image { generator: Box::new(generator), numbers })
    }

    /// Its name in tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Files { .. } => "files",
            Self::Image { .. } => IMAGE,
        }
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn description(&self) -> String {
        match self {
            Self::Files { directories, files, made } => format!(
                "{} directories{}, the newest of {files} files, restored as files into memory",
                directories.len(),
                if made.is_some() { ", generated" } else { "" }
            ),
            Self::Image { numbers, .. } => format!(
                "{} generations of a generated disk of a mail server, one in six chunks new, \
                 dumped as a stream",
                numbers.len()
            ),
        }
    }

    /// How many generations there are.
    #[must_use]
    pub fn generations(&self) -> usize {
        match self {
            Self::Files { directories, .. } => directories.len(),
            Self::Image { numbers, .. } => numbers.len(),
        }
    }

    /// A generation to back up: directories as if each were the same one on another day.
    ///
    /// # Errors
    /// There is no such generation.
    pub fn source(&self, generation: usize) -> Result<Source> {
        match self {
            Self::Files { .. } => Ok(Source::Root {
                directory: self.directory(generation)?.to_owned(),
                name: "data".into(),
                selection: Box::new(Selection::default()),
            }),
            Self::Image { .. } => {
                let bytes = Arc::new(self.image_bytes(generation)?);
                Ok(stream(IMAGE, &bytes, &ReadingTime::default()))
            }
        }
    }

    /// Finds a snapshot's data, with what the program asks for when it plans its restore.
    ///
    /// # Errors
    /// The snapshot has gone.
    pub fn locate(
        &self,
        product: &Product,
        opened: &Opened,
        snapshot: SessionId,
    ) -> Result<(Item, RestoreOptions)> {
        let path = match self {
            Self::Files { .. } => "/".to_owned(),
            Self::Image { .. } => format!("/{IMAGE}"),
        };
        let item = opened.locate(snapshot, path.as_bytes())?;
        let mut options = product.restoring(Path::new(""), &item);
        if matches!(self, Self::Image { .. }) {
            options.engine = opened.dump_engine();
        }
        Ok((item, options))
    }

    /// Restores a generation, and compares it with what was saved once the clock has stopped, or,
    /// a stream, as it comes.
    ///
    /// # Errors
    /// Those of a restore; something differs.
    pub fn restore(
        &self,
        opened: &Opened,
        (item, options): &(Item, RestoreOptions),
        generation: usize,
    ) -> Result<Took> {
        if let Self::Image { .. } = self {
            let saved = self.image_bytes(generation)?;
            return Ok(timed(|| opened.dump(item, &saved, None))?.1);
        }
        let place = tempfile::tempdir_in(if Path::new(MEMORY).is_dir() { MEMORY } else { "." });
        let place = place.context(|| "making a directory to restore into")?;
        let target = place.path().join("restored");
        let options = RestoreOptions { target: target.clone(), ..options.clone() };
        let (job, _) = Job::unattended();
        let (report, took) =
            timed(|| restore::restore(&opened.repository, &item.entry, &options, &job))?;
        if report.errors > 0 {
            return Err(Error::damaged(format!("{} items were not restored", report.errors)));
        }
        compare(self.directory(generation)?, &target)?;
        Ok(took)
    }

    fn directory(&self, generation: usize) -> Result<&Path> {
        let found = match self {
            Self::Files { directories, .. } => directories.get(generation),
            Self::Image { .. } => None,
        };
        found.map(PathBuf::as_path).ok_or_else(|| Error::invalid("there is no such generation"))
    }

    fn image_bytes(&self, generation: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Self::Image { generator, numbers } = self {
            for number in numbers.get(generation).into_iter().flatten() {
                generator.append_bytes(*number, &mut bytes)?;
            }
        }
        Ok(bytes)
    }
}

/// Writes generations of source code, as FAST'08's engineering data are.
fn make_files(place: &Path, tiny: bool) -> Result<Vec<PathBuf>> {
    let (chunks, generations) = if tiny { (1_200, 4) } else { (12_000, 12) };
    let generator = Generator::new(Parameters {
        generations,
        generations_min: generations,
        schedule: Schedule::Full,
        ..Parameters::preset(Preset::Engineering, chunks)
    })?;
    let mut made = Vec::new();
    generator.replay_files(0, &mut |generation, files| {
        let directory = place.join(format!("g{generation:02}"));
        let what = || "making data";
        fs::create_dir(&directory).context(what)?;
        for numbers in files {
            let Some(first) = numbers.first() else { continue };
            let mut bytes = Vec::new();
            for number in *numbers {
                generator.append_bytes(*number, &mut bytes)?;
            }
            fs::write(directory.join(format!("{first:08x}")), &bytes).context(what)?;
        }
        made.push(directory);
        Ok(())
    })?;
    Ok(made)
}

/// Whether the same files hold the same bytes in both directories.
fn compare(saved: &Path, restored: &Path) -> Result<()> {
    let names = tree::files(saved)?;
    if names != tree::files(restored)? {
        return Err(Error::damaged("other files came back than were saved"));
    }
    for name in names {
        let read = |root: &Path| fs::read(root.join(&name)).context(|| "comparing files");
        if read(saved)? != read(restored)? {
            return Err(Error::damaged(format!("'{}' came back changed", name.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        for directory in [&one, &other] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("file"), "bytes").unwrap();
        }
        compare(&one, &other).unwrap();
        fs::write(other.join("file"), "Bytes").unwrap();
        assert!(compare(&one, &other).is_err());
        fs::write(other.join("file"), "bytes").unwrap();
        fs::write(other.join("more"), "").unwrap();
        assert!(compare(&one, &other).is_err());
    }
}
