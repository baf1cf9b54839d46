//! `tag`: the tags of snapshots that were saved before.

use crate::commands::hold::access;
use crate::commands::saying::{Saying, SubjectArguments};
use crate::context::Context;
use crate::exit::Outcome;
use crate::reference::Snapshots;
use clap::Args;
use onefold_engine::session::changes::Attributes;
use onefold_types::{Error, Result};

const AFTER_HELP: &str = "\
EXAMPLES
  onefold tag --add keep,release-7 latest
  onefold tag --remove nightly --host web1
  onefold tag --set '' 1a2b3c4d";

/// Arguments of `tag`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct TagArguments {
    /// Give these tags, separated by commas (may be repeated)
    #[arg(long, value_name = "TAG,..", value_delimiter = ',')]
    add: Vec<String>,
    /// Take these tags away (may be repeated)
    #[arg(long, value_name = "TAG,..", value_delimiter = ',')]
    remove: Vec<String>,
    /// Give these tags instead of all that there are; '' for none (may be repeated)
    #[arg(long, value_name = "TAG,..", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["add", "remove"])]
    set: Option<Vec<String>>,
    #[command(flatten)]
    subjects: SubjectArguments,
}

/// Refuses what cannot be told from something else in a list of tags.
pub fn refuse_bad(tags: &[String]) -> Result<()> {
    match tags.iter().any(|tag| tag.trim() != tag || tag.is_empty() || tag.contains(',')) {
        true => {
            Err(Error::invalid("a tag is empty, contains a comma, or begins or ends with a space"))
        }
        false => Ok(()),
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &TagArguments) -> Result<Outcome> {
    let edit = Edit::new(arguments)?;
    let dry_run = arguments.subjects.dry_run;
    let repository = context.open(access(dry_run))?;
    let all = Snapshots::load(&repository, &context.output)?;
    let snapshots = arguments.subjects.resolve(&all, false)?;
    let saying = Saying {
        snapshots: &snapshots,
        apply: &|attributes| edit.apply(attributes),
        done: &|attributes| match attributes.tags.as_slice() {
            [] => "no tags".to_owned(),
            tags => format!("tags {}", tags.join(",")),
        },
        said: "has these tags already",
        dry_run,
        relieves: false,
    };
    saying.run(context, &repository, &all)
}

/// What becomes of the tags of a snapshot.
struct Edit {
    set: Option<Vec<String>>,
    add: Vec<String>,
    remove: Vec<String>,
}

impl Edit {
    fn new(arguments: &TagArguments) -> Result<Self> {
        let (add, remove) = (arguments.add.clone(), arguments.remove.clone());
        // An empty text stands for no tags.
        let set = arguments.set.clone().map(|tags| match tags.iter().all(String::is_empty) {
            true => Vec::new(),
            false => tags,
        });
        refuse_bad(&add)?;
        refuse_bad(&remove)?;
        refuse_bad(set.as_deref().unwrap_or_default())?;
        if let Some(both) = add.iter().find(|tag| remove.contains(tag)) {
            return Err(Error::invalid(format!("'{both}' is both added and removed")));
        }
        match set.is_none() && add.is_empty() && remove.is_empty() {
            true => Err(Error::invalid("say what becomes of the tags: --add, --remove or --set")),
            false => Ok(Self { set, add, remove }),
        }
    }

    fn apply(&self, attributes: &mut Attributes) {
        let tags = &mut attributes.tags;
        if self.set.is_some() {
            tags.clear();
        }
        tags.retain(|tag| !self.remove.contains(tag));
        for tag in self.set.iter().flatten().chain(&self.add) {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
    }
}
