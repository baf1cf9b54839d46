//! Onefold's own server: a token, and the certificate that is trusted.
//!
//! The token is that of `ONEFOLD_TOKEN`, else the first line of the file that `ONEFOLD_TOKEN_FILE`
//! names. A certificate in the store's name is the only one that is trusted; without it the system
//! says whom to trust. The second store of a command has variables of its own, so that no token is
//! sent to another server than its own.
//!
//! What is spoken is S3 without signatures: the token is in each request instead.

use super::{Surroundings, Usual, Way, refuse_in_the_open, wrong};
use crate::credentials::CredentialSource;
use crate::location::BucketLocation;
use crate::patience::Patience;
use crate::service::Service;
use object_store::aws::AmazonS3Builder;
use object_store::{HeaderMap, HeaderValue, ObjectStore};
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result};
use reqwest::Certificate;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The token itself.
pub const TOKEN: &str = "ONEFOLD_TOKEN";
/// The file that it is in.
pub const TOKEN_FILE: &str = "ONEFOLD_TOKEN_FILE";
/// The same two for the second store of a command.
pub const SECOND: [&str; 2] = ["ONEFOLD_TO_TOKEN", "ONEFOLD_TO_TOKEN_FILE"];
/// Files that hold tokens and certificates are no longer.
pub const FILE_MAX_BYTES: u64 = 64 << 10;

/// The client, and how the store is reached.
pub(super) fn client(
    location: &BucketLocation,
    around: &Surroundings,
    patience: Patience,
) -> Result<(Arc<dyn ObjectStore>, Way)> {
    let (credentials, token) = token(around)?;
    let endpoint = location.endpoint.clone();
    let way = Way {
        service: Service::Onefold,
        endpoint: endpoint.clone(),
        region: None,
        path_style: None,
        account: None,
        credentials,
    };
    refuse_in_the_open(&way)?;
    let mut said = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| Error::invalid(format!("the token ({}) is none", way.credentials)))?;
    said.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert("authorization", said);
    let Usual { options, retry, connector } = Usual::new(&way, "", patience);
    let options = options.with_default_headers(headers);
    let connector = match &location.certificate {
        Some(path) => connector.trusting(certificate(path)?),
        None => connector,
    };
    let client = AmazonS3Builder::new()
        .with_endpoint(endpoint.unwrap_or_default())
        .with_bucket_name(&location.bucket)
        .with_skip_signature(true)
        .with_disable_bulk_delete(true)
        .with_client_options(options)
        .with_retry(retry)
        .with_http_connector(connector)
        .build()
        .map_err(|error| wrong(location, &error))?;
    Ok((Arc::new(client), way))
}

impl Surroundings {
    /// The same for the second store of a command: its token is not the first one's.
    #[must_use]
    pub fn of_second(mut self) -> Self {
        self.variables.retain(|(name, _)| ![TOKEN, TOKEN_FILE].contains(&name.as_str()));
        for (name, _) in &mut self.variables {
            let first = SECOND.iter().zip([TOKEN, TOKEN_FILE]).find(|(second, _)| name == *second);
            if let Some((_, first)) = first {
                first.clone_into(name);
            }
        }
        self
    }
}

fn token(around: &Surroundings) -> Result<(CredentialSource, String)> {
    if let Some(token) = around.variable(TOKEN) {
        return Ok((CredentialSource::Variables(TOKEN), token.trim().to_owned()));
    }
    let Some(path) = around.variable(TOKEN_FILE).map(PathBuf::from) else {
        return Err(Error::new(
            ErrorKind::NotPermitted,
            format!("no token is given: {}", Service::Onefold.how_allowed()),
        ));
    };
    let text = read(&path, "the token")?;
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    match token.is_empty() {
        true => Err(Error::invalid(format!("'{}' ({TOKEN_FILE}) is empty", path.display()))),
        false => Ok((CredentialSource::File(path), token)),
    }
}

