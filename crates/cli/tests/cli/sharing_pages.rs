//! What the kernel keeps of stubs while several programs open, map, read and write them at once.

use crate::mounted::{Mount, can_mount, succeeds};
use crate::sharing::optimize;
use crate::support::Sandbox;
use std::fs;
use std::process::Command;

/// Files that are opened by four threads at the same moment. Two write and sync a stretch each, two
/// read others through a map, or write to them: all find what they wrote, and so do others.
const THREADS: &str = r#"
import mmap, os, sys, threading
directory, files, apart = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
maps_write = sys.argv[4] == "write"
expected = [bytearray(open(f"{directory}/{number}", "rb").read()) for number in range(files)]
together, wrong = threading.Barrier(4), []
def work(thread):
    for number in range(files):
        path, start = f"{directory}/{number}", thread * apart
        data = os.urandom(900)
        together.wait()
        file = os.open(path, os.O_RDWR)
        if thread % 2 == 0:
            os.pwrite(file, data, start)
            os.fsync(file)
        else:
            mapped = mmap.mmap(file, len(expected[number]))
            if maps_write:
                mapped[start:start + 900] = data
            else:
                data = mapped[start:start + 900]
            mapped.close()
        os.close(file)
        expected[number][start:start + 900] = data
        with open(path, "rb") as again:
            again.seek(start)
            if again.read(900) != data:
                wrong.append((number, thread, "at once"))
threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for number in range(files):
    if open(f"{directory}/{number}", "rb").read() != bytes(expected[number]):
        wrong.append((number, "afterwards"))
with open(f"{directory}/../expected", "wb") as whole:
    whole.writelines(bytes(one) for one in expected)
sys.exit(f"{len(wrong)} are wrong: {wrong[:9]}" if wrong else 0)
"#;

/// A share of stubs that four threads work on; they, others and the files afterwards agree.
fn work_on_stubs(apart: u32, maps: &str) {
    const FILES: usize = 80;
    if !can_mount() || !succeeds("python3", &["--version"]) {
        return eprintln!(
            "SKIPPED: maps of stubs were not tested: there is no FUSE, or no python3"
        );
    }
    let sandbox = Sandbox::with_store();
    let share = sandbox.path("share");
    fs::create_dir(&share).unwrap();
    for number in 0..FILES {
        let bytes = crate::collecting::random_bytes(number as u64, 70_000);
        fs::write(share.join(number.to_string()), bytes).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let directory = sandbox.arg("share");
    let create = ["share", "create", "--min-age", "0s", "--min-size", "1", &directory];
    sandbox.run(&create).expect(0);
    assert_eq!(optimize(&sandbox)["files_optimized"], FILES);
    let mount = Mount::share(&sandbox, "share");
    let mut command = Command::new("python3");
    command.args(["-c", THREADS, &directory, &FILES.to_string(), &apart.to_string(), maps]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    mount.end();
    sandbox.run(&["share", "rehydrate", &directory]).expect(0);
    let found: Vec<u8> =
        (0..FILES).flat_map(|number| fs::read(share.join(number.to_string())).unwrap()).collect();
    assert!(found == fs::read(sandbox.path("expected")).unwrap());
}

#[test]
fn r139_a_page_that_is_mapped_shows_what_others_write_meanwhile() {
    work_on_stubs(4096, "read");
}

#[test]
fn r139_what_was_written_and_synced_beside_a_map_stays() {
    work_on_stubs(1000, "write");
}
