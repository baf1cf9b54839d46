//! Versions as a backup meets them: a stream, or a directory that changes from one to the next.
//!
//! A directory keeps what a version has in common with the one before as it is, times included, so
//! that the product finds it unchanged and does not read it. It lies in memory, so that no disk of
//! this machine has a say.

use super::content::scatter;
use super::edits::Edits;
use super::generator::Generator;
use super::tree;
use crate::collection::load::IMAGE;
use onefold_engine::ingest::Source;
use onefold_types::Result;
use onefold_types::error::Context;
use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where directories are made.
pub const MEMORY: &str = "/dev/shm";
/// Directories of generated files.
const DIRECTORIES: u64 = 16;
/// Chunk numbers whose files stand together in a directory.
const NEIGHBOURS: u64 = 64;
/// What has changed less long ago may change again unseen, so that the product reads it again.
const SETTLING: Duration = Duration::from_millis(60);

/// All versions of something.
pub enum Versions {
    /// One stream.
    Image(Generator),
    /// Generated files.
    Files(Generator),
    /// Copies of these directories.
    Real(Vec<PathBuf>),
    /// Files that are nearly what they were.
    Edited(Edits),
    /// The same as one stream.
    EditedImage(Edits),
}

/// What a file of a version is made of.
enum Content<'a> {
    Chunks(&'a [u64]),
    Copy(PathBuf),
    Bytes(Vec<u8>),
}

impl Versions {
    /// The versions below a directory.
    ///
    /// # Errors
    /// It has none.
    pub fn real(parent: &Path) -> Result<Self> {
        Ok(Self::Real(tree::versions(parent)?))
    }

    /// Hands every version to a backup, one after the other.
    ///
    /// # Errors
    /// Those of `back_up`; a directory cannot be read or written.
    pub fn each(&self, back_up: &mut dyn FnMut(Source) -> Result<()>) -> Result<()> {
        let below = if Path::new(MEMORY).is_dir() { MEMORY } else { "." };
        let stage = tempfile::tempdir_in(below).context(|| "making a directory for versions")?;
        match self {
            Self::Image(generator) => generator.replay_files(0, &mut |_, files| {
                let mut bytes = Vec::new();
                let mut numbers = files.iter().flat_map(|file| *file);
                numbers.try_for_each(|number| generator.append_bytes(*number, &mut bytes))?;
                back_up(stream(bytes))
            }),
            Self::EditedImage(edits) => (0..edits.versions).try_for_each(|version| {
                let files = edits.version(version)?.into_iter();
                back_up(stream(files.flat_map(|(_, bytes)| bytes).collect()))
            }),
            Self::Edited(edits) => (0..edits.versions).try_for_each(|version| {
                let files = edits.version(version)?.into_iter();
                let files = files.map(|(name, bytes)| (name, Content::Bytes(bytes)));
                write(stage.path(), &files.collect(), None)?;
                back_up(directory(stage.path()))
            }),
            Self::Files(generator) => generator.replay_files(0, &mut |_, files| {
                let named = files.iter().filter_map(|chunks| Some((name(chunks)?, *chunks)));
                let files = named.map(|(name, chunks)| (name, Content::Chunks(chunks))).collect();
                write(stage.path(), &files, Some(generator))?;
                back_up(directory(stage.path()))
            }),
            Self::Real(roots) => roots.iter().try_for_each(|root| {
                let files = tree::files(root)?;
                let files = files.into_iter().map(|file| {
                    let from = root.join(&file);
                    (file, Content::Copy(from))
                });
                write(stage.path(), &files.collect(), None)?;
                back_up(directory(stage.path()))
            }),
        }
    }
}

fn stream(bytes: Vec<u8>) -> Source {
    let reader = Box::new(Cursor::new(bytes));
    Source::Stream { name: IMAGE.into(), reader, finish: Box::new(|| Ok(())) }
}

fn directory(path: &Path) -> Source {
    Source::Paths { paths: vec![path.to_path_buf()], selection: Box::default() }
}

/// A name follows from the first chunk; what came together are neighbours.
fn name(chunks: &[u64]) -> Option<PathBuf> {
    let first = chunks.first()?;
    let place = scatter(first / NEIGHBOURS);
    let name = format!("{place:016x}-{:x}", first % NEIGHBOURS);
    Some(Path::new(&format!("{:02x}", place % DIRECTORIES)).join(name))
}

/// Makes a directory hold these files and no others; leaves alone what is as it should be.
fn write(
    stage: &Path,
    files: &BTreeMap<PathBuf, Content<'_>>,
    generator: Option<&Generator>,
) -> Result<()> {
    for old in tree::files(stage)?.iter().filter(|old| !files.contains_key(*old)) {
        fs::remove_file(stage.join(old)).context(|| "deleting a file of the last version")?;
    }
    for (file, content) in files {
        let path = stage.join(file);
        let what = || format!("writing {}", path.display());
        let mut bytes = Vec::new();
        match (content, generator) {
            (Content::Chunks(chunks), Some(generator)) => {
                chunks.iter().try_for_each(|one| generator.append_bytes(*one, &mut bytes))?;
            }
            (Content::Chunks(_), None) => {}
            (Content::Bytes(given), _) => bytes.clone_from(given),
            (Content::Copy(from), _) => {
                bytes = fs::read(from).context(|| format!("reading {}", from.display()))?;
            }
        }
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(stage)).context(what)?;
        fs::write(&path, bytes).context(what)?;
    }
    std::thread::sleep(SETTLING);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::generator::{Parameters, Preset};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_directory_holds_the_version_and_keeps_what_did_not_change() {
        let parameters = Parameters {
            deletion: None,
            generations: 4,
            generations_min: 4,
            file_chunks: 4.0,
            ..Parameters::preset(Preset::Aged, 400)
        };
        let versions = Versions::Files(Generator::new(parameters).unwrap());
        let mut seen: Vec<BTreeMap<PathBuf, i64>> = Vec::new();
        versions
            .each(&mut |source| {
                let Source::Paths { paths, .. } = source else { panic!("no directory") };
                let names = tree::files(&paths[0]).unwrap();
                let changed = |name: &PathBuf| {
                    let status = paths[0].join(name).metadata().unwrap();
                    status.ctime() * 1_000_000_000 + status.ctime_nsec()
                };
                let times = names.into_iter().map(|name| (name.clone(), changed(&name))).collect();
                seen.push(times);
                Ok(())
            })
            .unwrap();
        assert!(seen.len() > 2);
        for pair in seen.windows(2) {
            let kept = pair[1].iter().filter(|(name, time)| pair[0].get(*name) == Some(time));
            let kept = kept.count();
            assert!(kept > 0 && kept < pair[1].len(), "{kept} of {}", pair[1].len());
        }
    }
}
