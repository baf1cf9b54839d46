//! What users write, under a short, deterministic fuzzer: profiles, sizes, times, references.

#[path = "../../format/tests/fuzz/mutate.rs"]
mod mutate;

use crate::reference::Location;
use crate::size::ByteSize;
use crate::{config_file, time};
use onefold_policy::retention::KeepSpan;
use onefold_policy::tag_list::TagList;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

const ROUNDS: u64 = 10_000;

fn corpus(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn r81_no_configuration_file_makes_the_program_panic() {
    let texts = [
        "[profile.default]\nrepository = '~/store'\nmemory = '256MiB'\nthreads = 2\n",
        "[profile.a.backup]\nexclude = ['*.tmp']\ntags = ['x,y']\n[profile.a.forget]\n\
         keep-last = 3\nkeep-within = '1y2m'\n",
        "[profile.default]\npassword-file = 'p'\ncompression = 'zstd,3'\n",
    ];
    mutate::run("profile", &corpus(&texts), ROUNDS, &|bytes| {
        let _ = config_file::parse(&String::from_utf8_lossy(bytes), Path::new("/base"));
    });
}

#[test]
fn r81_no_word_of_a_user_makes_the_program_panic() {
    let texts = [
        "8KiB",
        "4.5 MB",
        "18446744073709551615",
        "1e400",
        "2026-01-31 18:30:00",
        "2026-01-31T18:30:00Z",
        "1y2m3d4h",
        "latest~3",
        "latest:/path/to",
        "0123abcd:/p",
        "a,b,c",
        "5%",
    ];
    mutate::run("words", &corpus(&texts), ROUNDS, &|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = text.parse::<ByteSize>().map(ByteSize::in_memory);
        let _ = time::parse(&text);
        let _ = text.parse::<KeepSpan>();
        let _ = text.parse::<TagList>();
        let _ = Location::parse(&OsString::from_vec(bytes.to_vec()));
    });
}
