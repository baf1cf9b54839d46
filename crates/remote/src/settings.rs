//! How a bucket is reached: endpoint, region and credentials.
//!
//! The modules below know Google's, Azure's and our own variables; what follows is about S3. Each
//! comes from the store's name, else from the variables `AWS_*`, else from a profile of the shared
//! files:
//! `~/.aws/credentials` (or `AWS_SHARED_CREDENTIALS_FILE`) and `~/.aws/config` (or
//! `AWS_CONFIG_FILE`). The profile is the name's, else `AWS_PROFILE`, else `default`. A profile
//! that is named must be there; the usual one need not.
//!
//! All credentials come from one place. Of a profile that is its keys in the first file, else its
//! command ([`credentials`]), else its keys in the second file; else what variables say of a web
//! identity or a container, else the machine's role.
//!
//! Rules: half of a pair of keys is refused, and so is a profile that has only what is not known
//! here (single sign-on, roles to be assumed): to go on with something else would be a guess.
//!
//! What proves by itself who one is (a token, a signed link) is sent over `http://` to this machine
//! only, whatever the service.
//!
//! [`credentials`]: crate::credentials

mod azure;
mod google;
pub mod onefold;

use crate::credentials::{CredentialSource, ProcessCredentials};
use crate::location::BucketLocation;
use crate::patience::Patience;
use crate::requests::{ObservedConnector, Server};
use crate::service::Service;
use configparser::ini::Ini;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use url::{Host, Url};

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
/// What profiles say of credentials that are not to be had here.
const UNKNOWN_KEYS: [(&str, &str); 6] = [
    ("sso_session", "single sign-on"),
    ("sso_start_url", "single sign-on"),
    ("sso_account_id", "single sign-on"),
    ("web_identity_token_file", "a web identity"),
    ("role_arn", "a role to be assumed"),
    ("credential_source", "a role to be assumed"),
];

/// How a bucket is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Whose it is.
    pub service: Service,
    /// The server; none: the service's own.
    pub endpoint: Option<String>,
    /// The region that is asked for, where there are any.
    pub region: Option<String>,
    /// Whether the bucket is part of a request's path, where that can be chosen.
    pub path_style: Option<bool>,
    /// Whose container it is, where that matters.
    pub account: Option<String>,
    /// Where the credentials come from.
    pub credentials: CredentialSource,
}

/// All that is set.
struct Chosen {
    settings: Settings,
    credentials: CredentialSource,
    process: Option<ProcessCredentials>,
}

/// The client for a bucket, and how that is reached. Nothing is asked yet.
///
/// # Errors
///
/// `Invalid` for settings that contradict each other, for a profile that is not there, or for
/// credentials that are not understood; those of reading the shared files.
pub fn client(
    location: &BucketLocation,
    around: &Surroundings,
    patience: Patience,
) -> Result<(Arc<dyn ObjectStore>, Way)> {
    match location.service {
        Service::S3 => amazon(location, around, patience),
        Service::Google => google::client(location, around, patience),
        Service::Azure => azure::client(location, around, patience),
        Service::Onefold => onefold::client(location, around, patience),
    }
}

/// What is the same for each client: how it connects, repeats and observes.
struct Usual {
    options: ClientOptions,
    retry: RetryConfig,
    connector: ObservedConnector,
}

impl Usual {
    fn new(way: &Way, own_host: &str, patience: Patience) -> Self {
        let endpoint = way.endpoint.as_deref().and_then(|endpoint| Url::parse(endpoint).ok());
        let host = endpoint.as_ref().and_then(Url::host_str).unwrap_or(own_host).to_owned();
        let (service, region) = (way.service, way.region.clone());
        let is_open = endpoint.as_ref().is_some_and(|endpoint| endpoint.scheme() == "http");
        let is_here = endpoint.as_ref().is_some_and(is_here);
        let server = Server { service, host, region, is_open, is_here };
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
            // Each pause is chosen up to so many times the last one, half of that on average.
            base: 3.0,
        };
        Self {
            options: ClientOptions::new()
                .with_allow_http(is_open)
                .with_connect_timeout(patience.connect),
            retry: RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: patience.retry },
            connector: ObservedConnector::new(patience.answer, server),
        }
    }
}

