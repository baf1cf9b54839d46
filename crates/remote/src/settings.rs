//! How a bucket is reached: endpoint, region and credentials.
//!
//! Each comes from the store's name, else from the variables `AWS_*`, else from a profile of the
//! shared files: `~/.aws/credentials` (or `AWS_SHARED_CREDENTIALS_FILE`) and `~/.aws/config` (or
//! `AWS_CONFIG_FILE`). The profile is the name's, else `AWS_PROFILE`, else `default`. A profile
//! that is named must be there; the usual one need not.
//!
//! Where nothing gives credentials, the machine is asked for those of its role, as Amazon's
//! machines have it.

use crate::location::BucketLocation;
use crate::patience::Patience;
use crate::requests::ObservedConnector;
use configparser::ini::Ini;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const REGION: &str = "us-east-1";
/// More repetitions than [`Patience::retry`] has time for.
const RETRIES_MAX: usize = 1000;

/// The settings of a builder, by their names there.
type Settings = BTreeMap<String, (AmazonS3ConfigKey, String)>;

/// What profiles call what builders know.
const PROFILE_KEYS: [(&str, AmazonS3ConfigKey); 5] = [
    ("aws_access_key_id", AmazonS3ConfigKey::AccessKeyId),
    ("aws_secret_access_key", AmazonS3ConfigKey::SecretAccessKey),
    ("aws_session_token", AmazonS3ConfigKey::Token),
    ("region", AmazonS3ConfigKey::Region),
    ("endpoint_url", AmazonS3ConfigKey::Endpoint),
];

/// The client for a bucket. Nothing is asked yet.
///
/// # Errors
///
/// `Invalid` for settings that contradict each other, or for a profile that is not there; those of
/// reading the shared files.
pub fn client(
    location: &BucketLocation,
    around: &Surroundings,
    patience: Patience,
) -> Result<AmazonS3> {
    let wrong = |error: object_store::Error| {
        Error::invalid(format!("the settings for '{location}' are wrong: {error}"))
    };
    let mut builder = AmazonS3Builder::new();
    for (key, value) in settings(location, around)?.into_values() {
        builder = builder.with_config(key, value);
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let is_plain = endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    if let Some(path_style) = location.path_style {
        builder = builder.with_virtual_hosted_style_request(!path_style);
    }
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(200),
        max_backoff: Duration::from_secs(5),
        // Each pause is chosen up to so many times the last one, half of that on average.
        base: 3.0,
    };
    let (max_retries, retry_timeout) = (RETRIES_MAX, patience.retry);
    builder
        .with_bucket_name(&location.bucket)
        .with_client_options(
            ClientOptions::new()
                .with_allow_http(is_plain)
                .with_connect_timeout(patience.connect)
                .with_timeout_disabled(),
        )
        .with_retry(RetryConfig { backoff, max_retries, retry_timeout })
        .with_http_connector(ObservedConnector::new(patience.answer))
        .build()
        .map_err(wrong)
}

/// What a process finds around it.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The variables of its environment; only those named `AWS_*` are looked at.
    pub variables: Vec<(String, String)>,
    /// The user's own directory.
    pub home: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables = std::env::vars_os().filter_map(text).collect();
        Self { variables, home: std::env::home_dir() }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(other, value)| other == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// A shared file: where a variable says, else at its usual place.
    fn shared_file(&self, variable: &str, name: &str) -> Result<Ini> {
        let usual = || self.home.as_ref().map(|home| home.join(".aws").join(name));
        let said = self.variable(variable).map(PathBuf::from);
        let mut file = Ini::new_cs();
        let Some(path) = said.or_else(usual).filter(|path| path.exists()) else {
            return Ok(file);
        };
        let shown = path.display();
        let text = fs::read_to_string(&path).context(|| format!("reading '{shown}'"))?;
        match file.read(text) {
            Ok(_) => Ok(file),
            Err(why) => Err(Error::invalid(format!("'{shown}' cannot be understood: {why}"))),
        }
    }
}

fn is_credential(key: AmazonS3ConfigKey) -> bool {
    use AmazonS3ConfigKey::{AccessKeyId, SecretAccessKey, Token};
    [AccessKeyId, SecretAccessKey, Token].contains(&key)
}

