//! Who waits for whom when files of a share are opened.

use onefold_mount::share::open_files::OpenFiles;
use std::sync::mpsc::channel;
use std::time::Duration;

/// What takes longer than this waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);
/// What would be done at once is done by then.
const MOMENT: Duration = Duration::from_millis(200);

#[test]
fn whoever_opens_a_file_waits_for_nobody_who_opens_another_one() {
    let files = OpenFiles::default();
    std::thread::scope(|scope| {
        let first = files.opening(7);
        let (done, is_done) = channel();
        let others = done.clone();
        let files = &files;
        scope.spawn(move || {
            for number in (0..200).filter(|number| *number != 7) {
                drop(files.opening(number));
            }
            others.send(()).unwrap();
        });
        let waited = is_done.recv_timeout(PATIENCE);
        // The same one has to wait.
        scope.spawn(move || {
            drop(files.opening(7));
            done.send(()).unwrap();
        });
        let came_first = is_done.recv_timeout(MOMENT);
        drop(first);
        assert!(waited.is_ok(), "another number was waited for");
        assert!(came_first.is_err(), "one file was opened by two at once");
        is_done.recv_timeout(PATIENCE).unwrap();
    });
}
