#!/bin/sh
# Peak memory of backup, restore, check and gc at 1, 4 and 16 threads under two limits.
# usage: threads.sh ONEFOLD_BINARY WORK_DIRECTORY      (needs 3 GB there, and GNU time)
set -eu
onefold=$1
work=$(mktemp -d "$2/onefold-threads-XXXXXX")
trap 'rm -rf "$work"' EXIT
export ONEFOLD_REPOSITORY="$work/store"
# The key of an encrypted store takes its 64 MiB for a moment, whatever the limit.
peak() { /usr/bin/time -f %M -o "$work/peak" "$onefold" "$@" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }; printf ' %s |' "$(($(cat "$work/peak") / 1024))"; }
for number in 1 2 3 4; do
    mkdir -p "$work/source/$number"
    for file in 1 2 3 4 5; do head -c 20000000 /dev/urandom >"$work/source/$number/$file"; done
done
echo "| limit, threads | backup | backup, 4 streams | again, -f | restore | check --read-data | gc |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
for memory in 48MiB 64MiB 256MiB; do
    for threads in 1 4 16; do
        export ONEFOLD_MEMORY=$memory ONEFOLD_THREADS=$threads
        rm -rf "$ONEFOLD_REPOSITORY" "$work/restored"
        "$onefold" init --encryption none --chunk-size 1KiB >/dev/null
        printf '| %s, %s |' "$memory" "$threads"
        peak backup "$work/source/1" "$work/source/2"
        peak backup --streams 4 "$work"/source/?
        peak backup -f "$work"/source/?
        peak restore latest --target "$work/restored"
        peak check --read-data
        "$onefold" forget --final --keep-last 1 --group-by '' >/dev/null 2>&1
        peak gc --space-goal all
        echo
    done
done
