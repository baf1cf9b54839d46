#!/bin/sh
# What a program pays for reading a mounted snapshot: all files of a tree, one large file, listings of
# 100,000 entries; beside 'restore', the plain directory, and another tool that mounts, taking turns.
# usage: run.sh WORK_DIRECTORY TREE ONEFOLD_BINARY [RESTIC_BINARY]     (needs root, FUSE and GNU time)
set -eu
data=$2
onefold=$3
restic=${4:-}
runs=${RUNS:-5}
entries=${ENTRIES:-100000}
work=$(mktemp -d "$1/onefold-mount-XXXXXX")
point="$work/point"
finish() {
    umount -l "$point" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
export ONEFOLD_PASSWORD=mount ONEFOLD_CONFIG=/dev/null ONEFOLD_REPOSITORY="$work/store"
export RESTIC_PASSWORD=mount RESTIC_REPOSITORY="$work/restic"
export XDG_CACHE_HOME="$work/cache" XDG_STATE_HOME="$work/state" HOME="$work"
mkdir -p "$point" "$work/many" "$work/large"

tar cf "$work/large/one.tar" -C "$data" .
awk -v entries="$entries" 'BEGIN { for (i = 0; i < entries; i++) printf "%s/%03d/%03d\n", "d", i / 1000, i % 1000 }' |
    (cd "$work/many" && sed 's,/[^/]*$,,' | sort -u | xargs mkdir -p)
awk -v work="$work/many" -v entries="$entries" 'BEGIN {
    for (i = 0; i < entries; i++) { file = sprintf("%s/d/%03d/%03d", work, i / 1000, i % 1000); printf "%d\n", i > file; close(file) } }'

"$onefold" -q init --kdf-memory 8MiB --kdf-passes 1
for tree in "$data" "$work/large" "$work/many"; do "$onefold" -q backup "$tree"; done
if [ -n "$restic" ]; then
    "$restic" -q init
    for tree in "$data" "$work/large" "$work/many"; do "$restic" -q backup "$tree"; done
fi

up() { # mounts by a tool, with its options
    tool=$1
    shift
    case $tool in
    onefold) "$onefold" -q mount "$@" "$point" & ;;
    restic) "$restic" -q mount "$@" "$point" >/dev/null & ;;
    esac
    process=$!
    while [ ! -d "$point/ids" ]; do sleep 0.05; done
}
down() {
    umount "$point" || { sleep 1; umount -l "$point"; }
    wait "$process" || true
}
root() { # of the snapshot of a tree
    for snapshot in "$point"/ids/*; do
        if [ -d "$snapshot$1" ]; then
            echo "$snapshot$1"
            return
        fi
    done
    echo "no snapshot of $1" >&2
    exit 1
}
cpu() { awk '{ print $14 + $15 }' "/proc/$process/stat"; }
# Seconds of a command, then those of CPU that the mount took for it.
timed() {
    what=$1
    shift
    before=$(cpu)
    began=$(date +%s%N)
    "$@" >/dev/null
    ended=$(date +%s%N)
    echo "$what $(((ended - began) / 1000000)) $((($(cpu) - before) * 10))" >>"$work/figures"
}
alone() { # a command without a mount
    what=$1
    shift
    began=$(date +%s%N)
    /usr/bin/time -f '%U %S' -o "$work/time" "$@" >/dev/null
    ended=$(date +%s%N)
    echo "$what $(((ended - began) / 1000000)) $(awk '{ print int(1000 * ($1 + $2)) }' "$work/time")" >>"$work/figures"
}
read_all() { find "$1" -type f -print0 | xargs -0 cat | cat; }
compare() { diff -r --no-dereference "$1" "$2"; }

for run in $(seq "$runs"); do
    for tool in onefold ${restic:+restic}; do
        case $tool in
        onefold) alone "onefold restore-files" "$onefold" -q restore "latest" --path "$data" --target "$work/out" ;;
        restic) alone "restic restore-files" "$restic" -q restore latest --path "$data" --target "$work/out" ;;
        esac
        [ "$run" -gt 1 ] || compare "$data" "$work/out$data"
        rm -rf "$work/out"
        case $tool in
        onefold) alone "onefold restore-large" "$onefold" -q restore latest --path "$work/large" --target "$work/out" ;;
        restic) alone "restic restore-large" "$restic" -q restore latest --path "$work/large" --target "$work/out" ;;
        esac
        rm -rf "$work/out"
        # What a mount has shown before stays in the kernel's memory no longer than the mount.
        up $tool
        tree=$(root "$data")
        timed "$tool read-files" read_all "$tree"
        timed "$tool read-files-again" read_all "$tree"
        [ "$run" -gt 1 ] || compare "$data" "$tree"
        timed "$tool read-large" cat "$(root "$work/large")/one.tar"
        many=$(root "$work/many")
        timed "$tool list-first" ls -lR "$many"
        timed "$tool list-warm" ls -lR "$many"
        timed "$tool find-warm" find "$many" -size +1
        echo "$tool peak-memory $(awk '/VmHWM/ { print $2 }' "/proc/$process/status") 0" >>"$work/figures"
        down
    done
    up onefold --no-xattrs
    many=$(root "$work/many")
    timed "onefold-no-xattrs list-first" ls -lR "$many"
    timed "onefold-no-xattrs list-warm" ls -lR "$many"
    # The plain directory, with the same clock.
    for what in read-files read-files-again; do timed "plain $what" read_all "$data"; done
    timed "plain read-large" cat "$work/large/one.tar"
    for what in list-first list-warm; do timed "plain $what" ls -lR "$work/many"; done
    timed "plain find-warm" find "$work/many" -size +1
    down
done

echo "$(find "$data" -type f | wc -l) files, $(du -sb "$data" | cut -f1) bytes; $entries entries; $runs runs"
echo "medians; CPU of the mount or of the command, not of the program that reads"
echo "tool what ms cpu_ms"
sort -k1,1 -k2,2 -k3,3n "$work/figures" | awk '
    function told() { if (n) { m = int((n + 1) / 2); asort_cpu(); print key, wall[m], cpu[m] } }
    function asort_cpu(i, j, t) { for (i = 2; i <= n; i++) for (j = i; j > 1 && cpu[j - 1] > cpu[j]; j--) { t = cpu[j]; cpu[j] = cpu[j - 1]; cpu[j - 1] = t } }
    { if ($1 " " $2 != key) { told(); key = $1 " " $2; n = 0 } n++; wall[n] = $3 + 0; cpu[n] = $4 + 0 }
    END { told() }'
