//! Which partition a file belongs to: chunks are compared within a partition first.
//!
//! ATC'12 divides the files of a server so that the index of only one partition has to be in
//! memory, by file type, by path ([`super::path_partitions`]) or by volume, and compares partitions
//! with each other later ([`super::reconcile`]). By type costs least: files of different types
//! hardly share a chunk. The paper does not say what a type is; here it is a class of endings, so
//! that there are few partitions, however many endings people think of, and a file that is renamed
//! within its class stays where it is.
//!
//! Invariants: every file belongs to exactly one partition, and its number is less than the count;
//! nothing but the file's path and volume decides.

use super::path_partitions::PathPartitions;
use std::cmp::Reverse;

/// The longest ending that counts.
const ENDING_BYTES_MAX: usize = 12;

/// What kind of content a file's name promises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FileClass {
    /// Plain text of any kind: notes, sources, settings, markup.
    Text,
    /// Documents of office programs, and pages for printing.
    Documents,
    /// Pictures, sound, films, fonts: mostly compressed.
    Media,
    /// Archives and packages: mostly compressed.
    Archives,
    /// What a machine runs, and what that is linked from.
    Programs,
    /// Images of disks and of machines' memory.
    DiskImages,
    /// Databases, mailboxes, caches.
    Data,
    /// Files without an ending.
    Unnamed,
    /// All others.
    Other,
}

/// The endings of each class that has any.
const ENDINGS: [(FileClass, &[&str]); 7] = [
    (
        FileClass::Text,
        &[
            "txt", "md", "rst", "csv", "tsv", "log", "json", "xml", "yaml", "yml", "toml", "ini",
            "cfg", "conf", "html", "htm", "css", "js", "mjs", "ts", "tsx", "jsx", "map", "c", "h",
            "cc", "cpp", "cxx", "hh", "hpp", "inc", "s", "asm", "rs", "go", "py", "pyi", "pl",
            "pm", "rb", "java", "kt", "cs", "php", "sh", "bash", "lua", "tcl", "el", "lisp", "hs",
            "ml", "sql", "tex", "po", "pot", "m4", "am", "ac", "cmake", "mk", "patch", "diff",
            "svg", "lock", "stderr", "stdout", "bat", "ps1", "vb", "swift", "scala", "r", "f",
            "f90", "d", "tmpl", "vim", "srt",
        ],
    ),
    (
        FileClass::Documents,
        &[
            "pdf", "doc", "docx", "dot", "dotx", "xls", "xlsx", "xlsm", "ppt", "pptx", "odt",
            "ods", "odp", "rtf", "ps", "eps", "djvu", "epub", "vsd", "one",
        ],
    ),
    (
        FileClass::Media,
        &[
            "jpg", "jpeg", "png", "gif", "bmp", "tif", "tiff", "webp", "ico", "heic", "raw", "psd",
            "mp3", "wav", "flac", "ogg", "opus", "m4a", "aac", "wma", "mp4", "mkv", "avi", "mov",
            "wmv", "webm", "mpg", "mpeg", "ttf", "otf", "woff", "woff2", "pfb",
        ],
    ),
    (
        FileClass::Archives,
        &[
            "zip", "gz", "tgz", "bz2", "xz", "zst", "lz4", "7z", "rar", "tar", "cab", "deb", "rpm",
            "jar", "war", "whl", "egg", "apk", "crate", "msi", "nupkg", "gem",
        ],
    ),
    (
        FileClass::Programs,
        &[
            "exe", "dll", "sys", "so", "dylib", "o", "obj", "a", "lib", "ko", "rlib", "rmeta",
            "pyc", "pyo", "class", "wasm", "node", "pdb", "elf", "bc", "gch",
        ],
    ),
    (
        FileClass::DiskImages,
        &[
            "vhd", "vhdx", "vmdk", "vdi", "qcow", "qcow2", "img", "iso", "wim", "dmg", "vmem",
            "avhd",
        ],
    ),
    (
        FileClass::Data,
        &[
            "db", "sqlite", "sqlite3", "mdb", "accdb", "mdf", "ldf", "edb", "pst", "ost", "mbox",
            "eml", "msg", "dat", "bin", "idx", "pack", "cache", "mo", "gmo", "dump", "parquet",
            "npy", "pickle", "pkl",
        ],
    ),
];

