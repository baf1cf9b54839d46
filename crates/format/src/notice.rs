//! What machines tell each other while they store, through a server of ours or a database: prefixes
//! as they go over the line, and notices that clients of a server hear.
//!
//! ```text
//! notices = notice*
//! notice  = number (8) | name (16) | count (4) | prefix (8) * count      little-endian
//! ```
//!
//! The name is that of a container that was stored, or of a session that is about to store chunks;
//! the prefixes are those of the chunks. None of it is kept in a store.

use crate::wire::{Reader, Writer};
use onefold_types::limits::CONTAINER_CHUNKS_MAX;
use onefold_types::{Error, ErrorKind, Result};

/// Prefixes in one notice, at most: as many as the fullest container has.
pub const NOTICE_PREFIXES_MAX: usize = CONTAINER_CHUNKS_MAX;
/// What a prefix takes.
const PREFIX_BYTES: usize = 8;
/// What is before the prefixes.
pub const NOTICE_HEAD_BYTES: usize = 28;

/// Something that a client told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Notices of one kind rise.
    pub number: i64,
    /// Of what, or by whom.
    pub name: [u8; 16],
    /// Of which chunks.
    pub prefixes: Vec<u64>,
}

/// Prefixes as they go over the line.
#[must_use]
pub fn pack(prefixes: &[u64]) -> Vec<u8> {
    let mut packed = Writer::new();
    prefixes.iter().for_each(|prefix| packed.u64(*prefix));
    packed.into_bytes()
}

/// The same back.
///
/// # Errors
///
/// `Invalid` if they are none.
pub fn unpack(packed: &[u8]) -> Result<Vec<u64>> {
    if !packed.len().is_multiple_of(PREFIX_BYTES) {
        return Err(Error::invalid("prefixes have eight bytes each"));
    }
    let mut reader = Reader::new(packed, "prefixes");
    (0..packed.len() / PREFIX_BYTES).map(|_| reader.u64()).collect()
}

/// A notice with prefixes that are packed.
///
/// # Errors
///
/// `LimitExceeded` if they are too many, `Invalid` if they are none.
pub fn encode(number: i64, name: [u8; 16], packed: &[u8]) -> Result<Vec<u8>> {
    if !packed.len().is_multiple_of(PREFIX_BYTES) {
        return Err(Error::invalid("prefixes have eight bytes each"));
    }
    let count = packed.len() / PREFIX_BYTES;
    if count > NOTICE_PREFIXES_MAX {
        let said = format!("a notice has at most {NOTICE_PREFIXES_MAX} prefixes");
        return Err(Error::new(ErrorKind::LimitExceeded, said));
    }
    let mut bytes = Writer::new();
    bytes.u64(number.cast_unsigned());
    bytes.raw(&name);
    bytes.u32(count as u32);
    bytes.raw(packed);
    Ok(bytes.into_bytes())
}

/// All notices.
///
/// # Errors
///
/// `Damaged` if the bytes are anything else.
pub fn decode(bytes: &[u8]) -> Result<Vec<Notice>> {
    let mut reader = Reader::new(bytes, "what clients told each other");
    let mut notices = Vec::new();
    while reader.remaining() > 0 {
        let (number, name) = (reader.u64()?.cast_signed(), reader.id()?);
        let count = reader.u32()? as usize;
        if count > NOTICE_PREFIXES_MAX || count > reader.remaining() / PREFIX_BYTES {
            return Err(reader.damaged("a notice has too many prefixes"));
        }
        let prefixes = (0..count).map(|_| reader.u64()).collect::<Result<_>>()?;
        notices.push(Notice { number, name, prefixes });
    }
    Ok(notices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_round_trip_and_nothing_else_does() {
        let packed = pack(&[7, u64::MAX]);
        assert_eq!(packed[..8], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(unpack(&packed).unwrap(), [7, u64::MAX]);
        assert!(unpack(&packed[1..]).is_err());
        let bytes = [encode(-1, [3; 16], &packed).unwrap(), encode(9, [4; 16], &[]).unwrap()];
        let bytes = bytes.concat();
        assert_eq!(bytes.len(), 2 * NOTICE_HEAD_BYTES + 16);
        let first = Notice { number: -1, name: [3; 16], prefixes: vec![7, u64::MAX] };
        let second = Notice { number: 9, name: [4; 16], prefixes: vec![] };
        assert_eq!(decode(&bytes).unwrap(), [first.clone(), second]);
        for end in 1..bytes.len() {
            match decode(&bytes[..end]) {
                Ok(notices) => assert_eq!(notices, std::slice::from_ref(&first)),
                Err(error) => assert!(error.is_lost(), "{error}"),
            }
        }
        assert!(encode(1, [3; 16], &packed[1..]).is_err());
        let most = vec![0; 8 * NOTICE_PREFIXES_MAX];
        assert_eq!(
            decode(&encode(1, [3; 16], &most).unwrap()).unwrap()[0].prefixes.len() * 8,
            most.len()
        );
        assert!(encode(1, [3; 16], &[&most[..], &[0; 8]].concat()).is_err());
        let mut longer = encode(1, [3; 16], &most).unwrap();
        longer.extend_from_slice(&[0; 8]);
        longer[24..28].copy_from_slice(&(NOTICE_PREFIXES_MAX as u32 + 1).to_le_bytes());
        assert!(decode(&longer).is_err());
    }
}
