//! Where a store lives, as users name it.
//!
//! | name | place |
//! | --- | --- |
//! | `DIR`, `file:///DIR` | a directory |
//! | `s3://BUCKET/PREFIX?OPTIONS` | a bucket of an object store that speaks S3 |
//! | `gs://BUCKET/PREFIX?OPTIONS` | a bucket of Google Cloud Storage |
//! | `az://CONTAINER/PREFIX?OPTIONS` | a container of Azure Blob Storage |
//! | `https://HOST[:PORT]/STORE?OPTIONS` | a store that Onefold's own server serves |
//! | `sftp://[USER@]HOST[:PORT]/PATH`, `sftp:[USER@]HOST:PATH` | a directory of another machine, reached by ssh |
//!
//! Options of a bucket, each at most once, joined by `&`: `endpoint` (where the server is, if it is
//! not the service's own); for S3 `region`, `profile` (of the shared credentials files),
//! `path-style` (`true` or `false`; true unless said otherwise where an endpoint is given) and
//! `checksum` (`sha256`); for Azure `account` (whose container it is); for all of them `database`
//! (what decides in the place of a bucket that replaces objects, and knows what others have stored
//! just now; its name is not looked into here). The prefix may be empty. Of a server the option is
//! `certificate`: the file with the one certificate that is trusted, for a server that has made its
//! own.
//!
//! Rules: a name that only looks like one of another machine is refused and never taken for a
//! directory (R82); names hold no credentials, since names are shown and remembered.

mod server;
mod sftp;

pub use sftp::SftpLocation;

use crate::service::Service;
use onefold_types::{Error, Result};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use url::Url;

/// Where a store lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket, or what is below a prefix in it; a store that is served is one too.
    Bucket(BucketLocation),
    /// A directory of another machine.
    Sftp(SftpLocation),
}

/// A bucket, and how it is reached.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BucketLocation {
    /// Whose it is.
    pub service: Service,
    /// The bucket; a container of Azure.
    pub bucket: String,
    /// What all names in it begin with, without slashes around; may be empty.
    pub prefix: String,
    /// The server, if it is not the one that the ecosystem's variables and files say.
    pub endpoint: Option<String>,
    /// The region, likewise.
    pub region: Option<String>,
    /// The profile in the shared files, likewise.
    pub profile: Option<String>,
    /// Whether the bucket is part of a request's path and not of the server's name.
    pub path_style: Option<bool>,
    /// Whether objects are put with a checksum, as buckets that lock them want it.
    pub has_checksums: bool,
    /// Whose container it is, if it is not the account that the ecosystem's variables say.
    pub account: Option<String>,
    /// The database beside it, if there is one.
    pub database: Option<String>,
    /// The file with the one certificate that is trusted, if that is not for the system to say.
    pub certificate: Option<PathBuf>,
}

impl Location {
    /// Takes a name apart.
    ///
    /// # Errors
    ///
    /// `Invalid` for what has a scheme that is not known, or is not written as the module says.
    pub fn parse(name: &Path) -> Result<Self> {
        let Some(scheme) = scheme_of(name) else {
            return Ok(Self::Directory(name.to_owned()));
        };
        let shown = name.display().to_string();
        match scheme.to_ascii_lowercase().as_str() {
            "file" => directory(&shown).map(Self::Directory),
            "s3" => BucketLocation::parse(Service::S3, &shown).map(Self::Bucket),
            "gs" => BucketLocation::parse(Service::Google, &shown).map(Self::Bucket),
            "az" => BucketLocation::parse(Service::Azure, &shown).map(Self::Bucket),
            "https" | "http" => server::parse(&shown).map(Self::Bucket),
            "sftp" => SftpLocation::parse(&shown).map(Self::Sftp),
            _ => Err(Error::invalid(format!(
                "the store '{shown}' cannot be reached: a store is a local directory, \
                 's3://BUCKET/PREFIX', 'gs://BUCKET/PREFIX', 'az://CONTAINER/PREFIX', \
                 'https://HOST:PORT/STORE' or 'sftp://USER@HOST/PATH', and '{scheme}:' is not understood; mount it and name the \
                 directory. If '{shown}' is the name of a directory here, write './{shown}'"
            ))),
        }
    }

