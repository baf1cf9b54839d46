#!/bin/sh
# What a store costs that has a past: backups of one tiny file, all but the last of them forgotten and
# collected; the objects that each command opens, its syncs, and its time. Several binaries take
# turns, each with a store of its own.
# usage: run.sh WORK_DIRECTORY SESSIONS ONEFOLD_BINARY...        (needs strace and GNU time)
set -eu
work=$(mktemp -d "$1/onefold-sessions-XXXXXX")
sessions=$2
shift 2
trap 'rm -rf "$work"' EXIT
export ONEFOLD_PASSWORD=sessions ONEFOLD_CONFIG=/dev/null
export XDG_CACHE_HOME="$work/cache" XDG_STATE_HOME="$work/state" HOME="$work"
mkdir "$work/source"

use() { # the binary of this number, and its store
    onefold=$(sed -n "$1p" "$work/binaries")
    export ONEFOLD_REPOSITORY="$work/store-$1"
}
save() {
    echo "$1" >"$work/source/file"
    "$onefold" -q backup "$work/source" >/dev/null
}
# Objects of the store that are opened to be read, by directory; a listing opens a directory, and
# asks for the kinds and sizes of what is in it with O_PATH.
opened() {
    strace -f -qq -e trace=openat,openat2 -o "$work/trace" "$onefold" "$@" >/dev/null 2>&1 || true
    grep -v -e ENOENT -e O_DIRECTORY -e O_CREAT -e O_PATH "$work/trace" |
        grep -oE '"(checkpoints|outcomes|tombstones|changes|copies|marks|fates|epochs|plans|sweeps|finished|sessions|index|metadata|containers|keys|generations|damage|doubts)/[^"]*"' |
        sed 's/"//; s,/.*,,' | sort | uniq -c |
        awk '{ sum += $1; list = list " " $2 "=" $1 } END { print sum + 0 " objects opened:" list }'
}
synced() {
    strace -f -qq -e trace=fsync,fdatasync,syncfs,sync_file_range -o "$work/trace" "$onefold" "$@" >/dev/null 2>&1
    awk '{ sub(/\(.*/, "", $2); count[$2]++ } END { for (name in count) print name "=" count[name] }' "$work/trace" | sort | paste -sd ' ' -
}
timed() {
    /usr/bin/time -f '%U %S %e %M' -o "$work/time" "$onefold" "$@" >/dev/null 2>&1 || true
    awk '{ print "user " $1 " s, sys " $2 " s, wall " $3 " s, peak " $4 " KiB" }' "$work/time"
}
told() { # what to call it, then the command
    name=$1
    shift
    for _ in 1 2 3; do echo "  $name: $(timed "$@")"; done
    echo "  $name: $(opened "$@")"
}

for binary in "$@"; do echo "$binary"; done >"$work/binaries"
for number in $(seq $#); do
    use "$number"
    "$onefold" init --kdf-memory 8MiB --kdf-passes 1 >/dev/null
    echo 0 >"$work/wall-$number"
done
for session in $(seq "$sessions"); do
    for number in $(seq $#); do
        use "$number"
        began=$(date +%s%N)
        save "$session"
        ended=$(date +%s%N)
        echo $(($(cat "$work/wall-$number") + ended - began)) >"$work/wall-$number"
    done
done
for number in $(seq $#); do
    use "$number"
    echo "binary $number: $("$onefold" --version)"
    echo "  $sessions backups: wall $(($(cat "$work/wall-$number") / 1000000)) ms"
    echo again >"$work/source/file"
    echo "  a backup: $(synced backup "$work/source")"
    told "snapshots, all live" snapshots
    echo "  forget --keep-last 1 --final: $(timed forget --keep-last 1 --final)"
    echo "  gc: $(timed gc)"
    told "snapshots, one live" snapshots
    for later in $(seq 8); do save "later $later"; done
    told "snapshots, 8 more" snapshots
    told "gc with nothing to do" gc
    told "check" check
    echo "once more" >"$work/source/file"
    echo "  a backup: $(opened backup "$work/source")"
    "$onefold" check --read-data >/dev/null && echo "  check --read-data: all is well"
done
