use super::parameters::new_share_for;
use super::*;
use crate::trace::{Order, Summary};
use std::collections::BTreeSet;
use std::time::Instant;

fn small(change: impl FnOnce(&mut Parameters)) -> Generator {
    let mut parameters = Parameters::preset(Preset::Scattered, 4000);
    parameters.generations = 12;
    parameters.generations_min = 12;
    parameters.deletion = None;
    change(&mut parameters);
    Generator::new(parameters).unwrap()
}

#[test]
fn one_seed_is_one_trace() {
    let record = |generator: &Generator| {
        let mut seen = Vec::new();
        generator
            .replay(&mut |event| {
                seen.push(format!("{event:?}"));
                Ok(())
            })
            .unwrap();
        seen
    };
    let generator = small(|parameters| parameters.chunks = 300);
    assert_eq!(record(&generator), record(&generator));
    let other = small(|parameters| {
        parameters.chunks = 300;
        parameters.seed += 1;
    });
    assert_ne!(record(&generator), record(&other));
}

#[test]
fn the_new_share_of_a_generation_is_what_was_asked_for() {
    let generator = small(|parameters| {
        parameters.streams = 1;
        parameters.chunks = 40_000;
        parameters.self_reference = 0.0;
        parameters.shifting_share = 0.0;
        parameters.added_share = 0.03;
        parameters.deleted_share = 0.03;
        parameters.changed_share = 0.05;
    });
    let summary = Summary::of(&generator).unwrap();
    for (generation, totals) in summary.generations.iter().skip(1) {
        // Runs may fall upon each other or into a file that goes.
        assert!((totals.new_share() - 0.08).abs() < 0.01, "{generation}: {}", totals.new_share());
        assert!((totals.chunks as f64 / 40_000.0 - 1.0).abs() < 0.1, "{}", totals.chunks);
    }
    assert_eq!(summary.generations[&0].chunks_new, 40_000);
}

#[test]
fn self_reference_repeats_and_shifting_keeps_the_size() {
    let new_chunks = |self_reference| {
        let generator = small(|parameters| parameters.self_reference = self_reference);
        Summary::of(&generator).unwrap().total().chunks_new as f64
    };
    let first = 4.0 * 4000.0;
    let share = (new_chunks(0.5) - first * 0.5) / (new_chunks(0.0) - first * 0.5);
    assert!(share < 0.85, "{share}");
    let generator = small(|parameters| parameters.shifting_share = 1.0);
    let summary = Summary::of(&generator).unwrap();
    let last = summary.generations[&11].chunks as f64;
    assert!((last / first - 1.0).abs() < 0.1, "{last}");
}

#[test]
fn data_keeps_its_size_over_many_generations() {
    for preset in [Preset::Exchange, Preset::Aged, Preset::Scattered] {
        let summary = Summary::of(&Generator::preset(preset, 6000).unwrap()).unwrap();
        let chunks = |totals: &crate::trace::GenerationTotals| totals.chunks as f64;
        let first = chunks(&summary.generations[&0]);
        let mean = summary.generations.values().map(chunks).sum::<f64>();
        let mean = mean / summary.generations.len() as f64;
        assert!((mean / first - 1.0).abs() < 0.25, "{preset}: {first}, {mean} on average");
    }
}

#[test]
fn most_changes_hit_hot_files() {
    let touched = |hot_changes| {
        let generator = small(|parameters| {
            parameters.streams = 1;
            (parameters.deleted_share, parameters.added_share) = (0.0, 0.0);
            (parameters.hot_files, parameters.hot_changes) = (0.1, hot_changes);
            parameters.schedule = Schedule::WeeklyFull { days: 12 };
        });
        // An incremental backup holds the changed files.
        Summary::of(&generator).unwrap().generations[&5].chunks
    };
    assert!(2 * touched(0.95) < touched(0.0), "{} and {}", touched(0.95), touched(0.0));
}

#[test]
fn lineages_share_nothing() {
    let generator = small(|parameters| {
        parameters.streams = 2;
        parameters.lineages = 2;
    });
    let mut seen: [BTreeSet<u64>; 2] = Default::default();
    for (stream, seen) in (0..).zip(&mut seen) {
        generator
            .replay_files(stream, &mut |_, files| {
                seen.extend(files.concat());
                Ok(())
            })
            .unwrap();
    }
    assert!(seen[0].is_disjoint(&seen[1]) && !seen[0].is_empty());
}

#[test]
fn streams_alternate_batch_by_batch() {
    let generator =
        small(|parameters| (parameters.generations, parameters.generations_min) = (1, 1));
    let mut turns = Vec::new();
    generator
        .replay(&mut |event| {
            if let Event::Chunks { stream, chunks } = event {
                assert!(chunks.len() <= BATCH_CHUNKS);
                turns.push(stream);
            }
            Ok(())
        })
        .unwrap();
    let changes = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes * 2 > turns.len(), "{changes} of {}", turns.len());
}

