//! Old and new versions of files, written as letters: one is a chunk, a dot a hole.

use super::*;
use onefold_types::environment::SeededRandomness;

fn fingerprint(letter: char) -> Fingerprint {
    let mut fingerprint = Fingerprint::ZERO;
    if letter != '.' {
        // Not in the order of the letters.
        fingerprint.0[0] = (letter as u32 * 37 % 251) as u8;
        fingerprint.0[1..5].copy_from_slice(&(letter as u32).to_le_bytes());
    }
    fingerprint
}

fn letter(fingerprint: Option<Fingerprint>) -> char {
    let code = |name: Fingerprint| u32::from_le_bytes(name.0[1..5].try_into().unwrap());
    fingerprint.map_or('-', |name| char::from_u32(code(name)).unwrap())
}

fn version(text: &str, length: impl Fn(char) -> u64) -> Vec<(Fingerprint, u64)> {
    text.chars().map(|letter| (fingerprint(letter), length(letter))).collect()
}

fn previous(chunks: &[(Fingerprint, u64)]) -> PreviousVersion {
    let chunk =
        |(name, length): &(Fingerprint, u64)| (Some(*name).filter(|n| !n.is_zero()), *length);
    PreviousVersion::new(chunks.iter().map(chunk))
}

/// The corresponding old chunks where each letter has the length that is given for it.
fn with_lengths(old: &str, stretches: &[&str], length: impl Fn(char) -> u64) -> String {
    let mut previous = previous(&version(old, &length));
    let mut found = vec![None; 3];
    let mut text = String::new();
    for stretch in stretches {
        previous.corresponding(&version(stretch, &length), &mut found);
        text.extend(found.iter().map(|found| letter(*found)));
    }
    text
}

/// The same with chunks of 1000 bytes.
fn corresponding(old: &str, stretches: &[&str]) -> String {
    with_lengths(old, stretches, |_| 1000)
}

#[test]
fn a_changed_chunk_has_the_one_between_its_neighbours() {
    assert_eq!(corresponding("abcdef", &["abXdef"]), "--c---");
    assert_eq!(corresponding("abcdef", &["aXYZef"]), "-bcd--");
    assert_eq!(corresponding("abcdef", &["abcdef"]), "------");
}

#[test]
fn a_changed_first_chunk_and_a_changed_last_one() {
    assert_eq!(corresponding("abcd", &["Xbcd"]), "a---");
    assert_eq!(corresponding("abcd", &["abcX"]), "---d");
    // As when a time stamp of another length is in front.
    assert_eq!(with_lengths("abcd", &["Xbcd"], |l| if l == 'X' { 1900 } else { 1000 }), "a---");
}

#[test]
fn insertions_have_nothing_and_do_not_disturb_what_follows() {
    assert_eq!(corresponding("abcdef", &["abXcdYf"]), "-----e-");
    assert_eq!(corresponding("abcdef", &["XYZabcdQf"]), "-------e-");
    // Ten new chunks in the middle of one: its head and its tail are similar to it.
    let found = corresponding("abcdef", &["abQRSTUVWXYZdef"]);
    assert_eq!(found, "--c--------c---");
    assert_eq!(corresponding("abc", &["abcXYZ"]), "------");
}

#[test]
fn deletions_do_not_disturb_what_follows() {
    assert_eq!(corresponding("abcdefgh", &["aegX"]), "---h");
    // What is left of a long gap is the chunk before the next anchor.
    assert_eq!(corresponding("abcdefgh", &["aXgh"]), "-f--");
    // Two chunks of it: one at each end.
    assert_eq!(corresponding("abcdefgh", &["aXYh"]), "-bg-");
}

#[test]
fn a_gap_of_about_the_same_length_is_mapped_in_proportion() {
    // Three chunks became two, and two became three.
    assert_eq!(corresponding("abcde", &["aXYe"]), "-bd-");
    assert_eq!(corresponding("abcd", &["aXYZd"]), "-bbc-");
    // Y is the middle of three chunks as d is of five, not the one a chunk before the end.
    assert_eq!(corresponding("abcdefg", &["aXYZg"]), "-bdf-");
    // Lengths count, not numbers: X covers most of the long c.
    let length = |letter| match letter {
        'c' => 3000,
        'X' => 3500,
        'Y' => 500,
        _ => 1000,
    };
    assert_eq!(with_lengths("abcd", &["aXYd"], length), "-cc-");
    assert_eq!(with_lengths("abcd", &["aYXd"], length), "-bc-");
}

#[test]
fn a_file_without_a_common_chunk_is_mapped_by_position() {
    assert_eq!(corresponding("abcdef", &["UVWXYZ"]), "abcdef");
    assert_eq!(corresponding("abcdef", &["UV", "W", "XYZ"]), "abcdef");
    // X has as much of a as of b.
    assert_eq!(with_lengths("abc", &["XY"], |l| if l == 'X' { 2000 } else { 1000 }), "ac");
    let short = |letter: char| if letter.is_uppercase() { 600 } else { 1000 };
    assert_eq!(with_lengths("abcdef", &["QRSTUVWXYZ"], short), "aabccddeff");
}

#[test]
fn a_file_that_shrank_and_one_that_grew() {
    assert_eq!(corresponding("abcdef", &["aX"]), "-b");
    assert_eq!(corresponding("abcdef", &["XY"]), "ab");
    assert_eq!(corresponding("ab", &["XYZQ"]), "ab--");
    assert_eq!(corresponding("abcdef", &[""]), "");
    assert_eq!(corresponding("", &["XY"]), "--");
}

