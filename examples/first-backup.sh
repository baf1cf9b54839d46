#!/bin/sh
# Makes a throw-away store, backs up a directory, lists, restores, compares and verifies.
#
#   sh examples/first-backup.sh [DIRECTORY]      (default: the source code of this project)
#
# Everything is made below a new temporary directory, which is named at the end and may be deleted.
set -eu

cd "$(dirname "$0")/.."
case ${1:-} in
    "") source_directory=$PWD/crates ;;
    /*) source_directory=$1 ;;
    *) echo "first-backup.sh: name the directory by its absolute path" >&2; exit 1 ;;
esac
if [ ! -d "$source_directory" ]; then
    echo "first-backup.sh: '$source_directory' is not a directory" >&2
    exit 1
fi

say() {
    printf '\n\033[1m$ onefold %s\033[0m\n' "$*"
}

echo "Building Onefold (the first time takes some minutes) ..."
cargo build --release --locked --package onefold-cli
onefold=${CARGO_TARGET_DIR:-target}/release/onefold

place=$(mktemp -d "${TMPDIR:-/tmp}/onefold-first-backup.XXXXXX")
ONEFOLD_REPOSITORY=$place/store
ONEFOLD_PASSWORD=correct-horse-battery-staple
export ONEFOLD_REPOSITORY ONEFOLD_PASSWORD

say init
"$onefold" init

say backup "$source_directory"
"$onefold" backup "$source_directory"

say backup "$source_directory" "   (again: what did not change is not read)"
"$onefold" backup "$source_directory"

say snapshots
"$onefold" snapshots

say restore latest --target "$place/restored"
"$onefold" restore latest --target "$place/restored"

printf '\n\033[1m$ diff -r %s %s\033[0m\n' "$source_directory" "$place/restored$source_directory"
diff -r "$source_directory" "$place/restored$source_directory"
echo "no difference"

say check --read-data
"$onefold" check --read-data

say stats
"$onefold" stats

cat <<END

Everything is in $place
  store     $ONEFOLD_REPOSITORY   (its password is $ONEFOLD_PASSWORD)
  restored  $place/restored
Delete it when you have seen enough: rm -r $place
END
