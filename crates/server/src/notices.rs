//! What the clients of a store tell each other: which containers they have stored, and which chunks
//! they are about to store, so that of several that save the same at the same time one stores it.
//!
//! # Algorithm
//! Notices of each kind get rising numbers, by the clock, so that they go on rising after a start.
//! Whoever asks says up to which number it has heard, and gets the next ones, a page at a time. The
//! oldest go when there is no room, and claims after a minute: whoever made them has stored what it
//! claimed, or is gone. Nothing is written to a disk.
//!
//! # Invariants
//! All of it is a hint: clients rely on a container only once they have seen it in the store.
//! Memory: a store's notices take [`NEWS_MAX_BYTES`] and [`CLAIMS_MAX_BYTES`], an answer
//! [`PAGE_BYTES`] and one notice.
//!
//! Concurrency: a lock for each kind, held while a page is put together.

use crate::limits::{CLAIMS_AGE_MAX, CLAIMS_MAX_BYTES, NEWS_MAX_BYTES};
use bytes::Bytes;
use onefold_format::notice;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Of what is asked for so much is given at once, and a notice more.
pub const PAGE_BYTES: usize = 256 << 10;

/// The notices of one store.
pub struct Notices {
    news: Mutex<Told>,
    claims: Mutex<Told>,
}

/// Those of one kind, in order.
struct Told {
    notices: VecDeque<(i64, Instant, Bytes)>,
    bytes: usize,
    newest: i64,
    bytes_max: usize,
    age_max: Option<Duration>,
}

impl Default for Notices {
    fn default() -> Self {
        let told = |bytes_max, age_max| {
            let (notices, bytes, newest) = (VecDeque::new(), 0, 0);
            Mutex::new(Told { notices, bytes, newest, bytes_max, age_max })
        };
        Self {
            news: told(NEWS_MAX_BYTES, None),
            claims: told(CLAIMS_MAX_BYTES, Some(CLAIMS_AGE_MAX)),
        }
    }
}

impl Notices {
    /// A client tells something of a kind; its number. None for a word that is no kind.
    pub fn tell(
        &self,
        kind: &str,
        name: [u8; 16],
        packed: &[u8],
    ) -> Option<onefold_types::Result<i64>> {
        let mut told = self.of(kind)?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(told.add(name, packed, Instant::now()))
    }

    /// What was told after a number, and whether there is more. None for a word that is no kind.
    pub fn after(&self, kind: &str, number: i64) -> Option<(Vec<u8>, bool)> {
        let mut told = self.of(kind)?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(told.after(number, Instant::now()))
    }

    fn of(&self, kind: &str) -> Option<&Mutex<Told>> {
        match kind {
            "news" => Some(&self.news),
            "claims" => Some(&self.claims),
            _ => None,
        }
    }
}

