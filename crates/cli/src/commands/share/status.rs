//! `share status`.

use super::lost;
use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::size::{counted, human};
use onefold_engine::primary::{Share, status as engine};
use onefold_types::Result;
use serde_json::json;
use std::path::Path;

/// Says what of a share is optimised, saved, recalled.
pub fn status(context: &Context, directory: &Path) -> Result<Outcome> {
    let share = Share::look_at(directory)?;
    let repository = context.open(Access::Read)?;
    let running = context.start_job("looking at files")?;
    let found = engine::status(&repository, &share, &running.job);
    let problems = running.finish();
    let found = found?;
    let row = |name: &str, value: String| context.output.row(&format!("{name:<14}{value}"));
    row("share", share.id.to_string())?;
    row("mounted", if found.is_mounted { "yes" } else { "no" }.to_owned())?;
    row("files", format!("{}, {}", counted(found.files, "file"), human(found.bytes)))?;
    row("optimised", format!("{}, {}", counted(found.stubs, "file"), human(found.stub_bytes)))?;
    row("saved", format!("{}, which only the store holds", human(found.saved_bytes)))?;
    row("recalled", human(found.recalled_bytes))?;
    row("on the disk", human(found.disk_bytes))?;
    let complaint = share.complaint();
    complaint.iter().for_each(|complaint| context.output.warning(complaint));
    lost::warn_of_others(context, &found.elsewhere);
    for path in &found.foreign {
        context.output.warning(&format!("{path}: a stub of another file, share or store"));
    }
    for problem in &found.problems {
        context.output.warning(problem);
    }
    context.output.message(
        "share_status",
        json!({
            "share": share.id.to_string(),
            "standing": share.standing().name(),
            "addresses": share.addresses().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "mounted": found.is_mounted,
            "files": found.files,
            "bytes": found.bytes,
            "bytes_on_disk": found.disk_bytes,
            "files_optimized": found.stubs,
            "bytes_optimized": found.stub_bytes,
            "bytes_saved": found.saved_bytes,
            "bytes_recalled": found.recalled_bytes,
            "files_lost": found.lost,
            "foreign_stubs": found.foreign,
            "problems": found.problems,
            "manifests": found.manifests.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "manifests_elsewhere":
                found.elsewhere.iter().map(|other| other.id.to_string()).collect::<Vec<_>>(),
        }),
    )?;
    let told = found.problems.len() + found.foreign.len() + usize::from(complaint.is_some());
    Ok(Outcome::with_problems(problems + told as u64))
}
