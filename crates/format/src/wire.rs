//! Bytes as they are written: little-endian integers, varints, and checked reads.
//!
//! Varints are LEB128: seven bits a byte, low bits first, the high bit set on all but the last
//! byte. Signed numbers are zigzag-coded first. A reader refuses overlong and overflowing varints,
//! so that every number has one spelling.

use onefold_types::{Error, Fingerprint, Result};

/// Appends encoded values to a buffer.
#[derive(Default, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What has been written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The number of bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// One to ten bytes.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// A signed number, zigzag-coded.
    pub fn signed(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    /// Bytes as they are; the reader must know how many.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes behind their number.
    pub fn counted(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }

    /// A fingerprint.
    pub fn fingerprint(&mut self, fingerprint: &Fingerprint) {
        self.raw(&fingerprint.0);
    }
}

/// Takes values off the front of a slice; every failure is [`Error::damaged`].
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader over `bytes`; `what` names them in errors.
    #[must_use]
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, what }
    }

    /// An error about what is being read.
    #[must_use]
    pub fn damaged(&self, problem: &str) -> Error {
        Error::damaged(format!("{}: {problem}", self.what))
    }

    /// The number of bytes left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Fails unless everything has been read.
    pub fn finish(self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.damaged("bytes are left over")) }
    }

    /// The next `count` bytes.
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or_else(|| self.damaged("the bytes end too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self
            .bytes
            .split_first_chunk::<N>()
            .ok_or_else(|| self.damaged("the bytes end too early"))?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Sixteen bytes: the name of an object.
    pub fn id(&mut self) -> Result<[u8; 16]> {
        self.array()
    }

    /// One to ten bytes.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.damaged("a number is spelt overlong"));
                }
                return Ok(value);
            }
        }
        Err(self.damaged("a number overflows"))
    }

    /// A varint that must not exceed `max`.
    pub fn varint_max(&mut self, max: u64) -> Result<u64> {
        let value = self.varint()?;
        if value > max {
            return Err(self.damaged(&format!("{value} where at most {max} is allowed")));
        }
        Ok(value)
    }

    /// A varint of at most 32 bits.
    pub fn varint_u32(&mut self) -> Result<u32> {
        self.varint_max(u64::from(u32::MAX)).map(|value| value as u32)
    }

    /// A signed number, zigzag-coded.
    pub fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok(((value >> 1) as i64) ^ -((value & 1) as i64))
    }

    /// A number of items that each take at least `item_bytes_min` of the bytes left.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize> {
        let value = self.varint()?;
        match usize::try_from(value).ok().and_then(|n| n.checked_mul(item_bytes_min.max(1))) {
            Some(bytes) if bytes <= self.bytes.len() => Ok(value as usize),
            _ => Err(self.damaged(&format!("{value} items cannot fit into what is left"))),
        }
    }

    /// Bytes behind their number, of which there may be at most `max`.
    pub fn counted(&mut self, max: usize) -> Result<&'a [u8]> {
        let count = self.varint_max(max as u64)?;
        self.raw(count as usize)
    }

    /// A fingerprint.
    pub fn fingerprint(&mut self) -> Result<Fingerprint> {
        self.array().map(Fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(unsigned: u64, signed: i64) {
            let mut writer = Writer::new();
            writer.varint(unsigned);
            writer.signed(signed);
            writer.counted(b"xy");
            let bytes = writer.into_bytes();
            let mut reader = Reader::new(&bytes, "test");
            prop_assert_eq!(reader.varint().unwrap(), unsigned);
            prop_assert_eq!(reader.signed().unwrap(), signed);
            prop_assert_eq!(reader.counted(2).unwrap(), b"xy");
            prop_assert!(reader.finish().is_ok());
        }
    }

    #[test]
    fn hostile_numbers_are_refused() {
        let read = |bytes: &[u8]| Reader::new(bytes, "test").varint();
        assert_eq!(read(&[0xff; 9]).unwrap_err().kind(), onefold_types::ErrorKind::Damaged);
        assert!(read(&[0xff; 10]).is_err());
        assert!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).is_err());
        assert!(read(&[0x80, 0x00]).is_err(), "overlong");
        assert_eq!(
            read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).unwrap(),
            u64::MAX
        );
        assert!(Reader::new(&[0xff, 0xff, 0x7f, 1, 2], "test").count(32).is_err());
    }
}
