//! Where the password comes from.
//!
//! In this order: the options, `ONEFOLD_PASSWORD`, `ONEFOLD_PASSWORD_FILE`,
//! `ONEFOLD_PASSWORD_COMMAND`, the profile, a question at the terminal. The first that is given
//! counts; if it fails, that is an error and the next is not tried. An empty password is refused.
//! That of a second store comes from options and variables of its own (`ONEFOLD_TO_PASSWORD` and so
//! on), or is asked for; never from the first one's.

use crate::files;
use crate::signals::{self, guarding_terminal};
use onefold_engine::repository::Password;
use onefold_remote::settings::onefold;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use zeroize::Zeroizing;

/// The password itself.
pub const VARIABLE: &str = "ONEFOLD_PASSWORD";
/// A file that holds the password.
pub const VARIABLE_FILE: &str = "ONEFOLD_PASSWORD_FILE";
/// A command that prints the password.
pub const VARIABLE_COMMAND: &str = "ONEFOLD_PASSWORD_COMMAND";
/// The same three for the store that `copy` copies to.
pub const VARIABLES_TO: [&str; 3] =
    ["ONEFOLD_TO_PASSWORD", "ONEFOLD_TO_PASSWORD_FILE", "ONEFOLD_TO_PASSWORD_COMMAND"];
/// Those of the store that a command works with.
const VARIABLES: [&str; 3] = [VARIABLE, VARIABLE_FILE, VARIABLE_COMMAND];
/// Those that hold a password or a token: no command that is run is told them.
pub const SECRETS: [&str; 4] = [VARIABLE, VARIABLES_TO[0], onefold::TOKEN, onefold::SECOND[0]];
/// What a command prints beyond this is no password.
const PASSWORD_MAX_BYTES: usize = 64 << 10;

/// A file or a command, from options, environment or profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PasswordSource {
    /// The file's content without the line end.
    File(PathBuf),
    /// What the shell command prints, without the line end.
    Command(String),
}

impl PasswordSource {
    /// The source that a pair of settings names; both at once are refused.
    pub fn from_pair(file: Option<PathBuf>, command: Option<String>) -> Result<Option<Self>> {
        match (file, command) {
            (None, None) => Ok(None),
            (Some(file), None) => Ok(Some(Self::File(file))),
            (None, Some(command)) => Ok(Some(Self::Command(command))),
            (Some(_), Some(_)) => Err(Error::invalid(
                "a password file and a password command are given; give one of them",
            )),
        }
    }

    /// Reads the password.
    pub fn read(&self) -> Result<Password> {
        match self {
            Self::File(path) => {
                let what = || format!("the password file '{}'", path.display());
                finish(Zeroizing::new(files::read(path).context(what)?)).context(what)
            }
            Self::Command(command) => {
                run(command).context(|| format!("the password command '{command}'"))
            }
        }
    }
}

/// The password of an existing store.
pub fn current(
    option: Option<&PasswordSource>,
    profile: Option<&PasswordSource>,
) -> Result<Password> {
    match given(option, &VARIABLES, profile)? {
        Some(password) => Ok(password),
        None => ask("Password of the store: ", &VARIABLES, "--"),
    }
}

/// The password of the store that is copied to or healed from, whatever it is called.
pub fn second(option: Option<&PasswordSource>, name: &str) -> Result<Password> {
    match given(option, &VARIABLES_TO, None)? {
        Some(password) => Ok(password),
        None => ask(&format!("Password of {name}: "), &VARIABLES_TO, "--to-"),
    }
}

