//! What an estimate found, for people and for programs.

use crate::context::Context;
use crate::size::{counted, human};
use crate::table::Table;
use crate::time;
use onefold_engine::primary::estimate::kind::class_of;
use onefold_engine::primary::estimate::{
    Count, Estimate, KindEstimate, Occurrences, Savings, SizeEstimate,
};
use onefold_format::codec::Compression;
use onefold_types::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Kinds of files shown by name; the rest are one row.
const KINDS_SHOWN: usize = 15;

/// Prints everything.
pub fn print(context: &Context, found: &Estimate, compression: Compression) -> Result<()> {
    let output = &context.output;
    print_met(context, found)?;
    if found.counted.files > 0 {
        print_sizes(context, found)?;
        let kinds: Vec<Vec<KindEstimate>> =
            found.sizes.iter().map(|size| size.kinds.clone()).collect();
        print_kinds(context, found, "kind", &kinds)?;
        let classes: Vec<Vec<KindEstimate>> = found.sizes.iter().map(classes).collect();
        print_kinds(context, found, "class", &classes)?;
        print_occurrences(context, found)?;
        print_costs(context, found)?;
    }
    for size in &found.sizes {
        output.message("size", size_fields(found, size))?;
    }
    output.message("summary", fields(found, compression))
}

fn amount(count: Count) -> String {
    format!("{} ({})", counted(count.files, "file"), human(count.bytes))
}

fn print_met(context: &Context, found: &Estimate) -> Result<()> {
    let output = &context.output;
    output.row(&format!(
        "counted {}, {} on the disk, in {}",
        amount(found.counted),
        human(found.allocated_bytes),
        counted(found.met.directories, "directory")
    ))?;
    let seconds = found.elapsed.as_secs_f64().max(1e-9);
    output.note(&format!(
        "read {} in {} ({}/s); {} unchanged since an earlier run",
        human(found.read_bytes),
        time::span(found.elapsed),
        human((found.read_bytes as f64 / seconds) as u64),
        amount(found.taken_over)
    ))?;
    let left = &found.met.left_alone;
    let counts = [
        (left.excluded, "left out by patterns"),
        (left.not_included, "asked for by no pattern"),
        (left.small, "too small or empty"),
        (left.recent, "modified too recently"),
    ];
    for (count, why) in counts.into_iter().filter(|(count, _)| count.files > 0) {
        output.row(&format!("left alone: {}, {why}", amount(count)))?;
    }
    let numbers = [
        (left.excluded_directories, "left alone, not looked into: directories left out"),
        (left.other_file_systems, "left alone, not looked into: other file systems"),
        (left.others, "left alone: links, devices, pipes and sockets"),
        (found.met.further_names, "further names of files that were counted (hard links)"),
        (found.changed, "changed while they were read"),
        (found.unreadable, "could not be read"),
    ];
    for (number, what) in numbers.into_iter().filter(|(number, _)| *number > 0) {
        output.row(&format!("{what}: {number}"))?;
    }
    if found.met.links_forgotten > 0 {
        output.warning(&format!(
            "{} with several names were too many to be remembered within the memory limit; each \
             of their names counts as a file",
            counted(found.met.links_forgotten, "file")
        ));
    }
    for size in found.sizes.iter().filter(|size| size.sampled_one_in > 1) {
        output.warning(&format!(
            "the fingerprints of chunks of {} do not fit into the memory limit: one in {} was \
             looked at, and what is said of duplicates and compression is estimated from these \
             (what duplicates save: give or take {} points, with 95 % confidence)",
            human(size.chunker.size_avg_bytes as u64),
            size.sampled_one_in,
            percent(1.96 * size.tally.standard_error())
        ));
    }
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

fn print_sizes(context: &Context, found: &Estimate) -> Result<()> {
    context.output.row("\nSavings by chunk size, in % of the bytes in chunks")?;
    let mut table = Table::new(&[
        "Chunk size",
        "Chunks",
        "Mean",
        "By duplicates",
        "And compression",
        "Occurs once",
        "Zeros",
        "Sample",
    ]);
    for size in &found.sizes {
        table.row(vec![
            human(size.chunker.size_avg_bytes as u64),
            size.total.chunks.to_string(),
            human(size.total.mean_chunk_bytes() as u64),
            percent(size.total.saved()),
            percent(size.total.saved_compressed()),
            percent(size.unique_share()),
            human(size.zero_bytes),
            match size.sampled_one_in {
                1 => "all".to_owned(),
                many => format!("1 in {many}"),
            },
        ]);
    }
    table.print(&context.output)
}

/// The kinds of a chunk size put together by class.
fn classes(size: &SizeEstimate) -> Vec<KindEstimate> {
    let mut classes: BTreeMap<&str, (u64, Savings)> = BTreeMap::new();
    for kind in &size.kinds {
        let (files, savings) = classes.entry(class_of(&kind.name)).or_default();
        *files += kind.files;
        savings.add(&kind.savings);
    }
    let class = |(name, (files, savings)): (&str, (u64, Savings))| KindEstimate {
        name: name.to_owned(),
        files,
        savings,
    };
    let mut classes: Vec<KindEstimate> = classes.into_iter().map(class).collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.savings.bytes));
    classes
}

