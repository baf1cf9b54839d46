//! The operating system's random numbers.

use onefold_types::environment::Randomness;

/// Randomness for keys and names, from the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsRandomness;

impl Randomness for OsRandomness {
    /// Ends the process where the system has no randomness: names and keys would repeat, and both
    /// safety and secrecy rest on their not doing so.
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            eprintln!("onefold: the operating system gives no random numbers: {error}");
            std::process::abort();
        }
    }
}
