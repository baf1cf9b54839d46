//! `mount`: the snapshots as a directory, until it is unmounted.

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::options::FilterArguments;
use crate::store_path;
use clap::Args;
use onefold_engine::retention::candidate;
use onefold_engine::tree::TreeReader;
use onefold_mount::mounting::{clear_leftover, refuse_unusable};
use onefold_mount::{End, MountOptions, Problems, SnapshotFilesystem, Snapshots, mount};
use onefold_store::LET_GO_PERIOD;
use onefold_types::Result;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const AFTER_HELP: &str = "\
The directory shows all snapshots, by id, time, host, tag and path; 'latest' stands in each list.
Nothing is read before it is looked at, and nothing can be changed. Snapshots that are saved or
forgotten meanwhile appear or go. Ctrl-C, or 'umount DIR', ends it; so does 'fusermount3 -u DIR' for
users other than root. What was left by a mount that was killed is taken away by the next one.

EXAMPLES
  onefold mount /mnt/snapshots
  ls /mnt/snapshots/hosts/web/latest/etc
  diff -r /mnt/snapshots/ids/6e3248ee/home /home
  onefold mount --host web --allow-other /mnt/snapshots &";

/// How long somebody waits at the most until a signal or the end of the mount is noticed.
const NOTICED: Duration = Duration::from_millis(50);
/// Threads without which a program that reads on waits for another that reads elsewhere.
const THREADS_MIN: usize = 4;

/// Arguments of `mount`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct MountArguments {
    /// An empty directory
    #[arg(value_name = "DIR")]
    point: PathBuf,
    /// Let other users look as well, each into what the permissions of the files allow
    #[arg(long)]
    allow_other: bool,
    /// Show no extended attributes: programs that ask each file for some, as 'ls -l' does, are
    /// several times faster
    #[arg(long)]
    no_xattrs: bool,
    #[command(flatten)]
    filter: FilterArguments,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &MountArguments) -> Result<Outcome> {
    let point = &arguments.point;
    let shown = point.display().to_string();
    if clear_leftover(point)? {
        context.output.note(&format!("unmounted what was left on '{shown}'"))?;
    }
    if let Some(store) = context.store_directory()? {
        store_path::refuse_inside(point, &store)?;
    }
    refuse_unusable(point)?;
    let repository = context.open_near(Access::Read)?;
    let filter = arguments.filter.filter();
    let select = move |snapshot: &_| filter.matches(&candidate(snapshot));
    let output = Arc::clone(&context.output);
    let problems = Problems::new(Box::new(move |problem| output.warning(problem)));
    let snapshots = Snapshots::load(&repository, Box::new(select), &problems)?;
    let tree = Arc::new(TreeReader::open(&repository)?);
    let running = context.start_job("mounting")?;
    let interrupt = running.job.interrupt.clone();
    running.finish();

    let filesystem = SnapshotFilesystem::new(snapshots, tree, problems, !arguments.no_xattrs);
    let threads = context.threads.max(THREADS_MIN);
    let allow_other = arguments.allow_other;
    let options = MountOptions { name: None, allow_other, threads, is_writable: false };
    let mounted = mount(filesystem, point, &options)?;
    context.output.note(&format!("mounted on '{shown}'; Ctrl-C or 'umount {shown}' ends it"))?;
    context.output.message("mounted", json!({ "directory": shown }))?;
    context.output.flush()?;
    let mut last = Instant::now();
    while !interrupt.is_requested() && !mounted.has_ended() {
        std::thread::sleep(NOTICED);
        if last.elapsed() >= LET_GO_PERIOD {
            repository.store().let_go();
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
