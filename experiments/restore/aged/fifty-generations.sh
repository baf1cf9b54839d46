#!/usr/bin/env bash
# Fifty generations of one tree in one store of each tool; the newest restored from a cold cache.
#
#   fifty-generations.sh ONEFOLD TREE WORK [GENERATIONS]
#
# Needs root (caches are dropped), GNU time, python3, and whichever of restic, rustic and borg is to
# be compared. Files are restored into memory (tmpfs): ext4 does not use the inodes of deleted files again for
# a minute or five and searches for others, which after some restores takes longer than the restore. Writes WORK/restores.txt (generation, tool, wall, user and system seconds; the newest
# as the store ages), WORK/curve.txt (the same; generations out of the final stores), WORK/plans.txt
# (generation, store, MB, plan as JSON) and WORK/sizes.txt.
set -euo pipefail
onefold=$(realpath "$1") tree=$(realpath "$2") work=$3 generations=${4:-50}
curve=restores.txt
here=$(dirname "$(realpath "$0")")
export ONEFOLD_PASSWORD=x RESTIC_PASSWORD=x RUSTIC_PASSWORD=x BORG_PASSPHRASE=x
export ONEFOLD_CACHE_DIR=$work/cache BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
rm -rf "$work"
mkdir -p "$work/out"
mount -t tmpfs -o size=75% tmpfs "$work/out"
trap 'umount "$work/out"' EXIT
cp -a "$tree" "$work/tree"
declare -A ways=([none]=none [default]=auto [loss-8]=auto,loss=8 [packed]=auto)
peers=()
for tool in restic rustic borg; do
    command -v $tool >/dev/null && peers+=("$tool")
done
for way in "${!ways[@]}"; do "$onefold" -q -r "$work/$way" init; done
for tool in "${peers[@]}"; do
    case $tool in
    restic) restic -q -r "$work/restic" init ;;
    rustic) rustic -r "$work/rustic" init >/dev/null 2>&1 ;;
    borg) borg init -e repokey-blake2 "$work/borg" >/dev/null 2>&1 ;;
    esac
done

save() {
    cd "$work/tree"
    for way in "${!ways[@]}"; do "$onefold" -q -r "$work/$way" backup . --rewrite "${ways[$way]}"; done
    for tool in "${peers[@]}"; do
        case $tool in
        restic) restic -q -r "$work/restic" backup . >/dev/null ;;
        rustic) rustic -r "$work/rustic" backup . >/dev/null 2>&1 ;;
        borg) borg create -C lz4 "$work/borg::g$1" . ;;
        esac
    done
}

timed() {
    local generation=$1 name=$2
    shift 2
    find "$work/out" -mindepth 1 -delete
    sync
    echo 3 >/proc/sys/vm/drop_caches
    (cd "$work/out" && /usr/bin/time -f "%e %U %S" -o "$work/time" "$@" >/dev/null 2>&1)
    echo "$generation $name $(tail -1 "$work/time")" >>"$work/$curve"
}

# The name that a tool gives to a generation, oldest first.
snapshot() {
    local generation=$1 name=$2
    case $name in
    borg) echo "g$generation" ;;
    restic) restic -q -r "$work/restic" snapshots --json | python3 -c "
import json, sys
all = sorted(json.load(sys.stdin), key=lambda one: one['time'])
print(all[$generation]['id'])" ;;
    rustic) rustic -r "$work/rustic" snapshots --json 2>/dev/null | python3 -c "
import json, sys
groups = json.load(sys.stdin)
all = [one for group in groups for one in (group[1] if isinstance(group, list) else group['snapshots'])]
print(sorted(all, key=lambda one: one['time'])[$generation]['id'])" ;;
    *) "$onefold" --json -r "$work/$name" snapshots | python3 -c "
import json, sys
all = [json.loads(line) for line in sys.stdin]
print([one['id'] for one in all if one['message_type'] == 'snapshot'][$generation])" ;;
    esac
}

# Restores one generation out of every store.
restore_all() {
    local generation=$1 store tool
    for store in "${!ways[@]}"; do
        timed "$generation" "$store" "$onefold" -q -r "$work/$store" \
            restore "$(snapshot "$generation" "$store")" -t "$work/out/t"
    done
    for tool in "${peers[@]}"; do
        case $tool in
        restic) timed "$generation" restic restic -q -r "$work/restic" \
            restore "$(snapshot "$generation" restic)" --target "$work/out/t" ;;
        rustic) timed "$generation" rustic rustic -r "$work/rustic" \
            restore "$(snapshot "$generation" rustic)" "$work/out/t" ;;
        borg) timed "$generation" borg borg extract "$work/borg::g$generation" ;;
        esac
    done
}

measure() {
    local generation=$1 store
    rm -rf "$work/alone"
    "$onefold" -q -r "$work/alone" init
    (cd "$work/tree" && "$onefold" -q -r "$work/alone" backup . --rewrite none)
    for store in "${!ways[@]}" alone; do
        echo "$generation $store $(du -sm "$work/$store" | cut -f1)" \
            "$("$onefold" --json -r "$work/$store" restore latest --plan | tail -1)" >>"$work/plans.txt"
    done
    timed "$generation" alone "$onefold" -q -r "$work/alone" restore latest -t "$work/out/t"
}

for generation in $(seq 0 "$generations"); do
    [ "$generation" = 0 ] || python3 "$here/edit.py" "$work/tree" "$generation"
    save "$generation"
    if [ $((generation % 10)) = 0 ]; then
        "$onefold" -q -r "$work/packed" gc --repack
        measure "$generation"
        restore_all "$generation"
    fi
done
cp -a "$work/default" "$work/packed-once"
"$onefold" -q -r "$work/packed-once" gc --repack
ways[packed-once]=auto
echo "$generations packed-once $(du -sm "$work/packed-once" | cut -f1)" \
    "$("$onefold" --json -r "$work/packed-once" restore latest --plan | tail -1)" >>"$work/plans.txt"
timed "$generations" packed-once "$onefold" -q -r "$work/packed-once" restore latest -t "$work/out/t"
curve=curve.txt
for generation in $(seq 0 5 "$generations"); do restore_all "$generation"; done
cd "$work"
du -sm "${!ways[@]}" "${peers[@]}" >sizes.txt
