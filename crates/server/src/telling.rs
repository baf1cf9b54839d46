//! Requests about what clients tell each other ([`crate::notices`]).

use crate::answers::{Failure, MODIFIED_IN_HEADERS};
use crate::asking::Asking;
use crate::bodies::{drain, length_of, whole};
use crate::clients::Right;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onefold_format::notice::NOTICE_PREFIXES_MAX;

/// Tells, or asks what was told: `path` is `KIND/NAME` or `KIND/NUMBER`.
pub async fn answer(
    asking: Asking,
    path: &str,
    request: Request<Body>,
) -> Result<Response, Failure> {
    let unknown = || Failure::new(StatusCode::NOT_FOUND, "NoSuchKey", "nothing is told there");
    let (kind, rest) = path.split_once('/').ok_or_else(unknown)?;
    let may = asking.may(Right::Append);
    match *request.method() {
        Method::GET => {
            may?;
            let number = rest.parse().map_err(|_| unknown())?;
            let (page, is_more) = asking.served.notices.after(kind, number).ok_or_else(unknown)?;
            asking.shared.metrics.sent(&asking.name, page.len() as u64);
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
                (header::CONTENT_LENGTH, page.len().to_string()),
                (header::LAST_MODIFIED, MODIFIED_IN_HEADERS.to_owned()),
                // What clients of buckets read of an answer.
                (header::ETAG, format!("\"{}\"", u8::from(is_more))),
            ];
            Ok((headers, page).into_response())
        }
        Method::PUT => {
            let (parts, body) = request.into_parts();
            let name = may.and_then(|()| name_of(rest).ok_or_else(unknown));
            let length = length_of(&parts.headers);
            let length = length.and_then(|length| match length > 8 * NOTICE_PREFIXES_MAX as u64 {
                false => Ok(length),
                true => {
                    let said = format!("a notice has at most {NOTICE_PREFIXES_MAX} prefixes");
                    Err(Failure::new(StatusCode::BAD_REQUEST, "EntityTooLarge", said))
                }
            });
            let (name, length) = match (name, length) {
                (Ok(name), Ok(length)) => (name, length),
                (Err(failure), _) | (_, Err(failure)) => {
                    drain(body, asking.shared.patience).await;
                    return Err(failure);
                }
            };
            let (packed, _room) = whole(&asking, body, length).await?;
            asking.shared.metrics.received(&asking.name, length);
            let number = asking.served.notices.tell(kind, name, &packed).ok_or_else(unknown)??;
            Ok(([(header::ETAG, format!("\"{number}\""))], StatusCode::OK).into_response())
        }
        _ => Err(Failure::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "there is no such request",
        )),
    }
}

/// Sixteen bytes in hexadecimal digits.
fn name_of(text: &str) -> Option<[u8; 16]> {
    text.parse::<onefold_types::SessionId>().ok().map(|name| name.0)
}
