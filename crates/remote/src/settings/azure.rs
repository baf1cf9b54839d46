//! Azure Blob Storage: its variables.
//!
//! The account is the name's, else `AZURE_STORAGE_ACCOUNT_NAME`. Credentials are the first of
//! [`KINDS`] that is there, else those of the machine; all of them come from one kind, and half of
//! one is refused.

use super::{Surroundings, Usual, Way, is_true, refuse_in_the_open, wrong};
use crate::credentials::CredentialSource;
use crate::location::{BucketLocation, check_account, check_endpoint};
use crate::patience::Patience;
use crate::service::Service;
use object_store::ObjectStore;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use onefold_types::{Error, Result};
use std::sync::Arc;

const ACCOUNT: [&str; 2] = ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"];
const ENDPOINT: [&str; 1] = ["AZURE_STORAGE_ENDPOINT"];

/// What a setting is called by different programs, and by the client.
type Names = (&'static [&'static str], AzureConfigKey);

/// Kinds of credentials: what the client calls one, what it needs, and what says that it is meant.
const KINDS: [(&str, &[Names], &str); 5] = [
    (
        "access_key",
        &[(
            &["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"],
            AzureConfigKey::AccessKey,
        )],
        "AZURE_STORAGE_ACCOUNT_KEY",
    ),
    (
        "sas_token",
        &[(&["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"], AzureConfigKey::SasKey)],
        "AZURE_STORAGE_SAS_TOKEN",
    ),
    ("bearer_token", &[(&["AZURE_STORAGE_TOKEN"], AzureConfigKey::Token)], "AZURE_STORAGE_TOKEN"),
    (
        "client_secret",
        &[
            (&["AZURE_CLIENT_SECRET"], AzureConfigKey::ClientSecret),
            (&["AZURE_CLIENT_ID"], AzureConfigKey::ClientId),
            (&["AZURE_TENANT_ID"], AzureConfigKey::AuthorityId),
        ],
        "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET",
    ),
    (
        "workload_identity",
        &[
            (&["AZURE_FEDERATED_TOKEN_FILE"], AzureConfigKey::FederatedTokenFile),
            (&["AZURE_CLIENT_ID"], AzureConfigKey::ClientId),
            (&["AZURE_TENANT_ID"], AzureConfigKey::AuthorityId),
        ],
        "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE",
    ),
];
/// What those may have beside that are given out for a while, and those of the machine.
const BESIDE: [Names; 3] = [
    (&["AZURE_AUTHORITY_HOST"], AzureConfigKey::AuthorityHost),
    (&["AZURE_CLIENT_ID"], AzureConfigKey::ClientId),
    (&["IDENTITY_ENDPOINT", "AZURE_MSI_ENDPOINT"], AzureConfigKey::MsiEndpoint),
];

/// The client, and how the container is reached.
pub(super) fn client(
    location: &BucketLocation,
    around: &Surroundings,
    patience: Patience,
) -> Result<(Arc<dyn ObjectStore>, Way)> {
    let (way, account, chosen) = way(location, around)?;
    let is_key = chosen.is_some_and(|(kind, ..)| kind == "access_key");
    if !is_key {
        // A key signs what is sent; all others are sent.
        refuse_in_the_open(&way)?;
    }
    let (kind, needs) = chosen.map_or(("managed_identity", &[][..]), |(kind, it, _)| (kind, it));
    let mut builder = MicrosoftAzureBuilder::new()
        .with_account(&account)
        .with_container_name(&location.bucket)
        .with_credential_type(kind)
        .with_skip_signature(way.credentials == CredentialSource::Unsigned);
    for (names, key) in BESIDE.iter().chain(needs) {
        if let Some((_, value)) = first(around, names) {
            builder = builder.with_config(*key, value);
        }
    }
    if let Some(endpoint) = &way.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    let own_host = format!("{account}.blob.core.windows.net");
    let Usual { options, retry, connector } = Usual::new(&way, &own_host, patience);
    let client = builder
        .with_client_options(options)
        .with_retry(retry)
        .with_http_connector(connector)
        .build();
    // The client tells parts of what it cannot read.
    let client = client.map_err(|error| match chosen {
        Some((.., what)) => wrong(location, &format!("{what} cannot be read: give it whole")),
        None => wrong(location, &error),
    })?;
    Ok((Arc::new(client), way))
}

