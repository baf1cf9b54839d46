//! The workloads of the experiments: ten versions each, of which at least 93 % of the chunks were
//! seen before (S2.33).
//!
//! The paper's traces cannot be had. What makes them hard is that a version refers to many
//! containers that hold little of it, so these differ in how many and how little: from one long
//! file that is overwritten here and there to homes whose files wander about.

use super::versions::Versions;
use crate::source::fsl::FslTrace;
use crate::source::generator::{Generator, Parameters, Preset};
use crate::source::tree::{self, Layout};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_types::Result;
use onefold_types::error::Context;
use std::path::{Path, PathBuf};

/// Versions of each.
pub const VERSIONS: u32 = 10;
/// Generations that some of them went through before the first version was stored.
const HISTORY: u32 = 10;
/// Chunks of a version, by the form.
const CHUNKS: usize = 100_000;
const CHUNKS_TINY: usize = 30_000;

/// Those of the tiny form.
const NAMES_TINY: [&str; 3] = ["mail", "homes-2", "strays"];

/// What all generated workloads have in common.
fn base(chunks: usize, name: &str, seed: u64) -> Parameters {
    Parameters {
        name: name.to_owned(),
        seed,
        generations: VERSIONS,
        generations_min: VERSIONS,
        streams: 1,
        deletion: None,
        chunk_min_bytes: 2048,
        chunk_max_bytes: 6144,
        self_reference: 0.0,
        ..Parameters::preset(Preset::Scattered, chunks)
    }
}

/// Workloads whose changes stay together.
fn together(chunks: usize) -> [Parameters; 3] {
    [
        // One mail database: few large files, overwritten in stretches.
        Parameters {
            file_chunks: 512.0,
            deleted_share: 0.005,
            added_share: 0.005,
            cluster_files: 1.0,
            changed_share: 0.05,
            run_chunks: 32.0,
            ..base(chunks, "mail", 1)
        },
        // Source code: small files come and go together, some change.
        Parameters {
            file_chunks: 4.0,
            deleted_share: 0.02,
            added_share: 0.02,
            moved_share: 0.02,
            cluster_files: 8.0,
            changed_share: 0.03,
            run_chunks: 2.0,
            ..base(chunks, "code", 2)
        },
        // Few hot files.
        Parameters {
            hot_files: 0.1,
            hot_changes: 0.85,
            changed_share: 0.04,
            run_chunks: 16.0,
            moved_share: 0.02,
            ..base(chunks, "hot", 3)
        },
    ]
}

/// Workloads in which a container holds a few chunks of many places.
fn torn(chunks: usize) -> [Parameters; 4] {
    [
        // Homes whose files are moved about, in two degrees.
        Parameters {
            file_chunks: 16.0,
            moved_share: 0.01,
            cluster_files: 1.0,
            changed_share: 0.04,
            ..base(chunks, "homes-1", 4)
        },
        Parameters {
            file_chunks: 6.0,
            moved_share: 0.004,
            cluster_files: 1.0,
            changed_share: 0.04,
            run_chunks: 3.0,
            ..base(chunks, "homes-2", 5)
        },
        // Data that is copied from place to place, in pieces and in very small ones, and had been
        // for long when the first version was stored.
        Parameters {
            generations: VERSIONS + HISTORY,
            generations_min: VERSIONS + HISTORY,
            changed_share: 0.06,
            run_chunks: 8.0,
            self_reference: 0.05,
            ..base(chunks, "clones", 6)
        },
        Parameters {
            generations: VERSIONS + HISTORY,
            generations_min: VERSIONS + HISTORY,
            changed_share: 0.04,
            run_chunks: 2.0,
            self_reference: 0.03,
            ..base(chunks, "strays", 7)
        },
    ]
}

/// The parameters of all generated workloads.
fn parameters(chunks: usize) -> impl Iterator<Item = Parameters> {
    together(chunks).into_iter().chain(torn(chunks))
}

/// The generated workloads.
///
/// # Errors
/// None that the parameters do not rule out.
pub fn generated(tiny: bool) -> Result<Vec<Versions>> {
    let chunks = if tiny { CHUNKS_TINY } else { CHUNKS };
    let chosen = parameters(chunks).filter(|one| !tiny || NAMES_TINY.contains(&one.name.as_str()));
    chosen.map(of_parameters).collect()
}

