//! The files of the project, by path relative to its root.

use std::fs::{self, FileType};
use std::path::{Component, Path, PathBuf};

/// Directories that hold nothing of ours.
const PASSED_OVER: [&str; 3] = [".git", "target", "data"];

/// The root of the project.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file and what is in it.
#[derive(Clone, Debug)]
pub struct File {
    /// The path from the root, with `/`.
    pub path: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl File {
    /// The content as text; bytes that are no text are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Reads one file; panics with its name if that fails.
#[must_use]
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether there is something at `path`.
#[must_use]
pub fn exists(path: &str) -> bool {
    root().join(path).exists()
}

/// All files below `directory`, sorted by path; a missing directory is empty.
#[must_use]
pub fn below(directory: &str) -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), directory, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// All Rust files of all crates.
#[must_use]
pub fn rust() -> Vec<File> {
    let mut files = below("crates");
    files.retain(|file| file.path.ends_with(".rs"));
    files
}

/// The symbolic links below `root` that lead out of it or nowhere, each with where it leads.
#[must_use]
pub fn stray_links(root: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    visit(root, "", &mut |path, kind| {
        let place = root.join(&path);
        if kind.is_symlink()
            && let Ok(target) = fs::read_link(&place)
        {
            let ends_inside = root
                .canonicalize()
                .and_then(|root| Ok(place.canonicalize()?.starts_with(root)))
                .unwrap_or(false);
            // Nor may the way there leave the tree: the next copy lies elsewhere.
            let stays_inside =
                target.components().try_fold(path.matches('/').count(), |depth, component| {
                    match component {
                        Component::Normal(_) => Some(depth + 1),
                        Component::CurDir => Some(depth),
                        Component::ParentDir => depth.checked_sub(1),
                        Component::RootDir | Component::Prefix(_) => None,
                    }
                });
            if !ends_inside || stays_inside.is_none() {
                found.push((path, target));
            }
        }
    });
    found.sort();
    found
}

fn walk(root: &Path, directory: &str, found: &mut Vec<File>) {
    visit(root, directory, &mut |path, kind| {
        if kind.is_file()
            && let Ok(bytes) = fs::read(root.join(&path))
        {
            found.push(File { path, bytes });
        }
    });
}

/// Calls `each` with all that is below `directory` and is no directory.
fn visit(root: &Path, directory: &str, each: &mut dyn FnMut(String, FileType)) {
    let Ok(entries) = fs::read_dir(root.join(directory)) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = match directory {
            "" => name.clone(),
            _ => format!("{directory}/{name}"),
        };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && PASSED_OVER.contains(&name.as_str()) => {}
            Ok(kind) if kind.is_dir() => visit(root, &path, each),
            Ok(kind) => each(path, kind),
            Err(_) => {}
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::stray_links;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn links_are_stray_that_lead_out_or_nowhere() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("tree");
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(root.join("README.md"), "read me").unwrap();
        fs::write(outer.path().join("other"), "not ours").unwrap();
        symlink("../README.md", root.join("docs/good")).unwrap();
        symlink("docs", root.join("directory")).unwrap();
        symlink("../../other", root.join("docs/out")).unwrap();
        symlink("../../tree/README.md", root.join("docs/round")).unwrap();
        symlink("gone", root.join("nowhere")).unwrap();
        symlink(root.join("README.md"), root.join("absolute")).unwrap();
        let found = stray_links(&root);
        let names: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["absolute", "docs/out", "docs/round", "nowhere"]);
        assert_eq!(found[1].1, Path::new("../../other"));
    }
}
