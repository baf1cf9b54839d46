//! What must hold whatever the input, the store and the machine: if it does not, the program itself
//! is wrong, and it must not go on as if nothing had happened.
//!
//! A state that cannot be is neither a default nor a panic: it is an error of kind
//! [`ErrorKind::Bug`](crate::ErrorKind::Bug) that names the file and the line, and that whoever
//! promises something (a commit, a sweep, an index run) meets before the promise. What can be, if
//! seldom, is no matter for an invariant and keeps its own kind of error.
//!
//! ```
//! use onefold_types::{Result, invariant};
//!
//! fn take(waiting: usize, taken: usize) -> Result<usize> {
//!     invariant!(taken <= waiting, "more is taken than waits", waiting, taken);
//!     Ok(waiting - taken)
//! }
//! assert!(take(1, 2).unwrap_err().to_string().contains("waiting = 1, taken = 2"));
//! ```

/// Returns an error of kind *bug* from the function unless the condition holds. The values named
/// are told with it.
#[macro_export]
macro_rules! invariant {
    ($condition:expr, $what:expr $(, $value:expr)* $(,)?) => {
        if !$condition {
            return ::core::result::Result::Err($crate::bug!($what $(, $value)*));
        }
    };
}

/// An error of kind *bug*: what cannot be, with the values named, the file and the line.
#[macro_export]
macro_rules! bug {
    ($what:expr $(, $value:expr)* $(,)?) => {
        $crate::Error::bug(
            $what,
            &[$((stringify!($value), &$value as &dyn ::core::fmt::Debug)),*],
            file!(),
            line!(),
        )
    };
}

#[cfg(test)]
mod tests {
    use crate::{ErrorKind, Result};

    fn halve(number: u32) -> Result<u32> {
        invariant!(number.is_multiple_of(2), "a number is odd", number, number + 1);
        Ok(number / 2)
    }

    #[test]
    fn what_does_not_hold_names_values_file_and_line() {
        assert_eq!(halve(4).unwrap(), 2);
        let error = halve(5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Bug);
        assert!(!error.is_lost());
        let told = error.to_string();
        assert!(told.starts_with("a number is odd (number = 5, number + 1 = 6)"), "{told}");
        assert!(told.contains("invariant.rs:"), "{told}");
    }
}
