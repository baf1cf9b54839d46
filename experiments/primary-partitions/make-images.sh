#!/bin/sh
# Makes an image of a disk, with a file system in it, of every directory: disks of machines that
# have most in common. Needs mkfs.ext4, and no privilege.
#
#   make-images.sh OUT DIRECTORY...
set -eu
out=$1
shift
mkdir -p "$out"
number=0
for directory in "$@"; do
    number=$((number + 1))
    image=$out/machine-$number.img
    # Half as much room again, and some for the file system itself.
    size=$(du -sm --apparent-size "$directory" | cut -f1)
    truncate -s "$((size * 3 / 2 + 64))M" "$image"
    mkfs.ext4 -q -F -b 4096 -U 00000000-0000-4000-8000-000000000000 \
        -E hash_seed=00000000-0000-4000-8000-000000000000,lazy_itable_init=1 \
        -d "$directory" "$image"
done
