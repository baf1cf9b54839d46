//! Values of a profile that are written as texts, as on the command line.

use onefold_policy::retention::Count;
use onefold_types::Error;
use serde::{Deserialize, Deserializer, de};
use std::str::FromStr;

/// A value that is written as a text.
pub fn optional_text<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err = Error>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

/// A list of them.
pub fn texts<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err = Error>,
    D: Deserializer<'de>,
{
    Vec::<String>::deserialize(from)?
        .iter()
        .map(|text| text.parse().map_err(de::Error::custom))
        .collect()
}

/// A count is a number or a text such as "unlimited".
pub fn optional_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Count>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum NumberOrText {
        Number(i64),
        Text(String),
    }
    let text = match NumberOrText::deserialize(from)? {
        NumberOrText::Number(number) => number.to_string(),
        NumberOrText::Text(text) => text,
    };
    text.parse().map(Some).map_err(de::Error::custom)
}
