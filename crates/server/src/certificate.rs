//! The server's certificate: one that it is given, or one of its own.
//!
//! One of its own is made once, beside the file of clients, and kept: clients name the file with
//! the certificate and trust that one alone. The key is readable for its owner only.

use crate::clients::replace_file;
use onefold_types::error::Context as _;
use onefold_types::{Error, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::path::{Path, PathBuf};

/// What a certificate of one's own is in.
pub const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// Files of a certificate and of its key.
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The certificate that is in a directory already, or a new one for these names.
pub fn own(directory: &Path, names: &[String]) -> Result<Pair> {
    let pair = Pair { certificate: directory.join(CERTIFICATE), key: directory.join(KEY) };
    if pair.certificate.exists() && pair.key.exists() {
        return Ok(pair);
    }
    let refused = |error: rcgen::Error| {
        Error::invalid(format!("no certificate can be made for '{}': {error}", names.join("', '")))
    };
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(names.to_vec()).map_err(refused)?;
    let writing = || format!("writing the certificate to '{}'", directory.display());
    replace_file(&pair.key, signing_key.serialize_pem().as_bytes()).context(writing)?;
    replace_file(&pair.certificate, cert.pem().as_bytes()).context(writing)?;
    Ok(pair)
}
