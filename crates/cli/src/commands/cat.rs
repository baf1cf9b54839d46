//! `cat`: objects of the store as JSON, for those who want to look inside.

use crate::context::{Access, Context};
use crate::entry;
use crate::exit::Outcome;
use crate::output::put_path;
use crate::reference::{Snapshots, the_one};
use crate::time;
use clap::{Args, Subcommand};
use onefold_engine::Repository;
use onefold_engine::container::list;
use onefold_engine::container::reader;
use onefold_engine::tree::TreeReader;
use onefold_format::codec::Codec;
use onefold_format::container::MetadataSection;
use onefold_format::node::{Node, Reference};
use onefold_policy::selection::SnapshotReference;
use onefold_types::{ContainerId, Error, Fingerprint, Result};
use serde_json::{Value, json};
use std::sync::Arc;

/// Arguments of `cat`.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  onefold cat config\n  onefold cat snapshot latest")]
pub struct CatArguments {
    #[command(subcommand)]
    object: Object,
}

#[derive(Subcommand, Debug)]
#[command(disable_help_subcommand = true)]
enum Object {
    /// The store's configuration
    Config,
    /// A snapshot's record, with what was said since, and by whom last
    Snapshot {
        /// The snapshot; hidden ones are shown too
        snapshot: SnapshotReference,
    },
    /// What a container holds
    Container {
        /// The container's id or its beginning
        container: String,
    },
    /// A key slot (the master key in it is wrapped)
    Key {
        /// The key's id or its beginning
        key: String,
    },
    /// A tree node
    Node {
        /// The node's fingerprint
        fingerprint: Fingerprint,
    },
}

/// Runs the command.
pub fn run(context: &Context, arguments: &CatArguments) -> Result<Outcome> {
    let repository = context.open_near(Access::Read)?;
    let (message_type, value) = match &arguments.object {
        Object::Config => ("config", to_value(repository.configuration())?),
        Object::Snapshot { snapshot } => {
            let all = Snapshots::load(&repository, &context.output)?;
            let found = all.resolve_any(snapshot)?;
            let mut value = to_value(&found.record)?;
            value["id"] = found.id.to_string().into();
            value["hidden"] = found.hidden.into();
            let known = all.list.changes.of(found.id);
            value["last_change"] = known.newest.map_or(Value::Null, |change| {
                json!({
                    "number": known.proved,
                    "time": time::universal(change.time_ns),
                    "by": change.by,
                })
            });
            ("snapshot_record", value)
        }
        Object::Container { container } => {
            let all = list::container_names(&repository)?;
            let id = the_one(all, "container", container, |id| *id)?;
            let section = reader::read_section(&repository, id)?;
            ("container", container_value(id, &section))
        }
        Object::Key { key } => {
            let named = super::key::find(&repository, key)?;
            let mut value = to_value(&named.slot?)?;
            value["id"] = named.id.to_string().into();
            ("key_slot", value)
        }
        Object::Node { fingerprint } => ("node", read_node(&repository, *fingerprint)?),
    };
    if !context.output.style().json {
        let text = serde_json::to_string_pretty(&value).map_err(unprintable)?;
        context.output.block(&text)?;
    }
    context.output.message(message_type, value)?;
    Ok(Outcome::Complete)
}

fn unprintable(error: serde_json::Error) -> Error {
    Error::invalid(format!("the object cannot be shown: {error}"))
}

fn to_value(object: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(object).map_err(unprintable)
}

fn container_value(id: ContainerId, section: &MetadataSection) -> Value {
    let codec = |codec: Codec| match codec {
        Codec::Raw => "raw",
        Codec::Zstd => "zstd",
        Codec::Lz4 => "lz4",
    };
    let frames = section.frames.iter().map(|frame| {
        json!({
            "offset": frame.offset,
            "stored_length": frame.stored_length,
            "plain_length": frame.plain_length,
            "codec": codec(frame.codec),
        })
    });
    let chunks = section.chunks.iter().map(|chunk| {
        json!({
            "fingerprint": chunk.fingerprint.to_string(),
            "length": chunk.length,
            "level": chunk.level.0,
            "frame": chunk.frame,
            "offset": chunk.offset,
        })
    });
    json!({
        "id": id.to_string(),
        "frames": frames.collect::<Vec<_>>(),
        "chunks": chunks.collect::<Vec<_>>(),
    })
}

