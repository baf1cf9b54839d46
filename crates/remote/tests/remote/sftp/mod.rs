//! Stores behind SFTP servers: OpenSSH's, where it is installed, and one in memory that does what a
//! real one does not do on demand.

mod faults;
mod real;
mod scripted;
mod waiting;

use onefold_remote::Patience;
use onefold_store::Key;
use std::time::Duration;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// One that does not let tests wait.
fn patience() -> Patience {
    Patience {
        connect: Duration::from_secs(2),
        answer: Duration::from_millis(700),
        retry: Duration::from_secs(4),
        operation: Duration::from_secs(10),
        trouble: Duration::from_secs(1),
        trouble_age: Duration::from_secs(2),
    }
}
