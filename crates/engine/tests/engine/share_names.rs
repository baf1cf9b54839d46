//! Shares: stubs and files by their names, those that patterns leave out and those outside.

use crate::ingest::random_bytes;
use crate::second_copies::Deaf;
use crate::shares::World;
use onefold_engine::stub;
use std::fs;

#[test]
fn a_stub_that_is_moved_to_where_patterns_leave_everything_out_keeps_its_data() {
    let Some(world) = World::new() else { return };
    let (data, other) = (random_bytes(21, 300_000), random_bytes(22, 200_000));
    world.write("a/stub", &data);
    world.write("b/inner/other", &other);
    assert_eq!(world.optimize().emptied.files, 2);
    // `*.told` is what the share's policy leaves out.
    fs::rename(world.path("a/stub"), world.path("a/stub.told")).unwrap();
    fs::rename(world.path("b"), world.path("b.told")).unwrap();
    world.write("b.told/plain", &other);
    for _ in 0..2 {
        let report = world.optimize();
        assert_eq!((report.emptied.files, report.errors), (0, 0), "{report:?}");
        world.collect();
        world.assert_holds("a/stub.told", &data);
        world.assert_holds("b.told/inner/other", &other);
    }
    assert_eq!(fs::read(world.path("b.told/plain")).unwrap(), other);
}

#[test]
fn what_strangers_call_stubs_among_what_is_left_out_is_nobodys_business() {
    let Some(world) = World::new() else { return };
    world.write("stub", &random_bytes(23, 100_000));
    world.write("strange.told", b"data");
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(world.path("strange.told"), stub::ATTRIBUTE, &[1; 60], set).unwrap();
    assert_eq!(world.optimize().backup.summary.errors, 0);
    world.write("more", &random_bytes(24, 1000));
    let report = world.optimize();
    assert_eq!((report.backup.summary.errors, report.manifests_forgotten), (0, 1));
}

#[test]
fn what_may_be_a_stub_and_cannot_be_told_is_no_reason_to_forget_what_it_needs() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(26, 100_000);
    world.write("stub", &data);
    world.optimize();
    fs::rename(world.path("stub"), world.path("stub.told")).unwrap();
    // As of a later version, which this one cannot open.
    let path = world.path("stub.told");
    let value = stub::value_at(&path).unwrap().unwrap();
    let set = |value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, stub::ATTRIBUTE, value, flags).unwrap();
    };
    set(&[&[200], &value[1..]].concat());
    world.write("more", &random_bytes(27, 1000));
    let report = world.optimize_hearing(std::sync::Arc::new(Deaf));
    assert_eq!((report.backup.summary.errors, report.manifests_forgotten), (1, 0), "{report:?}");
    world.collect();
    set(&value);
    world.assert_holds("stub.told", &data);
}

#[test]
fn a_file_with_a_name_outside_the_share_or_left_out_is_left_alone() {
    let Some(world) = World::new() else { return };
    let elsewhere = tempfile::tempdir_in(world.directory.path().parent().unwrap()).unwrap();
    let data = random_bytes(25, 100_000);
    for name in ["outside", "excluded", "inside"] {
        world.write(name, &data);
    }
    fs::hard_link(world.path("outside"), elsewhere.path().join("name")).unwrap();
    fs::hard_link(world.path("excluded"), world.path("name.told")).unwrap();
    fs::create_dir(world.path("z")).unwrap();
    for name in ["inside 2", "z/inside 3"] {
        fs::hard_link(world.path("inside"), world.path(name)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let report = world.optimize();
    assert_eq!((report.emptied.files, report.files_linked, report.errors), (1, 2, 0), "{report:?}");
    world.collect();
    for whole in [world.path("outside"), elsewhere.path().join("name"), world.path("name.told")] {
        assert_eq!(fs::read(whole).unwrap(), data);
    }
    for stub in ["inside", "inside 2", "z/inside 3"] {
        world.assert_holds(stub, &data);
    }
    // A stub stays one, and keeps its data, whatever names it gets or loses.
    fs::hard_link(world.path("inside"), elsewhere.path().join("stub")).unwrap();
    fs::remove_file(elsewhere.path().join("name")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let report = world.optimize();
    assert_eq!((report.emptied.files, report.files_linked, report.errors), (1, 1, 0), "{report:?}");
    world.collect();
    world.assert_holds("inside", &data);
    world.assert_holds("outside", &data);
}
