//! What requests are answered from: a buffer for each thread, used again and again. Memory that is
//! asked for anew comes as pages that do not exist yet, which costs more than filling them.
//!
//! Memory: for each thread as much as the kernel asks for at once, a MiB.

use std::cell::RefCell;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Does something with a buffer of some bytes, which hold anything.
pub fn with_buffer<T>(length: u32, work: impl FnOnce(&mut [u8]) -> T) -> T {
    let length = length as usize;
    BUFFER.with(|buffer| match buffer.try_borrow_mut() {
        Ok(mut buffer) => {
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            work(&mut buffer[..length])
        }
        // Whoever answers one request asks for no other.
        Err(_) => work(&mut vec![0; length]),
    })
}
