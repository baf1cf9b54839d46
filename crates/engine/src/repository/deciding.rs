//! Who decides the names of a store: one mechanism for all time, as its configuration says.
//!
//! Two processes of which one asks the store and the other one a database would both be told that
//! they were first. So whoever reaches a store otherwise than it was made may only read it.

use onefold_format::configuration::Configuration;
use onefold_store::{DecidedBy, Store};
use onefold_types::{Error, ErrorKind, Result};

/// What the configuration calls it.
const DATABASE: &str = "database";

/// How a mechanism is named in a configuration.
pub(super) fn named(by: DecidedBy) -> &'static str {
    match by {
        DecidedBy::Database => DATABASE,
        DecidedBy::Itself | DecidedBy::Nobody => "",
    }
}

/// Tells the store its name, once it is certain that it is reached as it was made.
pub(super) fn open(store: &dyn Store, configuration: &Configuration) -> Result<()> {
    expect(store, configuration)?;
    store.open_as(configuration.store_id.parse()?, false)
}

/// Refuses to decide in another way than the store was made with.
pub(super) fn expect(store: &dyn Store, configuration: &Configuration) -> Result<()> {
    let refused =
        |why: &str| Err(Error::invalid(format!("the store at {} {why}", store.describe())));
    match (configuration.decisions.as_str(), store.decided_by()) {
        ("", DecidedBy::Itself | DecidedBy::Nobody)
        | (DATABASE, DecidedBy::Database | DecidedBy::Nobody) => Ok(()),
        ("", DecidedBy::Database) => {
            refused("decides for itself: leave 'database' out of its name")
        }
        (DATABASE, DecidedBy::Itself) => refused(
            "has its decisions made by a database: say which one in its name, as in \
             '?database=postgres://USER@HOST/DATABASE'",
        ),
        _ => refuse_unknown(configuration),
    }
}

/// Refuses a mechanism that this build does not know.
pub(super) fn refuse_unknown(configuration: &Configuration) -> Result<()> {
    match configuration.decisions.as_str() {
        "" | DATABASE => Ok(()),
        other => Err(Error::new(
            ErrorKind::NewerFormat,
            format!("the store has its decisions made by '{other}'; use a newer onefold"),
        )),
    }
}
