//! The table of tools and variants: edit it to follow a tool's command line or to add a variant.
//!
//! A variant of Onefold is one line of [`ONEFOLD`]: its label, what the report says of it, and the
//! arguments it adds to `init` and to `backup`.

use super::{Line, OWN, Tool, Variant};

/// One of the configurations that take part in every measurement.
const fn standard(
    label: &'static str,
    configuration: &'static str,
    init: Line,
    backup: Line,
) -> Variant {
    Variant { label, configuration, standard: true, init, backup }
}

/// A configuration that takes part with `--variants`.
const fn variant(
    label: &'static str,
    configuration: &'static str,
    init: Line,
    backup: Line,
) -> Variant {
    Variant { label, configuration, standard: false, init, backup }
}

const ONEFOLD: &[Variant] = &[
    standard(OWN, "encrypted, default settings", &[], &[]),
    variant("onefold fast", "encrypted, preset fast", &["--preset", "fast"], &[]),
    variant("onefold small", "encrypted, preset small", &["--preset", "small"], &[]),
    variant(
        "onefold fast lz4",
        "encrypted, preset fast, lz4",
        &["--preset", "fast", "--compression", "lz4"],
        &[],
    ),
    variant(
        "onefold fast none",
        "encrypted, preset fast, no compression",
        &["--preset", "fast", "--compression", "none"],
        &[],
    ),
    variant("onefold off", "encrypted, no differences", &["--delta", "off"], &[]),
    variant("onefold zstd,5", "encrypted, zstd level 5", &["--compression", "zstd,5"], &[]),
];

const RESTIC: &[Variant] = &[
    standard("restic", "encrypted, compression auto (default)", &[], &[]),
    variant("restic off", "encrypted, no compression", &[], &["--compression", "off"]),
    variant("restic fastest", "encrypted, fastest compression", &[], &["--compression", "fastest"]),
    variant("restic max", "encrypted, maximal compression", &[], &["--compression", "max"]),
];

const BORG: &[Variant] = &[
    standard("borg lz4", "encrypted (repokey), lz4 (default)", &[], &["-C", "lz4"]),
    standard("borg zstd,1", "encrypted (repokey), zstd level 1", &[], &["-C", "zstd,1"]),
    variant("borg zstd,3", "encrypted (repokey), zstd level 3", &[], &["-C", "zstd,3"]),
    variant("borg zstd,9", "encrypted (repokey), zstd level 9", &[], &["-C", "zstd,9"]),
];

const KOPIA: &[Variant] = &[
    standard("kopia", "encrypted, zstd-fastest", &["--compression", "zstd-fastest"], &[]),
    variant("kopia none", "encrypted, no compression (default)", &["--compression", "none"], &[]),
    variant("kopia zstd", "encrypted, zstd", &["--compression", "zstd"], &[]),
];

const RUSTIC: &[Variant] = &[
    standard("rustic", "encrypted, default settings", &[], &[]),
    variant("rustic 1", "encrypted, zstd level 1", &["--set-compression", "1"], &[]),
    variant("rustic 9", "encrypted, zstd level 9", &["--set-compression", "9"], &[]),
];

/// Every tool that can take part.
pub const TOOLS: &[Tool] = &[
    Tool {
        binary: OWN,
        variants: ONEFOLD,
        version: &["--version"],
        environment: &[("ONEFOLD_REPOSITORY", "{repository}"), ("ONEFOLD_PASSWORD", "benchmark")],
        init: &[&["init", "{init}"]],
        backup: &["backup", "{backup}", "."],
        restore: &["restore", "latest", "--target", "{target}"],
        check: &["check", "--read-data"],
        forget: &[&["forget", "--final", "--group-by", "host", "--keep-last", "{kept}"]],
        collect: &[&["gc"]],
        stream: &["backup", "{backup}", "--stdin", "--stdin-filename", "all.tar"],
    },
    Tool {
        binary: "restic",
        variants: RESTIC,
        version: &["version"],
        environment: &[
            ("RESTIC_REPOSITORY", "{repository}"),
            ("RESTIC_PASSWORD", "benchmark"),
            ("RESTIC_CACHE_DIR", "{home}/.cache/restic"),
        ],
        init: &[&["init"]],
        backup: &["backup", "{backup}", "."],
        restore: &["restore", "latest", "--target", "{target}"],
        check: &["check", "--read-data"],
        forget: &[&["forget", "--group-by", "host", "--keep-last", "{kept}"]],
        collect: &[&["prune"]],
        stream: &["backup", "{backup}", "--stdin", "--stdin-filename", "all.tar"],
    },
    Tool {
        binary: "borg",
        variants: BORG,
        version: &["--version"],
        environment: &[
            ("BORG_REPO", "{repository}"),
            ("BORG_PASSPHRASE", "benchmark"),
            ("BORG_BASE_DIR", "{home}"),
            ("BORG_CACHE_DIR", "{home}/.cache/borg"),
        ],
        init: &[&["init", "-e", "repokey"]],
        backup: &["create", "{backup}", "::{snapshot}", "."],
        restore: &["extract", "::{snapshot}"],
        check: &["check", "--verify-data"],
        forget: &[&["prune", "--keep-last", "{kept}"]],
        collect: &[&["compact"]],
        stream: &["create", "{backup}", "::stream", "-"],
    },
    Tool {
        binary: "kopia",
        variants: KOPIA,
        version: &["--version"],
        environment: &[
            ("KOPIA_PASSWORD", "benchmark"),
            ("KOPIA_CONFIG_PATH", "{home}/kopia.config"),
            ("KOPIA_CACHE_DIRECTORY", "{home}/.cache/kopia"),
            ("KOPIA_LOG_DIR", "{home}/.cache/kopia-logs"),
            ("KOPIA_CHECK_FOR_UPDATES", "false"),
        ],
        init: &[
            &["repository", "create", "filesystem", "--path", "{repository}"],
            &["policy", "set", "--global", "{init}"],
        ],
        backup: &["snapshot", "create", "{backup}", "."],
        restore: &["restore", "--snapshot-time", "latest", "{source}", "{target}"],
        check: &["snapshot", "verify", "--verify-files-percent=100"],
        // Policies hold for each source alone, and every generation is a source.
        forget: &[&["snapshot", "delete", "--all-snapshots-for-source", "--delete", "{forgotten}"]],
        // The first run drops what is forgotten, only the second rewrites what it has left sparse.
        collect: &[
            &["maintenance", "run", "--full", "--safety=none"],
            &["maintenance", "run", "--full", "--safety=none"],
        ],
        stream: &["snapshot", "create", "{backup}", "--stdin-file=all.tar", "{home}"],
    },
    Tool {
        binary: "rustic",
        variants: RUSTIC,
        version: &["--version"],
        environment: &[
            ("RUSTIC_REPOSITORY", "{repository}"),
            ("RUSTIC_PASSWORD", "benchmark"),
            ("RUSTIC_CACHE_DIR", "{home}/.cache/rustic"),
            ("RUSTIC_NO_PROGRESS", "true"),
        ],
        init: &[&["init", "{init}"]],
        backup: &["backup", "{backup}", "."],
        restore: &["restore", "latest", "{target}"],
        check: &["check", "--read-data"],
        forget: &[&["forget", "--group-by", "host", "--keep-last", "{kept}"]],
        collect: &[&["prune", "--instant-delete"]],
        stream: &["backup", "{backup}", "-"],
    },
];
