//! Which command comes next, and on what.
//!
//! Everything is chosen by the command's own sequence of numbers. Which snapshots there are to
//! choose from depends on how commands that run at the same time ended, so a seed fixes the kinds
//! of commands and their disturbances, and their subjects only nearly.

use super::command::{Draft, Plan, Seen, Subject, draft};
use super::process::{Disturbance, Input};
use super::random::Random;
use super::source::{self, Shape, Source};
use super::store::{Hold, Store};
use super::truth::{self, Content, Entry, Tree};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// From so many snapshots on, forgetting becomes more likely.
const SNAPSHOTS_MANY: usize = 12;
/// Snapshots of a store that are held at a time.
const HELD_MAX: usize = 3;
/// A ring of keys holds no more than 64 generations.
const ROTATIONS_MAX: usize = 40;
const ENGINES: [&str; 7] = [
    "direct",
    "forward",
    "adaptive",
    "container-cache",
    "chunk-cache",
    "optimal",
    "optimal-chunks",
];
const LOOKUPS: [&str; 7] =
    ["none", "auto", "eager", "eager,filter-first", "lazy", "lazy,ring=8,bucket=2", "sampled"];
const REWRITES: [&str; 7] =
    ["auto", "none", "capping", "flexible", "window", "history", "auto,loss=20"];
const GOALS: [&str; 5] = ["5%", "dead", "all", "all", "200KiB"];
const MARKS: [&str; 7] = ["auto", "auto", "exact", "lgc", "partitioned", "pgc", "pgc+"];

/// What a command can be chosen from.
pub struct Choice<'a> {
    /// The command's number.
    pub number: u64,
    /// The command's sequence.
    pub random: Random,
    /// The store.
    pub store: &'a Store,
    /// The sources.
    pub sources: &'a [Source],
    /// The directory for everything.
    pub work: &'a Path,
}

