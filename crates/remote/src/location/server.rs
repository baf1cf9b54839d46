//! The name of a store that Onefold's own server serves: `https://HOST[:PORT]/STORE`.

use super::{BucketLocation, is_prefix_part, without_secrets};
use crate::service::Service;
use onefold_types::{Error, Result};
use std::path::PathBuf;
use url::Url;

/// Takes a name apart.
pub(super) fn parse(name: &str) -> Result<BucketLocation> {
    let shown = without_secrets(name);
    let refused =
        |why: &str| Error::invalid(format!("the store '{shown}' cannot be reached: {why}"));
    let url = Url::parse(name).map_err(|error| refused(&error.to_string()))?;
    let service = Service::Onefold;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused(&format!(
            "a name is shown and remembered, so no token belongs into it: {}",
            service.how_allowed()
        )));
    }
    if url.fragment().is_some() {
        return Err(refused("'#' means nothing in it"));
    }
    let host = url.host_str().ok_or_else(|| refused(service.how_named()))?;
    // As it is written: a URL's own rules would take '..' for something else.
    let written = name.split(['?', '#']).next().and_then(|name| name.splitn(4, '/').nth(3));
    let store = written.map(|path| path.strip_suffix('/').unwrap_or(path));
    let store = store.filter(|store| is_prefix_part(store)).ok_or_else(|| {
        refused(&format!("it names no store on the server: {}", service.how_named()))
    })?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let endpoint = format!("{}://{host}{port}", url.scheme());
    let mut certificate = None;
    for (option, value) in url.query_pairs() {
        match &*option {
            "certificate" if value.is_empty() => return Err(refused("'certificate' is empty")),
            "certificate" if certificate.is_some() => {
                return Err(refused("'certificate' is given twice"));
            }
            "certificate" => certificate = Some(PathBuf::from(&*value)),
            _ => {
                let known = service.options().join("', '");
                return Err(refused(&format!("'{option}' is not known: there is '{known}'")));
            }
        }
    }
    Ok(BucketLocation {
        service,
        bucket: store.to_owned(),
        endpoint: Some(endpoint),
        certificate,
        ..BucketLocation::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;

    #[test]
    fn a_server_and_a_store_are_named() {
        for (name, endpoint, store) in [
            ("https://backup.example/home", "https://backup.example", "home"),
            ("https://backup.example:8377/home/", "https://backup.example:8377", "home"),
            ("http://127.0.0.1:80/a.b-c_d", "http://127.0.0.1", "a.b-c_d"),
            ("https://[::1]:8377/home", "https://[::1]:8377", "home"),
        ] {
            let found = parse(name).unwrap();
            assert_eq!(found.endpoint.as_deref(), Some(endpoint), "{name}");
            assert_eq!((&*found.bucket, &found.certificate), (store, &None), "{name}");
            assert_eq!(found.to_string(), format!("{endpoint}/{store}"));
        }
        let found = parse("https://h:1/s?certificate=/etc/a%20b.pem").unwrap();
        assert_eq!(found.certificate, Some(PathBuf::from("/etc/a b.pem")));
        assert_eq!(found.to_string(), "https://h:1/s");
    }

    #[test]
    fn other_names_are_refused_and_show_no_secret() {
        for (name, word) in [
            ("https://", "empty host"),
            ("https://h", "no store"),
            ("https://h/", "no store"),
            ("https://h//", "no store"),
            ("https://h/a/b", "no store"),
            ("https://h/..", "no store"),
            ("https://h/a%20b", "no store"),
            ("https://h:99999/a", "port"),
            ("https://u:secret@h/a", "ONEFOLD_TOKEN"),
            ("https://secret@h/a", "ONEFOLD_TOKEN"),
            ("https://h/a#b", "'#'"),
            ("https://h/a?token=secret", "there is 'certificate'"),
            ("https://h/a?certificate=", "is empty"),
            ("https://h/a?certificate=a&certificate=b", "twice"),
        ] {
            let error = parse(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
            let said = error.to_string();
            assert!(said.contains(word) && !said.contains("secret"), "{name}: {said}");
        }
    }
}
