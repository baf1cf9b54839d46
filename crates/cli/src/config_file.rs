//! The configuration file: named profiles of settings that would otherwise be repeated.
//!
//! TOML; docs/CONFIG.md describes every key. A key that is not known is an error, because a
//! misspelt rule that is ignored loses data sooner or later. Relative paths count from the
//! directory of the file, and `~/` stands for the home directory.

use crate::bounds::{BoundProfile, Goal};
use crate::files;
use crate::password::CredentialSource;
use crate::size::ByteSize;
use crate::text_values::{optional_count, optional_text, texts};
use onefold_engine::look_up::LookupChoice;
use onefold_format::codec::Compression;
use onefold_format::delta::DeltaChoice;
use onefold_format::index_run::IndexKind;
use onefold_policy::retention::{Count, GroupBy, KeepSpan};
use onefold_policy::rewrite::RewriteChoice;
use onefold_policy::tag_list::TagList;
use onefold_remote::Location;
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The profile that applies where none is named.
const DEFAULT_PROFILE: &str = "default";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default)]
    profile: BTreeMap<String, Profile>,
}

/// The settings of one profile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// Where the store is.
    pub repository: Option<PathBuf>,
    /// What leads to its SFTP server.
    pub sftp_command: Option<String>,
    password_file: Option<PathBuf>,
    password_command: Option<String>,
    key_file: Option<PathBuf>,
    /// The memory limit.
    pub memory: Option<ByteSize>,
    /// What this machine keeps of stores that are elsewhere.
    pub cache_size: Option<ByteSize>,
    /// How many threads.
    pub threads: Option<NonZeroUsize>,
    /// What to compress with.
    #[serde(default, deserialize_with = "optional_text")]
    pub compression: Option<Compression>,
    /// Settings of `backup`.
    #[serde(default)]
    pub backup: BackupProfile,
    /// Settings of `forget`.
    #[serde(default)]
    pub forget: ForgetProfile,
    /// Settings of `gc`.
    #[serde(default)]
    pub gc: GcProfile,
    /// Settings of `maintain`.
    #[serde(default)]
    pub maintain: BoundProfile,
    /// The stores that `copy` copies to.
    #[serde(default)]
    pub copy: Vec<CopyTarget>,
}

/// A store that is copied to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CopyTarget {
    /// Where it is.
    pub to: PathBuf,
    password_file: Option<PathBuf>,
    password_command: Option<String>,
    key_file: Option<PathBuf>,
}

impl CopyTarget {
    /// Where what opens it comes from.
    pub fn credential_source(&self) -> Result<Option<CredentialSource>> {
        let (file, command) = (self.password_file.clone(), self.password_command.clone());
        CredentialSource::from_settings(file, command, self.key_file.clone())
    }
}

/// Settings of `gc`: bounds as in `maintain`, and a goal.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "GcSection")]
pub struct GcProfile {
    /// How much to free.
    pub space_goal: Option<Goal>,
    /// What it may use.
    pub bounds: BoundProfile,
}

/// The section as it is written: everything that [`GcProfile`] does not know is a bound.
#[derive(Deserialize)]
struct GcSection(toml::Table);

impl TryFrom<GcSection> for GcProfile {
    type Error = Error;

    fn try_from(GcSection(mut table): GcSection) -> Result<Self> {
        let space_goal = match table.remove("space-goal") {
            Some(toml::Value::String(text)) => Some(text.parse()?),
            Some(_) => return Err(Error::invalid("space-goal is a text, such as \"5%\"")),
            None => None,
        };
        let wrong = |error: toml::de::Error| Error::invalid(error.message());
        let bounds: BoundProfile = table.try_into().map_err(wrong)?;
        match bounds.check_sample {
            Some(_) => Err(Error::invalid("check-sample is a setting of maintain, not of gc")),
            None => Ok(Self { space_goal, bounds }),
        }
    }
}

/// Settings of `backup`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BackupProfile {
    /// What to back up.
    pub paths: Vec<PathBuf>,
    /// Patterns to leave out.
    pub exclude: Vec<String>,
    /// The same, whatever the case.
    pub iexclude: Vec<String>,
    /// Files with patterns.
    pub exclude_file: Vec<PathBuf>,
    /// Leave caches out.
    pub exclude_caches: bool,
    /// Leave directories with these names in them out.
    pub exclude_if_present: Vec<String>,
    /// Leave larger files out.
    pub exclude_larger_than: Option<ByteSize>,
    /// Stay on the file systems of the sources.
    pub one_file_system: bool,
    /// Read devices and pipes that are sources.
    pub read_special: bool,
    /// Tags.
    pub tags: Vec<String>,
    /// The machine's name.
    pub host: Option<String>,
    /// A note.
    pub description: Option<String>,
    /// Save nothing if nothing changed.
    pub skip_if_unchanged: bool,
    /// How chunks are looked up.
    #[serde(deserialize_with = "optional_text")]
    pub lookup: Option<LookupChoice>,
    /// Which duplicates are stored again.
    #[serde(deserialize_with = "optional_text")]
    pub rewrite: Option<RewriteChoice>,
    /// Whether new chunks are stored as differences.
    #[serde(deserialize_with = "optional_text")]
    pub delta: Option<DeltaChoice>,
    /// The kind of index runs written.
    #[serde(deserialize_with = "optional_text")]
    pub index: Option<IndexKind>,
    /// Sources backed up at the same time.
    pub streams: Option<NonZeroUsize>,
}