/// The rows that are shown: those with most bytes, and the rest as one.
fn shown(kinds: &[KindEstimate], order: &[String]) -> Vec<KindEstimate> {
    let of = |name: &String| kinds.iter().find(|kind| kind.name == *name).cloned();
    let mut rows: Vec<KindEstimate> = order.iter().filter_map(of).collect();
    let mut rest =
        KindEstimate { name: "all others".to_owned(), files: 0, savings: Savings::default() };
    for kind in kinds.iter().filter(|kind| !order.contains(&kind.name)) {
        rest.files += kind.files;
        rest.savings.add(&kind.savings);
    }
    if rest.files > 0 {
        rows.push(rest);
    }
    rows
}

fn print_kinds(
    context: &Context,
    found: &Estimate,
    what: &str,
    kinds: &[Vec<KindEstimate>],
) -> Result<()> {
    context
        .output
        .row(&format!("\nSavings by {what} of file, in %: by duplicates / and compression"))?;
    let mut heading = vec![what.to_owned(), "Files".to_owned(), "In chunks".to_owned()];
    let size_of = |size: &SizeEstimate| human(size.chunker.size_avg_bytes as u64);
    heading.extend(found.sizes.iter().map(size_of));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut table = Table::new(&heading);
    // All sizes show the same rows, in the order of the first.
    let first = kinds.first().map(Vec::as_slice).unwrap_or_default();
    let order: Vec<String> = first.iter().take(KINDS_SHOWN).map(|kind| kind.name.clone()).collect();
    let columns: Vec<Vec<KindEstimate>> = kinds.iter().map(|one| shown(one, &order)).collect();
    for (number, kind) in columns.first().into_iter().flatten().enumerate() {
        let mut cells = vec![kind.name.clone(), kind.files.to_string(), human(kind.savings.bytes)];
        let cell = |kind: &KindEstimate| {
            format!(
                "{} / {}",
                percent(kind.savings.saved()),
                percent(kind.savings.saved_compressed())
            )
        };
        cells.extend(columns.iter().filter_map(|column| column.get(number)).map(cell));
        table.row(cells);
    }
    table.print(&context.output)
}

fn print_occurrences(context: &Context, found: &Estimate) -> Result<()> {
    context.output.row(
        "\nBytes by how often their chunk occurs, in %: of all bytes / of the duplicate bytes",
    )?;
    let mut heading = vec!["Occurrences".to_owned()];
    heading.extend(found.sizes.iter().map(|size| human(size.chunker.size_avg_bytes as u64)));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut table = Table::new(&heading);
    let classes: BTreeMap<u32, u32> = found
        .sizes
        .iter()
        .flat_map(|size| &size.occurrences)
        .map(|class| (class.most, class.least))
        .collect();
    for (most, least) in classes {
        let mut cells = vec![match least == most {
            true => most.to_string(),
            false => format!("{least} to {most}"),
        }];
        let cell = |class: &Occurrences| {
            format!("{} / {}", percent(class.bytes_share), percent(class.duplicates_share))
        };
        cells.extend(found.sizes.iter().map(|size| {
            let class = size.occurrences.iter().find(|class| class.most == most);
            class.map_or_else(|| "-".to_owned(), cell)
        }));
        table.row(cells);
    }
    table.print(&context.output)
}