/// The time of the day in nanoseconds.
fn clock_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Told {
    /// Adds a notice; its number.
    fn add(&mut self, name: [u8; 16], packed: &[u8], now: Instant) -> onefold_types::Result<i64> {
        let number = clock_ns().max(self.newest.saturating_add(1));
        let encoded = notice::encode(number, name, packed)?;
        self.newest = number;
        self.bytes += encoded.len();
        self.notices.push_back((number, now, encoded.into()));
        self.forget(now);
        Ok(number)
    }

    /// Lets go of what is too old, or too much.
    fn forget(&mut self, now: Instant) {
        while let Some((_, told, notice)) = self.notices.front() {
            let age = now.saturating_duration_since(*told);
            if self.bytes <= self.bytes_max && self.age_max.is_none_or(|most| age <= most) {
                break;
            }
            self.bytes -= notice.len();
            self.notices.pop_front();
        }
    }

    /// The notices after a number, a page of them, and whether there are more.
    fn after(&mut self, number: i64, now: Instant) -> (Vec<u8>, bool) {
        self.forget(now);
        let first = self.notices.partition_point(|(other, ..)| *other <= number);
        let mut page = Vec::new();
        for (_, _, notice) in self.notices.range(first..) {
            if page.len() >= PAGE_BYTES {
                return (page, true);
            }
            page.extend_from_slice(notice);
        }
        (page, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::notice::{NOTICE_HEAD_BYTES, NOTICE_PREFIXES_MAX, decode};

    fn told(bytes_max: usize, age_max: Option<Duration>) -> Told {
        Told { notices: VecDeque::new(), bytes: 0, newest: 0, bytes_max, age_max }
    }

    fn numbers(told: &mut Told, after: i64, now: Instant) -> Vec<i64> {
        let (page, is_more) = told.after(after, now);
        assert!(!is_more);
        decode(&page).unwrap().iter().map(|notice| notice.number).collect()
    }

    #[test]
    fn whoever_asks_gets_what_it_has_not_heard_and_numbers_rise() {
        let (mut told, now) = (told(1 << 20, None), Instant::now());
        let all: Vec<i64> = (0..5).map(|n| told.add([n; 16], &[n; 8], now).unwrap()).collect();
        assert!(all.is_sorted_by(|a, b| a < b) && all[0] > 1_500_000_000_000_000_000);
        assert_eq!(numbers(&mut told, 0, now), all);
        assert_eq!(numbers(&mut told, all[2], now), all[3..]);
        assert!(numbers(&mut told, all[4], now).is_empty());
        // A clock that is set back does not make them fall.
        told.newest = i64::MAX - 1;
        assert_eq!(told.add([9; 16], &[], now).unwrap(), i64::MAX);
    }

    /// NEWS_MAX_BYTES and CLAIMS_MAX_BYTES: one byte too much, and the oldest goes.
    #[test]
    fn the_oldest_go_where_there_is_no_room() {
        let notices = Notices::default();
        for (kind, most) in [("news", NEWS_MAX_BYTES), ("claims", CLAIMS_MAX_BYTES)] {
            let mut told = notices.of(kind).unwrap().lock().unwrap();
            let now = Instant::now();
            let whole = vec![0; 8 * NOTICE_PREFIXES_MAX];
            let each = NOTICE_HEAD_BYTES + whole.len();
            let fit = most / each;
            let first = told.add([0; 16], &whole, now).unwrap();
            (1..fit).for_each(|_| _ = told.add([0; 16], &whole, now).unwrap());
            let room = most - told.bytes;
            assert!(room >= NOTICE_HEAD_BYTES && room < each, "{room}");
            let rest = vec![0; (room - NOTICE_HEAD_BYTES) / 8 * 8];
            told.add([1; 16], &rest, now).unwrap();
            assert_eq!(told.notices[0].0, first);
            assert!(told.bytes <= most);
            told.add([2; 16], &[], now).unwrap();
            assert!(told.notices[0].0 > first && told.bytes <= most, "{kind}");
        }
    }

    /// CLAIMS_AGE_MAX.
    #[test]
    fn claims_go_after_a_minute_and_news_do_not() {
        let notices = Notices::default();
        let now = Instant::now();
        for (kind, are_left) in [("news", true), ("claims", false)] {
            let mut told = notices.of(kind).unwrap().lock().unwrap();
            let number = told.add([0; 16], &[], now).unwrap();
            assert_eq!(numbers(&mut told, 0, now + CLAIMS_AGE_MAX), [number]);
            let later = now + CLAIMS_AGE_MAX + Duration::from_millis(1);
            assert_eq!(!numbers(&mut told, 0, later).is_empty(), are_left, "{kind}");
        }
    }

    #[test]
    fn an_answer_is_a_page_and_a_notice_at_most() {
        let (mut told, now) = (told(1 << 30, None), Instant::now());
        let packed = vec![0; PAGE_BYTES - NOTICE_HEAD_BYTES - 4];
        let last = told.add([0; 16], &packed, now).unwrap();
        told.add([0; 16], &[], now).unwrap();
        let (page, is_more) = told.after(0, now);
        // Four bytes less than a page, so one more fits in.
        assert_eq!((page.len(), is_more), (PAGE_BYTES - 4 + NOTICE_HEAD_BYTES, false));
        told.add([0; 16], &[], now).unwrap();
        assert!(told.after(0, now).1 && !told.after(last, now).1);
    }
}
