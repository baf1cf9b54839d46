#!/usr/bin/env python3
"""What programs pay for files of a share, and what optimising them takes.

usage: run.py WORK_DIRECTORY TREE ONEFOLD_BINARY [LARGE_GIB]     (needs root, FUSE)

Medians of RUNS (5) rounds, plain and share taking turns; caches are dropped before what is called
cold. The large file is LARGE_GIB (10), of random data that repeats every GiB.
"""

import json
import mmap
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

RUNS = int(os.environ.get("RUNS", "5"))
MIB = 1 << 20
BLOCK = 4096


def say(name, value):
    print(f"| {name} | {value} |", flush=True)


def cold():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def read_file(path):
    began = time.perf_counter()
    total = 0
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(MIB)
        while count := file.readinto(buffer):
            total += count
    return total / (time.perf_counter() - began) / 1e6


def read_tree(path):
    began = time.perf_counter()
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(directory, name), "rb", buffering=0) as file:
                while data := file.read(MIB):
                    total += len(data)
    return total / (time.perf_counter() - began) / 1e6


def random_reads(path, count=2000, seed=1):
    """Microseconds of each read of 4 KiB, from the device or the mount, not from pages."""
    chosen = random.Random(seed)
    size = os.path.getsize(path)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK)
    times = []
    for _ in range(count):
        at = chosen.randrange(size // BLOCK) * BLOCK
        began = time.perf_counter()
        os.preadv(file, [buffer], at)
        times.append((time.perf_counter() - began) * 1e6)
    os.close(file)
    return times


def alternating(measure, paths, is_cold):
    figures = {name: [] for name in paths}
    for _ in range(RUNS):
        for name, path in paths.items():
            if is_cold:
                cold()
            else:
                measure(path)
            figures[name].append(measure(path))
    return {name: statistics.median(values) for name, values in figures.items()}


def compared(what, unit, found, plain="plain"):
    for name, value in found.items():
        if name != plain:
            share = f"{value / found[plain]:.2f}"
            say(f"{what}: {name} / {plain}", f"{value:.0f} / {found[plain]:.0f} {unit}: {share}")


class World:
    def __init__(self, work, tree, onefold, large_gib):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="onefold-share-", dir=work))
        self.onefold, self.tree, self.large_gib = onefold, tree, large_gib
        self.share, self.plain = self.work / "share", self.work / "plain"
        self.environment = dict(
            os.environ, ONEFOLD_REPOSITORY=str(self.work / "store"), ONEFOLD_PASSWORD="share",
            ONEFOLD_CONFIG="/dev/null", HOME=str(self.work), XDG_STATE_HOME=str(self.work / "state"),
        )
        self.process = None

    def run(self, *arguments):
        command = [self.onefold, "--json", *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if done.returncode not in (0, 3):
            raise SystemExit(f"{command}: {done.stderr}")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[-1] if lines else {}

    def timed(self, *arguments):
        """Seconds of wall time and of CPU, and what it said."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        said = self.run(*arguments)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return wall, cpu, said

    def mount(self):
        command = [self.onefold, "-q", "share", "mount", str(self.share)]
        self.process = subprocess.Popen(command, env=self.environment)
        while not os.path.ismount(self.share):
            time.sleep(0.02)

    def end(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.work, ignore_errors=True)


def make(world):
    world.share.mkdir()
    world.plain.mkdir()
    for above in (world.share, world.plain):
        shutil.copytree(world.tree, above / "tree", symlinks=True)
        subprocess.run(["tar", "cf", str(above / "one.tar"), "-C", world.tree, "."], check=True)
        piece = random.Random(7).randbytes(64 * MIB)
        with open(above / "large", "wb") as file:
            for number in range(world.large_gib * 16):
                file.write(number.to_bytes(8, "little"))
                file.write(piece[8:])
    shutil.copy(world.plain / "one.tar", world.share / "young.tar")
    shutil.copy(world.plain / "one.tar", world.plain / "young.tar")
    world.run("init", "--chunker", "regression", "--chunk-size", "64KiB", "--kdf-memory", "8MiB",
              "--kdf-passes", "1")
    world.run("share", "create", "--min-age", "0s", "--exclude", "young.tar", world.share)
    time.sleep(0.2)


def optimizing(world):
    wall, cpu, said = world.timed("--threads", "2", "share", "optimize", world.share)
    read = said["bytes_read"]
    say("optimise: read, stored, freed", " / ".join(
        f"{said[name] / 1e6:.0f} MB" for name in ("bytes_read", "bytes_stored", "bytes_freed")))
    say("optimise: rate, for each second of CPU", f"{read / wall / 1e6:.0f} MB/s, {read / cpu / 1e6:.0f} MB")
    say("optimise: greatest memory", f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")
    wall, cpu, _ = world.timed("share", "optimize", world.share)
    say("optimise again, nothing to do", f"{wall:.2f} s, {cpu:.2f} s of CPU")
    return said


def saving(world, said):
    """What a backup of the same data into an empty store takes."""
    store = world.work / "other"
    world.environment["ONEFOLD_REPOSITORY"] = str(store)
    world.run("init", "--chunker", "regression", "--chunk-size", "64KiB", "--kdf-memory", "8MiB",
              "--kdf-passes", "1")
    summary = world.run("backup", "--exclude", "young.tar", world.plain)
    world.environment["ONEFOLD_REPOSITORY"] = str(world.work / "store")
    ours, backup = said["bytes_stored"], summary["bytes_stored"]
    say("stored: share / backup of the same", f"{ours / 1e6:.1f} / {backup / 1e6:.1f} MB: {ours / backup:.3f}")
    shutil.rmtree(store)


def reading(world):
    for what, name in (("one file", "one.tar"), ("file that is no stub", "young.tar")):
        paths = {"share": world.share / name, "plain": world.plain / name}
        for is_cold in (True, False):
            kind = "cold" if is_cold else "warm"
            compared(f"{what}, {kind}", "MB/s", alternating(read_file, paths, is_cold))
    paths = {"share": world.share / "tree", "plain": world.plain / "tree"}
    compared("all files, cold", "MB/s", alternating(read_tree, paths, True))
    compared("all files, warm", "MB/s", alternating(read_tree, paths, False))
    paths = {"share": world.share / "large", "plain": world.plain / "large"}
    medians = {name: statistics.median(random_reads(path)) for name, path in paths.items()}
    compared("4 KiB at random, direct, median", "us", medians)


def writing(world):
    """4 KiB into the large file, with fsync, each time into another granule."""
    for name in ("share", "plain"):
        path = getattr(world, name) / "large"
        file = os.open(path, os.O_RDWR)
        times, synced = [], []
        for number in range(20):
            at = (number * 37 + 5) * 7 * MIB % (os.path.getsize(path) - MIB) + 12345
            began = time.perf_counter()
            os.pwrite(file, b"x" * BLOCK, at)
            times.append((time.perf_counter() - began) * 1e3)
            os.fsync(file)
            synced.append((time.perf_counter() - began) * 1e3)
        os.close(file)
        say(f"4 KiB written into a file of {world.large_gib} GiB, {name}: median, greatest; with fsync",
            f"{statistics.median(times):.2f}, {max(times):.2f}; {statistics.median(synced):.2f} ms")
    recalled = world.run("share", "status", world.share)["bytes_recalled"]
    say("recalled for each of 20 writes", f"{recalled / 20 / 1024:.0f} KiB")


def foreground(world):
    """Reads of a plain file of the share while the job optimises others."""
    extra = world.share / "extra"
    path = world.share / "young.tar"
    for is_running in (False, True):
        job = None
        if is_running:
            shutil.copytree(world.tree, extra, symlinks=True)
            for name in range(8):
                (extra / f"fresh {name}").write_bytes(os.urandom(64 * MIB))
            time.sleep(0.2)
            job = threading.Thread(target=world.run, args=("share", "optimize", world.share))
            job.start()
        times = []
        began = time.perf_counter()
        while time.perf_counter() - began < 3 or (job and job.is_alive()):
            times.extend(random_reads(path, 50, len(times)))
            if time.perf_counter() - began > 60:
                break
        if job:
            job.join()
        what = "with the job" if is_running else "without"
        times.sort()
        say(f"foreground reads of 4 KiB {what}: median, 99 %",
            f"{statistics.median(times):.0f}, {times[len(times) * 99 // 100]:.0f} us")


def main():
    work, tree, onefold = sys.argv[1:4]
    large_gib = int(sys.argv[4]) if len(sys.argv) > 4 else 10
    world = World(work, tree, onefold, large_gib)
    try:
        make(world)
        print("| what | figure |\n| --- | --- |", flush=True)
        world.mount()
        said = optimizing(world)
        saving(world, said)
        reading(world)
        writing(world)
        foreground(world)
    finally:
        world.end()


main()
