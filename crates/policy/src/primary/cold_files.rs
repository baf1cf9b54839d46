//! Which files of a share are optimised: those that nobody changes any more, and that are worth it
//! (ATC'12, "post-processing on cold data").

/// What a file must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdFiles {
    /// Changed last before this moment, in nanoseconds since 1970.
    pub modified_before_ns: i64,
    /// As large as this, in bytes.
    pub size_min_bytes: u64,
}

impl ColdFiles {
    /// Whether a file is to be optimised.
    #[must_use]
    pub fn is_cold(&self, size: u64, modified_ns: i64) -> bool {
        size > 0 && size >= self.size_min_bytes && modified_ns < self.modified_before_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn young_small_and_empty_files_are_left_alone() {
        let cold = ColdFiles { modified_before_ns: 100, size_min_bytes: 10 };
        assert!(cold.is_cold(10, 99));
        assert!(!cold.is_cold(9, 99));
        assert!(!cold.is_cold(10, 100));
        assert!(!ColdFiles { size_min_bytes: 0, ..cold }.is_cold(0, 0));
    }
}
