//! Google Cloud Storage: its variables and files.
//!
//! The endpoint is the name's, else `STORAGE_EMULATOR_HOST`, to which nothing is signed.
//! Credentials are those of `GOOGLE_APPLICATION_CREDENTIALS`, else `GOOGLE_ACCESS_TOKEN`, else what
//! `gcloud auth application-default login` has left, else those of the machine.
//! `GOOGLE_SKIP_SIGNATURE` does without.
//!
//! A file is read here before the client reads it, for words that tell what is wrong with it and
//! nothing of what is in it.

use super::{Surroundings, Usual, Way, is_true, refuse_in_the_open, wrong};
use crate::credentials::CredentialSource;
use crate::location::{BucketLocation, check_endpoint};
use crate::patience::Patience;
use crate::service::Service;
use object_store::ObjectStore;
use object_store::gcp::GoogleCloudStorageBuilder;
use onefold_types::{Error, Result};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const TOKEN: &str = "GOOGLE_ACCESS_TOKEN";
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";
/// Where gcloud leaves a user's own.
const USUAL_FILE: &str = ".config/gcloud/application_default_credentials.json";
/// Kinds of files that are understood, and what each needs.
const KINDS: [(&str, &[&str]); 2] = [
    ("service_account", &["client_email", "private_key", "private_key_id"]),
    ("authorized_user", &["client_id", "client_secret", "refresh_token"]),
];

/// The client, and how the bucket is reached.
pub(super) fn client(
    location: &BucketLocation,
    around: &Surroundings,
    patience: Patience,
) -> Result<(Arc<dyn ObjectStore>, Way)> {
    let mut builder = GoogleCloudStorageBuilder::new();
    let way = way(location, around)?;
    refuse_in_the_open(&way)?;
    match &way.credentials {
        // The client asks for credentials of a put even where it is told not to.
        CredentialSource::Unsigned => {
            builder = builder.with_skip_signature(true).with_bearer_token("none");
        }
        CredentialSource::Variables(_) => {
            builder = builder.with_bearer_token(around.variable(TOKEN).unwrap_or_default());
        }
        CredentialSource::File(path) => {
            check_file(path)?;
            builder = builder.with_application_credentials(path.to_string_lossy());
        }
        _ => {}
    }
    if let Some(endpoint) = &way.endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    let Usual { options, retry, connector } = Usual::new(&way, "storage.googleapis.com", patience);
    let client = builder
        .with_bucket_name(&location.bucket)
        .with_client_options(options)
        .with_retry(retry)
        .with_http_connector(connector)
        .build();
    let client = client.map_err(|error| match &way.credentials {
        CredentialSource::File(path) => unusable(path, "its 'private_key' is no RSA key in PEM"),
        _ => wrong(location, &error),
    })?;
    Ok((Arc::new(client), way))
}

fn way(location: &BucketLocation, around: &Surroundings) -> Result<Way> {
    let emulator = around.variable(EMULATOR).filter(|_| location.endpoint.is_none());
    let emulator = emulator.map(|host| match host.contains("://") {
        true => host.to_owned(),
        false => format!("http://{host}"),
    });
    if let Some(emulator) = &emulator {
        check_endpoint(emulator).map_err(|why| wrong(location, &format!("{EMULATOR}: {why}")))?;
    }
    let skips = around.variable("GOOGLE_SKIP_SIGNATURE").is_some_and(is_true);
    let usual = around.home.as_ref().map(|home| home.join(USUAL_FILE));
    let file = around.variable(FILE).map(PathBuf::from);
    let credentials = if skips || emulator.is_some() {
        CredentialSource::Unsigned
    } else if let Some(file) = file {
        CredentialSource::File(file)
    } else if around.variable(TOKEN).is_some() {
        CredentialSource::Variables(TOKEN)
    } else if let Some(usual) = usual.filter(|path| path.exists()) {
        CredentialSource::File(usual)
    } else {
        CredentialSource::Machine
    };
    let endpoint = location.endpoint.clone().or(emulator);
    let (service, account) = (Service::Google, None);
    Ok(Way { service, endpoint, region: None, path_style: None, account, credentials })
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::invalid(format!(
        "the credentials in '{}' ({FILE}, or what gcloud has left) cannot be used: {why}",
        path.display()
    ))
}