impl FileClass {
    /// Every class, in the order of their partitions.
    pub const ALL: [Self; 9] = [
        Self::Text,
        Self::Documents,
        Self::Media,
        Self::Archives,
        Self::Programs,
        Self::DiskImages,
        Self::Data,
        Self::Unnamed,
        Self::Other,
    ];

    /// The class of a file, by the ending of its name.
    #[must_use]
    pub fn of(path: &[u8]) -> Self {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let mut parts = name.rsplit(|byte| *byte == b'.');
        let ending = parts.next().unwrap_or_default();
        // A name that begins with its only dot has no ending.
        if ending.len() + 1 >= name.len() {
            return Self::Unnamed;
        }
        // Libraries of which the name ends in a version.
        if ending.iter().all(u8::is_ascii_digit) && parts.any(|part| part == b"so") {
            return Self::Programs;
        }
        if ending.is_empty() || ending.len() > ENDING_BYTES_MAX {
            return Self::Other;
        }
        let is_ours = |known: &&str| known.as_bytes().eq_ignore_ascii_case(ending);
        let class = ENDINGS.iter().find(|(_, endings)| endings.iter().any(&is_ours));
        class.map_or(Self::Other, |(class, _)| *class)
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Documents => "documents",
            Self::Media => "media",
            Self::Archives => "archives",
            Self::Programs => "programs",
            Self::DiskImages => "disk images",
            Self::Data => "data",
            Self::Unnamed => "no ending",
            Self::Other => "other",
        }
    }
}

/// What of a file decides.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts<'a> {
    /// Its path below the share.
    pub path: &'a [u8],
    /// The device that it is on.
    pub volume: u64,
}

/// How files are divided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Partitioning {
    /// Not at all.
    Whole,
    /// By class.
    Type,
    /// By sub-tree.
    Path(PathPartitions),
    /// By device, in rising order. What is on none of them is one more partition.
    Volume(Vec<u64>),
}

impl Partitioning {
    /// By the devices that there are.
    #[must_use]
    pub fn by_volume(mut volumes: Vec<u64>) -> Self {
        volumes.sort_unstable();
        volumes.dedup();
        Self::Volume(volumes)
    }

    /// The partition that a file belongs to.
    #[must_use]
    pub fn partition_of(&self, file: FileFacts<'_>) -> usize {
        match self {
            Self::Whole => 0,
            Self::Type => FileClass::of(file.path) as usize,
            Self::Path(partitions) => partitions.partition_of(file.path),
            Self::Volume(volumes) => volumes.binary_search(&file.volume).unwrap_or(volumes.len()),
        }
    }

    /// Whether files of a partition may lie below a directory.
    #[must_use]
    pub fn may_lie_below(&self, directory: &[u8], partition: usize) -> bool {
        match self {
            Self::Path(partitions) => partitions.partitions_below(directory).contains(&partition),
            Self::Whole | Self::Type | Self::Volume(_) => true,
        }
    }

    /// How many partitions there are, at least one; some may be empty.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Whole => 1,
            Self::Type => FileClass::ALL.len(),
            Self::Path(partitions) => partitions.count(),
            Self::Volume(volumes) => volumes.len() + 1,
        }
    }
}

