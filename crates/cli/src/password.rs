//! Where the password comes from, or the key file that stands in its place.
//!
//! In this order: the options, `ONEFOLD_PASSWORD`, `ONEFOLD_PASSWORD_FILE`,
//! `ONEFOLD_PASSWORD_COMMAND` or `ONEFOLD_KEY_FILE`, the profile, a question at the terminal. The
//! first that is given counts; if it fails, that is an error and the next is not tried. An empty
//! password is refused, and so is a password beside a key file. That of a second store comes
//! from options and variables of its own (`ONEFOLD_TO_PASSWORD` and so on), or is asked for; never
//! from the first one's.

use crate::files;
use crate::signals::{self, guarding_terminal};
use onefold_crypto::KeyFile;
use onefold_engine::repository::{Credential, Password};
use onefold_remote::settings::onefold;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use zeroize::Zeroizing;

/// The password itself.
pub const VARIABLE: &str = "ONEFOLD_PASSWORD";
/// A file that holds the password.
pub const VARIABLE_FILE: &str = "ONEFOLD_PASSWORD_FILE";
/// A command that prints the password.
pub const VARIABLE_COMMAND: &str = "ONEFOLD_PASSWORD_COMMAND";
/// A key file.
pub const VARIABLE_KEY_FILE: &str = "ONEFOLD_KEY_FILE";
/// The same four for the store that `copy` copies to.
pub const VARIABLES_TO: [&str; 4] = [
    "ONEFOLD_TO_PASSWORD",
    "ONEFOLD_TO_PASSWORD_FILE",
    "ONEFOLD_TO_PASSWORD_COMMAND",
    "ONEFOLD_TO_KEY_FILE",
];
/// Those of the store that a command works with.
const VARIABLES: [&str; 4] = [VARIABLE, VARIABLE_FILE, VARIABLE_COMMAND, VARIABLE_KEY_FILE];
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
                let content = Zeroizing::new(files::read(path).context(what)?);
                match KeyFile::is_alike(&content) {
                    true => Err(Error::invalid(format!(
                        "'{}' is a key file and holds no password: give it by --key-file, {}, or \
                         key-file in a profile",
                        path.display(),
                        VARIABLE_KEY_FILE
                    ))),
                    false => finish(content).context(what),
                }
            }
            Self::Command(command) => {
                run(command).context(|| format!("the password command '{command}'"))
            }
        }
    }
}

/// What opens a store, from options, environment or profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CredentialSource {
    /// A password.
    Password(PasswordSource),
    /// A key file.
    KeyFile(PathBuf),
}

impl CredentialSource {
    /// The source that three settings name; two at once are refused.
    pub fn from_settings(
        password_file: Option<PathBuf>,
        password_command: Option<String>,
        key_file: Option<PathBuf>,
    ) -> Result<Option<Self>> {
        let password = PasswordSource::from_pair(password_file, password_command)?;
        match (password, key_file) {
            (Some(_), Some(_)) => {
                Err(Error::invalid("a password and a key file are given; give one of them"))
            }
            (password, None) => Ok(password.map(Self::Password)),
            (None, Some(path)) => Ok(Some(Self::KeyFile(path))),
        }
    }

    /// Reads it.
    pub fn read(&self) -> Result<Credential> {
        match self {
            Self::Password(source) => source.read().map(Credential::Password),
            Self::KeyFile(path) => read_key_file(path).map(Credential::KeyFile),
        }
    }
}

/// Reads a key file.
pub fn read_key_file(path: &Path) -> Result<KeyFile> {
    let what = || format!("the key file '{}'", path.display());
    let content = Zeroizing::new(files::read(path).context(what)?);
    KeyFile::parse(&content).context(what)
}

/// What opens an existing store.
pub fn current(
    option: Option<&CredentialSource>,
    profile: Option<&CredentialSource>,
) -> Result<Credential> {
    match given(option, &VARIABLES, profile)? {
        Some(credential) => Ok(credential),
        None => ask("Password of the store: ", &VARIABLES, "--").map(Credential::Password),
    }
}