/// All that is set, from wherever it comes.
fn settings(location: &BucketLocation, around: &Surroundings) -> Result<Settings> {
    let mut settings = Settings::new();
    let set = |key: AmazonS3ConfigKey, value: &str, settings: &mut Settings| {
        let name = key.as_ref().to_owned();
        settings.entry(name).or_insert_with(|| (key, value.to_owned()));
    };
    let named = [
        (AmazonS3ConfigKey::Endpoint, &location.endpoint),
        (AmazonS3ConfigKey::Region, &location.region),
    ];
    for (key, value) in named {
        value.iter().for_each(|value| set(key, value, &mut settings));
    }
    for (name, value) in &around.variables {
        let key =
            name.starts_with("AWS_").then(|| name.to_ascii_lowercase().parse().ok()).flatten();
        // All credentials come from one place.
        if let Some(key) = key
            && !value.is_empty()
            && !(location.profile.is_some() && is_credential(key))
        {
            set(key, value, &mut settings);
        }
    }
    let has_credentials = settings.contains_key(AmazonS3ConfigKey::AccessKeyId.as_ref());
    for (key, value) in profile(location, around)? {
        if !(is_credential(key) && has_credentials) {
            set(key, &value, &mut settings);
        }
    }
    set(AmazonS3ConfigKey::Region, REGION, &mut settings);
    Ok(settings)
}

/// What the shared files say of the profile.
fn profile(
    location: &BucketLocation,
    around: &Surroundings,
) -> Result<Vec<(AmazonS3ConfigKey, String)>> {
    let named = location.profile.as_deref().or_else(|| around.variable("AWS_PROFILE"));
    let name = named.unwrap_or("default");
    let credentials = around.shared_file("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
    let config = around.shared_file("AWS_CONFIG_FILE", "config")?;
    let of_config = if name == "default" { name.to_owned() } else { format!("profile {name}") };
    let sections = [(&credentials, name), (&config, of_config.as_str())];
    let is_there = |(file, section): &(&Ini, &str)| file.get_map_ref().contains_key(*section);
    if named.is_some() && !sections.iter().any(is_there) {
        return Err(Error::invalid(format!(
            "there is no profile '{name}' in ~/.aws/credentials or ~/.aws/config"
        )));
    }
    let mut found = Vec::new();
    for (file, section) in sections {
        for (name, key) in PROFILE_KEYS {
            found.extend(file.get(section, name).map(|value| (key, value)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Location;
    use std::path::Path;

    fn bucket(name: &str) -> BucketLocation {
        match Location::parse(Path::new(name)).unwrap() {
            Location::Bucket(bucket) => bucket,
            Location::Directory(_) => unreachable!(),
        }
    }

    fn around(home: &Path, variables: &[(&str, &str)]) -> Surroundings {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Surroundings {
            variables: variables.iter().map(owned).collect(),
            home: Some(home.to_owned()),
        }
    }

    fn values(name: &str, around: &Surroundings) -> Vec<String> {
        let found = settings(&bucket(name), around).unwrap();
        let show = |(name, (_, value)): (&String, &(AmazonS3ConfigKey, String))| {
            format!("{}={value}", name.trim_start_matches("aws_"))
        };
        found.iter().map(show).collect()
    }

    #[test]
    fn the_name_comes_before_variables_and_these_before_files() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(values("s3://b", &around(home.path(), &[])), ["region=us-east-1"]);
        fs::create_dir(home.path().join(".aws")).unwrap();
        let file = home.path().join(".aws/credentials");
        let text = "[default]\naws_access_key_id=d1\naws_secret_access_key=d2\n[p]\n\
                    aws_access_key_id = p1\naws_secret_access_key = p2\n";
        fs::write(file, text).unwrap();
        let config = "[profile p]\nregion = r1\nendpoint_url = http://p\n[default]\nregion=r0\n";
        fs::write(home.path().join(".aws/config"), config).unwrap();
        let at_home = |variables: &[(&str, &str)]| around(home.path(), variables);
        let usual = values("s3://b", &at_home(&[]));
        assert_eq!(usual, ["access_key_id=d1", "region=r0", "secret_access_key=d2"]);
        let of_profile =
            ["access_key_id=p1", "endpoint=http://p", "region=r1", "secret_access_key=p2"];
        assert_eq!(values("s3://b", &at_home(&[("AWS_PROFILE", "p")])), of_profile);
        let own = [
            ("AWS_ACCESS_KEY_ID", "v1"),
            ("AWS_SECRET_ACCESS_KEY", "v2"),
            ("AWS_SESSION_TOKEN", "v3"),
        ];
        assert_eq!(values("s3://b?profile=p", &at_home(&own)), of_profile, "none of the token");
        let both =
            values("s3://b?region=n", &at_home(&[&own[..], &[("AWS_REGION", "v")]].concat()));
        let expected = ["access_key_id=v1", "region=n", "secret_access_key=v2", "session_token=v3"];
        assert_eq!(both, expected);
        let error = settings(&bucket("s3://b?profile=q"), &at_home(&[])).unwrap_err();
        assert!(error.to_string().contains("no profile 'q'"), "{error}");
    }
}
