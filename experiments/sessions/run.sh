#!/bin/sh
# What opening a store costs that has a past: backups of one tiny file, all but one of them forgotten
# and collected; the objects that each command opens, its syncs, and its time.
# usage: run.sh ONEFOLD_BINARY WORK_DIRECTORY [SESSIONS]        (needs strace and GNU time)
set -eu
onefold=$1
sessions=${3:-300}
work=$(mktemp -d "$2/onefold-sessions-XXXXXX")
trap 'rm -rf "$work"' EXIT
export ONEFOLD_REPOSITORY="$work/store" ONEFOLD_PASSWORD=sessions ONEFOLD_CONFIG=/dev/null
export XDG_CACHE_HOME="$work/cache" XDG_STATE_HOME="$work/state" HOME="$work"
mkdir "$work/source"

# Objects of the store that are opened to be read, by directory; a listing opens a directory.
opened() {
    strace -f -qq -e trace=openat,openat2 -o "$work/trace" "$onefold" "$@" >/dev/null 2>&1 || true
    grep -v -e ENOENT -e O_DIRECTORY -e O_CREAT "$work/trace" | grep -o '"[a-z]*/[^"]*"' |
        grep -E '"(checkpoints|outcomes|tombstones|changes|copies|marks|fates|epochs|plans|sweeps|finished|sessions|index|metadata|containers|keys|generations|damage|doubts)/' |
        sed 's/"//; s,/.*,,' | sort | uniq -c | awk '{ sum += $1; list = list " " $2 "=" $1 } END { print sum + 0 " objects opened:" list }'
}
synced() {
    strace -f -qq -e trace=fsync,fdatasync,syncfs,sync_file_range -o "$work/trace" "$onefold" "$@" >/dev/null 2>&1
    awk '{ sub(/\(.*/, "", $2); count[$2]++ } END { for (name in count) print name "=" count[name] }' "$work/trace" | sort | paste -sd ' '
}
timed() {
    /usr/bin/time -f '%U %S %e %M' -o "$work/time" "$onefold" "$@" >/dev/null 2>&1 || true
    awk '{ print "user " $1 " s, sys " $2 " s, wall " $3 " s, peak " $4 " KiB" }' "$work/time"
}
told() { # what to call it, then the command
    name=$1
    shift
    for _ in 1 2 3; do echo "$name: $(timed "$@")"; done
    echo "$name: $(opened "$@")"
}

"$onefold" init --kdf-memory 8MiB --kdf-passes 1 >/dev/null
began=$(date +%s%N)
for number in $(seq "$sessions"); do
    echo "$number" >"$work/source/file"
    "$onefold" -q backup "$work/source" >/dev/null
done
ended=$(date +%s%N)
echo "$sessions backups: wall $(((ended - began) / 1000000)) ms"
told "snapshots, $sessions live" snapshots
echo "forget: $(timed forget --keep-last 1 --final)"
echo "gc: $(timed gc)"
told "snapshots, 1 live of $sessions" snapshots
for number in $(seq 8); do
    echo "later $number" >"$work/source/file"
    "$onefold" -q backup "$work/source" >/dev/null
done
told "snapshots, 8 more" snapshots
told "gc with nothing to do" gc
told "check" check
echo "again" >"$work/source/file"
echo "backup: $(opened backup "$work/source")"
echo "yet again" >"$work/source/file"
echo "backup: $(synced backup "$work/source")"