/// What opens the store that is copied to or healed from, whatever it is called.
pub fn second(option: Option<&CredentialSource>, name: &str) -> Result<Credential> {
    match given(option, &VARIABLES_TO, None)? {
        Some(credential) => Ok(credential),
        None => {
            ask(&format!("Password of {name}: "), &VARIABLES_TO, "--to-").map(Credential::Password)
        }
    }
}

/// Whether that is given, not to say asked for.
pub fn is_second_given(option: Option<&CredentialSource>) -> bool {
    option.is_some() || VARIABLES_TO.into_iter().any(is_set)
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// The password of a store to be made; asked twice at a terminal.
pub fn initial(
    option: Option<&CredentialSource>,
    profile: Option<&CredentialSource>,
) -> Result<Password> {
    match given(option, &VARIABLES, profile)? {
        Some(Credential::Password(password)) => Ok(password),
        Some(Credential::KeyFile(_)) => Err(Error::invalid(
            "a store is made with a password, which does not go with a lost file: give one instead \
             of the key file, and add that with 'onefold key add --new-key-file FILE' afterwards",
        )),
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

/// Whether a password or a key file is given, not to say asked for: then the store is expected to
/// be encrypted.
pub fn is_given(option: Option<&CredentialSource>, profile: Option<&CredentialSource>) -> bool {
    option.is_some() || profile.is_some() || VARIABLES.into_iter().any(is_set)
}

fn given(
    option: Option<&CredentialSource>,
    variables: &[&'static str; 4],
    profile: Option<&CredentialSource>,
) -> Result<Option<Credential>> {
    if let Some(source) = option {
        return source.read().map(Some);
    }
    let [itself, in_file, by_command, key_file] = *variables;
    if is_set(key_file)
        && let Some(other) = [itself, in_file, by_command].into_iter().find(|name| is_set(name))
    {
        return Err(Error::invalid(format!("{other} and {key_file} are set; set one of them")));
    }
    if let Some(password) = std::env::var_os(itself) {
        let password = Zeroizing::new(password.into_vec());
        return finish(password).context(|| itself).map(|it| Some(Credential::Password(it)));
    }
    let is_empty = |name| std::env::var_os(name).is_some_and(|value| value.is_empty());
    for name in [in_file, by_command, key_file] {
        if is_empty(name) {
            return Err(Error::invalid(format!("{name} is set but empty")));
        }
    }
    let from = |source: CredentialSource, name| source.read().context(|| name).map(Some);
    if let Some(file) = std::env::var_os(key_file) {
        return from(CredentialSource::KeyFile(file.into()), key_file);
    }
    if let Some(file) = std::env::var_os(in_file) {
        let source = PasswordSource::File(PathBuf::from(file));
        return from(CredentialSource::Password(source), in_file);
    }
    if let Some(command) = std::env::var_os(by_command) {
        let command = command
            .into_string()
            .map_err(|_| Error::invalid(format!("{by_command} is not valid UTF-8")))?;
        let source = PasswordSource::Command(command);
        return from(CredentialSource::Password(source), by_command);
    }
    profile.map(CredentialSource::read).transpose()
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
    [itself, in_file, by_command, key_file]: &[&str; 4],
    options: &str,
) -> Result<Password> {
    if !std::io::stdin().is_terminal() {
        return Err(Error::invalid(format!(
            "no password: set {in_file}, {by_command}, {itself} or {key_file}, or give \
             {options}password-file, {options}password-command or {options}key-file (there is no \
             terminal to ask at)"
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
        let settings = CredentialSource::from_settings;
        assert!(settings(Some("f".into()), None, Some("k".into())).is_err());
        assert!(settings(None, Some("c".into()), Some("k".into())).is_err());
        let key_file = settings(None, None, Some("k".into())).unwrap();
        assert_eq!(key_file, Some(CredentialSource::KeyFile("k".into())));
    }
}
