//! How users name a database.
//!
//! `postgres://[USER@]HOST[:PORT]/DATABASE` or `cassandra://HOST[:PORT][,HOST[:PORT]...]/KEYSPACE`.
//! Names hold no credentials, since names are shown and remembered.

use onefold_types::{Error, Result};
use std::fmt;

/// Where PostgreSQL listens.
const POSTGRES_PORT: u16 = 5432;
/// Where Cassandra does.
const CASSANDRA_PORT: u16 = 9042;

/// What speaks there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// Apache Cassandra, or what speaks the same.
    Cassandra,
}

/// A database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseLocation {
    /// What speaks there.
    pub kind: Kind,
    /// Who asks, if the name says so; PostgreSQL only.
    pub user: Option<String>,
    /// Machines and ports: one of PostgreSQL, some of a cluster of Cassandra.
    pub hosts: Vec<(String, u16)>,
    /// The database or the keyspace.
    pub name: String,
}

impl DatabaseLocation {
    /// Takes a name apart.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is not written as the module says.
    pub fn parse(text: &str) -> Result<Self> {
        // What could be a password is not shown.
        let refused = |why: &str| {
            Err(Error::invalid(format!(
                "the database cannot be reached: {why}; write \
                 'postgres://USER@HOST:PORT/DATABASE' or 'cassandra://HOST:PORT/KEYSPACE'"
            )))
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return refused("its name has no '://'");
        };
        let (kind, port) = match scheme.to_ascii_lowercase().as_str() {
            "postgres" | "postgresql" => (Kind::Postgres, POSTGRES_PORT),
            "cassandra" => (Kind::Cassandra, CASSANDRA_PORT),
            _ => return refused("its kind is not known"),
        };
        let Some((place, name)) = rest.split_once('/') else {
            return refused("its name says no database behind '/'");
        };
        let (user, place) = match place.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => {
                return refused(
                    "a password does not belong into a name, which is shown and remembered: set \
                     PGPASSWORD or CASSANDRA_PASSWORD",
                );
            }
            Some(_) if kind == Kind::Cassandra => {
                return refused("set CASSANDRA_USERNAME and CASSANDRA_PASSWORD");
            }
            Some((user, place)) if is_word(user) => (Some(user.to_owned()), place),
            Some(_) => return refused("that is no name of a user"),
            None => (None, place),
        };
        if !is_word(name) {
            return refused(
                "databases are named by at most 48 letters, digits and '_' here, beginning with a \
                 letter",
            );
        }
        let mut hosts = Vec::new();
        for host in place.split(',') {
            match host_and_port(host, port) {
                Some(host) => hosts.push(host),
                None => return refused("that is no machine and port"),
            }
        }
        if kind == Kind::Postgres && hosts.len() > 1 {
            return refused("PostgreSQL has one machine that decides");
        }
        Ok(Self { kind, user, hosts, name: name.to_owned() })
    }

    /// Whether all of it is this machine.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.hosts.iter().all(|(host, _)| {
            host == "localhost"
                || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        })
    }
}

impl fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::Postgres => "postgres",
            Kind::Cassandra => "cassandra",
        };
        write!(f, "{scheme}://")?;
        for (number, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match host.contains(':') {
                true => write!(f, "{comma}[{host}]:{port}")?,
                false => write!(f, "{comma}{host}:{port}")?,
            }
        }
        write!(f, "/{}", self.name)
    }
}

/// What stands in statements and settings as it is.
fn is_word(text: &str) -> bool {
    text.len() <= 48
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn host_and_port(text: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, after.strip_prefix(':').or(after.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
    let is_host =
        host.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b':')
            && host.bytes().all(allowed);
    let port = match port {
        "" => usual,
        port => port.parse().ok().filter(|port| *port > 0)?,
    };
    is_host.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_shown_without_users() {
        let postgres = DatabaseLocation::parse("postgres://me@db.example/onefold").unwrap();
        assert_eq!((postgres.kind, postgres.user.as_deref()), (Kind::Postgres, Some("me")));
        assert_eq!(postgres.to_string(), "postgres://db.example:5432/onefold");
        assert!(!postgres.is_here());
        let cassandra = DatabaseLocation::parse("CASSANDRA://127.0.0.1,[::1]:9043/k_1").unwrap();
        assert_eq!(cassandra.hosts, [("127.0.0.1".into(), 9042), ("::1".into(), 9043)]);
        assert_eq!(cassandra.to_string(), "cassandra://127.0.0.1:9042,[::1]:9043/k_1");
        assert!(cassandra.is_here());
    }

    #[test]
    fn r82_what_cannot_be_meant_is_refused_without_showing_a_secret() {
        for (name, word) in [
            ("secret", "no '://'"),
            ("mysql://secret/x", "kind"),
            ("postgres://u:secret@host/x", "does not belong"),
            ("cassandra://secret@host/x", "CASSANDRA_USERNAME"),
            ("postgres://host", "behind '/'"),
            ("postgres://host/", "letters"),
            ("postgres://host/x;drop", "letters"),
            ("postgres://host/1x", "letters"),
            ("postgres://a,b/x", "one machine"),
            ("postgres://-o/x", "no machine"),
            ("postgres://host:0/x", "no machine"),
            ("postgres://host:65536/x", "no machine"),
            ("postgres://[::1/x", "no machine"),
            ("postgres:///x", "no machine"),
            ("cassandra://a,/x", "no machine"),
            ("postgres://a$(x)@h/x", "user"),
        ] {
            let error = DatabaseLocation::parse(name).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("secret"), "{name}: {error}");
        }
        let longest = format!("postgres://h/{}", "x".repeat(48));
        assert!(DatabaseLocation::parse(&longest).is_ok());
        assert!(DatabaseLocation::parse(&format!("{longest}x")).is_err());
    }
}