/// Makes sure that a file has what it needs. What is wrong is not told by its text, which may be a
/// secret.
fn check_file(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).map_err(|error| unusable(path, &error.to_string()))?;
    let file: Value = serde_json::from_str(&text).map_err(|error| {
        let at = format!("it is no JSON (line {}, column {})", error.line(), error.column());
        unusable(path, &at)
    })?;
    let said = |name: &str| file.get(name).and_then(Value::as_str).filter(|it| !it.is_empty());
    let kind = said("type").unwrap_or_default();
    let Some((_, needs)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        return Err(unusable(
            path,
            "it is neither the key file of a service account nor what 'gcloud auth \
             application-default login' leaves ('type' is not 'service_account' or \
             'authorized_user'); where those are not to be had, set GOOGLE_ACCESS_TOKEN to what \
             'gcloud auth print-access-token' prints",
        ));
    };
    match needs.iter().find(|name| said(name).is_none()) {
        Some(missing) => Err(unusable(path, &format!("it has no '{missing}'"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{around, bucket};
    use onefold_types::ErrorKind;

    const BUCKET: &str = "gs://b/p";

    #[test]
    fn credentials_come_from_the_first_place_that_has_some() {
        let home = tempfile::tempdir().unwrap();
        let of = |name: &str, variables: &[(&str, &str)]| {
            way(&bucket(name), &around(home.path(), variables)).unwrap()
        };
        assert_eq!(of(BUCKET, &[]).credentials, CredentialSource::Machine);
        let usual = home.path().join(USUAL_FILE);
        fs::create_dir_all(usual.parent().unwrap()).unwrap();
        fs::write(&usual, "{}").unwrap();
        assert_eq!(of(BUCKET, &[]).credentials, CredentialSource::File(usual));
        let (token, file) = ((TOKEN, "t"), (FILE, "/f"));
        assert_eq!(of(BUCKET, &[token]).credentials, CredentialSource::Variables(TOKEN));
        assert_eq!(of(BUCKET, &[file, token]).credentials, CredentialSource::File("/f".into()));
        let emulated = of(BUCKET, &[file, (EMULATOR, "localhost:4443")]);
        assert_eq!(emulated.credentials, CredentialSource::Unsigned);
        assert_eq!(emulated.endpoint.as_deref(), Some("http://localhost:4443"));
        // A name is more than a variable, and the variable says nothing of its server.
        let named = of("gs://b?endpoint=https://h", &[token, (EMULATOR, "http://localhost:4443")]);
        assert_eq!(named.endpoint.as_deref(), Some("https://h"));
        assert_eq!(named.credentials, CredentialSource::Variables(TOKEN));
        let skips = [token, ("GOOGLE_SKIP_SIGNATURE", "true")];
        assert_eq!(of(BUCKET, &skips).credentials, CredentialSource::Unsigned);
    }

    fn refused(name: &str, variables: &[(&str, &str)]) -> String {
        let around = around(Path::new("/nowhere"), variables);
        let error = client(&bucket(name), &around, Patience::USUAL).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    }

    #[test]
    fn a_file_that_cannot_be_used_is_told_by_what_is_missing_and_not_by_what_it_holds() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("key.json");
        let name = file.to_str().unwrap();
        assert!(refused(BUCKET, &[(FILE, name)]).contains("No such file"));
        for (text, word) in [
            ("\"secret\"", "'type' is not"),
            ("secret", "no JSON (line 1"),
            ("{\"type\":\"secret\"}", "'type' is not"),
            ("{\"type\":\"external_account\"}", "print-access-token"),
            ("{\"type\":\"service_account\",\"private_key\":\"secret\"}", "no 'client_email'"),
            (
                "{\"type\":\"service_account\",\"client_email\":\"a\",\"private_key\":\"secret\",\
                 \"private_key_id\":\"secret\"}",
                "no RSA key",
            ),
            ("{\"type\":\"authorized_user\",\"client_id\":\"a\"}", "no 'client_secret'"),
        ] {
            fs::write(&file, text).unwrap();
            let said = refused(BUCKET, &[(FILE, name)]);
            assert!(said.contains(word) && said.contains(name), "{text}: {said}");
            assert!(!said.contains("secret\"") && !said.contains(": secret"), "{said}");
        }
        assert!(refused(BUCKET, &[(EMULATOR, "ftp://x")]).contains(EMULATOR));
    }

    #[test]
    fn a_token_is_not_sent_in_the_open() {
        let token = [(TOKEN, "secret")];
        let said = refused("gs://b?endpoint=http://storage.example", &token);
        assert!(said.contains("unencrypted") && !said.contains("secret"), "{said}");
        let around = around(Path::new("/nowhere"), &token);
        for name in ["gs://b?endpoint=http://127.0.0.1:1", "gs://b?endpoint=http://[::1]:1"] {
            client(&bucket(name), &around, Patience::USUAL).unwrap();
        }
    }
}