#[test]
fn it_remembers_where_it_is() {
    assert_eq!(corresponding("abcdefgh", &["aZ", "bX", "dYfgW"]), "-b-c-e--h");
    // An insertion in the first stretch moves the second.
    assert_eq!(corresponding("abcdefgh", &["aZQbc", "XYfg"]), "-----de--");
}

#[test]
fn equal_chunks_do_not_lead_astray() {
    // The next p is the one meant, not the first.
    assert_eq!(corresponding("apbpcpdp", &["apbpXpdp"]), "----c---");
    assert_eq!(corresponding("apbpcpdp", &["apQRpSpdp"]), "--bb-c---");
    // A p that is new here lies far behind in the old version.
    assert_eq!(corresponding("abcdefghijpklmp", &["aXpcYefghij"]), "-b--d------");
    assert_eq!(corresponding("abcdefghijpklmp", &["apXcde"]), "--b---");
    // Directly behind an anchor only the p that lies there is meant, and X has replaced the other.
    assert_eq!(corresponding("abpcdp", &["apXcd"]), "--p--");
    // All p lie before.
    assert_eq!(corresponding("ppabcdef", &["ppabpXdef"]), "-----c---");
    // A run of equal chunks that got shorter.
    assert_eq!(corresponding("appppppppde", &["apppXe"]), "----d-");
}

#[test]
fn chunks_in_another_order_lead_to_where_they_lie() {
    assert_eq!(corresponding("abcdefgh", &["efXhabYd"]), "--g---c-");
    // What follows in the new version lies before it in the old one, and bounds nothing.
    assert_eq!(corresponding("abcdefgh", &["efXab"]), "--g--");
}

#[test]
fn holes_are_no_chunks() {
    assert_eq!(corresponding("a.b", &["aXb"]), "---");
    assert_eq!(corresponding("abc", &["a.c"]), "---");
    // A hole that became longer does not change what follows it.
    assert_eq!(corresponding("a.bc", &["a..bX"]), "----c");
    // Beside a hole, what is no hole is found.
    assert_eq!(with_lengths("a.bc", &["aXc"], |l| if l == 'X' { 2000 } else { 1000 }), "-b-");
}

#[test]
fn overlaps_are_bounded() {
    // Small chunks and then a longer one, all of which the new chunk covers.
    let found = |small: usize| {
        let mut old = vec![(fingerprint('a'), 10); small];
        old.push((fingerprint('b'), 1000));
        let mut found = Vec::new();
        previous(&old).corresponding(&[(fingerprint('X'), 5000)], &mut found);
        letter(found[0])
    };
    assert_eq!(found(OVERLAPS_MAX - 1), 'b');
    assert_eq!(found(OVERLAPS_MAX), 'a');
}

#[test]
fn edits_at_random_find_what_they_changed() {
    let randomness = SeededRandomness::new(1);
    let (mut right, mut all) = (0, 0);
    for _ in 0..200 {
        let old: Vec<char> = (0..100).map(|n| char::from_u32(0x4e00 + n).unwrap()).collect();
        let (mut new, mut expected) = (String::new(), Vec::new());
        for (number, letter) in old.iter().enumerate() {
            let fresh = char::from_u32(0x5e00 + number as u32).unwrap();
            match randomness.below(12) {
                0 => {
                    new.push(fresh);
                    expected.push(Some(*letter));
                }
                1 => {
                    new.extend([char::from_u32(0x6e00 + number as u32).unwrap(), *letter]);
                    expected.extend([Some('-'), None]);
                }
                2 => {}
                _ => {
                    new.push(*letter);
                    expected.push(None);
                }
            }
        }
        let old: String = old.into_iter().collect();
        let found: Vec<char> = corresponding(&old, &[&new]).chars().collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.into_iter().zip(expected) {
            match expected {
                None => assert_eq!(found, '-'),
                Some('-') => {}
                Some(expected) => {
                    all += 1;
                    right += usize::from(found == expected);
                }
            }
        }
    }
    assert!(all > 1000 && right * 100 >= all * 90, "{right} of {all}");
}

#[test]
fn no_lengths_make_it_fail() {
    let randomness = SeededRandomness::new(2);
    let lengths = [0, 1, 2, 1000, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    let draw = |count: u64| -> Vec<(Fingerprint, u64)> {
        let letters: Vec<char> = ".abcdefgh".chars().collect();
        (0..count)
            .map(|_| (letters[randomness.below(9) as usize], lengths[randomness.below(7) as usize]))
            .map(|(letter, length)| (fingerprint(letter), length))
            .collect()
    };
    for _ in 0..20_000 {
        let mut previous = previous(&draw(randomness.below(12)));
        let mut found = Vec::new();
        for _ in 0..3 {
            let new = draw(randomness.below(12));
            previous.corresponding(&new, &mut found);
            assert_eq!(found.len(), new.len());
        }
    }
}

#[test]
fn an_old_chunk_takes_44_bytes() {
    assert_eq!(size_of::<OldChunk>() + size_of::<u32>(), 44);
    let previous = previous(&version(&"ab".repeat(500), |_| 1000));
    assert_eq!((previous.chunks.capacity(), previous.by_fingerprint.capacity()), (1000, 1000));
}