/// Whether that is given, not to say asked for.
pub fn is_second_given(option: Option<&PasswordSource>) -> bool {
    option.is_some() || VARIABLES_TO.into_iter().any(is_set)
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// The password of a store to be made; asked twice at a terminal.
pub fn initial(
    option: Option<&PasswordSource>,
    profile: Option<&PasswordSource>,
) -> Result<Password> {
    match given(option, &VARIABLES, profile)? {
        Some(password) => Ok(password),
        None => ask_twice(),
    }
}

/// A further password for a store.
pub fn additional(option: Option<&PasswordSource>) -> Result<Password> {
    match option {
        Some(source) => source.read(),
        None => ask_twice(),
    }
}

/// Whether a password is given, not to say asked for: then the store is expected to be encrypted.
pub fn is_given(option: Option<&PasswordSource>, profile: Option<&PasswordSource>) -> bool {
    option.is_some() || profile.is_some() || VARIABLES.into_iter().any(is_set)
}

fn given(
    option: Option<&PasswordSource>,
    [itself, in_file, by_command]: &[&'static str; 3],
    profile: Option<&PasswordSource>,
) -> Result<Option<Password>> {
    if let Some(source) = option {
        return source.read().map(Some);
    }
    if let Some(password) = std::env::var_os(itself) {
        let password = Zeroizing::new(password.into_vec());
        return finish(password).context(|| itself).map(Some);
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let is_empty = |name| std::env::var_os(name).is_some_and(|value| value.is_empty());
    for name in [in_file, by_command] {
        if is_empty(name) {
            return Err(Error::invalid(format!("{name} is set but empty")));
        }
    }
    if let Some(file) = variable(in_file) {
        let source = PasswordSource::File(PathBuf::from(file));
        return source.read().context(|| in_file).map(Some);
    }
    if let Some(command) = variable(by_command) {
        let command = command
            .into_string()
            .map_err(|_| Error::invalid(format!("{by_command} is not valid UTF-8")))?;
        let source = PasswordSource::Command(command);
        return source.read().context(|| by_command).map(Some);
    }
    profile.map(PasswordSource::read).transpose()
}

/// Takes off one line end and refuses what is left if it is nothing.
fn finish(mut password: Password) -> Result<Password> {
    for end in [b'\n', b'\r'] {
        if password.last() == Some(&end) {
            password.pop();
        }
    }
    if password.is_empty() {
        return Err(Error::invalid("the password is empty"));
    }
    Ok(password)
}

/// A command that is not told the password: what it does with its environment is its own affair.
pub fn without_password(command: &mut Command) -> &mut Command {
    SECRETS.iter().fold(command, |command, name| command.env_remove(name))
}

fn run(command: &str) -> Result<Password> {
    let failed = |cause| Error::io("it cannot be run", cause).with_kind(ErrorKind::Invalid);
    let mut child = without_password(&mut Command::new("sh"))
        .arg(OsStr::new("-c"))
        .arg(command)
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    // All of the room at once: a buffer that grows leaves copies behind.
    let mut password = Zeroizing::new(Vec::with_capacity(PASSWORD_MAX_BYTES + 1));
    let read = child
        .stdout
        .take()
        .map(|stdout| stdout.take(PASSWORD_MAX_BYTES as u64 + 1).read_to_end(&mut password));
    if password.len() > PASSWORD_MAX_BYTES {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::invalid(format!(
            "it prints more than {} KiB, which is no password",
            PASSWORD_MAX_BYTES >> 10
        )));
    }
    read.transpose().map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(Error::invalid(format!("it failed: {status}")));
    }
    finish(password)
}

/// Asks at the terminal. Where there is none it is said by which variables and which options, which
/// begin alike, the password may be given.
fn ask(
    question: &str,
    [itself, in_file, by_command]: &[&str; 3],
    options: &str,
) -> Result<Password> {
    if !std::io::stdin().is_terminal() {
        return Err(Error::invalid(format!(
            "no password: set {in_file}, {by_command} or {itself}, or give {options}password-file \
             or {options}password-command (there is no terminal to ask at)"
        )));
    }
    let answer = guarding_terminal(|| rpassword::prompt_password(question)).map_err(|cause| {
        match cause.kind() {
            // Ctrl-C, which is a key like any other while a password is typed.
            std::io::ErrorKind::Interrupted => signals::end(),
            _ => Error::io("asking for the password", cause).with_kind(ErrorKind::Io),
        }
    })?;
    finish(Zeroizing::new(answer.into_bytes()))
}

fn ask_twice() -> Result<Password> {
    let first = ask("New password: ", &VARIABLES, "--")?;
    let second = ask("The same again: ", &VARIABLES, "--")?;
    if *first != *second {
        return Err(Error::invalid("the two passwords differ"));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(text: &str) -> Option<Vec<u8>> {
        finish(Zeroizing::new(text.as_bytes().to_vec())).ok().map(|password| password.to_vec())
    }

    #[test]
    fn one_line_end_is_taken_off() {
        assert_eq!(finished("a b \n").unwrap(), b"a b ");
        assert_eq!(finished("a\r\n").unwrap(), b"a");
        assert_eq!(finished("a\n\n").unwrap(), b"a\n");
        assert!(finished("").is_none() && finished("\n").is_none());
    }

    #[test]
    fn commands_are_run_by_the_shell() {
        let source = PasswordSource::Command("printf 'x%s' y".to_owned());
        assert_eq!(*source.read().unwrap(), b"xy");
        for command in ["exit 3", "true", "echo a; false"] {
            let source = PasswordSource::Command(command.to_owned());
            assert!(source.read().is_err(), "{command}");
        }
    }

    #[test]
    fn two_sources_at_once_are_refused() {
        assert!(PasswordSource::from_pair(Some("f".into()), Some("c".into())).is_err());
        assert_eq!(PasswordSource::from_pair(None, None).unwrap(), None);
    }
}