#[test]
fn incremental_backups_hold_changed_files_only() {
    let generator = Generator::preset(Preset::Engineering, 20_000).unwrap();
    let summary = Summary::of(&generator).unwrap();
    let full = summary.generations[&7].chunks as f64;
    let incremental = summary.generations[&8].chunks as f64;
    assert!(incremental < 0.15 * full && incremental > 0.01 * full, "{incremental} of {full}");
}

#[test]
fn presets_deduplicate_as_the_papers_data_did() {
    let ratio = |preset, chunks| {
        let generator = Generator::preset(preset, chunks).unwrap();
        Summary::of(&generator).unwrap().total()
    };
    let exchange = ratio(Preset::Exchange, 20_000);
    assert!((exchange.ratio() / 5.69 - 1.0).abs() < 0.10, "{}", exchange.ratio());
    let engineering = ratio(Preset::Engineering, 20_000);
    assert!((engineering.ratio() / 5.04 - 1.0).abs() < 0.10, "{}", engineering.ratio());
    let mirror = ratio(Preset::Mirror, 10_000);
    assert!((1.0 - mirror.new_share() - 0.5638).abs() < 0.03, "{}", mirror.new_share());
    let primary = ratio(Preset::Primary, 5_000);
    assert!((0.3..0.6).contains(&primary.new_share()), "{}", primary.new_share());
    assert!((new_share_for(10.0, 10)).abs() < 1e-9 && new_share_for(1.0, 10) == 1.0);
}

#[test]
fn generations_are_deleted_in_the_order_asked_for() {
    let deleted = |order| {
        let generator = small(|parameters| {
            parameters.streams = 1;
            parameters.chunks = 50;
            parameters.generations = 6;
            parameters.generations_min = 6;
            parameters.deletion = Some(Deletion { keep: 3, order });
        });
        let mut check = Order::default();
        let mut deleted = Vec::new();
        generator
            .replay(&mut |event| {
                check.check(&event)?;
                if let Event::Delete { generation, .. } = event {
                    deleted.push(generation);
                }
                Ok(())
            })
            .unwrap();
        deleted
    };
    assert_eq!(deleted(DeletionOrder::Oldest), [0, 1, 2]);
    assert_eq!(deleted(DeletionOrder::Newest), [2, 3, 4]);
    let random = deleted(DeletionOrder::Random);
    assert!(random.len() == 3 && !random.contains(&5), "{random:?}");
}

#[test]
fn versions_of_a_lineage_are_spread_evenly() {
    let parameters = Parameters::preset(Preset::Mirror, 100);
    let versions = |number| parameters.calendar(number).iter().filter(|day| **day).count();
    assert_eq!([0, 1, 2, 3, 4, 5].map(versions), [5, 8, 11, 14, 17, 20]);
    let days: Vec<usize> = (0..20).filter(|day| parameters.calendar(0)[*day]).collect();
    assert_eq!(days, [0, 4, 8, 12, 16]);
}

#[test]
fn bytes_are_made_faster_than_the_papers_clients_made_them() {
    let generator = Generator::preset(Preset::Exchange, 4000).unwrap();
    let (start, mut bytes, mut count) = (Instant::now(), Vec::new(), 0);
    generator
        .replay_files(0, &mut |generation, files| {
            for number in files.concat().iter().filter(|_| generation < 3) {
                bytes.clear();
                generator.append_bytes(*number, &mut bytes)?;
                assert_eq!(bytes.len(), generator.chunk(*number).length_bytes as usize);
                count += bytes.len();
            }
            Ok(())
        })
        .unwrap();
    // 100 MB/s in the paper; the margin is for machines that run other tests meanwhile.
    assert!(count as f64 / start.elapsed().as_secs_f64() > 100e6);
}

#[test]
fn impossible_parameters_are_refused_with_the_range() {
    let refused = |change: fn(&mut Parameters)| {
        let mut parameters = Parameters::preset(Preset::Aged, 10);
        change(&mut parameters);
        Generator::new(parameters).unwrap_err().to_string()
    };
    let cases = [
        (refused(|p| p.streams = 0), "1 to 256"),
        (refused(|p| p.generations = 0), "1 to 100000"),
        (refused(|p| p.generations_min = 121), "1 to 120"),
        (refused(|p| p.chunks = 0), "1 to 268435456"),
        (refused(|p| p.chunk_min_bytes = 20_000), "1 to 12288"),
        (refused(|p| p.deleted_share = 0.95), "0 to 0.9"),
        (refused(|p| p.changed_share = f64::NAN), "0 to 0.9"),
        (refused(|p| p.compression_ratio = 0.5), "1 to 100"),
        (refused(|p| p.schedule = Schedule::WeeklyFull { days: 0 }), "1 to 120"),
        (refused(|p| p.run_chunks = 0.0), "1 to 1000000"),
        (
            refused(|p| p.deletion = Some(Deletion { keep: 0, order: DeletionOrder::Oldest })),
            "1 to",
        ),
    ];
    for (message, range) in cases {
        assert!(message.contains(range), "{message}");
    }
    assert!("nothing".parse::<Preset>().unwrap_err().to_string().contains("exchange, engin"));
}
