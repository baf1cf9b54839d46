//! Engines as a user writes them.

use onefold_policy::restore_plan::{ContainerSizes, ENGINE_MEMORY_RANGE_BYTES, RestoreEngine};

#[test]
fn engines_are_written_as_they_are_read() {
    for memory_bytes in [1, 1000, 1 << 10, 32 << 20, 3 << 30, *ENGINE_MEMORY_RANGE_BYTES.end()] {
        for engine in RestoreEngine::with_memory(memory_bytes) {
            assert_eq!(engine.to_string().parse::<RestoreEngine>().unwrap(), engine);
        }
    }
    let fixed = RestoreEngine::AdaptiveLookAhead {
        memory_bytes: 16 << 20,
        look_ahead_bytes: 1 << 30,
        adapts: false,
    };
    assert_eq!(fixed.to_string(), "adaptive,memory=16M,look-ahead=1G,fixed");
    assert_eq!(fixed.to_string().parse::<RestoreEngine>().unwrap(), fixed);
    assert_eq!(RestoreEngine::default().to_string(), "forward,memory=32M,rolling");
    // Of no unit, though it is a multiple of each.
    let none = RestoreEngine::ChunkCache { memory_bytes: 0 };
    assert_eq!(none.to_string(), "chunk-cache,memory=0");
}

#[test]
fn what_is_not_said_is_the_papers_eight_containers() {
    let engine = |text: &str| text.parse::<RestoreEngine>().unwrap();
    assert_eq!(engine("container-cache"), RestoreEngine::with_memory(32 << 20)[0]);
    let forward = RestoreEngine::ForwardAssembly { area_bytes: 32 << 20, rolling: false };
    assert_eq!(engine("forward"), forward);
    let adaptive = RestoreEngine::AdaptiveLookAhead {
        memory_bytes: 64 << 20,
        look_ahead_bytes: 64 << 20,
        adapts: true,
    };
    assert_eq!(engine("adaptive,memory=64M"), adaptive);
    assert_eq!(engine("direct"), RestoreEngine::Direct);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    let refused = [
        ("magic", "optimal-chunks"),
        ("", "optimal-chunks"),
        ("forward,memory", "32M"),
        ("forward,memory=", "32M"),
        ("forward,memory=32X", "32M"),
        ("forward,memory=é", "32M"),
        ("forward,memory=99999999999999999999", "32M"),
        ("forward,memory=99999999999999G", "32M"),
        ("forward,memory=0", "from 1 to"),
        ("adaptive,look-ahead=0", "from 1 to"),
        ("optimal,rolling", "rolling"),
        ("optimal,rolling=1", "rolling"),
        ("direct,memory=5", "memory"),
        ("adaptive,rolling", "rolling"),
    ];
    for (text, expected) in refused {
        let error = text.parse::<RestoreEngine>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for engine in &RestoreEngine::with_memory(0)[..7] {
        let error = engine.plan(&[], ContainerSizes(&[])).unwrap_err().to_string();
        assert!(error.contains("from 1 to 17592186044416"), "{error}");
    }
}