    /// The directory, if it is one.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Bucket(_) | Self::Sftp(_) => None,
        }
    }

    /// Whether it is reached over a network.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.directory().is_none()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Bucket(bucket) => write!(f, "{bucket}"),
            Self::Sftp(place) => write!(f, "{place}"),
        }
    }
}

impl fmt::Display for BucketLocation {
    /// Without options: what tells one store from another for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Service::Onefold, Some(server)) = (self.service, &self.endpoint) {
            return write!(f, "{server}/{}", self.bucket);
        }
        write!(f, "{}://{}", self.service.scheme(), self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

impl BucketLocation {
    fn parse(service: Service, name: &str) -> Result<Self> {
        let shown = without_secrets(name);
        let refused =
            |why: &str| Error::invalid(format!("the store '{shown}' cannot be reached: {why}"));
        // All of their names have two letters.
        if name.get(2..5) != Some("://") {
            return Err(refused(service.how_named()));
        }
        let url = Url::parse(name).map_err(|error| refused(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(&format!(
                "{}; a name is shown and remembered, so credentials do not belong into it: {}",
                service.how_named(),
                service.how_allowed()
            )));
        }
        if url.port().is_some() {
            return Err(refused("a bucket has no port: give the server as '?endpoint=URL'"));
        }
        let bucket = url.host_str().filter(|host| !host.is_empty());
        let bucket = bucket.ok_or_else(|| refused("it names no bucket"))?.to_owned();
        if url.fragment().is_some() {
            return Err(refused("'#' means nothing in it"));
        }
        // As it is written: a URL's own rules would take '..' and '//' for something else.
        let written = name.get(5..).unwrap_or_default().split(['?', '#']).next();
        let path = written.and_then(|name| name.split_once('/')).map_or("", |(_, path)| path);
        let prefix = path.strip_suffix('/').unwrap_or(path).to_owned();
        if prefix.split('/').any(|part| !prefix.is_empty() && !is_prefix_part(part)) {
            return Err(refused(
                "a prefix is made of letters, digits and '-', '_', '.', in parts that '/' \
                 separates",
            ));
        }
        let mut location = Self { service, bucket, prefix, ..Self::default() };
        for (option, value) in url.query_pairs() {
            location.set(&option, &value).map_err(|why| refused(&why))?;
        }
        Ok(location)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        let text = |into: &mut Option<String>| match into.replace(value.to_owned()) {
            Some(_) => Err(format!("'{option}' is given twice")),
            None if value.is_empty() => Err(format!("'{option}' is empty")),
            None => Ok(()),
        };
        let known = self.service.options();
        match option {
            _ if !known.contains(&option) => {
                Err(format!("'{option}' is not known: there is '{}'", known.join("', '")))
            }
            "endpoint" => {
                text(&mut self.endpoint)?;
                check_endpoint(value)
            }
            "region" => text(&mut self.region),
            "profile" => text(&mut self.profile),
            "database" => text(&mut self.database),
            "account" => {
                text(&mut self.account)?;
                check_account(value)
            }
            "checksum" if std::mem::replace(&mut self.has_checksums, true) => {
                Err("'checksum' is given twice".into())
            }
            "checksum" if value == "sha256" => Ok(()),
            "checksum" => Err("'checksum' is 'sha256'".into()),
            _ => {
                let mut given = None;
                text(&mut given)?;
                let value = value.parse().map_err(|_| "'path-style' is 'true' or 'false'")?;
                match self.path_style.replace(value) {
                    Some(_) => Err("'path-style' is given twice".into()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// An account is a part of its server's name.
pub(crate) fn check_account(account: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match !account.is_empty() && account.bytes().all(allowed) {
        true => Ok(()),
        false => Err(format!("'{account}' is no account: it has letters and digits only")),
    }
}

pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let is_right = Url::parse(endpoint).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    });
    match is_right {
        true => Ok(()),
        false if endpoint.contains('@') => {
            Err("credentials do not belong into 'endpoint': a name is shown and remembered".into())
        }
        false => Err(format!("'{endpoint}' is no server: write 'https://SERVER' or 'http://…'")),
    }
}

/// A name without what may be a secret in it: what stands before '@', and all options.
fn without_secrets(name: &str) -> String {
    let plain = name.split('?').next().unwrap_or_default();
    match plain.split_once(':').zip(plain.rsplit_once('@')) {
        Some(((scheme, after), (_, rest))) => {
            let slashes = if after.starts_with("//") { "//" } else { "" };
            format!("{scheme}:{slashes}…@{rest}")
        }
        None => plain.to_owned(),
    }
}

fn is_prefix_part(part: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !part.is_empty() && part != "." && part != ".." && part.bytes().all(allowed)
}

fn directory(name: &str) -> Result<PathBuf> {
    let path = name.get("file:".len()..).unwrap_or_default();
    let path = match path.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => path,
    };
    match path.starts_with('/') && !path.contains(['%', '?', '#']) {
        true => Ok(PathBuf::from(path)),
        false => Err(Error::invalid(format!(
            "the store '{name}' cannot be reached: name the directory itself, as in '-r \
             /mnt/backup'"
        ))),
    }
}

/// What stands before the colon in a name that is not one of a directory here. `user@host:` is how
/// other programs name a path reached by ssh.
fn scheme_of(name: &Path) -> Option<String> {
    let bytes = name.as_os_str().as_bytes();
    let first = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
    let length = first.iter().position(|byte| *byte == b':')?;
    let scheme = first.get(..length)?;
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._@".contains(byte);
    let is_scheme = length >= 2
        && scheme.first().is_some_and(u8::is_ascii_alphanumeric)
        && scheme.iter().all(allowed);
    is_scheme.then(|| String::from_utf8_lossy(scheme).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;

    fn parse(name: &str) -> Result<Location> {
        Location::parse(Path::new(name))
    }

    fn bucket(name: &str) -> BucketLocation {
        match parse(name).unwrap() {
            Location::Bucket(bucket) => bucket,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn directories_are_what_they_were() {
        for name in [
            "store",
            "/mnt/backup",
            "./s3:x",
            "../s3:x",
            "/mnt/s3:x",
            "a/b:c",
            "a b:c",
            "./user@host:x",
            "c:x",
            ":x",
            "",
        ] {
            assert_eq!(parse(name).unwrap(), Location::Directory(name.into()), "{name}");
        }
        for name in ["file:///mnt/b", "file:/mnt/b", "FILE://localhost/mnt/b"] {
            assert_eq!(parse(name).unwrap(), Location::Directory("/mnt/b".into()), "{name}");
        }
    }

    #[test]
    fn a_bucket_has_a_prefix_and_options() {
        let plain = bucket("s3://backup");
        assert_eq!((plain.bucket.as_str(), plain.prefix.as_str()), ("backup", ""));
        assert_eq!(plain.to_string(), "s3://backup");
        let full = bucket(
            "s3://backup/hosts/a_1/?endpoint=http://127.0.0.1:7070&region=eu-1&profile=p&\
             path-style=false&checksum=sha256",
        );
        assert!(full.has_checksums && !plain.has_checksums);
        assert_eq!(full.to_string(), "s3://backup/hosts/a_1");
        assert_eq!(full.endpoint.as_deref(), Some("http://127.0.0.1:7070"));
        assert_eq!(full.region.as_deref(), Some("eu-1"));
        assert_eq!((full.profile.as_deref(), full.path_style), (Some("p"), Some(false)));
        let google = bucket("gs://my_backup/a?endpoint=http://[::1]:4443");
        assert_eq!((google.service, google.bucket.as_str()), (Service::Google, "my_backup"));
        assert_eq!(google.to_string(), "gs://my_backup/a");
        let azure = bucket("AZ://backup?account=mine1");
        assert_eq!((azure.service, azure.account.as_deref()), (Service::Azure, Some("mine1")));
        assert_eq!(azure.to_string(), "az://backup");
    }

    #[test]
    fn r82_what_cannot_be_meant_is_refused_in_a_sentence() {
        for (name, word) in [
            ("sftp:host", "names no directory"),
            ("sftp:host:", "names no directory"),
            ("sftp:host/x", "names no directory"),
            ("sftp:user:secret@host:/x", "does not belong"),
            ("sftp:-oProxyCommand=x:y", "no name of a machine"),
            ("sftp://host", "names no directory"),
            ("sftp://user:secret@host/x", "does not belong"),
            ("sftp://-oProxyCommand=x/y", "no name of a machine"),
            ("sftp://a$(x)/y", "no name of a machine"),
            ("sftp://@host/y", "no name of a user"),
            ("sftp://-lroot@host/y", "no name of a user"),
            ("sftp:///y", "no name of a machine"),
            ("sftp://[::1/y", "no name of a machine"),
            ("sftp://host:0/y", "no port"),
            ("sftp://host:65536/y", "no port"),
            ("sftp://host:x/y", "no port"),
            ("sftp://host/a/../b", "'..'"),
            ("sftp://host/a?b", "'?'"),
            ("sftp://host/a%20b", "'%'"),
            ("ssh://host/x", "not understood"),
            ("host:/backup", "not understood"),
            ("B2:x", "not understood"),
            ("s3:bucket", "?endpoint="),
            ("user@host:/x", "not understood"),
            ("rest:http://host/", "not understood"),
            ("file:store", "name the directory itself"),
            ("file://host/store", "name the directory itself"),
            ("file:///a%20b", "name the directory itself"),
            ("s3:https://server/bucket", "?endpoint="),
            ("s3://", "bucket"),
            ("s3://key:secret@backup/x", "credentials do not belong"),
            ("s3://backup:9000/x", "?endpoint="),
            ("s3://backup/a b", "a prefix is made of"),
            ("s3://backup/a//b", "a prefix is made of"),
            ("s3://backup//a", "a prefix is made of"),
            ("s3://backup/a/../b", "a prefix is made of"),
            ("s3://backup/./b", "a prefix is made of"),
            ("s3://backup/a%20b", "a prefix is made of"),
            ("s3://backup/x#y", "'#'"),
            ("s3://backup?endpoint=server", "is no server"),
            ("s3://backup?endpoint=http://u:secret@server", "do not belong into 'endpoint'"),
            ("s3://backup?region=a&region=b", "given twice"),
            ("s3://backup?region=", "is empty"),
            ("s3://backup?path-style=yes", "'true' or 'false'"),
            ("s3://backup?checksum=md5", "'sha256'"),
            ("s3://backup?checksum=sha256&checksum=sha256", "twice"),
            ("s3://backup?key=secret", "is not known"),
            ("s3://backup?account=a", "is not known"),
        ] {
            refused(name, word);
        }
    }

    /// An error, and no secret in it.
    fn refused(name: &str, word: &str) {
        let error = parse(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
        assert!(error.to_string().contains(word), "{name}: {error}");
        assert!(!error.to_string().contains("secret"), "{name}: {error}");
    }

    #[test]
    fn what_other_programs_write_for_google_and_azure_is_refused_in_a_sentence() {
        for (name, word) in [
            ("gs:backup", "write 'gs://BUCKET/PREFIX'"),
            ("gs:backup:/a", "write 'gs://BUCKET/PREFIX'"),
            ("gs:/backup/a", "write 'gs://BUCKET/PREFIX'"),
            ("gs://key:secret@backup", "GOOGLE_APPLICATION_CREDENTIALS"),
            ("gs://backup?region=x", "there is 'endpoint'"),
            ("gs://backup/a%20b", "a prefix is made of"),
            ("gs://backup:4443/a", "?endpoint="),
            ("gs://", "bucket"),
            ("az:backup:/a", "?account=ACCOUNT"),
            ("az://backup@mine.blob.core.windows.net/a", "?account=ACCOUNT"),
            ("az://backup:secret@mine/a", "?account=ACCOUNT"),
            ("az://backup?account=", "is empty"),
            ("az://backup?account=a&account=b", "given twice"),
            ("az://backup?account=a.example/", "is no account"),
            ("az://backup?sas=secret", "there is 'endpoint', 'account'"),
            ("az://backup?endpoint=mine", "is no server"),
            ("azure:backup:/a", "not understood"),
            ("abfss://backup@mine.dfs.core.windows.net/a", "'az://CONTAINER/PREFIX'"),
            ("gcs://backup/a", "'gs://BUCKET/PREFIX'"),
        ] {
            refused(name, word);
        }
    }
}
