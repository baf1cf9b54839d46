//! Measures what a put costs: processor time per byte and wall time, beside the same steps done
//! with buffered writes.
//!
//! Usage: `put_cost EMPTY_DIRECTORY [OBJECTS] [OBJECT_BYTES]`. The directory is filled and then
//! removed; run it on the filesystem in question, on an otherwise idle machine.

use onefold_store::{Blobs, Key, LocalStore};
use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const PIECE_BYTES: usize = 1 << 20;

/// Processor time of this thread, user and system.
fn processor_ns() -> Outcome<u64> {
    let line = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(line.split(' ').next().unwrap_or_default().parse()?)
}

fn measure(what: &str, bytes: u64, work: impl FnOnce() -> Outcome) -> Outcome {
    let (before_ns, start) = (processor_ns()?, Instant::now());
    work()?;
    let (cost_ns, seconds) = (processor_ns()? - before_ns, start.elapsed().as_secs_f64());
    println!(
        "{what:10} processor {:.3} ns/B  wall {seconds:.2} s  {:.0} MB/s",
        cost_ns as f64 / bytes as f64,
        bytes as f64 / 1e6 / seconds
    );
    Ok(())
}

fn put_buffered(directory: &Path, name: usize, bytes: &[u8]) -> Outcome {
    let temporary = directory.join("temporary");
    let file = File::create_new(&temporary)?;
    for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        file.write_all_at(piece, (number * PIECE_BYTES) as u64)?;
    }
    file.sync_data()?;
    fs::rename(&temporary, directory.join(name.to_string()))?;
    Ok(File::open(directory)?.sync_all()?)
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().ok_or("name a directory")?);
    let objects: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let size: usize = arguments.next().map_or(Ok(4 << 20), |text| text.parse())?;
    let bytes: Vec<u8> = (0..size).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let total = (objects * size) as u64;

    let store = LocalStore::create(&root)?;
    let keys = (0..objects).map(|number| Key::new(format!("containers/{number}")));
    let keys: Vec<Key> = keys.collect::<Result<_, _>>()?;
    measure("store", total, || {
        keys.iter().try_for_each(|key| store.put(key, &bytes)).map_err(Into::into)
    })?;
    let mut buffer = vec![0; 4096];
    let reads = 100_000;
    let start = Instant::now();
    for number in 0..reads {
        let key = keys.get(number % 32 % keys.len().max(1)).ok_or("no objects")?;
        store.get_range(key, (number % 16 * 64) as u64, &mut buffer[..64.min(size)])?;
    }
    println!("ranged read {:.2} us each", start.elapsed().as_secs_f64() * 1e6 / f64::from(100_000));
    fs::remove_dir_all(&root)?;

    fs::create_dir(&root)?;
    measure("buffered", total, || {
        (0..objects).try_for_each(|number| put_buffered(&root, number, &bytes))
    })?;
    Ok(fs::remove_dir_all(&root)?)
}
