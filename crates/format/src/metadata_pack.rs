//! Packs of metadata sections: copies that can be read as one sequential scan (FAST'17, 4.2).
//!
//! ```text
//! 0   8  magic "1FMETAPK"
//! 8   2  format version
//! 10  6  zero
//! 16  .. records: container id (16), u32 length, the section exactly as sealed in the container
//! ```
//!
//! A record is authentic because its section is: it opens only under its container's name. A pack
//! never proves that a container exists; whoever relies on a container reads the container.

use crate::wire::{Reader, Writer};
use onefold_types::{ContainerId, Result};

const MAGIC: &[u8; 8] = b"1FMETAPK";

/// Starts a pack.
#[must_use]
pub fn begin() -> Writer {
    let mut writer = Writer::new();
    writer.raw(MAGIC);
    writer.u16(crate::FORMAT_VERSION);
    writer.raw(&[0; 6]);
    writer
}

/// Appends the sealed metadata section of a container.
pub fn append(pack: &mut Writer, container: ContainerId, sealed_section: &[u8]) {
    pack.raw(&container.0);
    pack.u32(sealed_section.len() as u32);
    pack.raw(sealed_section);
}

/// Reads the records of a pack.
pub fn read(bytes: &[u8]) -> Result<Vec<(ContainerId, &[u8])>> {
    let mut reader = Reader::new(bytes, "metadata pack");
    if reader.raw(8)? != MAGIC {
        return Err(reader.damaged("this is not a metadata pack"));
    }
    crate::container::check_version(reader.u16()?)?;
    crate::container::check_reserved(reader.raw(6)?, "metadata pack")?;
    let mut records = Vec::new();
    while reader.remaining() > 0 {
        let container = ContainerId(reader.id()?);
        let length = reader.u32()? as usize;
        records.push((container, reader.raw(length)?));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_round_trip_and_truncation_is_damage() {
        let mut pack = begin();
        append(&mut pack, ContainerId([1; 16]), b"one");
        append(&mut pack, ContainerId([2; 16]), b"");
        let bytes = pack.into_bytes();
        let records = read(&bytes).unwrap();
        assert_eq!(records, [(ContainerId([1; 16]), &b"one"[..]), (ContainerId([2; 16]), b"")]);
        for length in (0..bytes.len()).filter(|length| ![16, 39].contains(length)) {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
    }
}