fn of_parameters(parameters: Parameters) -> Result<Versions> {
    let history = parameters.generations.saturating_sub(VERSIONS);
    let name = parameters.name.clone();
    let mut versions = Versions::of(&name, &Generator::new(parameters)?)?;
    versions.versions.retain(|version| version.generation >= history);
    for version in &mut versions.versions {
        version.generation -= history;
    }
    Ok(versions)
}

/// The workload that stands for the paper's MAC2.
///
/// # Errors
/// None that the parameters do not rule out.
pub fn papers_example(tiny: bool) -> Result<Versions> {
    let chunks = if tiny { CHUNKS_TINY } else { CHUNKS };
    let [_, example, ..] = torn(chunks);
    of_parameters(example)
}

/// Generated workloads, and the versions in a directory if one is given.
///
/// # Errors
/// The directory cannot be read.
pub fn all(tiny: bool, data: Option<&Path>) -> Result<Vec<Versions>> {
    let mut workloads = generated(tiny)?;
    if let Some(data) = data {
        workloads.push(real(data)?);
    }
    Ok(workloads)
}

/// The name of real versions.
pub const REAL: &str = "real data";

/// Real versions: traces (`.hash.anon`) in the order of their names, or else directories, cut into
/// chunks of about 4 KiB.
fn real(data: &Path) -> Result<Versions> {
    let what = || format!("listing {}", data.display());
    let mut traces: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(data).context(what)? {
        let path = entry.context(what)?.path();
        let is_trace = path.to_string_lossy().ends_with(".hash.anon");
        traces.extend(is_trace.then_some(path));
    }
    if !traces.is_empty() {
        traces.sort_unstable();
        return Versions::of(REAL, &FslTrace::new(REAL, traces));
    }
    let parameters = ChunkerParameters::with_average(ChunkerKind::FastCdc, 4096)?;
    let trace = tree::read_versions(REAL, &tree::versions(data)?, &parameters, Layout::Files)?;
    Versions::of(REAL, &trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::{self, Options};
    use onefold_engine::environment::SystemClock;

    #[test]
    fn the_workloads_are_as_the_paper_describes_its_own() {
        let workloads = generated(true).unwrap();
        assert_eq!(workloads.len(), NAMES_TINY.len());
        assert!(parameters(CHUNKS).count() >= 6);
        for one in &workloads {
            assert_eq!(one.versions.len(), VERSIONS as usize, "{}", one.name);
            assert!(one.seen_share() >= 0.93, "{}: {}", one.name, one.seen_share());
            let generations: Vec<u32> = one.versions.iter().map(|one| one.generation).collect();
            assert_eq!(generations, (0..VERSIONS).collect::<Vec<_>>(), "{}", one.name);
            for version in &one.versions {
                let chunks = version.chunks.len() as f64 / CHUNKS_TINY as f64;
                assert!((0.85..1.2).contains(&chunks), "{}: {chunks}", one.name);
            }
        }
        let example = papers_example(true).unwrap();
        assert!(workloads.iter().any(|one| one.name == example.name));
    }

    #[test]
    fn real_versions_are_directories_or_traces() {
        let place = tempfile::tempdir().unwrap();
        let (data, traces) = (place.path().join("data"), place.path().join("traces"));
        std::fs::create_dir(&traces).unwrap();
        let mut words: String = (0..40_000).map(|number| format!("{number} ")).collect();
        for version in ["v1", "v2"] {
            let root = data.join(version);
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(root.join("words"), &words).unwrap();
            words.push_str("more");
            let options = Options::new(ChunkerKind::FastCdc, 4096).unwrap();
            let trace = traces.join(format!("{version}.hash.anon"));
            crawl::crawl(&root, &trace, &options, &SystemClock).unwrap();
        }
        let read = |data: &Path| real(data).unwrap();
        for versions in [read(&data), read(&traces)] {
            let counts: Vec<usize> =
                versions.versions.iter().map(|version| version.chunks.len()).collect();
            assert!(counts.len() == 2 && counts[0] > 30, "{counts:?}");
            assert!(versions.seen_share() > 0.9 && versions.seen_share() < 1.0);
        }
        assert!(real(&place.path().join("absent")).unwrap_err().to_string().contains("absent"));
        assert!(all(true, Some(&data)).unwrap().last().unwrap().name == REAL);
    }
}
