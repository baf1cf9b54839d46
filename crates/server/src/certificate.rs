//! The server's certificate: one that it is given, or one of its own.
//!
//! One of its own is made once, beside the file of clients, and kept: clients name the file with
//! the certificate and trust that one alone. The key is readable for its owner only. Whoever asks
//! for names that are not in it is told so: another one would lock all clients out.

use crate::clients::replace_file;
use onefold_types::error::Context as _;
use onefold_types::{Error, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
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
        refuse_other_names(&pair.certificate, names)?;
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

/// Refuses names that a certificate is not for.
fn refuse_other_names(certificate: &Path, names: &[String]) -> Result<()> {
    let shown = certificate.display();
    let unreadable = |why: &dyn std::fmt::Display| {
        Error::invalid(format!("the certificate in '{shown}' cannot be understood: {why}"))
    };
    let bytes = CertificateDer::from_pem_file(certificate).map_err(|why| unreadable(&why))?;
    let parsed = ParsedCertificate::try_from(&bytes).map_err(|why| unreadable(&why))?;
    let is_in_it = |name: &str| {
        // Of a name for many any one of them.
        let one = name.replacen('*', "any", 1);
        let one = ServerName::try_from(one.as_str());
        one.is_ok_and(|one| verify_server_name(&parsed, &one).is_ok())
    };
    match names.iter().find(|name| !is_in_it(name)) {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "the certificate in '{shown}' was made for other names, and not for '{name}': leave \
             '{name}' out, or remove the certificate and its key ('{KEY}' beside it), and give all \
             clients the new one, which is made then"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r136_a_certificate_is_kept_for_the_names_that_are_in_it_only() {
        let place = tempfile::tempdir().unwrap();
        let own = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            own(place.path(), &names).map(|pair| std::fs::read(pair.certificate).unwrap())
        };
        let all = ["backup.example", "*.deep.example", "127.0.0.1", "::1"];
        let made = own(&all).unwrap();
        assert_eq!(own(&all).unwrap(), made);
        all.iter().for_each(|name| assert_eq!(own(&[name]).unwrap(), made, "{name}"));
        for other in ["other.example", "x.backup.example", "*.example", "127.0.0.2", "a b", ""] {
            let error = own(&["backup.example", other]).unwrap_err().to_string();
            assert!(error.contains(&format!("not for '{other}'")), "{error}");
        }
        std::fs::write(place.path().join(CERTIFICATE), "none").unwrap();
        assert!(own(&all).unwrap_err().to_string().contains("cannot be understood"));
    }
}
