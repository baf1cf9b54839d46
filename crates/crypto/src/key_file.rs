//! A key file: 256 random bits that open a store in the place of a password.
//!
//! Nobody guesses them, so what wraps the keys is derived by HKDF-SHA256 (RFC 5869) at once, where
//! a password takes argon2id. The file is one line of text, which can be copied, printed and typed:
//!
//! ```text
//! onefold-key-file-1:hex(32 bytes):hex(4 bytes checksum)
//! ```
//!
//! The checksum is the first four bytes of BLAKE3 over the text before the last colon; it tells a
//! file that was cut off or mistyped from one that belongs to another store. White space around the
//! line is no part of it.
//!
//! # Invariants
//! - One key has one spelling.
//! - The wrapping key is one of the file, of the slot's salt and of the store: one file may open
//!   several stores, and says nothing of one to who can write to another.

use crate::contexts;
use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use onefold_types::environment::Randomness;
use onefold_types::{Error, ErrorKind, Result, StoreId};
use zeroize::Zeroizing;

/// What every key file begins with, of whatever version.
const BEGINNING: &str = "onefold-key-file-";
const VERSION: &str = "1";
const KEY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;

/// What a key file holds.
///
/// Boxed, so that moving it leaves no copy behind.
pub struct KeyFile(Box<Zeroizing<[u8; KEY_BYTES]>>);

impl KeyFile {
    /// A fresh key.
    #[must_use]
    pub fn generate(randomness: &dyn Randomness) -> Self {
        let mut key = Box::new(Zeroizing::new([0; KEY_BYTES]));
        randomness.fill(&mut key[..]);
        Self(key)
    }

    /// Whether that begins as a key file does: then it is no password.
    #[must_use]
    pub fn is_alike(bytes: &[u8]) -> bool {
        bytes.trim_ascii_start().starts_with(BEGINNING.as_bytes())
    }

    /// The key that a file holds.
    ///
    /// Errors: `Invalid` if it is no key file, or is not whole; `NewerFormat`.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if !Self::is_alike(bytes) {
            return Err(Error::invalid(format!(
                "it is no key file, which begins with '{BEGINNING}{VERSION}:' and is made by \
                 'onefold key add --generate FILE'"
            )));
        }
        let damaged = || {
            Error::invalid(
                "it is a key file that was cut off or altered: bring it back from a copy of it",
            )
        };
        let text = std::str::from_utf8(bytes.trim_ascii()).map_err(|_| damaged())?;
        let (covered, checksum) = text.rsplit_once(':').ok_or_else(damaged)?;
        let (tag, digits) = covered.split_once(':').ok_or_else(damaged)?;
        let version = tag.strip_prefix(BEGINNING).unwrap_or_default();
        if version != VERSION && version.parse::<u32>().is_ok_and(|number| number > 1) {
            return Err(Error::new(
                ErrorKind::NewerFormat,
                "it is a key file of a newer version of onefold; use that version",
            ));
        }
        let mut key = Box::new(Zeroizing::new([0; KEY_BYTES]));
        hex::decode_to_slice(digits, &mut key[..]).map_err(|_| damaged())?;
        match version == VERSION && *checksum == checksum_of(covered) {
            true => Ok(Self(key)),
            false => Err(damaged()),
        }
    }

    /// The line, with its end.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut digits = Zeroizing::new([0; 2 * KEY_BYTES]);
        // All of the room at once: a text that grows leaves copies behind.
        let length = BEGINNING.len() + VERSION.len() + 2 * (KEY_BYTES + CHECKSUM_BYTES) + 3;
        let mut text = Zeroizing::new(String::with_capacity(length));
        text.extend([BEGINNING, VERSION, ":"]);
        // There is room for just as many digits.
        if hex::encode_to_slice(&self.0[..], &mut digits[..]).is_ok() {
            text.extend(digits.iter().map(|digit| char::from(*digit)));
        }
        let checksum = checksum_of(&text);
        text.extend([":", &checksum, "\n"]);
        text
    }

    /// What wraps the ring of keys in a slot with this salt.
    pub(crate) fn wrapping_key(&self, salt: &[u8], store: StoreId) -> Result<LessSafeKey> {
        let extracted = Salt::new(HKDF_SHA256, salt).extract(&self.0[..]);
        let info = [contexts::KEY_FILE.as_bytes(), &store.0];
        let expanded = extracted
            .expand(&info, &AES_256_GCM)
            .map_err(|_| Error::invalid("cannot derive the wrapping key"))?;
        Ok(LessSafeKey::new(UnboundKey::from(expanded)))
    }
}

fn checksum_of(covered: &str) -> String {
    hex::encode(&blake3::hash(covered.as_bytes()).as_bytes()[..CHECKSUM_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;

    #[test]
    fn a_key_file_is_one_line_and_each_change_of_it_is_told() {
        let file = KeyFile::generate(&SeededRandomness::new(1));
        let text = file.to_text();
        assert!(text.starts_with("onefold-key-file-1:") && text.ends_with('\n'), "{}", *text);
        assert_eq!((text.lines().count(), text.len()), (1, 93));
        let refused = |bytes: &[u8]| KeyFile::parse(bytes).err().unwrap();
        let read = |text: &str| KeyFile::parse(text.as_bytes()).unwrap().to_text();
        assert_eq!(*read(&text), *text);
        assert_eq!(*read(&format!(" {}\r\n", text.trim())), *text);
        let whole = text.trim_end().as_bytes();
        for length in 0..whole.len() {
            assert_eq!(refused(&whole[..length]).kind(), ErrorKind::Invalid, "{length}");
            let mut altered = whole.to_vec();
            altered[length] ^= 1;
            refused(&altered);
        }
        assert_eq!(refused(&[whole, b"0"].concat()).kind(), ErrorKind::Invalid);
        assert!(refused(text.to_uppercase().as_bytes()).to_string().contains("no key file"));
        assert!(refused(b"a password\n").to_string().contains("no key file"));
        assert!(refused(&whole[..60]).to_string().contains("cut off"));
        let newer = text.replace("file-1:", "file-2:");
        assert_eq!(refused(newer.as_bytes()).kind(), ErrorKind::NewerFormat);
    }
}
