//! Who asks a database, and how the connection is protected.
//!
//! | | PostgreSQL | Cassandra |
//! | --- | --- | --- |
//! | user | the name, else `PGUSER` | `CASSANDRA_USERNAME`, else `~/.cassandra/credentials` |
//! | password | `PGPASSWORD`, else a line of `PGPASSFILE` or `~/.pgpass` | `CASSANDRA_PASSWORD`, else the same file |
//! | certificates that are trusted | `PGSSLROOTCERT` | `SSL_CERTFILE` |
//!
//! Where no file of certificates is named, the system's are trusted. A database of this machine is
//! reached without TLS unless such a file is named; any other one with it, or, if
//! `ONEFOLD_DATABASE_PLAIN` is `true`, without: whoever is on the way could decide then.

use crate::location::{DatabaseLocation, Kind};
use configparser::ini::Ini;
use onefold_types::error::Context as _;
use onefold_types::{Error, Result};
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::BuilderVerifierExt as _;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a database is reached.
#[derive(Clone)]
pub struct Settings {
    /// Who asks.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// How the connection is protected; `None`: it is not.
    pub tls: Option<Arc<ClientConfig>>,
    /// Whether machines that a cluster tells of are left out unless they are this one: without TLS,
    /// and nobody has given that up.
    pub only_here: bool,
}

impl fmt::Debug for Settings {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls.is_some() { "TLS" } else { "no TLS" };
        write!(f, "{}, {tls}", self.user.as_deref().unwrap_or("no user"))
    }
}

