//! A small file server, and two disks of machines: what there is without real data.
//!
//! Users have copies of the same documents, some of them edited, pictures that nobody else has, and
//! the libraries of one of two programs; some keep a copy under another ending. So most of what is
//! there twice is there in another user's directory under the same type. The second disk is the
//! first one with some blocks changed. All bytes are random: runs would force cuts.

use crate::source::content;
use onefold_types::Result;
use onefold_types::error::Context;
use std::fs;
use std::path::Path;

const USERS: u64 = 24;
const DISK_BLOCKS: u64 = 24;
const BLOCK_BYTES: usize = 16_384;

/// Writes both below `place`; `scale` multiplies what each user has.
pub(super) fn write(place: &Path, scale: u64) -> Result<()> {
    for user in 0..USERS {
        for number in 0..2 * scale {
            let shared = 1000 + (user / 2 + number) % (3 * scale);
            let mut document = bytes(shared, 24_000)?;
            if (user + number) % 3 == 0 {
                document.splice(9000..9010, bytes(user * 100 + number, 40)?);
            }
            put(place, &format!("file-server/user-{user}/d-{number}.docx"), &document)?;
            if user % 8 == 5 {
                put(place, &format!("file-server/user-{user}/old/d-{number}.bak"), &document)?;
            }
            let picture = bytes(5_000_000 + user * 1000 + number, 20_000)?;
            put(place, &format!("file-server/user-{user}/p-{number}.jpg"), &picture)?;
            let library = bytes(9_000_000 + user % 2 * 1000 + number, 16_000)?;
            put(place, &format!("file-server/user-{user}/lib/l-{number}.so"), &library)?;
        }
    }
    for disk in 0..2 {
        let mut image = Vec::new();
        for block in 0..DISK_BLOCKS * scale {
            let is_changed = disk == 1 && block % 9 == 0;
            let number = if is_changed { 7_700_000 + block } else { 8_800_000 + block };
            image.extend(bytes(number, BLOCK_BYTES)?);
        }
        put(place, &format!("machines/disk-{disk}.img"), &image)?;
    }
    Ok(())
}

fn bytes(number: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    content::append(number, length, 1.0, &mut bytes)?;
    Ok(bytes)
}

fn put(place: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = place.join(name);
    let what = || format!("writing {name}");
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).context(what)?;
    }
    fs::write(&path, bytes).context(what)
}
