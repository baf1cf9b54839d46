#!/usr/bin/env -S python3 -B
"""The same files in a share, and deduplicated in place by duperemove on btrfs and xfs.

usage: peers.py WORK_DIRECTORY ONEFOLD_BINARY TREE... [--runs N] [--out DIRECTORY] [--tiny]
       (needs root, FUSE, loop devices; mkfs.btrfs, mkfs.xfs and duperemove)

For each TREE, N (3) times, taking turns, medians:

    plain       files on the file system of WORK_DIRECTORY
    share       the same, optimised, its store beside it; read through the mount
    btrfs       on a file with that file system, `duperemove -dr`
    btrfs zstd  the same, mounted with `compress=zstd`
    xfs         the same on xfs, whose blocks are shared (reflinks)

Bytes: of plain and share what the blocks of all files take, the store's among them; of the others
what the file system says is used beyond what it used when it was empty. CPU is what the program took;
what the kernel's own threads take is not in it, and of a share the mount's is told by itself.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from measuring import (
    MIB, Program, Ran, Table, allocated, assert_same, can_mount, cold, copied, ended, median,
    read_tree, skip, used,
)

# How a file system is made and mounted, by name.
FILE_SYSTEMS = {
    "btrfs": (["mkfs.btrfs", "-q"], "noatime"),
    "btrfs zstd": (["mkfs.btrfs", "-q"], "noatime,compress=zstd"),
    "xfs": (["mkfs.xfs", "-q", "-m", "reflink=1"], "noatime"),
}


class Image:
    """A file system in a file."""

    def __init__(self, work, kind, size):
        make, options = FILE_SYSTEMS[kind]
        self.image, self.point, self.device = work / "image", work / "mounted", None
        self.point.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(size)
        loop = ["losetup", "-f", "--show", str(self.image)]
        # Pages are to be kept once, not by the image's file too.
        found = subprocess.run([*loop, "--direct-io=on"], capture_output=True, text=True)
        if found.returncode != 0:
            found = subprocess.run(loop, capture_output=True, text=True, check=True)
        self.device = found.stdout.strip()
        try:
            subprocess.run([*make, self.device], check=True, capture_output=True)
            subprocess.run(["mount", "-o", options, self.device, str(self.point)], check=True)
            self.empty = used(self.point)
        except BaseException:
            self.end()
            raise

    def bytes(self):
        return used(self.point) - self.empty

    def settled(self):
        """What is not referred to any more is freed by and by."""
        last, begun = None, time.monotonic()
        while (now := self.bytes()) != last and time.monotonic() - begun < 120:
            last = now
            time.sleep(2)
        return now

    def end(self):
        subprocess.run(["umount", str(self.point)], check=False, capture_output=True)
        if self.device:
            subprocess.run(["losetup", "-d", self.device], check=False)
        self.image.unlink()


def reads(figures, path):
    cold()
    figures["cold"] = read_tree(path)
    read_tree(path)
    figures["warm"] = read_tree(path)


def measure_plain(arguments, work, tree):
    files = work / "files"
    copied(tree, files)
    os.sync()
    figures = {"before": allocated(files)}
    reads(figures, files)
    return figures


def measure_share(arguments, work, tree):
    files = work / "files"
    copied(tree, files)
    program = Program(arguments.onefold, work)
    program.init()
    program.run("share", "create", "--min-age", "0s", files)
    time.sleep(0.2)
    os.sync()
    figures = {"before": allocated(files)}
    cold()
    ran = program.timed("share", "optimize", files)
    os.sync()
    figures.update(after=allocated(files, program.store), wall=ran.wall, cpu=ran.cpu, memory=ran.memory)
    process = program.mount(files)
    try:
        assert_same(tree, files)
        before = cpu_of(process)
        reads(figures, files)
        figures["mount_cpu"] = cpu_of(process) - before
    finally:
        ended(process, files)
    return figures


def cpu_of(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_image(kind):
    def measure(arguments, work, tree):
        image = Image(work, kind, max(2 * allocated(tree) + 1024 * MIB, 2048 * MIB))
        try:
            files = image.point / "files"
            copied(tree, files)
            figures = {"before": image.settled()}
            cold()
            command = ["duperemove", "-dr", f"--hashfile={work / 'hashes'}", str(files)]
            # It ends with 22 where there is nothing to deduplicate.
            ran = Ran(command, allowed=(0, 22))
            figures.update(after=image.settled(), wall=ran.wall, cpu=ran.cpu, memory=ran.memory)
            assert_same(tree, files)
            reads(figures, files)
            return figures
        finally:
            image.end()
    return measure


def systems():
    """What can be measured here; what cannot is told."""
    found = {"plain": measure_plain, "share": measure_share}
    for kind, (make, _) in FILE_SYSTEMS.items():
        missing = [name for name in (make[0], "duperemove", "losetup") if not shutil.which(name)]
        if missing:
            skip(f"{kind} was not measured: there is no {', '.join(missing)}")
        elif reason := why_not(kind):
            skip(f"{kind} was not measured: {reason}")
        else:
            found[kind] = measure_image(kind)
    return found


def why_not(kind):
    with tempfile.TemporaryDirectory() as probe:
        image = None
        try:
            image = Image(pathlib.Path(probe), kind, 512 * MIB)
        except (subprocess.CalledProcessError, OSError) as error:
            return f"no file system in a file: {error}"
        finally:
            if image:
                image.end()
    return None


def told(table, tree, kind, rounds, plain):
    def middle(name, scale=1.0, digits=0):
        values = [figures[name] for figures in rounds if name in figures]
        return f"{median(values) / scale:.{digits}f}" if values else ""
    # Of what plain files take, whoever compresses as it writes.
    whole = median([figures["before"] for figures in plain])
    left = median([figures.get("after", figures["before"]) for figures in rounds])
    mount_cpu = middle("mount_cpu", digits=1)
    table.say(
        tree, kind, middle("before", 1e6), middle("after", 1e6), f"{1 - left / whole:.1%}",
        middle("wall", digits=1), middle("cpu", digits=1), middle("memory", MIB),
        middle("cold"), middle("warm"), mount_cpu)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("onefold")
    parser.add_argument("trees", nargs="+", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=int(os.environ.get("RUNS", "3")))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not can_mount():
        skip("shares were not compared with others: it takes root and /dev/fuse")
        return
    if arguments.tiny:
        arguments.runs = 1
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    measured = systems()
    table = Table(arguments.out, "TREE", "system", "MB before", "MB after", "saved", "s", "CPU s", "MiB memory",
                  "MB/s cold", "MB/s warm", "CPU s of the mount")
    for number, tree in enumerate(arguments.trees, 1):
        rounds = {kind: [] for kind in measured}
        for turn in range(arguments.runs):
            for kind, measure in measured.items():
                work = pathlib.Path(tempfile.mkdtemp(prefix="onefold-peers-", dir=arguments.work))
                try:
                    figures = measure(arguments, work, tree)
                finally:
                    shutil.rmtree(work, ignore_errors=True)
                rounds[kind].append(figures)
                table.keep("round", tree=number, system=kind, round=turn + 1, **figures)
        for kind in measured:
            told(table, number, kind, rounds[kind], rounds["plain"])


# Whoever ends it finds everything taken away.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