/// What the disk has more room for in the end; negative if it is less.
fn gain_bytes(found: &Estimate, size: &SizeEstimate) -> i64 {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    signed(found.allocated_bytes).saturating_sub(signed(size.stored_bytes()))
}

fn print_costs(context: &Context, found: &Estimate) -> Result<()> {
    let output = &context.output;
    output.row("\nWhat optimising these files would cost and give")?;
    let mut table = Table::new(&[
        "Chunk size",
        "Freed of the disk",
        "Taken in the store",
        "Gain",
        "Index memory",
    ]);
    for size in &found.sizes {
        let gain = gain_bytes(found, size);
        let sign = if gain < 0 { "-" } else { "" };
        table.row(vec![
            human(size.chunker.size_avg_bytes as u64),
            human(found.allocated_bytes),
            human(size.stored_bytes()),
            format!("{sign}{}", human(gain.unsigned_abs())),
            human(size.index_memory_bytes()),
        ]);
    }
    table.print(output)?;
    let expected = match found.expected() {
        Some(expected) => format!("about {} at the rate of this run", time::span(expected)),
        None => "for how long is not known, since this run read nothing".to_owned(),
    };
    output.row(&format!(
        "{} would be read, to store the files and to compare them with what was stored: {expected}",
        human(found.to_read_bytes())
    ))
}

fn count_fields(count: Count) -> Value {
    json!({ "files": count.files, "bytes": count.bytes })
}

fn kind_fields(kinds: &[KindEstimate]) -> Vec<Value> {
    let one = |kind: &KindEstimate| {
        json!({
            "name": kind.name,
            "class": class_of(&kind.name),
            "files": kind.files,
            "chunks": kind.savings.chunks,
            "bytes": kind.savings.bytes,
            "unique_bytes": kind.savings.unique_bytes,
            "compressed_bytes": kind.savings.compressed_bytes,
        })
    };
    kinds.iter().map(one).collect()
}

fn size_fields(found: &Estimate, size: &SizeEstimate) -> Value {
    let class = |class: &Occurrences| {
        json!({
            "least": class.least,
            "most": class.most,
            "chunks": class.chunks,
            "bytes_share": class.bytes_share,
            "duplicates_share": class.duplicates_share,
        })
    };
    json!({
        "chunker": size.chunker.kind.to_string(),
        "chunk_size_bytes": size.chunker.size_avg_bytes,
        "sampled_one_in": size.sampled_one_in,
        "standard_error": size.tally.standard_error(),
        "chunks": size.total.chunks,
        "bytes": size.total.bytes,
        "zero_bytes": size.zero_bytes,
        "unique_chunks": size.total.unique_chunks,
        "unique_bytes": size.total.unique_bytes,
        "compressed_bytes": size.total.compressed_bytes,
        "unique_share": size.unique_share(),
        "stored_bytes": size.stored_bytes(),
        "gain_bytes": gain_bytes(found, size),
        "index_memory_bytes": size.index_memory_bytes(),
        "best_half_share": size.compressibility.0,
        "incompressible_share": size.compressibility.1,
        "kinds": kind_fields(&size.kinds),
        "occurrences": size.occurrences.iter().map(class).collect::<Vec<_>>(),
    })
}

fn fields(found: &Estimate, compression: Compression) -> Value {
    let left = &found.met.left_alone;
    json!({
        "files": found.counted.files,
        "bytes": found.counted.bytes,
        "allocated_bytes": found.allocated_bytes,
        "directories": found.met.directories,
        "files_unchanged": found.taken_over.files,
        "bytes_unchanged": found.taken_over.bytes,
        "bytes_read": found.read_bytes,
        "files_changed": found.changed,
        "further_names": found.met.further_names,
        "links_forgotten": found.met.links_forgotten,
        "errors": found.unreadable,
        "compression": compression.to_string(),
        "left_alone": {
            "excluded": count_fields(left.excluded),
            "excluded_directories": left.excluded_directories,
            "not_included": count_fields(left.not_included),
            "small": count_fields(left.small),
            "recent": count_fields(left.recent),
            "other_file_systems": left.other_file_systems,
            "others": left.others,
        },
        "bytes_to_read": found.to_read_bytes(),
        "expected_seconds": found.expected().map(|expected| expected.as_secs_f64()),
        "seconds": found.elapsed.as_secs_f64(),
    })
}