impl Settings {
    /// Those that variables and files say; `home` is the user's own directory.
    ///
    /// # Errors
    ///
    /// `Invalid` for what contradicts itself; those of reading files.
    pub fn find(
        location: &DatabaseLocation,
        variable: &dyn Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<Self> {
        let (user, password) = match location.kind {
            Kind::Postgres => postgres_user(location, variable, home)?,
            Kind::Cassandra => cassandra_user(variable, home)?,
        };
        let file = match location.kind {
            Kind::Postgres => variable("PGSSLROOTCERT"),
            Kind::Cassandra => variable("SSL_CERTFILE"),
        };
        let plain = matches!(variable("ONEFOLD_DATABASE_PLAIN").as_deref(), Some("true" | "1"));
        let tls = match file {
            Some(_) if plain => {
                return Err(Error::invalid(
                    "ONEFOLD_DATABASE_PLAIN asks for no TLS, and there is a file of certificates: \
                     unset one of them",
                ));
            }
            Some(file) => Some(trusting(Path::new(&file))?),
            None if plain || location.is_here() => None,
            None => Some(trusting_the_system()?),
        };
        let only_here = tls.is_none() && !plain;
        Ok(Self { user, password, tls, only_here })
    }
}

type User = (Option<String>, Option<String>);

fn postgres_user(
    location: &DatabaseLocation,
    variable: &dyn Fn(&str) -> Option<String>,
    home: Option<&Path>,
) -> Result<User> {
    let user = location.user.clone().or_else(|| variable("PGUSER"));
    if let Some(password) = variable("PGPASSWORD") {
        return Ok((user, Some(password)));
    }
    let said = variable("PGPASSFILE").map(PathBuf::from);
    let Some(path) = said.or_else(|| home.map(|home| home.join(".pgpass"))) else {
        return Ok((user, None));
    };
    if !path.exists() {
        return Ok((user, None));
    }
    let shown = path.display();
    let text = fs::read_to_string(&path).context(|| format!("reading '{shown}'"))?;
    let password = location.hosts.first().and_then(|(host, port)| {
        let wanted = [host, &port.to_string(), &location.name, user.as_deref().unwrap_or("")];
        text.lines().find_map(|line| of_password_file(line, wanted))
    });
    Ok((user, password))
}

/// The password of a line `host:port:database:user:password`, in which `*` stands for all and `\`
/// before what is meant as it is.
fn of_password_file(line: &str, wanted: [&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let (mut fields, mut characters) = (vec![String::new()], line.chars());
    while let Some(character) = characters.next() {
        match character {
            '\\' => fields.last_mut()?.push(characters.next()?),
            ':' if fields.len() < 5 => fields.push(String::new()),
            other => fields.last_mut()?.push(other),
        }
    }
    let [host, port, database, user, password] = <[String; 5]>::try_from(fields).ok()?;
    let is_meant = |(field, wanted): (&String, &str)| field == "*" || field == wanted;
    [host, port, database, user].iter().zip(wanted).all(is_meant).then_some(password)
}

fn cassandra_user(variable: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> Result<User> {
    let (mut user, mut password) = (variable("CASSANDRA_USERNAME"), variable("CASSANDRA_PASSWORD"));
    let file = home.map(|home| home.join(".cassandra").join("credentials"));
    if let (None, None, Some(path)) = (&user, &password, file.filter(|path| path.exists())) {
        let shown = path.display();
        let text = fs::read_to_string(&path).context(|| format!("reading '{shown}'"))?;
        let mut file = Ini::new();
        let failed = |why: String| Error::invalid(format!("'{shown}' cannot be understood: {why}"));
        file.read(text).map_err(failed)?;
        user = file.get("plaintextauthprovider", "username");
        password = file.get("plaintextauthprovider", "password");
    }
    match (&user, &password) {
        (Some(_), None) | (None, Some(_)) => Err(Error::invalid(
            "half of what Cassandra is to be told is missing: set both CASSANDRA_USERNAME and \
             CASSANDRA_PASSWORD, or none of them",
        )),
        _ => Ok((user, password)),
    }
}

fn wrong(why: impl fmt::Display) -> Error {
    Error::invalid(format!("TLS to the database cannot be had: {why}"))
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)
}

fn trusting(file: &Path) -> Result<Arc<ClientConfig>> {
    let unreadable =
        |why: &dyn fmt::Display| wrong(format!("the certificates in '{}': {why}", file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|why| unreadable(&why))? {
        let certificate = certificate.map_err(|why| unreadable(&why))?;
        roots.add(certificate).map_err(|why| unreadable(&why))?;
    }
    if roots.is_empty() {
        return Err(unreadable(&"there are none"));
    }
    Ok(Arc::new(builder()?.with_root_certificates(roots).with_no_client_auth()))
}

fn trusting_the_system() -> Result<Arc<ClientConfig>> {
    Ok(Arc::new(builder()?.with_platform_verifier().map_err(wrong)?.with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_password_file_is_read_as_others_read_it() {
        let wanted = ["host", "5432", "onefold", "me"];
        for (line, password) in [
            ("host:5432:onefold:me:secret", Some("secret")),
            ("*:*:*:*:a\\:b\\\\c:d", Some("a:b\\c:d")),
            ("host:5432:onefold:you:secret", None),
            ("#*:*:*:*:secret", None),
            ("host:5432:onefold:me", None),
            ("", None),
        ] {
            assert_eq!(of_password_file(line, wanted).as_deref(), password, "{line}");
        }
    }

    fn settings(name: &str, variables: &[(&str, &str)]) -> Result<Settings> {
        let variable = |asked: &str| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::find(&DatabaseLocation::parse(name).unwrap(), &variable, None)
    }

    #[test]
    fn what_is_elsewhere_is_reached_with_tls_unless_that_is_given_up() {
        assert!(settings("postgres://127.0.0.1/x", &[]).unwrap().tls.is_none());
        assert!(settings("cassandra://localhost,10.0.0.1/x", &[]).unwrap().tls.is_some());
        let plain = ("ONEFOLD_DATABASE_PLAIN", "true");
        assert!(settings("postgres://10.0.0.1/x", &[plain]).unwrap().tls.is_none());
        let both = settings("postgres://10.0.0.1/x", &[plain, ("PGSSLROOTCERT", "f")]);
        assert!(both.unwrap_err().to_string().contains("unset one"));
        let missing = settings("cassandra://h/x", &[("SSL_CERTFILE", "/nowhere/f")]).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/f"), "{missing}");
    }

    #[test]
    fn half_of_a_user_is_refused_and_the_name_goes_before_variables() {
        let half = settings("cassandra://localhost/x", &[("CASSANDRA_USERNAME", "a")]);
        assert!(half.unwrap_err().to_string().contains("CASSANDRA_PASSWORD"));
        let variables = [("PGUSER", "b"), ("PGPASSWORD", "c")];
        let found = settings("postgres://a@localhost/x", &variables).unwrap();
        assert_eq!((found.user.as_deref(), found.password.as_deref()), (Some("a"), Some("c")));
        assert_eq!(format!("{found:?}"), "a, no TLS");
    }
}
