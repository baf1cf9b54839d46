//! Progress on standard error: a bar with rate and remaining time on a terminal, or JSON lines.
//!
//! | `ONEFOLD_PROGRESS` | terminal | otherwise |
//! | --- | --- | --- |
//! | `auto` (default) | bar | nothing |
//! | `always` | bar | bar; in JSON mode one `status` line a second |
//! | `never` | nothing | nothing |

use crate::output::Output;
use crate::visible;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use onefold_engine::Progress;
use onefold_types::{Error, Result};
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The environment variable that controls progress.
pub const VARIABLE: &str = "ONEFOLD_PROGRESS";

const BAR_INTERVAL: Duration = Duration::from_millis(150);
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
const CURRENT_CHARACTERS_MAX: usize = 60;

/// When progress is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl When {
    /// What the environment asks for.
    pub fn from_environment() -> Result<Self> {
        let Some(value) = std::env::var_os(VARIABLE) else {
            return Ok(Self::Auto);
        };
        match value.to_str() {
            Some("auto") => Ok(Self::Auto),
            Some("always") => Ok(Self::Always),
            Some("never") => Ok(Self::Never),
            _ => Err(Error::invalid(format!(
                "{VARIABLE} is '{}'; it must be auto, always or never",
                value.display()
            ))),
        }
    }
}

/// A display that runs until it is dropped.
pub struct Display {
    output: Arc<Output>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    /// Shows `progress` as `what` until dropped.
    #[must_use]
    pub fn start(
        what: &'static str,
        when: When,
        output: &Arc<Output>,
        progress: &Arc<Progress>,
    ) -> Self {
        let style = output.style();
        let shown = match when {
            When::Never => false,
            When::Always => true,
            When::Auto => !style.json && std::io::stderr().is_terminal(),
        };
        let mut display = Self { output: Arc::clone(output), stop: None, thread: None };
        if !shown || style.quiet {
            return display;
        }
        let (stop, stopped) = mpsc::channel();
        let (output, progress) = (Arc::clone(output), Arc::clone(progress));
        let run = move || match style.json {
            true => show_status(&output, &progress, &stopped),
            false => show_bar(what, &output, &progress, &stopped),
        };
        // A display that cannot be started is no reason to fail.
        display.thread = std::thread::Builder::new().name("progress".to_owned()).spawn(run).ok();
        display.stop = Some(stop);
        display
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.output.set_bar(None);
    }
}

fn goes_on(stopped: &mpsc::Receiver<()>, interval: Duration) -> bool {
    matches!(stopped.recv_timeout(interval), Err(RecvTimeoutError::Timeout))
}

fn show_status(output: &Output, progress: &Progress, stopped: &mpsc::Receiver<()>) {
    let begun = Instant::now();
    while goes_on(stopped, STATUS_INTERVAL) {
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        output.status(json!({
            "seconds_elapsed": begun.elapsed().as_secs(),
            "items_done": get(&progress.items_done),
            "items_total": get(&progress.items_total),
            "bytes_done": get(&progress.bytes_done),
            "bytes_total": get(&progress.bytes_total),
            "current": progress.current(),
        }));
    }
}

fn show_bar(
    what: &'static str,
    output: &Output,
    progress: &Progress,
    stopped: &mpsc::Receiver<()>,
) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_prefix(what);
    output.set_bar(Some(bar.clone()));
    let mut has_total = None;
    while goes_on(stopped, BAR_INTERVAL) {
        let items = progress.items_done.load(Ordering::Relaxed);
        let items_total = progress.items_total.load(Ordering::Relaxed);
        let total = progress.bytes_total.load(Ordering::Relaxed);
        if has_total != Some(total > 0) {
            has_total = Some(total > 0);
            bar.set_style(style(total > 0));
        }
        if total > 0 {
            bar.set_length(total);
        }
        bar.set_position(progress.bytes_done.load(Ordering::Relaxed));
        let count = match items_total {
            0 => format!("{items} items"),
            total => format!("{items}/{total} items"),
        };
        bar.set_message(format!("{count}  {}", shortened(&visible::line(&progress.current()))));
        bar.tick();
    }
    bar.finish_and_clear();
}

fn style(with_total: bool) -> ProgressStyle {
    let template = match with_total {
        true => {
            "{prefix} {percent:>3}%  {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  \
             {eta} left  {wide_msg}"
        }
        false => "{prefix} {elapsed}  {binary_bytes}  {binary_bytes_per_sec}  {wide_msg}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The end of a long name says more than its beginning.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    match count.checked_sub(CURRENT_CHARACTERS_MAX) {
        None | Some(0) => text.to_owned(),
        Some(extra) => text.chars().skip(extra).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_beginning() {
        assert_eq!(shortened("short"), "short");
        let long = format!("{}end", "ä".repeat(100));
        let short = shortened(&long);
        assert_eq!(short.chars().count(), CURRENT_CHARACTERS_MAX);
        assert!(short.ends_with("end"));
    }

    #[test]
    fn both_templates_are_well_formed() {
        for with_total in [true, false] {
            let _ = style(with_total);
        }
    }
}
