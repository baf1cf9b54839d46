//! Whose buckets hold stores: what the services call things, and what users set for them.

use crate::failure;

/// Who speaks what to a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Service {
    /// Amazon's, and whoever speaks the same.
    #[default]
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
    /// Onefold's own server.
    Onefold,
}

impl Service {
    /// What stands before `://` in names.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
            Self::Onefold => "https",
        }
    }

    /// A word for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "google",
            Self::Azure => "azure",
            Self::Onefold => "onefold",
        }
    }

    /// Whose server it is where no other one is named.
    #[must_use]
    pub fn owner(self) -> &'static str {
        match self {
            Self::S3 => "Amazon",
            Self::Google => "Google",
            Self::Azure => "Microsoft",
            Self::Onefold => "the user",
        }
    }

    /// Whether it pays to list from several names on at once. Servers that stand in for Azure's
    /// give all names to have them passed over, and our own gives thirty thousand at a time, for
    /// each of which it looks through the directory.
    pub(crate) fn lists_in_parts(self) -> bool {
        matches!(self, Self::S3 | Self::Google)
    }

    /// How names are written.
    pub(crate) fn how_named(self) -> &'static str {
        match self {
            Self::S3 => {
                "write 's3://BUCKET/PREFIX?endpoint=https://SERVER' for a bucket on a server of \
                 your own, and 's3://BUCKET/PREFIX' for one of Amazon's"
            }
            Self::Google => "write 'gs://BUCKET/PREFIX'",
            Self::Azure => "write 'az://CONTAINER/PREFIX?account=ACCOUNT'",
            Self::Onefold => "write 'https://HOST:PORT/STORE'",
        }
    }

    /// What may be said of a bucket behind its name.
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &["endpoint", "region", "profile", "path-style", "checksum", "database"],
            Self::Google => &["endpoint", "database"],
            Self::Azure => &["endpoint", "account", "database"],
            Self::Onefold => &["certificate"],
        }
    }

    /// What users set so that there are credentials.
    pub(crate) fn how_allowed(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of \
                 ~/.aws/credentials"
            }
            Self::Google => {
                "set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account, or log \
                 in with 'gcloud auth application-default login'"
            }
            Self::Azure => {
                "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, \
                 AZURE_TENANT_ID and AZURE_CLIENT_SECRET"
            }
            Self::Onefold => {
                "set ONEFOLD_TOKEN to the client's token, or ONEFOLD_TOKEN_FILE to a file with it; \
                 for the second store of a command ONEFOLD_TO_TOKEN or ONEFOLD_TO_TOKEN_FILE"
            }
        }
    }

    /// Where credentials are that are not accepted.
    pub(crate) fn credentials(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or the profile",
            Self::Google => "GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_ACCESS_TOKEN",
            Self::Azure => {
                "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_SECRET, and \
                 the account"
            }
            Self::Onefold => "ONEFOLD_TOKEN, or ONEFOLD_TOKEN_FILE",
        }
    }

    /// What else a request depends on.
    pub(crate) fn settings(self) -> &'static str {
        match self {
            Self::S3 => "the endpoint ('https://' or 'http://'), the region and 'path-style'",
            Self::Google => "the endpoint ('https://' or 'http://')",
            Self::Azure => "the endpoint ('https://' or 'http://') and the account",
            Self::Onefold => "the server's name and port, and 'certificate'",
        }
    }

    /// What can be done about a bucket that is not there.
    pub(crate) fn missing(self) -> &'static str {
        match self {
            Self::S3 | Self::Google | Self::Azure => failure::MISSING,
            Self::Onefold => {
                "the server serves no store of that name to this client: see the end of the \
                 store's name, and what the client may"
            }
        }
    }

    /// What can be done about a server without room.
    pub(crate) fn full(self) -> &'static str {
        match self {
            Self::S3 | Self::Google | Self::Azure => "the server has no more room: make some there",
            Self::Onefold => {
                "the server's disk is full: whoever runs the server can make room there, and so \
                 can a client that may delete: 'forget --final' and 'gc'"
            }
        }
    }

    /// What a server speaks.
    pub(crate) fn language(self) -> &'static str {
        match self {
            Self::S3 => "S3",
            Self::Google => "Google Cloud Storage's XML",
            Self::Azure => "Azure Blob Storage's REST",
            Self::Onefold => "what Onefold's own server does",
        }
    }

    /// What a put says that must not replace anything.
    pub(crate) fn condition(self) -> &'static str {
        match self {
            Self::S3 | Self::Azure | Self::Onefold => "'If-None-Match: *'",
            Self::Google => "'x-goog-if-generation-match: 0'",
        }
    }

    /// What a page of a listing is called in itself.
    pub(crate) fn page(self) -> &'static [u8] {
        match self {
            Self::S3 | Self::Google | Self::Onefold => b"ListBucketResult",
            Self::Azure => b"EnumerationResults",
        }
    }
}
