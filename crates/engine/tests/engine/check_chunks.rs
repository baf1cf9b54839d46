//! What seals and sums cannot tell: a chunk that is not what it is named by.

use crate::ingest::{in_memory, options, random_bytes};
use crate::steps::{check_with, forging};
use onefold_engine::check::ReadData;
use onefold_engine::container::frame::{CodedFrame, FrameChunk};
use onefold_engine::container::open::OpenContainer;
use onefold_engine::index::append;
use onefold_format::codec::Codec;
use onefold_types::{Fingerprint, Level};
use std::sync::Arc;

#[test]
fn s1_10_a_chunk_is_compared_with_its_name_though_its_frame_is_sound() {
    let (_, store) = in_memory();
    let repository = crate::ingest::create(&store, &options());
    let parts = [random_bytes(1, 5000), random_bytes(2, 6000)];
    let right = repository.fingerprinter().data(&parts[0]);
    for (name, is_sound) in
        [(repository.fingerprinter().data(&parts[1]), true), (Fingerprint([7; 32]), false)]
    {
        let context = forging(&repository);
        let mut open = OpenContainer::new(Arc::clone(&context));
        let chunk = |fingerprint, bytes: &Vec<u8>| {
            let length = u32::try_from(bytes.len()).unwrap();
            FrameChunk { fingerprint, length, level: Level::DATA }
        };
        let bytes = parts.concat();
        // Frames that are taken over are sealed anew without a look at the chunks.
        open.carry(CodedFrame {
            plain_length: u32::try_from(bytes.len()).unwrap(),
            bytes,
            codec: Codec::Raw,
            chunks: vec![chunk(right, &parts[0]), chunk(name, &parts[1])],
            deltas: Vec::new(),
            sketches: Vec::new(),
        })
        .unwrap();
        open.finish().unwrap();
        let durable = context.log.settle().unwrap();
        append::append(&repository, None, &durable).unwrap();
        // A check that does not open frames finds nothing.
        assert!(check_with(&repository, ReadData::None).damaged_containers.is_empty());
        let report = check_with(&repository, ReadData::All);
        assert_eq!(report.damaged_containers.len(), usize::from(!is_sound), "{report:?}");
        if let [(id, problem)] = &report.damaged_containers[..] {
            assert_eq!(*id, durable[0].id);
            assert!(problem.contains(&name.to_string()), "{problem}");
            assert!(problem.contains("does not have its fingerprint"), "{problem}");
        }
    }
}
