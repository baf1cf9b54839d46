#!/bin/sh
# Fills corpus/TARGET with the golden files that each target decodes.
set -eu
cd "$(dirname "$0")"
golden=../crates/format/tests/golden/v4

seed() {
    target=$1
    shift
    mkdir -p "corpus/$target"
    for pattern in "$@"; do
        cp "$golden"/$pattern "corpus/$target/"
    done
}

seed container_header 'container-header*'
seed container_footer 'container-footer*'
seed metadata_section 'metadata-section.*' 'metadata-section-ordinary*'
seed coded_section 'metadata-section-coded*'
seed metadata_pack 'metadata-pack*'
seed index_page 'index-page*'
seed index_table 'index-table*'
seed index_footer 'index-footer*'
seed index_piece 'index-piece*'
seed node 'node-*'
seed record '*.json'
seed configuration 'configuration*'
seed frame 'frame-*'
seed name 'configuration*'
seed stub 'stub-*'
seed share 'share.json'
mkdir -p corpus/key_slot
python3 - ../crates/crypto/tests/known_answers/answers.json corpus/key_slot <<'END'
import json, pathlib, sys

for number, slot in enumerate(json.load(open(sys.argv[1]))["key_slots"]):
    pathlib.Path(sys.argv[2], f"slot-{number}").write_text(slot)
END