type Kind = (&'static str, &'static [Names], &'static str);

fn way(location: &BucketLocation, around: &Surroundings) -> Result<(Way, String, Option<Kind>)> {
    let named = |names| first(around, names).map(|(_, value)| value.to_owned());
    let account = location.account.clone().or_else(|| named(&ACCOUNT));
    let account = account.ok_or_else(|| no_account(location, around))?;
    check_account(&account).map_err(|why| wrong(location, &why))?;
    let endpoint = location.endpoint.clone().or_else(|| named(&ENDPOINT));
    if let Some(endpoint) = &endpoint {
        check_endpoint(endpoint).map_err(|why| wrong(location, &why))?;
    }
    let skips = around.variable("AZURE_SKIP_SIGNATURE").is_some_and(is_true);
    let chosen = if skips { None } else { chosen(around)? };
    let credentials = match chosen {
        _ if skips => CredentialSource::Unsigned,
        Some(("workload_identity", _, names)) => CredentialSource::WebIdentity(names),
        Some((.., names)) => CredentialSource::Variables(names),
        None => CredentialSource::Machine,
    };
    let (service, path_style) = (Service::Azure, None);
    let shown = Some(account.clone());
    let way = Way { service, endpoint, region: None, path_style, account: shown, credentials };
    Ok((way, account, chosen))
}

/// What the first of some variables says.
fn first<'a>(around: &'a Surroundings, names: &[&'static str]) -> Option<(&'static str, &'a str)> {
    names.iter().find_map(|name| Some((*name, around.variable(name)?)))
}

/// The first kind of which what is only its own is there; all else of it must be there, too.
fn chosen(around: &Surroundings) -> Result<Option<Kind>> {
    let is_there = |(names, _): &Names| first(around, names).is_some();
    let Some(kind) = KINDS.iter().find(|(_, needs, _)| needs.first().is_some_and(is_there)) else {
        return Ok(None);
    };
    let (_, needs, names) = kind;
    match needs.iter().find(|need| !is_there(need)) {
        Some(([missing, ..], _)) => Err(Error::invalid(format!(
            "'{missing}' is not set: {names} mean something together only"
        ))),
        _ => Ok(Some(*kind)),
    }
}

fn no_account(location: &BucketLocation, around: &Surroundings) -> Error {
    let connection = around.variable("AZURE_STORAGE_CONNECTION_STRING").map(|_| {
        "; AZURE_STORAGE_CONNECTION_STRING is not understood, what is in it has names of its own"
    });
    let why = format!(
        "the account is not said: give '?account=NAME', or set {}{}",
        ACCOUNT[0],
        connection.unwrap_or_default()
    );
    wrong(location, &why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{around, bucket};
    use onefold_types::ErrorKind;
    use std::path::Path;

    const CONTAINER: &str = "az://c/p?account=mine";
    const KEY: (&str, &str) = ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0");
    const SAS: (&str, &str) = ("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=secret");
    const PRINCIPAL: [(&str, &str); 3] =
        [("AZURE_CLIENT_ID", "i"), ("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_SECRET", "secret")];

    fn of(name: &str, variables: &[(&str, &str)]) -> Way {
        let around = around(Path::new("/nowhere"), variables);
        client(&bucket(name), &around, Patience::USUAL).unwrap().1
    }

    #[test]
    fn credentials_come_from_the_first_kind_that_is_there() {
        let source = |variables: &[(&str, &str)]| of(CONTAINER, variables).credentials.to_string();
        assert_eq!(of(CONTAINER, &[]).credentials, CredentialSource::Machine);
        assert_eq!(source(&[SAS, KEY]), KEY.0);
        assert_eq!(source(&[SAS]), SAS.0);
        assert_eq!(source(&[("AZURE_STORAGE_KEY", KEY.1), PRINCIPAL[2]]), KEY.0);
        assert!(source(&PRINCIPAL).contains("AZURE_CLIENT_SECRET"));
        let file = ("AZURE_FEDERATED_TOKEN_FILE", "/f");
        let web = of(CONTAINER, &[PRINCIPAL[0], PRINCIPAL[1], file]).credentials;
        assert_eq!(web.name(), "web-identity");
        // Which of several identities of the machine.
        assert_eq!(of(CONTAINER, &PRINCIPAL[..1]).credentials, CredentialSource::Machine);
        let skips = [KEY, ("AZURE_SKIP_SIGNATURE", "true")];
        assert_eq!(of(CONTAINER, &skips).credentials, CredentialSource::Unsigned);
    }

    #[test]
    fn the_name_comes_before_variables() {
        let both = [(ACCOUNT[0], "theirs"), (ENDPOINT[0], "https://theirs.example"), KEY];
        assert_eq!(of(CONTAINER, &both).account.as_deref(), Some("mine"));
        let named = of("az://c?endpoint=https://mine.example", &both);
        assert_eq!(named.account.as_deref(), Some("theirs"));
        assert_eq!(named.endpoint.as_deref(), Some("https://mine.example"));
        assert_eq!(of("az://c", &both).endpoint.as_deref(), Some("https://theirs.example"));
        assert_eq!(of("az://c", &[(ACCOUNT[1], "cli"), KEY]).account.as_deref(), Some("cli"));
    }

    #[test]
    fn what_is_missing_or_cannot_be_read_is_named_and_not_shown() {
        for (name, variables, word) in [
            ("az://c", &[KEY][..], "?account=NAME"),
            ("az://c", &[("AZURE_STORAGE_CONNECTION_STRING", "secret")], "CONNECTION_STRING"),
            ("az://c", &[(ACCOUNT[0], "a.example/"), KEY], "is no account"),
            (CONTAINER, &[(KEY.0, "secret!")], "AZURE_STORAGE_ACCOUNT_KEY cannot be read"),
            (CONTAINER, &[(SAS.0, "secret")], "AZURE_STORAGE_SAS_TOKEN cannot be read"),
            (CONTAINER, &[(ENDPOINT[0], "mine"), KEY], "is no server"),
            (CONTAINER, &[PRINCIPAL[0], PRINCIPAL[2]], "'AZURE_TENANT_ID' is not set"),
            (CONTAINER, &PRINCIPAL[1..], "'AZURE_CLIENT_ID' is not set"),
            ("az://c?account=mine&endpoint=http://mine.example", &[SAS], "unencrypted"),
            ("az://c?account=mine&endpoint=http://mine.example", &PRINCIPAL, "unencrypted"),
        ] {
            let around = around(Path::new("/nowhere"), variables);
            let error = client(&bucket(name), &around, Patience::USUAL).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            let said = error.to_string();
            assert!(said.contains(word) && !said.contains("secret"), "{name}: {said}");
        }
        // A key signs, and is not sent.
        of("az://c?account=mine&endpoint=http://mine.example", &[KEY]);
    }
}
