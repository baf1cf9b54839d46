//! The names that lead to snapshots.

use jiff::tz::TimeZone;
use onefold_engine::session::Snapshot;
use onefold_format::node::{Listing, Reference};
use onefold_format::record::{RECORD_VERSION, SnapshotKind, SnapshotRecord, Summary};
use onefold_mount::catalogue::{Catalogue, Node, ROOT};
use onefold_types::{Fingerprint, Level, SessionId};

fn snapshot(id: u8, started_ns: i64, paths: &[&str]) -> Snapshot {
    let root = Reference { fingerprint: Fingerprint([id; 32]), level: Level(1) };
    let record = SnapshotRecord {
        version: RECORD_VERSION,
        kind: SnapshotKind::Backup,
        root,
        started_ns,
        finished_ns: started_ns,
        host: "host".into(),
        user: "user".into(),
        paths: paths.iter().map(ToString::to_string).collect(),
        base: None,
        listing: Listing::Partial,
        tags: Vec::new(),
        description: String::new(),
        hold: false,
        parent: None,
        predecessors: Vec::new(),
        program: "test".into(),
        summary: Summary::default(),
        placement: None,
        doubts: Vec::new(),
        strays: 0,
        share: None,
        original: None,
    };
    Snapshot { id: SessionId([id; 16]), record, hidden: false, sequence: 0 }
}

/// What a path in the catalogue is: a target, or names.
fn shown(catalogue: &Catalogue, path: &str) -> String {
    let number = path.split('/').filter(|name| !name.is_empty()).fold(ROOT, |above, name| {
        catalogue.child(above, name.as_bytes()).unwrap_or_else(|| panic!("no {path}"))
    });
    match catalogue.node(number).unwrap() {
        Node::Link(target) => String::from_utf8(target.clone()).unwrap(),
        Node::PathLink(link) => {
            let path = link.names.join(&b'/');
            let way = String::from_utf8(link.to_snapshot.clone()).unwrap();
            format!("{way} {}", String::from_utf8(path).unwrap())
        }
        Node::Snapshot(directory) => format!("snapshot {}", directory.snapshot.short()),
        Node::Directory(children) => {
            let names = children.keys().map(|name| String::from_utf8_lossy(name).into_owned());
            names.collect::<Vec<_>>().join(" ")
        }
    }
}

#[test]
fn snapshots_of_one_second_and_paths_named_as_links_are_all_there() {
    let snapshots = [
        snapshot(1, 0, &["/srv/latest/x", "/srv"]),
        snapshot(2, 999, &["/srv"]),
        snapshot(3, 60_000_000_000, &["/srv", "/a/\\xff"]),
    ];
    let catalogue = Catalogue::new(&snapshots, &TimeZone::UTC);
    assert_eq!(shown(&catalogue, "ids"), "01010101 02020202 03030303");
    assert_eq!(shown(&catalogue, "ids/02020202"), "snapshot 02020202");
    let times = "1970-01-01_00-00-00 1970-01-01_00-00-00_02020202 1970-01-01_00-01-00 latest";
    assert_eq!(shown(&catalogue, "hosts/host"), times);
    assert_eq!(shown(&catalogue, "paths/srv"), times, "a directory, not a link, is 'latest'");
    assert_eq!(shown(&catalogue, "paths/srv/latest"), "x");
    let to_path = "../../../../ids/01010101 srv/latest/x";
    assert_eq!(shown(&catalogue, "paths/srv/latest/x/1970-01-01_00-00-00"), to_path);
    assert_eq!(shown(&catalogue, "paths/srv/1970-01-01_00-01-00"), "../../ids/03030303 srv");
    // What of it is no text is not known.
    assert_eq!(shown(&catalogue, "paths/a/\\xff/latest"), "../../../ids/03030303");
    assert_eq!(shown(&catalogue, "latest"), "ids/03030303");
    // Nothing leads out of a snapshot.
    let outside = Catalogue::new(&[snapshot(4, 0, &["/a/../../etc", "/./b"])], &TimeZone::UTC);
    assert_eq!(shown(&outside, "paths/a/.._/.._/etc/latest"), "../../../../../ids/04040404");
    assert_eq!(shown(&outside, "paths/._/b/latest"), "../../../ids/04040404");
    let empty = Catalogue::new([], &TimeZone::UTC);
    assert_eq!(shown(&empty, ""), "hosts ids paths snapshots tags");
}

#[test]
fn what_leads_elsewhere_by_now_has_another_number_and_all_else_the_same() {
    let snapshots = [snapshot(1, 0, &["/a"]), snapshot(2, 5_000_000_000, &["/a"])];
    let before = Catalogue::new(&snapshots[..1], &TimeZone::UTC);
    let after = Catalogue::new(&snapshots, &TimeZone::UTC);
    let number = |catalogue: &Catalogue, path: &str| {
        path.split('/').fold(ROOT, |above, name| catalogue.child(above, name.as_bytes()).unwrap())
    };
    for path in ["latest", "snapshots/latest", "paths/a/latest"] {
        assert_ne!(number(&before, path), number(&after, path), "{path}");
        assert!(after.node(number(&before, path)).is_none(), "{path}");
    }
    for path in ["ids", "ids/01010101", "paths/a", "snapshots/1970-01-01_00-00-00"] {
        assert_eq!(number(&before, path), number(&after, path), "{path}");
    }
}

#[test]
fn ids_that_begin_alike_are_shown_whole() {
    let mut snapshots = [snapshot(1, 0, &[]), snapshot(1, 1, &[]), snapshot(2, 2, &[])];
    snapshots[1].id.0[15] = 9;
    let catalogue = Catalogue::new(&snapshots, &TimeZone::UTC);
    let whole = snapshots[..2].iter().map(|one| one.id.to_string()).collect::<Vec<_>>();
    assert_eq!(shown(&catalogue, "ids"), format!("{} 02020202", whole.join(" ")));
}