/// Whether it is this machine.
fn is_here(endpoint: &Url) -> bool {
    match endpoint.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Refuses to send what everybody who sees it could use, where everybody may see it.
fn refuse_in_the_open(way: &Way) -> Result<()> {
    let endpoint = way.endpoint.as_deref().and_then(|endpoint| Url::parse(endpoint).ok());
    let Some(endpoint) = endpoint.filter(|endpoint| endpoint.scheme() == "http") else {
        return Ok(());
    };
    match is_here(&endpoint) || way.credentials == CredentialSource::Unsigned {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the credentials ({}) would go to '{endpoint}' unencrypted, for anybody on the way to \
             use: give the endpoint as 'https://'",
            way.credentials
        ))),
    }
}

fn wrong(location: &BucketLocation, why: &impl std::fmt::Display) -> Error {
    Error::invalid(format!("the settings for '{location}' are wrong: {why}"))
}

fn amazon(
    location: &BucketLocation,
    around: &Surroundings,
    patience: Patience,
) -> Result<(Arc<dyn ObjectStore>, Way)> {
    let mut builder = AmazonS3Builder::new();
    let Chosen { settings, credentials, process } = settings(location, around)?;
    for (key, value) in settings.into_values() {
        builder = builder.with_config(key, value);
    }
    if let Some(process) = process {
        builder = builder.with_credentials(Arc::new(process));
    }
    let said = |key| builder.get_config_value(&key);
    let (endpoint, region) = (said(AmazonS3ConfigKey::Endpoint), said(AmazonS3ConfigKey::Region));
    let is_virtual = said(AmazonS3ConfigKey::VirtualHostedStyleRequest);
    let is_virtual = is_virtual.is_some_and(|said| is_true(&said));
    let path_style = location.path_style.unwrap_or(!is_virtual);
    let way = Way {
        service: Service::S3,
        endpoint,
        region: Some(region.unwrap_or_else(|| REGION.to_owned())),
        path_style: Some(path_style),
        account: None,
        credentials,
    };
    if let Some(path_style) = location.path_style {
        builder = builder.with_virtual_hosted_style_request(!path_style);
    }
    if location.has_checksums {
        builder = builder.with_checksum_algorithm(Checksum::SHA256);
    }
    let Usual { options, retry, connector } = Usual::new(&way, "amazonaws.com", patience);
    let client = builder
        .with_bucket_name(&location.bucket)
        .with_client_options(options)
        .with_retry(retry)
        .with_http_connector(connector)
        .build()
        .map_err(|error| wrong(location, &error))?;
    Ok((Arc::new(client), way))
}

/// Whether a variable switches something on.
fn is_true(value: &str) -> bool {
    matches!(value, "true" | "1" | "yes")
}

