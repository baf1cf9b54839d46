//! The sources: small directories that change between backups.
//!
//! What is in them is known without looking: every change is made to the directory and to the tree
//! beside it. Modification times are numbered, so that no two versions of a file have the same
//! one. A source changes only while no command reads it.

use super::random::Random;
use super::truth::{Content, Entry, Tree};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Modification times are counted from here.
const TIME_START: u64 = 1_600_000_000;
/// Contents that are kept to be used again.
const POOL: usize = 48;
/// Changes at most between two versions.
const CHANGES: usize = 8;

/// What a source is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Some files of up to some 100 KiB.
    Mixed,
    /// Hundreds of files below 60 bytes.
    Tiny,
    /// Files that other sources have, or once had.
    Copies,
    /// Directories in directories, links, zeros.
    Deep,
    /// Thousands of files of eight bytes, all of them new with every version.
    Dust,
}

impl Shape {
    fn files(self) -> usize {
        match self {
            Shape::Mixed => 14,
            Shape::Tiny => 300,
            Shape::Copies | Shape::Deep => 10,
            Shape::Dust => 12_000,
        }
    }
}

/// A directory that changes.
#[derive(Debug)]
pub struct Source {
    /// The directory.
    pub path: PathBuf,
    /// The path by which a snapshot knows it: the whole path without the slash at the beginning.
    name: String,
    /// What it is like.
    pub shape: Shape,
    /// Commands that are reading it.
    pub readers: usize,
    tree: Arc<Tree>,
    clock: u64,
}

/// Contents that sources had, to be used again.
#[derive(Debug, Default)]
pub struct Pool(Vec<Arc<Vec<u8>>>);

impl Pool {
    fn add(&mut self, bytes: &Arc<Vec<u8>>, random: &mut Random) {
        match self.0.len() < POOL {
            true => self.0.push(Arc::clone(bytes)),
            false => self.0[random.below(POOL)] = Arc::clone(bytes),
        }
    }
}

impl Source {
    /// Makes the directory and the first version.
    pub fn create(
        parent: &Path,
        name: &str,
        shape: Shape,
        random: &mut Random,
        pool: &mut Pool,
    ) -> io::Result<Source> {
        let path = parent.join(name);
        fs::create_dir_all(&path)?;
        let name = path.display().to_string().trim_start_matches('/').to_owned();
        let ends = name.match_indices('/').map(|(end, _)| end).chain([name.len()]);
        let above = ends.map(|end| (name[..end].to_owned(), Entry::Directory));
        let tree = Arc::new(above.collect());
        let mut source = Source { path, name, shape, readers: 0, tree, clock: 0 };
        for _ in 0..shape.files() {
            source.add(random, pool)?;
        }
        Ok(source)
    }

    /// What it holds now.
    pub fn version(&self) -> Arc<Tree> {
        Arc::clone(&self.tree)
    }

    /// One of its files, if it has any.
    pub fn any_file(&self, random: &mut Random) -> Option<PathBuf> {
        let is_file = |(_, entry): &(&String, &Entry)| matches!(entry, Entry::File(_));
        let files: Vec<&String> = self.tree.iter().filter(is_file).map(|(name, _)| name).collect();
        random.pick(&files).map(|name| Path::new("/").join(name))
    }

    /// Changes some things.
    pub fn change(&mut self, random: &mut Random, pool: &mut Pool) -> io::Result<()> {
        if self.shape == Shape::Dust {
            for name in self.files() {
                self.write(&name, random.noise(8), random, pool)?;
            }
            return Ok(());
        }
        for _ in 0..random.skewed(1, CHANGES) {
            match random.below(11) {
                0 | 1 => self.add(random, pool)?,
                2 => self.remove(random)?,
                3 => self.rename_file(random)?,
                4 => self.rename_directory(random)?,
                5 => self.link(random)?,
                6 => self.hard_link(random)?,
                _ => self.edit(random, pool)?,
            }
        }
        Ok(())
    }

    fn files(&self) -> Vec<String> {
        let is_file = |entry: &Entry| matches!(entry, Entry::File(_));
        self.tree.iter().filter(|(_, e)| is_file(e)).map(|(path, _)| path.clone()).collect()
    }

    fn directories(&self) -> Vec<String> {
        let is_inside = |path: &str, entry: &Entry| {
            matches!(entry, Entry::Directory) && path.starts_with(&self.name)
        };
        self.tree.iter().filter(|(path, e)| is_inside(path, e)).map(|(p, _)| p.clone()).collect()
    }

    fn add(&mut self, random: &mut Random, pool: &mut Pool) -> io::Result<()> {
        let mut directory = random.pick(&self.directories()).cloned().unwrap_or_default();
        let new_directory = match self.shape {
            Shape::Dust => self.clock.is_multiple_of(1000),
            Shape::Deep => random.chance(60),
            _ => random.chance(15),
        };
        if new_directory && directory.len() < self.name.len() + 200 {
            directory = format!("{directory}/d{}", self.clock);
            fs::create_dir(place(&directory))?;
            Arc::make_mut(&mut self.tree).insert(directory.clone(), Entry::Directory);
        }
        let bytes = match self.shape {
            Shape::Dust => random.noise(8),
            Shape::Tiny if random.chance(98) => {
                let length = random.below(60);
                random.noise(length)
            }
            Shape::Copies if random.chance(80) => {
                random.pick(&pool.0).map(|bytes| bytes.to_vec()).unwrap_or_default()
            }
            _ => fresh(random),
        };
        self.write(&format!("{directory}/f{}", self.clock), bytes, random, pool)
    }

