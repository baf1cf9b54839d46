//! What machine this is, and how busy it is with other things.
//!
//! Everything comes from `/proc`. Nothing here names a path or a host of the machine.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// The facts about a machine that a reader of figures needs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Logical processors that can be used.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// File system that holds the repositories.
    pub repositories: String,
    /// File system that is restored to.
    pub restores: String,
}

impl Machine {
    /// Describes this machine.
    pub fn describe(repositories: &Path, restores: &Path) -> io::Result<Machine> {
        let processor = field(&fs::read_to_string("/proc/cpuinfo")?, "model name");
        let memory = field(&fs::read_to_string("/proc/meminfo")?, "MemTotal");
        let kibibytes = memory.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        Ok(Machine {
            processor,
            cores: std::thread::available_parallelism()?.get(),
            memory_mib: kibibytes / 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_string(),
            repositories: file_system_of(repositories)?,
            restores: file_system_of(restores)?,
        })
    }
}

/// The value of the first `name: value` line of that name.
fn field(text: &str, name: &str) -> String {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map_or_else(|| "unknown".to_string(), |(_, value)| value.trim().to_string())
}

/// The kind of file system that holds `path`, as `ext4`.
pub fn file_system_of(path: &Path) -> io::Result<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(kind_of_mount(&mounts, &path.canonicalize()?))
}

/// Picks the deepest mount over `path`; of two on the same place, the later one hides the earlier.
fn kind_of_mount(mounts: &str, path: &Path) -> String {
    mounts
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = Path::new(before.split(' ').nth(4)?);
            let depth = path.starts_with(point).then(|| point.components().count())?;
            Some((depth, after.split(' ').next()?))
        })
        .max_by_key(|(depth, _)| *depth)
        .map_or_else(|| "unknown".to_string(), |(_, kind)| kind.to_string())
}

/// The load averages over 1, 5 and 15 minutes, as the kernel prints them.
pub fn load() -> io::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// CPU time spent since the start of the machine, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// By all processes and the kernel.
    busy: u64,
    /// Taken by other guests of the same host.
    stolen: u64,
    /// Everything, idle included, over all processors.
    total: u64,
    /// By this program and the commands it has waited for.
    own: u64,
}

impl Ticks {
    /// Reads the counters.
    pub fn now() -> io::Result<Ticks> {
        let machine = fs::read_to_string("/proc/stat")?;
        let own = fs::read_to_string("/proc/self/stat")?;
        parse_ticks(&machine, &own).ok_or_else(|| io::Error::other("/proc/stat is not understood"))
    }

    /// The share of the machine that others used since `earlier`, from 0 to 1.
    pub fn share_of_others(&self, earlier: &Ticks) -> f64 {
        let busy = (self.busy - earlier.busy) + (self.stolen - earlier.stolen);
        let foreign = busy.saturating_sub(self.own - earlier.own);
        let total = (self.total - earlier.total).max(1);
        foreign as f64 / total as f64
    }
}

fn parse_ticks(machine: &str, own: &str) -> Option<Ticks> {
    let line = machine.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> = line.split_whitespace().map_while(|n| n.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, stolen; guests are part of user.
    let [user, nice, system, idle, wait, irq, soft, stolen] = *numbers.first_chunk::<8>()?;
    let busy = user + nice + system + irq + soft;
    // The program's name, in parentheses, may hold anything; CPU times are the 14th to 17th field,
    // which is the 12th to 15th after the name.
    let (_, after_name) = own.rsplit_once(") ")?;
    let times = after_name.split(' ').skip(11).take(4).map_while(|n| n.parse::<u64>().ok());
    Some(Ticks { busy, stolen, total: busy + idle + wait + stolen, own: times.sum() })
}

/// The first line that a command prints, if it is there and succeeds.
pub fn first_line_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().trim().to_string();
    output.status.success().then_some(line)
}

/// Today, as `2026-11-21`, in UTC.
pub fn today() -> String {
    first_line_of("date", &["-u", "+%F"]).unwrap_or_else(|| "undated".to_string())
}

/// The commit of the working directory's repository, and whether there are changes on top.
pub fn commit() -> String {
    let Some(commit) = first_line_of("git", &["rev-parse", "--short=12", "--verify", "HEAD"])
    else {
        return "unknown".to_string();
    };
    match first_line_of("git", &["status", "--porcelain"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} with changes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: Fast One\nmodel name\t: Other\n";
        assert_eq!(field(text, "model name"), "Fast One");
        assert_eq!(field(text, "bogomips"), "unknown");
        assert_eq!(field("MemTotal:       24682064 kB\n", "MemTotal"), "24682064 kB");
    }

    #[test]
    fn the_deepest_mount_counts() {
        let mounts = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:26 / /dev/shm rw - tmpfs tmpfs rw
31 22 0:27 / /dev rw - devtmpfs udev rw
";
        assert_eq!(kind_of_mount(mounts, Path::new("/dev/shm/x")), "tmpfs");
        assert_eq!(kind_of_mount(mounts, Path::new("/dev/shmx")), "devtmpfs");
        assert_eq!(kind_of_mount(mounts, Path::new("/home")), "ext4");
    }

    #[test]
    fn ticks_are_parsed_whatever_the_name() {
        let machine = "cpu  100 10 50 800 20 5 5 10 7 0\ncpu0 1 1 1\n";
        let own = "42 (a ) b) S 1 42 42 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1";
        let ticks = parse_ticks(machine, own).unwrap();
        assert_eq!(ticks, Ticks { busy: 170, stolen: 10, total: 1000, own: 50 });
        assert_eq!(parse_ticks("nothing", own), None);
    }

    #[test]
    fn the_share_of_others_leaves_out_our_own_work() {
        let before = Ticks { busy: 100, stolen: 0, total: 1000, own: 10 };
        let after = Ticks { busy: 180, stolen: 10, total: 1200, own: 60 };
        assert!((after.share_of_others(&before) - 0.2).abs() < 1e-9);
        let quiet = Ticks { busy: 150, stolen: 0, total: 1200, own: 61 };
        assert!(quiet.share_of_others(&before).abs() < 1e-9);
    }
}
