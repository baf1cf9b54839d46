//! `share mount` and `share unmount`.

use crate::context::{Access, Context};
use crate::exit::Outcome;
use clap::Args;
use onefold_engine::Repository;
use onefold_engine::primary::Share;
use onefold_engine::tree::TreeReader;
use onefold_mount::mounting::{clear_leftover, is_share, refuse_without_device, unmount_ours};
use onefold_mount::{End, FREE_THREADS, Leftover, MountOptions, Problems, ShareFilesystem};
use onefold_store::LET_GO_PERIOD;
use onefold_types::{Error, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long somebody waits at the most until a signal or the end of the mount is noticed.
const NOTICED: Duration = Duration::from_millis(50);
/// How long the process of a mount may take to end.
const ENDED: Duration = Duration::from_secs(10);
/// Threads without which a program that reads on waits for another that reads elsewhere.
const THREADS_MIN: usize = 4;

/// Arguments of `share mount`.
#[derive(Args, Debug)]
pub struct ShareMountArguments {
    /// The share
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Show it to nobody but this user; if not given, root shows it to all
    #[arg(long)]
    only_me: bool,
}

/// Covers a share by itself.
pub fn mount(context: &Context, arguments: &ShareMountArguments) -> Result<Outcome> {
    let directory = &arguments.directory;
    let shown = directory.display().to_string();
    refuse_without_device()?;
    // As long as what a killed process has left is there, programs hear of an error; as soon as it
    // is gone, they see the bare directory, where stubs are zeros. So it goes when the new mount
    // lies beneath it; where that cannot be, it goes when all is ready but the mount.
    let leftover = Leftover::on(directory);
    let opened = if leftover.is_some() { Some(open(context)?) } else { None };
    let below = leftover.as_ref().and_then(Leftover::below);
    let (share, leftover) = match (leftover, below) {
        (Some(leftover), Some(below)) => {
            (Share::open_covered(leftover.real(), below)?, Some(leftover))
        }
        _ => {
            // It is looked at again: somebody else may have mounted the share meanwhile.
            clear_leftover(directory)?;
            (Share::open_as_seen(directory)?, None)
        }
    };
    let _held = share.lock_mount()?;
    if share.is_mounted() {
        return Err(Error::invalid(format!("'{shown}' is mounted already")));
    }
    let (repository, tree) = opened.map_or_else(|| open(context), Ok)?;
    share.refuse_other_store(&repository)?;
    let output = Arc::clone(&context.output);
    let problems = Problems::new(Box::new(move |problem| output.warning(problem)));
    let running = context.start_job("mounting")?;
    let interrupt = running.job.interrupt.clone();
    running.finish();
    let point = share.shown.clone();
    let threads = context.threads.max(THREADS_MIN);
    let filesystem = ShareFilesystem::new(share, tree, problems, threads)?;
    let (reserve, pages) = (filesystem.reserve(), filesystem.pages());
    let options = MountOptions {
        name: Some(filesystem.name()),
        allow_other: rustix::process::geteuid().is_root() && !arguments.only_me,
        threads: threads + FREE_THREADS,
        is_writable: true,
    };
    let mounted = match leftover {
        Some(leftover) => onefold_mount::mount_instead(filesystem, leftover, &options),
        None => onefold_mount::mount(filesystem, &point, &options),
    }?;
    pages.tell(mounted.notifier());
    let end = format!("Ctrl-C or 'onefold share unmount {shown}' ends it");
    context.output.note(&format!("'{shown}' is mounted; {end}"))?;
    context.output.message("mounted", json!({ "directory": shown }))?;
    context.output.flush()?;
    let mut last = Instant::now();
    while !interrupt.is_requested() && !mounted.has_ended() {
        std::thread::sleep(NOTICED);
        if last.elapsed() >= LET_GO_PERIOD {
            repository.store().let_go();
            if let Err(error) = reserve.fill() {
                context.output.warning(&error.to_string());
            }
            last = Instant::now();
        }
    }
    if mounted.end()? == End::InUse {
        context.output.warning(&format!(
            "'{shown}' was still in use: programs that have something of it open hear of an error"
        ));
    }
    context.output.note(&format!("unmounted '{shown}'"))?;
    Ok(Outcome::Complete)
}

fn open(context: &Context) -> Result<(Arc<Repository>, Arc<TreeReader>)> {
    let repository = context.open(Access::Read)?;
    let tree = Arc::new(TreeReader::open(&repository)?);
    Ok((repository, tree))
}

/// Takes the mount of a share away.
pub fn unmount(context: &Context, directory: &Path) -> Result<Outcome> {
    let shown = directory.display().to_string();
    if clear_leftover(directory)? {
        context.output.note(&format!("unmounted what was left on '{shown}'"))?;
        return Ok(Outcome::Complete);
    }
    if !is_share(directory)? {
        return Err(Error::invalid(format!("'{shown}' is not mounted")));
    }
    unmount_ours(directory)?;
    // Its process lets go of the share a moment later; who mounts it next need not wait for that.
    let share = Share::look_at(directory)?;
    let asked = Instant::now();
    while share.lock_mount().is_err() && asked.elapsed() < ENDED {
        std::thread::sleep(NOTICED);
    }
    context.output.note(&format!("unmounted '{shown}'"))?;
    Ok(Outcome::Complete)
}
