#!/bin/sh
# Ten million chunks in one store under a memory limit of 64 MiB: peak memory of every command.
# usage: run.sh ONEFOLD_BINARY WORK_DIRECTORY      (needs 7 GB there, and GNU time)
set -eu
onefold=$1
work=$(mktemp -d "$2/onefold-memory-XXXXXX")
trap 'rm -rf "$work"' EXIT
export ONEFOLD_REPOSITORY="$work/store" ONEFOLD_PASSWORD=memory ONEFOLD_MEMORY=64MiB
run() { /usr/bin/time -f "$1: user %U s, sys %S s, wall %e s, peak %M KiB" "$onefold" $2 >"$work/out" 2>"$work/err" <"${3:-/dev/null}" || { cat "$work/out" "$work/err"; exit 1; }; tail -n 1 "$work/err"; }
head -c 2700000000 /dev/urandom >"$work/random"
echo small >"$work/small"
"$onefold" init --chunk-size 256 --no-tar-awareness --compression none >/dev/null
run "backup, 10 million new chunks" "backup --stdin --stdin-filename random" "$work/random"
run "backup, the same again" "backup --stdin --stdin-filename random" "$work/random"
run "backup of one small file" "backup $work/small"
run "check" "check"
run "check --read-data" "check --read-data"
run "restore" "restore latest~1 --target $work/restored"
cmp "$work/random" "$work/restored/random" && echo "restored data are identical"
"$onefold" stats