/// Puts partitions together so that there are at most `count`, of about equal size: gives for each
/// the number of its group. The largest is dealt with first and goes where there is least.
#[must_use]
pub fn balance(bytes: &[u64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bytes.len()).collect();
    let bytes_of = |partition: usize| bytes.get(partition).copied().unwrap_or(0);
    order.sort_by_key(|partition| Reverse(bytes_of(*partition)));
    let mut sums = vec![0u64; count.max(1)];
    let mut groups = vec![0; bytes.len()];
    for partition in order {
        let least = (0..).zip(&sums).min_by_key(|(_, sum)| **sum).map_or(0, |(group, _)| group);
        if let Some((sum, group)) = sums.get_mut(least).zip(groups.get_mut(partition)) {
            *sum = sum.saturating_add(bytes_of(partition));
            *group = least;
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn classes_follow_the_ending() {
        let cases = [
            ("a/notes.TXT", FileClass::Text),
            ("a.b/report.docx", FileClass::Documents),
            ("x.tar.gz", FileClass::Archives),
            ("lib/libc.so.6", FileClass::Programs),
            ("lib/libz.so.1.2.13", FileClass::Programs),
            ("notes.1", FileClass::Other),
            ("disk.vhdx", FileClass::DiskImages),
            ("a.txt/README", FileClass::Unnamed),
            (".bashrc", FileClass::Unnamed),
            ("x", FileClass::Unnamed),
            ("", FileClass::Unnamed),
            ("strange.", FileClass::Other),
            ("strange.anendingthatislong", FileClass::Other),
            ("mail.pst", FileClass::Data),
            ("song.mp3", FileClass::Media),
        ];
        for (path, class) in cases {
            assert_eq!(FileClass::of(path.as_bytes()), class, "{path}");
        }
    }

    #[test]
    fn an_ending_has_one_class_and_is_short_enough() {
        let all: Vec<&str> = ENDINGS.iter().flat_map(|(_, endings)| *endings).copied().collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(all.iter().all(|ending| ending.len() <= ENDING_BYTES_MAX));
        for (class, endings) in ENDINGS {
            for ending in endings {
                assert_eq!(FileClass::of(format!("a/b.{ending}").as_bytes()), class, "{ending}");
            }
        }
        for (number, class) in FileClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, number);
        }
        let names: BTreeSet<&str> = FileClass::ALL.iter().map(|class| class.name()).collect();
        assert_eq!(names.len(), FileClass::ALL.len());
        assert_eq!(FileClass::DiskImages.name(), "disk images");
    }

    #[test]
    fn a_volume_is_a_partition_and_unknown_ones_share_one() {
        let partitioning = Partitioning::by_volume(vec![9, 4, 9]);
        let partition = |volume| partitioning.partition_of(FileFacts { path: b"x", volume });
        assert_eq!(partitioning.count(), 3);
        assert_eq!([4, 9, 5, 1].map(partition), [0, 1, 2, 2]);
    }

    #[test]
    fn a_file_is_in_a_partition_that_may_lie_below_every_directory_above_it() {
        let paths: Vec<String> = ["a", "a.c", "a/b", "a/b/c", "b"]
            .iter()
            .flat_map(|above| (0..5).map(move |file| format!("/{above}/{file}")))
            .collect();
        let files: Vec<(&[u8], u64)> = paths.iter().map(|path| (path.as_bytes(), 10)).collect();
        for share in [0.04, 0.1, 0.2, 0.5] {
            let partitions = PathPartitions::divide(&files, share);
            let partitioning = Partitioning::Path(partitions);
            let mut left_out = 0;
            for path in &paths {
                let path = path.as_bytes();
                let partition = partitioning.partition_of(FileFacts { path, volume: 0 });
                for end in (0..path.len()).filter(|at| path[*at] == b'/') {
                    assert!(partitioning.may_lie_below(&path[..end], partition), "{share}");
                }
            }
            for partition in 0..partitioning.count() {
                left_out += u32::from(!partitioning.may_lie_below(b"/a/b", partition));
            }
            assert!(left_out > 0, "{share}");
        }
    }

    #[test]
    fn partitions_are_put_together_evenly() {
        let groups = balance(&[5, 50, 30, 20, 10], 3);
        let sums: Vec<u64> = (0..3)
            .map(|group| {
                let of_group = groups.iter().zip([5, 50, 30, 20, 10]);
                of_group.filter(|(one, _)| **one == group).map(|(_, bytes)| bytes).sum()
            })
            .collect();
        assert_eq!(sums, [50, 35, 30]);
        assert_eq!(balance(&[1, 2], 0), [0, 0]);
        assert!(balance(&[], 3).is_empty());
    }

    proptest! {
        #[test]
        fn every_file_is_in_one_of_the_partitions(
            path in proptest::collection::vec(any::<u8>(), 0..40), volume: u64, other: u64,
        ) {
            let file = FileFacts { path: &path, volume };
            let by_path = PathPartitions::divide(&[(b"a/b", 5), (b"c", 5)], 0.5);
            for partitioning in [
                Partitioning::Whole,
                Partitioning::Type,
                Partitioning::Path(by_path),
                Partitioning::by_volume(vec![other]),
            ] {
                let partition = partitioning.partition_of(file);
                prop_assert!(partition < partitioning.count());
                let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
                for end in slashes {
                    prop_assert!(partitioning.may_lie_below(&path[..end], partition));
                }
            }
        }
    }
}
