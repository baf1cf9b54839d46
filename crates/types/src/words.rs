//! Bounds of what people say of snapshots and keys, refused where it is said.
//!
//! Records are read whole by every listing, so a text of megabytes would make each of them slow for
//! ever. What was stored before is read whatever its length: only saying it is refused.

use crate::limits::{
    DESCRIPTION_MAX_BYTES, HOST_MAX_BYTES, KEY_LABEL_MAX_BYTES, TAG_MAX_BYTES, TAGS_MAX,
};
use crate::{Error, Result};

/// Refuses tags, or a description, that are longer than any may be.
pub fn refuse_long_attributes(tags: &[String], description: &str) -> Result<()> {
    if tags.len() > TAGS_MAX {
        let count = tags.len();
        return Err(Error::invalid(format!(
            "{count} tags are too many for a snapshot: it has {TAGS_MAX} at most"
        )));
    }
    tags.iter().try_for_each(|tag| refuse_long("a tag", tag, TAG_MAX_BYTES))?;
    refuse_long("the description", description, DESCRIPTION_MAX_BYTES)
}

/// Refuses the name of a host that is longer than any may be.
pub fn refuse_long_host(host: &str) -> Result<()> {
    refuse_long("the name of the host", host, HOST_MAX_BYTES)
}

/// Refuses the label of a key that is longer than any may be.
pub fn refuse_long_label(label: &str) -> Result<()> {
    refuse_long("the label of a key", label, KEY_LABEL_MAX_BYTES)
}

fn refuse_long(what: &str, text: &str, max_bytes: usize) -> Result<()> {
    match text.len() > max_bytes {
        true => Err(Error::invalid(format!(
            "{what} is too long: {} bytes, and no more than {max_bytes} are allowed",
            text.len()
        ))),
        false => Ok(()),
    }
}
