//! A directory of another machine: `sftp://[USER@]HOST[:PORT]/PATH`, or `sftp:[USER@]HOST:PATH`.
//!
//! | path | directory |
//! | --- | --- |
//! | `/srv/backup`, `//srv/backup` | from the root |
//! | `/./backup`, `/~/backup` | from where the login begins |
//!
//! In the second form, which other programs use, a path without a slash in front begins where the
//! login does, and there is no port. Shown is always the first.
//!
//! Rules: host and user are made of letters that neither ssh nor a shell takes for something else,
//! and begin with none that makes them an option. Nothing is decoded.

use super::without_secrets;
use onefold_types::{Error, Result};
use std::fmt;

/// A directory of another machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SftpLocation {
    /// Who logs in, if it is not whom ssh's configuration says.
    pub user: Option<String>,
    /// The machine, as ssh knows it.
    pub host: String,
    /// Its port, likewise.
    pub port: Option<u16>,
    /// The directory: from the root if it begins with a slash, else from where the login begins.
    pub path: String,
}

impl fmt::Display for SftpLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sftp://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        let is_absolute = self.path.starts_with('/');
        write!(f, "{}{}", if is_absolute { "" } else { "/./" }, self.path)
    }
}

impl SftpLocation {
    pub(super) fn parse(name: &str) -> Result<Self> {
        let shown = without_secrets(name);
        let refused =
            |why: &str| Error::invalid(format!("the store '{shown}' cannot be reached: {why}"));
        let rest = name.get("sftp:".len()..).unwrap_or_default();
        let in_url = rest.strip_prefix("//").map(|rest| rest.split_once('/'));
        let (authority, path) = match in_url {
            Some(parts) => parts.map(|(authority, path)| (authority, path.to_owned())),
            None => split_path(rest),
        }
        .ok_or_else(|| {
            refused(
                "it names no directory: write 'sftp://USER@HOST/PATH', or \
                 'sftp://USER@HOST/./PATH' for a path from where the login begins",
            )
        })?;
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(refused(
                "a name is shown and remembered, so a password does not belong into it: use a key",
            ));
        }
        if user.is_some_and(|user| !is_word(user, "._-+")) {
            return Err(refused("what stands before '@' is no name of a user"));
        }
        let (host, port) = split_port(address);
        if !is_host(address, host) {
            return Err(refused("what stands before the path is no name of a machine"));
        }
        let port = port.map(str::parse::<u16>).transpose().ok().filter(|it| *it != Some(0));
        let port = port.ok_or_else(|| refused("what stands behind ':' is no port"))?;
        let path = directory(&path).map_err(|why| refused(&why))?;
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port, path })
    }
}

/// What stands before the colon in front of a path, and the path as a URL has it.
fn split_path(rest: &str) -> Option<(&str, String)> {
    let before_path = rest.split('/').next().unwrap_or_default();
    let host = before_path.rfind('@').map_or(0, |at| at + 1);
    let address = before_path.get(host..)?;
    let colon = address.find("]:").map(|at| at + 1).or_else(|| address.find(':'))?;
    let (authority, path) = rest.split_at_checked(host + colon)?;
    let path = path.strip_prefix(':').filter(|path| !path.is_empty())?;
    let is_relative = !path.starts_with(['/', '~']);
    Some((authority, if is_relative { format!("./{path}") } else { path.to_owned() }))
}

/// Host and port; brackets are around what has colons of its own.
fn split_port(address: &str) -> (&str, Option<&str>) {
    match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    }
}

fn is_host(address: &str, host: &str) -> bool {
    match address.starts_with('[') {
        true => {
            let behind = address.split_once(']').map(|(_, rest)| rest);
            let is_whole = behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
            is_whole && host.contains(':') && is_word(&host.replace([':', '%'], "x"), ".")
        }
        false => is_word(host, "._-"),
    }
}

/// Letters, digits and these; not one that begins like an option.
fn is_word(text: &str, others: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(allowed)
}

/// What stands behind the slash after the host, as one way of writing it.
fn directory(path: &str) -> Result<String, String> {
    let relative = path.strip_prefix("./").or_else(|| path.strip_prefix("~/"));
    let relative = relative.or((path == "." || path == "~").then_some(""));
    let rest = relative.unwrap_or(path);
    if let Some(odd) = rest.chars().find(|c| c.is_control() || "?#%".contains(*c)) {
        return Err(format!("'{}' means nothing in its path", odd.escape_default()));
    }
    let parts: Vec<&str> = rest.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err("write its path without '..'".into());
    }
    Ok(match (relative.is_some(), parts.is_empty()) {
        (true, true) => ".".into(),
        // A name that begins with '-' is no option: it goes to no program's command line.
        (true, false) => parts.join("/"),
        (false, true) => return Err("the root of a machine is no place for a store".into()),
        (false, false) => format!("/{}", parts.join("/")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_root_or_where_the_login_begins() {
        for (name, path, shown) in [
            ("sftp://host/srv/b", "/srv/b", "sftp://host/srv/b"),
            ("SFTP://host//srv//b/", "/srv/b", "sftp://host/srv/b"),
            ("sftp://host/./b", "b", "sftp://host/./b"),
            ("sftp://host/~/b/c", "b/c", "sftp://host/./b/c"),
            ("sftp://host/.", ".", "sftp://host/./."),
            ("sftp://host/-x/a b", "/-x/a b", "sftp://host/-x/a b"),
            ("sftp:host:/srv/b", "/srv/b", "sftp://host/srv/b"),
            ("sftp:me@host:b/c", "b/c", "sftp://me@host/./b/c"),
            ("sftp:host:~/b", "b", "sftp://host/./b"),
            ("sftp:me@[::1]:/b", "/b", "sftp://me@[::1]/b"),
            ("sftp:host:b:c", "b:c", "sftp://host/./b:c"),
        ] {
            let place = SftpLocation::parse(name).unwrap();
            assert_eq!(place.path, path, "{name}");
            assert_eq!(place.to_string(), shown);
            assert_eq!(SftpLocation::parse(shown).unwrap(), place);
        }
    }

    #[test]
    fn user_and_port_are_taken_apart() {
        let place = SftpLocation::parse("sftp://me_1@[fe80::1%eth0]:2222/x").unwrap();
        assert_eq!(place.user.as_deref(), Some("me_1"));
        assert_eq!((place.host.as_str(), place.port), ("fe80::1%eth0", Some(2222)));
        assert_eq!(place.to_string(), "sftp://me_1@[fe80::1%eth0]:2222/x");
        let plain = SftpLocation::parse("sftp://nas.local/x").unwrap();
        assert_eq!((plain.user, plain.host.as_str(), plain.port), (None, "nas.local", None));
    }
}
