#!/usr/bin/env bash
# DS-B: large binaries that change: 10 states of two programs in compiled form, as a backup of a machine sees them
# that follows their releases. Few files hold nearly all bytes, and all of these are built anew for each release.
# usage: make-dataset-b.sh OUTDIR      -> OUTDIR/g00 .. OUTDIR/g09, OUTDIR/digests.txt
# Needs pip (any python3 with zipfile) and coreutils; uses the registry through its ordinary client.
# Re-runnable: components already fetched (OUTDIR/.dl) and generations already built are kept.
set -euo pipefail
OUT=${1:?usage: $0 OUTDIR}; mkdir -p "$OUT/.dl"; OUT=$(cd "$OUT" && pwd); DL=$OUT/.dl

wheel() { # name version dest
  [ -d "$3" ] && return; rm -rf "$3.t" "$DL/wh"; mkdir -p "$3.t" "$DL/wh"
  pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 --implementation cp \
      --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux_2_28_x86_64 \
      -d "$DL/wh" "$1==$2"
  python3 -m zipfile -e "$DL"/wh/*.whl "$3.t"
  rm -rf "$DL/wh"; mv "$3.t" "$3"; }

# generation   date        pyarrow  polars
PLAN='
00 2023-07-20 12.0.1 0.18.8
01 2023-09-05 13.0.0 0.19.2
02 2023-11-03 14.0.0 0.19.12
03 2023-11-20 14.0.1 0.19.14
04 2023-12-22 14.0.2 0.20.2
05 2024-01-25 15.0.0 0.20.5
06 2024-02-28 15.0.1 0.20.13
07 2024-03-25 15.0.2 0.20.16
08 2024-04-25 16.0.0 0.20.22
09 2024-05-20 16.1.0 0.20.26
'
while read -r g date a p; do
  [ -n "$g" ] || continue
  dst=$OUT/g$g; [ -d "$dst" ] && continue
  wheel pyarrow "$a" "$DL/pyarrow-$a"
  wheel polars  "$p" "$DL/polars-$p"
  rm -rf "$dst.t"; mkdir -p "$dst.t"
  for c in "pyarrow $a" "polars $p"; do
    set -- $c; src=$DL/$1-$2
    chmod -R u+rwX,go+rX "$src"; find "$src" -exec touch -h -d "$date 12:00:00 UTC" {} +
    cp -a "$src" "$dst.t/$1"
  done
  touch -d "$date 12:00:00 UTC" "$dst.t"; mv "$dst.t" "$dst"
done <<<"$PLAN"
: > "$OUT/digests.txt"
for d in "$OUT"/g[0-9][0-9]; do
  h=$(cd "$d" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
  echo "$(basename "$d") files=$(find "$d" -type f | wc -l) bytes=$(find "$d" -type f -printf '%s\n' | awk '{s+=$1}END{print s}') digest=$h" >> "$OUT/digests.txt"
done
cat "$OUT/digests.txt"