fn certificate(path: &Path) -> Result<Vec<Certificate>> {
    let text = read(path, "the server's certificate")?;
    let found = Certificate::from_pem_bundle(text.as_bytes()).unwrap_or_default();
    match found.is_empty() {
        false => Ok(found),
        true => Err(Error::invalid(format!(
            "'{}' is no certificate: one in PEM is needed",
            path.display()
        ))),
    }
}

fn read(path: &Path, what: &str) -> Result<String> {
    let reading = || format!("reading {what} in '{}'", path.display());
    let mut text = String::new();
    let file = fs::File::open(path).context(reading)?;
    file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text).context(reading)?;
    match text.len() as u64 > FILE_MAX_BYTES {
        true => Err(Error::invalid(format!("'{}' is too long for {what}", path.display()))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(variables: &[(&str, &str)]) -> Surroundings {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Surroundings { variables: variables.iter().map(owned).collect(), ..Surroundings::default() }
    }

    fn at(endpoint: &str, certificate: Option<PathBuf>) -> BucketLocation {
        BucketLocation {
            service: Service::Onefold,
            bucket: "store".to_owned(),
            endpoint: Some(endpoint.to_owned()),
            certificate,
            ..BucketLocation::default()
        }
    }

    fn refused(location: &BucketLocation, variables: &[(&str, &str)], word: &str) {
        let error = client(location, &around(variables), Patience::USUAL).err().unwrap();
        let said = error.to_string();
        assert!(said.contains(word) && !said.contains("secret"), "{said}");
    }

    #[test]
    fn the_token_comes_from_a_variable_or_a_file() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("token");
        fs::write(&file, "onefold-2\nmore\n").unwrap();
        let path = file.to_str().unwrap();
        let found = token(&around(&[(TOKEN, "onefold-1 "), (TOKEN_FILE, path)])).unwrap();
        assert_eq!(found, (CredentialSource::Variables(TOKEN), "onefold-1".to_owned()));
        let found = token(&around(&[(TOKEN_FILE, path)])).unwrap();
        assert_eq!(found, (CredentialSource::File(file.clone()), "onefold-2".to_owned()));
        assert!(
            client(&at("https://h", None), &around(&[(TOKEN_FILE, path)]), Patience::USUAL).is_ok()
        );
        fs::write(&file, "\n").unwrap();
        refused(&at("https://h", None), &[(TOKEN_FILE, path)], "is empty");
        fs::write(&file, vec![b'x'; FILE_MAX_BYTES as usize + 1]).unwrap();
        refused(&at("https://h", None), &[(TOKEN_FILE, path)], "too long");
        refused(&at("https://h", None), &[], TOKEN);
        refused(&at("https://h", None), &[(TOKEN, "secret\u{7}")], "is none");
    }

    #[test]
    fn the_second_store_of_a_command_has_a_token_of_its_own() {
        let both = around(&[(TOKEN, "first"), (SECOND[0], "second")]).of_second();
        assert_eq!(token(&both).unwrap().1, "second");
        let first = around(&[(TOKEN, "first"), (TOKEN_FILE, "file"), ("OTHER", "x")]).of_second();
        assert_eq!(first.variables, [("OTHER".to_owned(), "x".to_owned())]);
        assert!(token(&first).unwrap_err().to_string().contains(SECOND[0]));
    }

    #[test]
    fn a_token_goes_to_no_other_machine_in_the_open() {
        let variables = [(TOKEN, "secret")];
        refused(&at("http://backup.example", None), &variables, "unencrypted");
        for endpoint in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"] {
            assert!(client(&at(endpoint, None), &around(&variables), Patience::USUAL).is_ok());
        }
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("certificate.pem");
        let location = at("https://h", Some(file.clone()));
        refused(&location, &[(TOKEN, "secret")], "reading the server's certificate");
        for text in ["", "secret", "-----BEGIN CERTIFICATE-----\nsecret"] {
            fs::write(&file, text).unwrap();
            refused(&location, &[(TOKEN, "secret")], "is no certificate");
        }
    }
}
