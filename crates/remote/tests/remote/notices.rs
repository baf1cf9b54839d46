//! What clients of Onefold's own server hear of each other, from one that answers anything.

use crate::answers::{Reply, Server, holding};
use onefold_engine::common_index::CommonIndex as _;
use onefold_remote::bucket::PAGES_MAX;
use onefold_remote::{ReadAhead, ServedNotices};
use onefold_types::ErrorKind;
use std::sync::Arc;

fn notices(server: &Server) -> ServedNotices {
    ServedNotices::of(Arc::new(ReadAhead::new(server.store(), 0)))
}

/// PAGES_MAX: the answer of one page more stands ready, and is not asked for.
#[test]
fn no_more_pages_are_asked_for_in_a_row_than_a_server_can_have() {
    // One notice of number 5, whatever is asked for; `ETag: "1"` says that there are more.
    let page: &[u8] =
        &[5, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0];
    let server = Server::new(&vec![holding(page); PAGES_MAX + 1]);
    let news = notices(&server).news().unwrap();
    assert_eq!((news.len(), server.asked().len()), (PAGES_MAX, PAGES_MAX));
    let asked = server.asked();
    assert!(asked[0].ends_with("/news/0") && asked[1].ends_with("/news/5"), "{asked:?}");
}

#[test]
fn what_is_no_notice_is_an_error_and_no_news() {
    let without_number = Reply::Answer("200 OK", &[DATE, "ETag: \"x\""], b"");
    for reply in [holding(b"anything"), without_number] {
        let server = Server::new(&[reply]);
        assert_eq!(notices(&server).news().unwrap_err().kind(), ErrorKind::Damaged);
    }
}

const DATE: &str = "Last-Modified: Wed, 25 Nov 2026 00:00:00 GMT";
