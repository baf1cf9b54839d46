//! Small files that the user names: passwords, patterns, lists.

use onefold_types::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Lists and pattern files beyond this are surely the wrong file.
const LENGTH_MAX_BYTES: u64 = 64 << 20;

/// The user's mistake, whatever the operating system calls it: a list that is missing is no
/// missing store and no damage.
fn mistake(path: &Path, cause: io::Error) -> Error {
    Error::io(format!("cannot read '{}'", path.display()), cause).with_kind(ErrorKind::Invalid)
}

/// The content of a file; `-` stands for standard input.
pub fn read_or_stdin(path: &Path) -> Result<Vec<u8>> {
    if path.as_os_str() == "-" {
        return read_limited(&mut io::stdin().lock(), path);
    }
    read(path)
}

/// The content of a file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(path).map_err(|cause| mistake(path, cause))?;
    read_limited(&mut file, path)
}

fn read_limited(from: &mut dyn Read, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(LENGTH_MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|cause| mistake(path, cause))?;
    if bytes.len() as u64 > LENGTH_MAX_BYTES {
        return Err(Error::invalid(format!("'{}' is too long", path.display())));
    }
    Ok(bytes)
}

/// The lines of a file, which may be any bytes.
pub fn read_lines(path: &Path) -> Result<Vec<Vec<u8>>> {
    let bytes = read_or_stdin(path)?;
    let lines = bytes.split(|byte| *byte == b'\n');
    Ok(lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec()).collect())
}

/// The paths in a list, ended by `separator` each; empty ones are passed over.
pub fn read_paths(path: &Path, separator: u8) -> Result<Vec<PathBuf>> {
    let bytes = read_or_stdin(path)?;
    let mut paths = Vec::new();
    for field in bytes.split(|byte| *byte == separator) {
        let field = match field {
            [line @ .., b'\r'] if separator == b'\n' => line,
            field => field,
        };
        if field.contains(&0) {
            return Err(Error::invalid(format!(
                "'{}' holds a path with a zero byte; is it meant for --files-from0?",
                path.display()
            )));
        }
        if !field.is_empty() {
            paths.push(PathBuf::from(std::ffi::OsString::from_vec(field.to_vec())));
        }
    }
    Ok(paths)
}