    fn write(
        &mut self,
        path: &str,
        bytes: Vec<u8>,
        random: &mut Random,
        pool: &mut Pool,
    ) -> io::Result<()> {
        self.clock += 1;
        let seconds = TIME_START + self.clock;
        let file = place(path);
        // Other names of the file keep what they have; the inode's number may soon be used again.
        if fs::symlink_metadata(&file).is_ok_and(|found| found.nlink() > 1) {
            fs::remove_file(&file)?;
        }
        fs::write(&file, &bytes)?;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(&file)?.set_modified(time)?;
        let bytes = Arc::new(bytes);
        if bytes.len() > 64 || random.chance(5) {
            pool.add(&bytes, random);
        }
        let content = Content::new(bytes, i64::try_from(seconds).ok());
        Arc::make_mut(&mut self.tree).insert(path.to_owned(), Entry::File(content));
        Ok(())
    }

    fn remove(&mut self, random: &mut Random) -> io::Result<()> {
        let files = self.files();
        if files.len() > self.shape.files() / 2
            && let Some(path) = random.pick(&files)
        {
            fs::remove_file(place(path))?;
            Arc::make_mut(&mut self.tree).remove(path);
        }
        Ok(())
    }

    fn rename_file(&mut self, random: &mut Random) -> io::Result<()> {
        let Some(path) = random.pick(&self.files()).cloned() else { return Ok(()) };
        let directory = random.pick(&self.directories()).cloned().unwrap_or_default();
        self.rename(&path, &directory)
    }

    fn rename_directory(&mut self, random: &mut Random) -> io::Result<()> {
        let mut directories = self.directories();
        directories.retain(|path| *path != self.name);
        let Some(path) = random.pick(&directories).cloned() else { return Ok(()) };
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
        self.rename(&path, &parent)
    }

    fn rename(&mut self, path: &str, directory: &str) -> io::Result<()> {
        self.clock += 1;
        let to = format!("{directory}/r{}", self.clock);
        fs::rename(place(path), place(&to))?;
        let tree = Arc::make_mut(&mut self.tree);
        let inside = format!("{path}/");
        let moved: Vec<String> =
            tree.keys().filter(|key| *key == path || key.starts_with(&inside)).cloned().collect();
        for old in moved {
            if let Some(entry) = tree.remove(&old) {
                tree.insert(format!("{to}{}", &old[path.len()..]), entry);
            }
        }
        Ok(())
    }

    fn link(&mut self, random: &mut Random) -> io::Result<()> {
        self.clock += 1;
        let directory = random.pick(&self.directories()).cloned().unwrap_or_default();
        let (path, to) = (format!("{directory}/l{}", self.clock), format!("f{}", self.clock / 2));
        symlink(&to, place(&path))?;
        Arc::make_mut(&mut self.tree).insert(path, Entry::Link(to));
        Ok(())
    }

    fn hard_link(&mut self, random: &mut Random) -> io::Result<()> {
        self.clock += 1;
        let directory = random.pick(&self.directories()).cloned().unwrap_or_default();
        let Some(file) = random.pick(&self.files()).cloned() else { return Ok(()) };
        let path = format!("{directory}/h{}", self.clock);
        fs::hard_link(place(&file), place(&path))?;
        let tree = Arc::make_mut(&mut self.tree);
        if let Some(entry) = tree.get(&file).cloned() {
            tree.insert(path, entry);
        }
        Ok(())
    }

    fn edit(&mut self, random: &mut Random, pool: &mut Pool) -> io::Result<()> {
        let files = self.files();
        let Some(path) = random.pick(&files).cloned() else { return Ok(()) };
        let Some(Entry::File(Content { bytes: Some(bytes), .. })) = self.tree.get(&path) else {
            return Ok(());
        };
        let mut bytes = bytes.to_vec();
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes = fresh(random),
            1 => bytes = random.pick(&pool.0).map(|bytes| bytes.to_vec()).unwrap_or_default(),
            2 => bytes.truncate(at),
            3 => bytes.extend(random.noise(100)),
            _ => {
                let length = random.skewed(1, 3000);
                bytes.splice(at..at, random.noise(length));
            }
        }
        bytes.truncate(400_000);
        self.write(&path, bytes, random, pool)
    }
}

/// The place of a path of a tree.
fn place(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

/// New content of 0 bytes to some 100 KiB.
pub fn fresh(random: &mut Random) -> Vec<u8> {
    let length = match random.below(10) {
        0 => 0,
        1 => random.below(100),
        2..=4 => random.below(5_000),
        5..=8 => random.below(60_000),
        _ => random.below(250_000),
    };
    match random.below(8) {
        0 => vec![0; length],
        1..=3 => random.text(length),
        _ => random.noise(length),
    }
}

#[cfg(test)]
mod tests {
    use super::super::truth;
    use super::*;

    #[test]
    fn the_tree_is_what_the_directory_holds() {
        let directory = tempfile::tempdir().unwrap();
        let (mut random, mut pool) = (Random::new(3, 0), Pool::default());
        for (name, shape) in
            [("m", Shape::Mixed), ("t", Shape::Tiny), ("c", Shape::Copies), ("d", Shape::Deep)]
        {
            let parent = directory.path().join(format!("of-{name}"));
            let mut source = Source::create(&parent, name, shape, &mut random, &mut pool).unwrap();
            let first = source.version();
            for _ in 0..20 {
                source.change(&mut random, &mut pool).unwrap();
                let found = truth::scan(&source.path).unwrap();
                let mut found = truth::below(&found, &source.name);
                let above = first.iter().filter(|(path, _)| source.name.starts_with(*path));
                found.extend(above.map(|(path, entry)| (path.clone(), entry.clone())));
                assert_eq!(truth::differences(&source.version(), &found), None);
            }
            assert!(truth::differences(&first, &source.version()).is_some());
        }
    }
}
