//! What the kernel knows by number.

use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_mount::catalogue::Directory;
use onefold_mount::inodes::{Address, Inodes};
use onefold_types::{Fingerprint, Level, SessionId};
use std::sync::Arc;

fn directory(number: u64) -> Arc<Directory> {
    let reference = Reference { fingerprint: Fingerprint([1; 32]), level: Level(1) };
    let snapshot = SessionId([3; 16]);
    Arc::new(Directory { number, parent: 1, reference, snapshot, path: b"/above".to_vec() })
}

fn address(directory: &Arc<Directory>, index: u32) -> Address {
    Address { directory: Arc::clone(directory), leaf: 0, index }
}

fn entry(name: &str, kind: EntryKind, links: u64, content: u8) -> Entry {
    let fingerprint = Fingerprint([content; 32]);
    let content = Some(Reference { fingerprint, level: Level::DATA });
    Entry { name: name.into(), kind, links, content, inode: 7, size: 9, ..Entry::default() }
}

#[test]
fn an_inode_is_known_as_long_as_the_kernel_refers_to_it() {
    let (mut inodes, above) = (Inodes::default(), directory(5));
    let below = entry("d", EntryKind::Directory, 2, 1);
    let number = inodes.remember(address(&above, 0), &below);
    assert_eq!(inodes.remember(address(&above, 0), &below), number);
    inodes.forget(number, 1);
    assert_eq!(inodes.address(number).unwrap().directory.number, 5);
    let directory = inodes.directory(number).unwrap();
    assert_eq!((directory.parent, directory.path.as_slice()), (5, &b"/above/d"[..]));
    inodes.forget(number, 1);
    assert!(inodes.address(number).is_none() && inodes.directory(number).is_none());
    assert_eq!(inodes.remember(address(&above, 0), &below), number, "the same as before");
}

#[test]
fn names_share_a_number_if_they_are_of_one_file_as_it_was_at_one_time() {
    let (mut inodes, above) = (Inodes::default(), directory(5));
    let mut number = |index, name, links, content| {
        let entry = entry(name, EntryKind::File, links, content);
        inodes.remember(address(&above, index), &entry)
    };
    let first = number(0, "a", 2, 1);
    assert_eq!(number(1, "b", 2, 1), first);
    // It was written to before its second name was read.
    assert_ne!(number(2, "c", 2, 2), first);
    // Numbers of inodes are used again: a file of one name is no other one.
    assert_ne!(number(3, "d", 1, 1), first);
    assert_ne!(number(4, "e", 1, 1), number(3, "d", 1, 1));
}