/// Settings of `forget`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[allow(missing_docs)] // The names are those of the options, which are described there.
pub struct ForgetProfile {
    #[serde(deserialize_with = "optional_count")]
    pub keep_last: Option<Count>,
    #[serde(deserialize_with = "optional_count")]
    pub keep_hourly: Option<Count>,
    #[serde(deserialize_with = "optional_count")]
    pub keep_daily: Option<Count>,
    #[serde(deserialize_with = "optional_count")]
    pub keep_weekly: Option<Count>,
    #[serde(deserialize_with = "optional_count")]
    pub keep_monthly: Option<Count>,
    #[serde(deserialize_with = "optional_count")]
    pub keep_quarterly: Option<Count>,
    #[serde(deserialize_with = "optional_count")]
    pub keep_yearly: Option<Count>,
    #[serde(deserialize_with = "optional_text")]
    pub keep_within: Option<KeepSpan>,
    #[serde(deserialize_with = "optional_text")]
    pub keep_within_hourly: Option<KeepSpan>,
    #[serde(deserialize_with = "optional_text")]
    pub keep_within_daily: Option<KeepSpan>,
    #[serde(deserialize_with = "optional_text")]
    pub keep_within_weekly: Option<KeepSpan>,
    #[serde(deserialize_with = "optional_text")]
    pub keep_within_monthly: Option<KeepSpan>,
    #[serde(deserialize_with = "optional_text")]
    pub keep_within_quarterly: Option<KeepSpan>,
    #[serde(deserialize_with = "optional_text")]
    pub keep_within_yearly: Option<KeepSpan>,
    #[serde(deserialize_with = "texts")]
    pub keep_tag: Vec<TagList>,
    #[serde(deserialize_with = "optional_text")]
    pub group_by: Option<GroupBy>,
    pub host: Vec<String>,
    #[serde(deserialize_with = "texts")]
    pub tag: Vec<TagList>,
    pub path: Vec<String>,
    #[serde(rename = "final")]
    pub for_good: bool,
    pub prune: bool,
}

impl Profile {
    /// Where the profile takes from what opens the store.
    pub fn credential_source(&self) -> Result<Option<CredentialSource>> {
        let (file, command) = (self.password_file.clone(), self.password_command.clone());
        CredentialSource::from_settings(file, command, self.key_file.clone())
    }

    fn resolve_paths(&mut self, base: &Path) -> Result<()> {
        let copies = self.copy.iter_mut();
        let (targets, secrets): (Vec<_>, Vec<_>) = copies
            .map(|copy| (&mut copy.to, [&mut copy.password_file, &mut copy.key_file]))
            .unzip();
        for store in self.repository.iter_mut().chain(targets) {
            // Before it becomes a path from the root, which may hold anything.
            if let Location::Directory(path) = Location::parse(store)? {
                *store = resolve(&path, base)?;
            }
        }
        let own = [&mut self.password_file, &mut self.key_file];
        let single = secrets.into_iter().flatten().chain(own).flatten();
        let lists = self.backup.paths.iter_mut().chain(&mut self.backup.exclude_file);
        for path in single.chain(lists) {
            *path = resolve(path, base)?;
        }
        Ok(())
    }
}

fn resolve(path: &Path, base: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(Error::invalid("a path is empty"));
    }
    match path.strip_prefix("~") {
        Ok(below) => {
            let home = std::env::var_os("HOME")
                .filter(|home| !home.is_empty())
                .ok_or_else(|| Error::invalid("'~' is used but HOME is not set"))?;
            Ok(PathBuf::from(home).join(below))
        }
        Err(_) => Ok(base.join(path)),
    }
}

