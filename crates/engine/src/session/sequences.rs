//! In which order sessions were saved: by what each of them knew, and by no clock.
//!
//! # Algorithm
//! A session that knew no other has the number 1, any other one more than the greatest of those
//! that its record names. Sessions that ran at the same time may have the same number.
//!
//! Invariant: a session has a greater number than every one that was saved before it began.

use super::checkpoints::Ending;
use onefold_types::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// The number of each session.
#[must_use]
pub fn of(endings: &BTreeMap<SessionId, Ending>) -> BTreeMap<SessionId, u64> {
    let mut numbers = BTreeMap::new();
    let mut begun = BTreeSet::new();
    for id in endings.keys() {
        let mut open = vec![*id];
        while let Some(id) = open.last().copied() {
            let before = endings.get(&id).map_or(&[][..], Ending::predecessors);
            let is_first_look = begun.insert(id);
            let known = open.len();
            if is_first_look {
                let is_left = |id: &&SessionId| endings.contains_key(id) && !begun.contains(id);
                open.extend(before.iter().filter(is_left));
            }
            if open.len() == known {
                open.pop();
                let newest = before.iter().filter_map(|id| numbers.get(id)).max();
                let number: u64 = newest.copied().unwrap_or(0) + 1;
                numbers.entry(id).or_insert(number);
            }
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r102_a_session_comes_after_all_that_it_knew() {
        let id = |number: u8| SessionId([number; 16]);
        let known = |ids: &[u8]| Ending::WithoutRecord {
            predecessors: ids.iter().map(|number| id(*number)).collect(),
            strays: 0,
        };
        // 7 knew nothing, 5 and 2 knew it, 3 both of them, 1 only 5; 9 is not there.
        let endings = [
            (1, known(&[5])),
            (2, known(&[7, 9])),
            (3, known(&[2, 5, 1])),
            (4, Ending::Fenced),
            (5, known(&[7])),
            (7, known(&[])),
        ];
        let endings = endings.map(|(number, ending)| (id(number), ending)).into();
        let expected = [(1, 3), (2, 2), (3, 4), (4, 1), (5, 2), (7, 1)];
        assert_eq!(of(&endings), expected.map(|(number, order)| (id(number), order)).into());
    }

    #[test]
    fn records_that_name_each_other_end_the_count() {
        let id = |number: u8| SessionId([number; 16]);
        let known = |of| Ending::WithoutRecord { predecessors: vec![id(of)], strays: 0 };
        let endings = [(id(1), known(2)), (id(2), known(1))].into();
        assert_eq!(of(&endings).len(), 2);
    }

    #[test]
    fn a_long_history_needs_no_stack() {
        let id = |number: u64| {
            SessionId(std::array::from_fn(|byte| match byte {
                0..8 => 0,
                _ => (number >> (8 * (15 - byte))) as u8,
            }))
        };
        let of_number = |number: u64| {
            let before = number.checked_sub(1).map(|number| id(u64::MAX - number));
            let predecessors = before.into_iter().collect();
            (id(u64::MAX - number), Ending::WithoutRecord { predecessors, strays: 0 })
        };
        let endings: BTreeMap<_, _> = (0..50_000).map(of_number).collect();
        assert_eq!(of(&endings).get(&id(u64::MAX - 49_999)), Some(&50_000));
    }
}