/// What a process finds around it.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The variables of its environment; only those of the services are looked at.
    pub variables: Vec<(String, String)>,
    /// The user's own directory.
    pub home: Option<PathBuf>,
    /// Variables that no command is told.
    pub secret: Vec<String>,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables = std::env::vars_os().filter_map(text).collect();
        Self { variables, home: std::env::home_dir(), secret: Vec::new() }
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
fn settings(location: &BucketLocation, around: &Surroundings) -> Result<Chosen> {
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
    let has = |key: AmazonS3ConfigKey, settings: &Settings| settings.contains_key(key.as_ref());
    let pair = [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::SecretAccessKey];
    let pair = pair.map(|key| has(key, &settings));
    refuse_half(pair, ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "is set")?;
    let profile = profile(location, around)?;
    for (key, value) in &profile.settings {
        set(*key, value, &mut settings);
    }
    set(AmazonS3ConfigKey::Region, REGION, &mut settings);
    let mut process = None;
    let credentials = match profile.credentials {
        _ if pair == [true; 2] => {
            CredentialSource::Variables("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        }
        Found::Keys(keys) => {
            // A token without keys belongs to others.
            settings.retain(|_, (key, _)| !is_credential(*key));
            keys.iter().for_each(|(key, value)| set(*key, value, &mut settings));
            CredentialSource::Profile(profile.name)
        }
        Found::Process(line) => {
            settings.retain(|_, (key, _)| !is_credential(*key));
            process = Some(ProcessCredentials::new(&profile.name, &line, &around.secret)?);
            CredentialSource::Process(profile.name)
        }
        found => match credentials_elsewhere(&settings) {
            Some(source) => source,
            None => no_credentials(&profile.name, &found)?,
        },
    };
    Ok(Chosen { settings, credentials, process })
}

/// Refuses one of two that mean nothing without each other.
fn refuse_half(there: [bool; 2], names: [&str; 2], verb: &str) -> Result<()> {
    let [id, secret] = names;
    let (there, missing) = match there {
        [true, false] => (id, secret),
        [false, true] => (secret, id),
        _ => return Ok(()),
    };
    Err(Error::invalid(format!(
        "'{there}' {verb}, and '{missing}' is not: set both or none of them"
    )))
}

/// Credentials that the client finds by itself, where variables say so.
fn credentials_elsewhere(settings: &Settings) -> Option<CredentialSource> {
    use AmazonS3ConfigKey as Name;
    let has = |key: Name| settings.contains_key(key.as_ref());
    let skips = settings.get(Name::SkipSignature.as_ref());
    let is_container = has(Name::ContainerCredentialsRelativeUri)
        || (has(Name::ContainerCredentialsFullUri) && has(Name::ContainerAuthorizationTokenFile));
    if skips.is_some_and(|(_, value)| is_true(value)) {
        Some(CredentialSource::Unsigned)
    } else if has(Name::WebIdentityTokenFile) && has(Name::RoleArn) {
        Some(CredentialSource::WebIdentity("AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN"))
    } else {
        is_container.then_some(CredentialSource::Container)
    }
}

/// The machine's role, unless the profile means something else that is not known here.
fn no_credentials(profile: &str, found: &Found) -> Result<CredentialSource> {
    match found {
        Found::Unknown(name, what) => Err(Error::invalid(format!(
            "the profile '{profile}' has '{name}' and no keys: {what} is not supported. Give \
             another profile with keys or a 'credential_process' (such as 'aws configure \
             export-credentials --profile {profile}'), or set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY"
        ))),
        _ => Ok(CredentialSource::Machine),
    }
}

/// What the shared files say of a profile.
struct Profile {
    name: String,
    settings: Vec<(AmazonS3ConfigKey, String)>,
    credentials: Found,
}

/// Credentials of a profile.
enum Found {
    Keys(Vec<(AmazonS3ConfigKey, String)>),
    /// A command line that prints them.
    Process(String),
    /// The name of what is not known here, and what that is.
    Unknown(&'static str, &'static str),
    Nothing,
}

/// What the shared files say of the profile.
fn profile(location: &BucketLocation, around: &Surroundings) -> Result<Profile> {
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
    let value = |(file, section): (&Ini, &str), name: &str| {
        file.get(section, name).filter(|value| !value.is_empty())
    };
    let (mut settings, mut keys) = (Vec::new(), Vec::new());
    for section in sections {
        let (mut of_keys, mut pair) = (Vec::new(), [false; 2]);
        for (name, key) in PROFILE_KEYS {
            let Some(value) = value(section, name) else { continue };
            let list = if is_credential(key) { &mut of_keys } else { &mut settings };
            list.push((key, value));
            pair[0] |= key == AmazonS3ConfigKey::AccessKeyId;
            pair[1] |= key == AmazonS3ConfigKey::SecretAccessKey;
        }
        let verb = format!("stands in the profile '{name}'");
        refuse_half(pair, ["aws_access_key_id", "aws_secret_access_key"], &verb)?;
        keys.push(Some(of_keys).filter(|_| pair == [true; 2]));
    }
    let mut keys = keys.into_iter();
    let first = keys.next().flatten();
    let process = sections.iter().find_map(|section| value(*section, "credential_process"));
    let unknown = || {
        let is_said = |name: &str| sections.iter().any(|section| value(*section, name).is_some());
        UNKNOWN_KEYS.iter().find(|(name, _)| is_said(name))
    };
    let credentials = match (first, process, keys.next().flatten()) {
        (Some(keys), ..) | (None, None, Some(keys)) => Found::Keys(keys),
        (None, Some(line), _) => Found::Process(line),
        (None, None, None) => match unknown() {
            Some((name, what)) => Found::Unknown(name, what),
            None => Found::Nothing,
        },
    };
    Ok(Profile { name: name.to_owned(), settings, credentials })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Location;
    use std::path::Path;

    pub fn bucket(name: &str) -> BucketLocation {
        match Location::parse(Path::new(name)).unwrap() {
            Location::Bucket(bucket) => bucket,
            Location::Directory(_) | Location::Sftp(_) => unreachable!(),
        }
    }

    pub fn around(home: &Path, variables: &[(&str, &str)]) -> Surroundings {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Surroundings {
            variables: variables.iter().map(owned).collect(),
            home: Some(home.to_owned()),
            secret: Vec::new(),
        }
    }

    fn values(name: &str, around: &Surroundings) -> Vec<String> {
        let found = settings(&bucket(name), around).unwrap().settings;
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
        let error = refused("s3://b?profile=q", &at_home(&[]));
        assert!(error.contains("no profile 'q'"), "{error}");
    }

    fn refused(name: &str, around: &Surroundings) -> String {
        let error = settings(&bucket(name), around).err().unwrap();
        assert_eq!(error.kind(), onefold_types::ErrorKind::Invalid, "{error}");
        error.to_string()
    }

    fn source(name: &str, around: &Surroundings) -> CredentialSource {
        settings(&bucket(name), around).unwrap().credentials
    }

    #[test]
    fn half_of_a_pair_of_keys_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for (there, missing) in [
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
        ] {
            let half = [(there, "v"), (missing, "")];
            let error = refused("s3://b", &around(home.path(), &half));
            assert!(error.starts_with(&format!("'{there}' is set, and '{missing}'")), "{error}");
        }
        fs::create_dir(home.path().join(".aws")).unwrap();
        for (there, missing) in [
            ("aws_access_key_id", "aws_secret_access_key"),
            ("aws_secret_access_key", "aws_access_key_id"),
        ] {
            let text = format!("[default]\n{there} = v\n");
            fs::write(home.path().join(".aws/credentials"), text).unwrap();
            let error = refused("s3://b", &around(home.path(), &[]));
            assert!(error.contains(&format!("'{missing}' is not")), "{error}");
        }
    }

    #[test]
    fn credentials_come_from_one_place_and_what_is_not_known_is_refused() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        let credentials = "[keys]\naws_access_key_id=a\naws_secret_access_key=b\n\
                           credential_process=x\n[first]\ncredential_process = x \"y z\"\n";
        fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
        let config = "[profile first]\naws_access_key_id=a\naws_secret_access_key=b\n\
                      [profile second]\ncredential_process = x\nsso_session = s\n\
                      [profile third]\naws_access_key_id=a\naws_secret_access_key=b\n\
                      [profile sso]\nsso_session = s\n[profile old-sso]\nsso_start_url = s\n\
                      [profile role]\nrole_arn = s\nsource_profile = keys\n\
                      [profile web]\nweb_identity_token_file = s\nrole_arn = s\n\
                      [profile empty]\nregion = r\n";
        fs::write(home.path().join(".aws/config"), config).unwrap();
        let at_home = |variables: &[(&str, &str)]| around(home.path(), variables);
        let of = |profile: &str| source(&format!("s3://b?profile={profile}"), &at_home(&[]));
        assert_eq!(of("keys"), CredentialSource::Profile("keys".to_owned()));
        assert_eq!(of("first"), CredentialSource::Process("first".to_owned()));
        assert_eq!(of("second"), CredentialSource::Process("second".to_owned()));
        assert_eq!(of("third"), CredentialSource::Profile("third".to_owned()));
        assert_eq!(of("empty"), CredentialSource::Machine);
        for (profile, word) in [
            ("sso", "single sign-on is not supported"),
            ("old-sso", "single sign-on is not supported"),
            ("role", "a role to be assumed is not supported"),
            ("web", "a web identity is not supported"),
        ] {
            for around in [at_home(&[]), at_home(&[("AWS_SESSION_TOKEN", "t")])] {
                let error = refused(&format!("s3://b?profile={profile}"), &around);
                assert!(error.contains(word) && error.contains("credential_process"), "{error}");
            }
        }
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        let with = |more: &[(&str, &str)]| at_home(&[&[("AWS_PROFILE", "sso")], more].concat());
        assert_eq!(source("s3://b", &with(&keys)).name(), "variables");
        let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "f"), ("AWS_ROLE_ARN", "r")];
        assert_eq!(source("s3://b", &with(&web)).name(), "web-identity");
        let container = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")];
        assert_eq!(source("s3://b", &with(&container)), CredentialSource::Container);
        let unsigned = [("AWS_SKIP_SIGNATURE", "true")];
        assert_eq!(source("s3://b", &with(&unsigned)), CredentialSource::Unsigned);
        assert_eq!(source("s3://b", &at_home(&[])), CredentialSource::Machine);
    }
}