/// Reads the profile that is to be used. A file that is named must exist; without a profile of the
/// name asked for there is an error, without a profile `default` there are no settings.
pub fn load(file: Option<&Path>, profile: Option<&str>) -> Result<Profile> {
    let path = match file {
        Some(path) => Some(path.to_owned()),
        None => default_file().filter(|path| path.exists()),
    };
    let mut profiles = match &path {
        Some(path) => read(path)?,
        None => BTreeMap::new(),
    };
    let name = profile.unwrap_or(DEFAULT_PROFILE);
    match (profiles.remove(name), profile) {
        (Some(found), _) => Ok(found),
        (None, None) => Ok(Profile::default()),
        (None, Some(name)) => {
            let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
            Err(Error::invalid(match (&path, names.as_slice()) {
                (None, _) => format!("there is no profile '{name}': no configuration file exists"),
                (Some(path), []) => {
                    format!("there is no profile '{name}' in '{}'", path.display())
                }
                (Some(path), names) => format!(
                    "there is no profile '{name}' in '{}'; it has {}",
                    path.display(),
                    names.join(", ")
                ),
            }))
        }
    }
}

fn read(path: &Path) -> Result<BTreeMap<String, Profile>> {
    let what = || format!("configuration file '{}'", path.display());
    let bytes = files::read(path).context(|| "configuration file")?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::invalid("it is not valid UTF-8"))
        .context(what)?;
    let absolute = std::path::absolute(path).map_err(|cause| Error::io(what(), cause))?;
    let base = absolute.parent().unwrap_or(Path::new("/"));
    parse(&text, base).context(what)
}

pub(crate) fn parse(text: &str, base: &Path) -> Result<BTreeMap<String, Profile>> {
    let mut file: ConfigFile =
        toml::from_str(text).map_err(|error| Error::invalid(error.to_string().trim_end()))?;
    for (name, profile) in &mut file.profile {
        let what = || format!("profile '{name}'");
        profile.resolve_paths(base).context(what)?;
        profile.credential_source().context(what)?;
        for copy in &profile.copy {
            copy.credential_source().context(what)?;
        }
    }
    Ok(file.profile)
}

fn default_file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let directory = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        // The specification of base directories has relative ones ignored.
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(directory.join("onefold").join("config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::PasswordSource;

    const COMPLETE: &str = r#"
        [profile.default]
        repository = "store"
        password-file = "/etc/password"
        memory = "128MiB"
        threads = 2
        compression = "zstd,5"

        [profile.default.backup]
        paths = ["/home", "relative"]
        exclude = ["*.tmp"]
        exclude-larger-than = "1GiB"
        one-file-system = true
        tags = ["nightly"]

        [profile.default.forget]
        keep-last = 3
        keep-daily = "unlimited"
        keep-within = "1m"
        keep-tag = ["a,b", "c"]
        group-by = "host"

        [profile.other]
        password-command = "pass show x"

        [profile.third]
        key-file = "key"

        [[profile.third.copy]]
        to = "/elsewhere"
        key-file = "other-key"
    "#;

    #[test]
    fn a_complete_file_is_understood() {
        let profiles = parse(COMPLETE, Path::new("/base")).unwrap();
        let profile = &profiles["default"];
        assert_eq!(profile.repository.as_deref(), Some(Path::new("/base/store")));
        assert_eq!(profile.memory, Some(ByteSize(128 << 20)));
        assert_eq!(profile.backup.paths[1], Path::new("/base/relative"));
        assert_eq!(profile.forget.keep_last, Some(Count::AtMost(3)));
        assert_eq!(profile.forget.keep_daily, Some(Count::Unlimited));
        assert_eq!(profile.forget.keep_tag.len(), 2);
        let source = profiles["other"].credential_source().unwrap();
        let command = PasswordSource::Command("pass show x".into());
        assert_eq!(source, Some(CredentialSource::Password(command)));
        let source = profiles["third"].credential_source().unwrap();
        assert_eq!(source, Some(CredentialSource::KeyFile("/base/key".into())));
        let source = profiles["third"].copy[0].credential_source().unwrap();
        assert_eq!(source, Some(CredentialSource::KeyFile("/base/other-key".into())));
    }

    #[test]
    fn whatever_is_not_understood_is_an_error() {
        for text in [
            "[profile.a]\nrepositry = 'x'",
            "[profiles.a]",
            "[profile.a]\nmemory = 'lots'",
            "[profile.a]\nthreads = 0",
            "[profile.a]\nrepository = ''",
            "[profile.a.backup]\nexcludes = []",
            "[profile.a.forget]\nkeep-last = -2",
            "[profile.a.gc]\ncheck-sample = '2%'",
            "[profile.a.gc]\nspace-goal = '200%'",
            "[profile.a.gc]\nunknown = '2%'",
            "[profile.a.maintain]\nspace-goal = '2%'",
            "[profile.a.maintain]\nmax-io = '0'",
            "[profile.a.forget]\nkeep-within = '3x'",
            "[profile.a]\npassword-file = 'f'\npassword-command = 'c'",
            "[profile.a]\npassword-file = 'f'\nkey-file = 'k'",
            "nonsense",
        ] {
            assert!(parse(text, Path::new("/")).is_err(), "{text}");
        }
    }
}