fn read_node(repository: &Arc<Repository>, fingerprint: Fingerprint) -> Result<Value> {
    let trees = TreeReader::open(repository)?;
    let level = trees.chunks().locate(&fingerprint)?.descriptor().level;
    if !level.is_node() {
        return Err(Error::invalid(format!("chunk {fingerprint} is file data, not a tree node")));
    }
    let node = trees.node(Reference { fingerprint, level })?;
    let mut value = node_value(&node);
    value["fingerprint"] = fingerprint.to_string().into();
    value["level"] = level.0.into();
    Ok(value)
}

fn reference_value(reference: Reference) -> Value {
    json!({ "fingerprint": reference.fingerprint.to_string(), "level": reference.level.0 })
}

fn node_value(node: &Node) -> Value {
    match node {
        Node::FileMap(map) => {
            let extents = map.extents.iter().map(|extent| match extent.is_hole() {
                true => json!({ "hole": true, "length": extent.length }),
                false => json!({
                    "fingerprint": extent.fingerprint.to_string(),
                    "length": extent.length,
                }),
            });
            json!({
                "kind": "file-map",
                "child_level": map.child_level.0,
                "extents": extents.collect::<Vec<_>>(),
            })
        }
        Node::DirectoryLeaf(leaf) => {
            let entries = leaf.entries.iter().map(|found| {
                let mut fields = entry::fields(&found.name, found);
                fields["xattrs"] = found.xattrs.len().into();
                fields
            });
            json!({ "kind": "directory-leaf", "entries": entries.collect::<Vec<_>>() })
        }
        Node::DirectoryMap(map) => {
            let parts = map.parts.iter().map(|part| {
                let mut fields = reference_value(part.leaf);
                put_path(&mut fields, "first_name", &part.first_name);
                fields["entries"] = part.totals.entries.into();
                fields["bytes"] = part.totals.bytes.into();
                fields
            });
            json!({ "kind": "directory-map", "parts": parts.collect::<Vec<_>>() })
        }
        Node::Transform(transform) => {
            let sources = transform.sources.iter().map(|(source, length)| {
                let mut fields = reference_value(*source);
                fields["length"] = (*length).into();
                fields
            });
            json!({
                "kind": "transform",
                "method": transform.method,
                "length": transform.length,
                "sources": sources.collect::<Vec<_>>(),
            })
        }
        Node::PlacementPage(_) | Node::PlacementMap(_) | Node::ContainerUses(_) => {
            placement_value(node)
        }
    }
}

/// A node of a placement.
fn placement_value(node: &Node) -> Value {
    match node {
        Node::PlacementPage(page) => json!({
            "kind": "placement-page",
            "runs": page.runs.iter().map(|run| json!({
                "container": run.container
                    .and_then(|ordinal| page.containers.get(ordinal as usize))
                    .map(ToString::to_string),
                "frame": run.frame,
                "chunks": run.chunks,
                "bytes": run.bytes,
            })).collect::<Vec<_>>(),
        }),
        Node::PlacementMap(map) => json!({
            "kind": "placement-map",
            "parts": map.parts.iter().map(|part| {
                let mut fields = reference_value(part.page);
                fields["chunks"] = part.chunks.into();
                fields
            }).collect::<Vec<_>>(),
            "uses": map.uses.iter().map(|uses| reference_value(*uses)).collect::<Vec<_>>(),
        }),
        Node::ContainerUses(uses) => json!({
            "kind": "container-uses",
            "containers": uses.containers.iter().map(|one| json!({
                "container": one.container.to_string(),
                "frame": one.frame,
                "referred_bytes": one.referred_bytes,
                "payload_bytes": one.payload_bytes,
                "spans": one.spans,
            })).collect::<Vec<_>>(),
        }),
        _ => Value::Null,
    }
}