impl Choice<'_> {
    /// The next command; nothing if what was chosen has no subject at present.
    pub fn next(&mut self, without: &[String]) -> io::Result<Option<Draft>> {
        let many = self.store.snapshots.len() > SNAPSHOTS_MANY;
        let often = |weight: usize| if many || self.store.full { weight * 4 } else { weight };
        let has_keys = self.store.encrypted && !without.iter().any(|part| part == "keys");
        let keys = usize::from(has_keys);
        let rotations = usize::from(self.store.rotations < ROTATIONS_MAX) * keys;
        let kinds: [(&str, usize); 30] = [
            ("backup", 30),
            ("stream", 6),
            ("command", 3),
            ("failing", 1),
            ("dry-run", 2),
            ("copy", 4),
            ("synthesize", 3),
            ("hide", 5),
            ("hide-policy", 2),
            ("final", often(5)),
            ("final-policy", often(2)),
            ("undelete", 6),
            ("gc", often(7)),
            ("gc-dry", 1),
            ("maintain", 3),
            ("check", 4),
            ("restore", 8),
            ("in-place", 6),
            ("dump", 4),
            ("list", 3),
            ("diff", 2),
            ("look", 4),
            ("key-add", 2 * keys),
            ("key-remove", 2 * keys),
            ("key-passwd", 2 * keys),
            ("key-rotate", rotations),
            ("hold", 3),
            ("release", 4),
            ("tag", 2),
            ("describe", 2),
        ];
        let Some(kind) = self.random.weighted(&kinds) else { return Ok(None) };
        Ok(match kind {
            "backup" => Some(self.backup()),
            "stream" => Some(self.stream()?),
            "command" | "failing" => Some(self.stream_of_command(kind == "failing")?),
            "dry-run" => Some(self.dry_run()),
            "copy" => self.copy(),
            "synthesize" => self.synthesize(),
            "hide" | "final" => self.forget(kind == "final"),
            "hide-policy" | "final-policy" => Some(self.forget_by_policy(kind == "final-policy")),
            "undelete" => self.undelete(),
            "gc" => Some(self.collect()),
            "gc-dry" => Some(self.collect_dry()),
            "maintain" => Some(self.maintain()),
            "check" => Some(self.check()),
            "restore" => self.restore(),
            "in-place" => self.restore_in_place(),
            "dump" => self.dump(),
            "list" => self.list(),
            "diff" => self.diff(),
            "look" => Some(self.look()),
            "key-add" => Some(self.key_add()?),
            "key-remove" => self.key_remove(),
            "key-rotate" => Some(key_rotate()),
            "hold" | "release" => self.hold(kind == "hold"),
            "tag" | "describe" => self.say(kind),
            _ => self.key_passwd()?,
        })
    }

    fn tag(&self) -> String {
        format!("c{}", self.number)
    }

    /// A snapshot that can be seen as far as is known.
    fn seen(&mut self) -> Option<Seen> {
        let ids = self.store.ids(|one| one.hidden != Some(true) && one.doubts.is_empty());
        let id = self.random.pick(&ids)?.clone();
        let truth = Arc::clone(&self.store.snapshots.get(&id)?.truth);
        Some(Seen { id, truth })
    }

    fn backup(&mut self) -> Draft {
        let random = &mut self.random;
        let fits = |source: &Source| source.shape != Shape::Dust || self.store.takes_dust;
        let fitting: Vec<usize> = (0..self.sources.len())
            .filter(|index| self.sources.get(*index).is_some_and(fits))
            .collect();
        let mut sources = vec![random.pick(&fitting).copied().unwrap_or_default()];
        let mut words = vec!["backup".to_owned()];
        if random.chance(15) {
            let other = random.pick(&fitting).copied().unwrap_or_default();
            if !sources.contains(&other) {
                sources.push(other);
            }
            if random.chance(70) {
                words.extend(["--streams".to_owned(), "2".to_owned()]);
            }
        }
        let of = |index: &usize| self.sources.get(*index);
        words.extend(sources.iter().filter_map(of).map(|one| one.path.display().to_string()));
        let versions: Vec<Arc<Tree>> = sources.iter().filter_map(of).map(Source::version).collect();
        let (truth, mut needs) = (truth::joined(&versions), Vec::new());
        let force = random.chance(15);
        let may_skip = !force && random.chance(5);
        let parent = random.chance(8);
        let hold = random.chance(3) && self.store.ids(|one| one.hold != Hold::Free).is_empty();
        let tag = self.tag();
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.extend(["--tag", &tag]);
        let parent = if parent && !force { self.seen() } else { None };
        if let Some(parent) = &parent {
            words.extend(["--parent", parent.id.as_str()]);
            needs.push(parent.id.clone());
        }
        let subject = Subject::Save { truth, may_skip, stream: false, needs, hold };
        let mut draft = draft("backup", &words, subject);
        draft.sources = sources;
        let random = &mut self.random;
        for (chosen, option) in [(force, "--force"), (may_skip, "--skip-if-unchanged")] {
            draft = if chosen { draft.with(&[option]) } else { draft };
        }
        draft = if hold { draft.with(&["--hold"]) } else { draft };
        let year = random.word(&["1970", "2007", "2031", "2199"]);
        let time = format!("{year}-02-03T04:05:06Z");
        saving(draft.maybe(random, 6, &["--time", &time]), random)
    }

    fn stream(&mut self) -> io::Result<Draft> {
        let kind = self.random.below(4);
        let bytes = self.stream_bytes_of(kind)?;
        let random = &mut self.random;
        let name = random.word(&["stdin", "one.sql", "two.sql"]);
        let truth = Arc::new(truth::of_stream(name, bytes.clone()));
        let subject = save_stream(truth);
        let tag = self.tag();
        // Some streams are empty.
        let words = ["backup", "--stdin", "--stdin-filename", name, "--tag", &tag, "--allow-empty"];
        let mut draft = saving(draft("backup --stdin", &words, subject), &mut self.random);
        let pieces = bytes.len() / 20_000 + 1;
        draft.input = match self.random.chance(60) {
            true => {
                let whole = self.random.moment(Duration::from_millis(2500));
                Input::Slow(bytes, whole / u32::try_from(pieces).unwrap_or(1))
            }
            false => {
                let path = self.work.join(format!("output/{}.in", self.number));
                fs::write(&path, &bytes)?;
                Input::File(path)
            }
        };
        Ok(draft)
    }

    /// New bytes, or bytes that snapshots have, so that a stream relies on what others stored.
    fn stream_bytes_of(&mut self, kind: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if kind > 0
            && let Some(source) = self.random.pick(self.sources)
        {
            for entry in source.version().values().take(40) {
                if let Entry::File(Content { bytes: Some(part), .. }) = entry {
                    bytes.extend_from_slice(part);
                }
            }
        }
        if kind != 1 {
            bytes.extend(source::fresh(&mut self.random));
        }
        bytes.truncate(1 << 20);
        Ok(bytes)
    }

    fn stream_of_command(&mut self, fails: bool) -> io::Result<Draft> {
        let bytes = self.stream_bytes_of(2)?;
        let path = self.work.join(format!("output/{}.in", self.number));
        fs::write(&path, &bytes)?;
        let truth = Arc::new(truth::of_stream("command.out", bytes));
        let pause = self.random.word(&["0", "0.1", "0.4"]);
        let end = if fails { "exit 3" } else { "exit 0" };
        let file = path.display();
        let script = format!("head -c 1000 {file}; sleep {pause}; tail -c +1001 {file}; {end}");
        let subject = match fails {
            true => Subject::SaveNothing { truth },
            false => save_stream(truth),
        };
        let tag = self.tag();
        let words = ["backup", "--stdin-filename", "command.out", "--tag", &tag];
        let draft = saving(draft("backup of a command", &words, subject), &mut self.random);
        Ok(draft.with(&["--stdin-from-command", "--", "sh", "-c", &script]))
    }

    fn dry_run(&mut self) -> Draft {
        let index = self.random.below(self.sources.len());
        let path = self.sources.get(index).map(|one| one.path.display().to_string());
        let words = ["backup", "--dry-run", &path.unwrap_or_default()];
        let mut draft = draft("backup --dry-run", &words, Subject::Look { needs: Vec::new() });
        draft.sources.push(index);
        draft
    }

    fn copy(&mut self) -> Option<Draft> {
        let Seen { id, truth } = self.seen()?;
        let needs = vec![id.clone()];
        let subject = Subject::Save { truth, may_skip: false, stream: true, needs, hold: false };
        Some(draft("copy-snapshot", &["copy-snapshot", &id, "--tag", &self.tag()], subject))
    }

    fn synthesize(&mut self) -> Option<Draft> {
        let (one, other) = (self.seen()?, self.seen()?);
        let (Seen { id: one, truth: lower }, Seen { id: other, truth: upper }) = (one, other);
        let (truth, parts) = match self.random.below(3) {
            0 => (truth::laid_over(&lower, &upper), [one.clone(), other.clone()]),
            1 => (
                truth::laid_over(&truth::below(&lower, "one"), &truth::below(&upper, "two")),
                [format!("{one}=/one"), format!("{other}=/two")],
            ),
            _ => (
                truth::laid_over(&lower, &truth::below(&upper, "inside")),
                [one.clone(), format!("{other}=/inside")],
            ),
        };
        let needs = vec![one, other];
        let truth = Arc::new(truth);
        let subject = Subject::Save { truth, may_skip: false, stream: true, needs, hold: false };
        let words = ["synthesize", &parts[0], &parts[1], "--tag", &self.tag()];
        Some(draft("synthesize", &words, subject))
    }

    fn forget(&mut self, for_good: bool) -> Option<Draft> {
        let mut ids = Vec::new();
        for _ in 0..self.random.skewed(1, 3) {
            let all = self
                .store
                .ids(|one| one.hold == Hold::Free && (for_good || one.hidden != Some(true)));
            // Oldest first, more often.
            let id = all.get(self.random.skewed(0, all.len().saturating_sub(1)))?.clone();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let words: Vec<&str> =
            ["forget"].into_iter().chain(ids.iter().map(String::as_str)).collect();
        let (kind, option) = match for_good {
            true => ("forget --final", Some("--final")),
            false => ("forget", None),
        };
        let words: Vec<&str> = words.into_iter().chain(option).collect();
        Some(draft(kind, &words, Subject::Forget { ids: ids.clone(), for_good }))
    }

    fn forget_by_policy(&mut self, for_good: bool) -> Draft {
        let keep = self.random.word(&["2", "3", "4"]);
        let kind = if for_good { "forget --final by policy" } else { "forget by policy" };
        let subject = Subject::Forget { ids: Vec::new(), for_good };
        let draft = draft(kind, &["forget", "--keep-last", keep], subject);
        if for_good { draft.with(&["--final"]) } else { draft }
    }

    /// Few are held at a time: what is held cannot make room on a device that is full.
    fn hold(&mut self, hold: bool) -> Option<Draft> {
        let held = self.store.ids(|one| one.hold == Hold::Held);
        if hold && held.len() + self.store.unsure_holds.len() >= HELD_MAX {
            return None;
        }
        let id = match hold {
            true => self.seen()?.id,
            false => self.random.pick(&held)?.clone(),
        };
        let kind = if hold { "hold" } else { "release" };
        Some(draft(kind, &[kind, &id], Subject::Hold { id: id.clone(), hold }))
    }

    fn say(&mut self, kind: &'static str) -> Option<Draft> {
        let id = self.seen()?.id;
        let note = format!("said by {}", self.number);
        let words: Vec<&str> = match kind {
            "tag" => vec!["tag", "--add", "said", &id],
            _ => vec!["describe", &id, &note],
        };
        Some(draft(kind, &words, Subject::Look { needs: vec![id.clone()] }))
    }

    fn undelete(&mut self) -> Option<Draft> {
        let id = self.random.pick(&self.store.ids(|one| one.hidden == Some(true))).cloned()?;
        Some(draft("undelete", &["undelete", &id], Subject::Undelete { id: id.clone() }))
    }

    fn collect(&mut self) -> Draft {
        let random = &mut self.random;
        let goal = random.word(&GOALS);
        let forgets = random.weighted(&[("", 90), ("0s", 4), ("1d", 6)]).unwrap_or_default();
        let subject = Subject::Collect { reach: forgets == "0s" };
        let draft =
            draft("gc", &["gc", "--space-goal", goal, "--mark", random.word(&MARKS)], subject)
                .with(&["--wait", random.word(&["0s", "0s", "2s"])])
                .maybe(random, 10, &["--reseal"])
                .maybe(random, 15, &["--max-duration", "1s"])
                .maybe(random, 15, &["--memory", "48MiB"]);
        if forgets.is_empty() { draft } else { draft.with(&["--forget-hidden", forgets]) }
    }

    fn collect_dry(&mut self) -> Draft {
        let option = self.random.word(&["--dry-run", "--mark-only"]);
        let words = ["gc", option, "--space-goal", "all"];
        draft("gc --dry-run", &words, Subject::Collect { reach: false })
    }

    fn maintain(&mut self) -> Draft {
        let random = &mut self.random;
        let words = ["maintain", "--wait", random.word(&["0s", "2s"])];
        draft("maintain", &words, Subject::Collect { reach: false })
            .with(&["--check-sample", random.word(&["0%", "20%"])])
    }

    fn check(&mut self) -> Draft {
        let option = self.random.word(&["--read-data", "--repair-index", "--no-quarantine", ""]);
        let words: Vec<&str> = ["check", option].into_iter().filter(|w| !w.is_empty()).collect();
        draft("check", &words, Subject::Check)
    }

    fn restore(&mut self) -> Option<Draft> {
        let of = self.seen()?;
        let id = of.id.clone();
        let target = self.work.join(format!("restored/{}", self.number)).display().to_string();
        let subject = Subject::Restore { of, target: target.clone(), in_place: None };
        let random = &mut self.random;
        let words = ["restore", &id, "--target", &target, "--engine", random.word(&ENGINES)];
        Some(
            draft("restore", &words, subject)
                .maybe(random, 25, &["--verify"])
                .maybe(random, 25, &["--sparse"])
                .maybe(random, 15, &["--memory", "48MiB"]),
        )
    }

    fn restore_in_place(&mut self) -> Option<Draft> {
        let of = self.seen()?;
        let id = of.id.clone();
        let name = self.random.word(&["x", "y"]).to_owned();
        if self.store.in_place.get(&name).copied().unwrap_or(false) {
            return None;
        }
        let directory = self.work.join(format!("in-place/{}-{name}", self.store.name));
        let target = directory.display().to_string();
        let (in_place, random) = (Some(name), &mut self.random);
        let subject = Subject::Restore { of, target: target.clone(), in_place };
        let words = ["restore", &id, "--target", &target, "--delete"];
        Some(
            draft("restore in place", &words, subject)
                .with(&["--engine", random.word(&ENGINES)])
                .maybe(random, 30, &["--overwrite", "if-different"]),
        )
    }

    fn dump(&mut self) -> Option<Draft> {
        let Seen { id, truth } = self.seen()?;
        let files: Vec<(&String, &Arc<Vec<u8>>)> = truth
            .iter()
            .filter_map(|(path, entry)| match entry {
                Entry::File(Content { bytes: Some(bytes), .. }) => Some((path, bytes)),
                _ => None,
            })
            .collect();
        let (path, bytes) = *self.random.pick(&files)?;
        let offset = self.random.below(bytes.len() + 1);
        let length = self.random.below(bytes.len() - offset + 1);
        let part = self.random.chance(40);
        let wanted = match part {
            true => bytes.get(offset..offset + length)?.to_vec(),
            false => bytes.to_vec(),
        };
        let (name, range) = (format!("{id}:/{path}"), format!("{offset}:{length}"));
        let draft = draft("dump", &["dump", &name], Subject::Dump { id, bytes: wanted });
        Some(if part { draft.with(&["--range", &range]) } else { draft })
    }

    fn list(&mut self) -> Option<Draft> {
        let seen = self.seen()?;
        let id = seen.id.clone();
        let of = |lines| Subject::List { of: seen, lines };
        Some(match self.random.chance(50) {
            true => draft("ls", &["ls", &id], of("node")),
            false => draft("find", &["find", "--snapshot", &id, "*"], of("match")),
        })
    }

    fn diff(&mut self) -> Option<Draft> {
        let (one, other) = (self.seen()?, self.seen()?);
        let words = ["diff", &one.id.clone(), &other.id.clone(), "--no-metadata"];
        Some(draft("diff", &words, Subject::Compare { one, other }))
    }

    fn look(&mut self) -> Draft {
        let plan = self.random.chance(30);
        if plan && let Some(Seen { id, .. }) = self.seen() {
            let words = ["restore", &id, "--target", "restored/none", "--plan"];
            return draft("restore --plan", &words, Subject::Look { needs: vec![id.clone()] });
        }
        let kind = self.random.word(&["snapshots", "stats"]);
        draft(kind, &[kind], Subject::Look { needs: Vec::new() })
    }

    fn new_password(&self) -> io::Result<String> {
        let path = self.work.join(format!("passwords/{}", self.number));
        fs::write(&path, format!("password {}\n", self.number))?;
        Ok(path.display().to_string())
    }

    fn key_add(&mut self) -> io::Result<Draft> {
        let file = self.new_password()?;
        let words = ["key", "add", "--new-password-file", &file];
        Ok(draft("key add", &words, Subject::KeyAdd { file: file.clone() }))
    }

    /// A password that may be changed: any but the first.
    fn secondary(&mut self) -> Option<usize> {
        let sure = |index: &usize| self.store.passwords.get(*index).is_some_and(|one| one.sure);
        let all: Vec<usize> = (1..self.store.passwords.len()).filter(sure).collect();
        self.random.pick(&all).copied()
    }

    fn key_remove(&mut self) -> Option<Draft> {
        let index = self.secondary()?;
        let key = self.store.passwords.get(index)?.key.clone()?;
        Some(draft("key remove", &["key", "remove", &key], Subject::KeyRemove(index)))
    }

    fn key_passwd(&mut self) -> io::Result<Option<Draft>> {
        let Some(index) = self.secondary() else { return Ok(None) };
        let file = self.new_password()?;
        let words = ["key", "passwd", "--new-password-file", &file];
        Ok(Some(draft("key passwd", &words, Subject::KeyChange(index, file.clone()))))
    }

    /// Completes a draft: the store, a password, a disturbance.
    pub fn complete(mut self, draft: Draft, store: usize, disturbance: Disturbance) -> Plan {
        let sure = |index: &usize| self.store.passwords.get(*index).is_some_and(|one| one.sure);
        let passwords: Vec<usize> = (0..self.store.passwords.len()).filter(sure).collect();
        let password = match &draft.subject {
            Subject::KeyChange(index, _) => *index,
            Subject::KeyRemove(_) | Subject::Rotate => 0,
            _ => self.random.pick(&passwords).copied().unwrap_or_default(),
        };
        let mut arguments = self.store.access(&self.store.path, password);
        arguments.extend(draft.arguments);
        Plan {
            store: Some(store),
            kind: draft.kind,
            arguments,
            password,
            input: draft.input,
            sources: draft.sources,
            subject: draft.subject,
            disturbance,
        }
    }
}

fn key_rotate() -> Draft {
    draft("key rotate", &["key", "rotate", "--remove-others"], Subject::Rotate)
}

fn save_stream(truth: Arc<Tree>) -> Subject {
    Subject::Save { truth, may_skip: false, stream: true, needs: Vec::new(), hold: false }
}

/// Adds options of every backup.
fn saving(draft: Draft, random: &mut Random) -> Draft {
    let (lookup, rewrite) = (random.word(&LOOKUPS), random.word(&REWRITES));
    let kind = random.word(&["bloom", "fuse", "signature"]);
    let compression = random.word(&["none", "lz4", "zstd,1"]);
    draft
        .maybe(random, 40, &["--lookup", lookup])
        .maybe(random, 30, &["--rewrite", rewrite])
        .maybe(random, 20, &["--index", kind])
        .maybe(random, 20, &["--compression", compression])
        .maybe(random, 10, &["--memory", "48MiB"])
        .maybe(random, 20, &["--threads", "1"])
}
