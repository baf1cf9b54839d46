//! Stores on object stores and behind SFTP servers: the promises of the ports, answers that are
//! lost, and real servers.

mod answers;
mod breaking;
mod claims;
mod clouds;
mod faulty;
mod foresight;
mod gateway;
mod local_cache;
mod long_listings;
mod memory;
mod notices;
mod read_ahead;
mod sftp;

use onefold_remote::{BucketLocation, Location, Surroundings};
use std::path::Path;

/// A place in the bucket `bucket` of a server on this machine.
fn location(port: u16, prefix: &str) -> BucketLocation {
    let name = format!("s3://bucket/{prefix}?endpoint=http://127.0.0.1:{port}");
    match Location::parse(Path::new(&name)).unwrap() {
        Location::Bucket(location) => location,
        _ => panic!("{name}"),
    }
}

/// A process that has these credentials.
fn with_credentials(key: &str, secret: &str) -> Surroundings {
    let variables = [("AWS_ACCESS_KEY_ID", key), ("AWS_SECRET_ACCESS_KEY", secret)];
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Surroundings { variables: variables.map(owned).into(), home: None, secret: Vec::new() }
}
