//! What a job shows while it runs.

use crate::ingest::{backup_options, create, in_memory, make_tree, options, paths};
use onefold_engine::Job;
use onefold_engine::ingest::{Source, backup};
use onefold_engine::job::Progress;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Gives half of its bytes, and the rest once these are shown as read.
struct Watching {
    given: u64,
    progress: Arc<Progress>,
}

const WATCHED_BYTES: u64 = 64 << 20;

impl Read for Watching {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.given == WATCHED_BYTES / 2 {
            let began = Instant::now();
            while self.progress.bytes_done.load(Ordering::Relaxed) < WATCHED_BYTES / 4 {
                assert!(began.elapsed() < Duration::from_secs(60), "nothing is shown");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let left = WATCHED_BYTES / 2 - self.given % (WATCHED_BYTES / 2);
        let length = buffer.len().min(left as usize);
        if self.given == WATCHED_BYTES {
            return Ok(0);
        }
        buffer[..length].fill(7);
        self.given += length as u64;
        Ok(length)
    }
}

#[test]
fn a_large_file_shows_how_far_it_is() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let (job, _) = Job::unattended();
    let reader = Box::new(Watching { given: 0, progress: Arc::clone(&job.progress) });
    let source = Source::Stream { name: b"zeros".to_vec(), reader, finish: Box::new(|| Ok(())) };
    backup(&repository, source, &backup_options(), &job).unwrap();
    assert_eq!(job.progress.bytes_done.load(Ordering::Relaxed), WATCHED_BYTES);

    // What is read and what is not count once each.
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    for _ in 0..2 {
        let (job, _) = Job::unattended();
        let report = backup(&repository, paths(source.path()), &backup_options(), &job).unwrap();
        assert_eq!(job.progress.bytes_done.load(Ordering::Relaxed), report.summary.bytes);
    }
}
