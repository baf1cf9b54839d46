#!/usr/bin/env -S python3 -B
"""What programs pay for files of a share, and what optimising them takes.

usage: run.py WORK_DIRECTORY TREE ONEFOLD_BINARY [LARGE_GIB] [--runs N] [--out DIRECTORY]
              [--only SECTION,...] [--tiny]                        (needs root, FUSE)

Sections: optimize, new, memory, reads, devices, writes, foreground, queue. Medians of N (5) rounds, plain and
share taking turns; caches are dropped before what is called cold. The large file is LARGE_GIB (10),
of random data. --out keeps raw figures, and points for plots. --tiny only
shows that the script works.
"""

import argparse
import mmap
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from measuring import (
    MIB, Program, Table, allocated, assert_same, can_mount, cold, copied, ended, median,
    percentile, read_file, read_tree, said, skip,
)

BLOCK = 4096
# Of these the large file consists.
PIECE = 64 * MIB
# As much is read of it from slow devices.
SLOWLY_BYTES = 1024 * MIB


def random_reads(path, is_direct, count, seed):
    """Microseconds of each read of 4 KiB."""
    chosen = random.Random(seed)
    blocks = os.path.getsize(path) // BLOCK
    file = os.open(path, os.O_RDONLY | (os.O_DIRECT if is_direct else 0))
    buffer = mmap.mmap(-1, BLOCK)
    times = []
    for _ in range(count):
        at = chosen.randrange(blocks) * BLOCK
        began = time.perf_counter()
        os.preadv(file, [buffer], at)
        times.append((time.perf_counter() - began) * 1e6)
    os.close(file)
    return times


class World:
    """A directory with a plain copy of the data and a share of it."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="onefold-share-", dir=arguments.work))
        self.tree, self.runs = arguments.tree, arguments.runs
        self.share, self.plain = self.work / "share", self.work / "plain"
        self.program = Program(arguments.onefold, self.work)
        self.table, self.process, self.large_bytes = None, None, 0

    def say(self, what, value, **raw):
        self.table.say(what, value)
        self.table.keep(what, told=value, **raw)

    def points(self, name, lines):
        """For `onefold-lab plot`: x, series, y."""
        if self.arguments.out:
            text = "".join(f"{x} {series} {y}\n" for x, series, y in lines)
            (self.arguments.out / name).write_text(text)

    def make(self):
        self.share.mkdir()
        self.plain.mkdir()
        for above in (self.share, self.plain):
            copied(self.tree, above / "tree")
            subprocess.run(["tar", "cf", str(above / "one.tar"), "-C", self.tree, "."], check=True)
            shutil.copy(above / "one.tar", above / "young.tar")
        self.large_bytes = write_large(
            [self.share / "large", self.plain / "large"], self.arguments.pieces)
        self.program.init()
        self.program.run("share", "create", "--min-age", "0s", "--exclude", "young.tar",
                         "--exclude", "foreground", self.share)
        # What changed just now is not believed to be what it was.
        time.sleep(0.2)

    def mount(self):
        self.process = self.program.mount(self.share)

    def end(self):
        ended(self.process, self.share)
        shutil.rmtree(self.work, ignore_errors=True)


def write_large(paths, pieces):
    files = [open(path, "wb") for path in paths]
    for number in range(pieces):
        piece = number.to_bytes(8, "little") + random.Random(number).randbytes(PIECE - 8)
        for file in files:
            file.write(piece)
    for file in files:
        file.close()
    return pieces * PIECE


def optimizing(world):
    say = world.say
    ran = world.program.timed("share", "optimize", world.share)
    told = said(ran, "optimized")
    read = told["bytes_read"]
    say("optimise: read, stored, freed", " / ".join(
        f"{told[name] / 1e6:.0f} MB" for name in ("bytes_read", "bytes_stored", "bytes_freed")))
    say("optimise: rate, for each second of CPU",
        f"{read / ran.wall / 1e6:.0f} MB/s, {read / ran.cpu / 1e6:.0f} MB")
    say("optimise: greatest memory", f"{ran.memory / MIB:.0f} MiB")
    again = world.program.timed("share", "optimize", world.share)
    say("optimise again, nothing to do", f"{again.wall:.2f} s, {again.cpu:.2f} s of CPU")
    # What a backup of the same data into an empty store takes.
    other = Program(world.arguments.onefold, world.work, "other")
    other.init()
    backup = other.run("backup", "--exclude", "young.tar", world.plain)["bytes_stored"]
    shutil.rmtree(other.store)
    ours = told["bytes_stored"]
    say("stored: share / backup of the same",
        f"{ours / 1e6:.1f} / {backup / 1e6:.1f} MB: {ours / backup:.3f}")
    for name in ("tree", "one.tar", "large"):
        assert_same(world.plain / name, world.share / name)


class Fresh:
    """A share and a store for one measurement."""

    def __init__(self, world, fill):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="fresh-", dir=world.work))
        self.share = self.directory / "share"
        self.share.mkdir()
        fill(self.share)
        self.program = Program(world.arguments.onefold, self.directory)
        self.program.init()
        self.program.run("share", "create", "--min-age", "0s", self.share)
        time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory, ignore_errors=True)


def all_new(world):
    """Software that the store has nothing of, by one thread."""
    rates, of_cpu, memory = [], [], []
    for _ in range(world.runs):
        with Fresh(world, lambda share: copied(world.tree, share / "tree")) as fresh:
            cold()
            ran = fresh.program.timed("--threads", "1", "share", "optimize", fresh.share)
            told = said(ran, "optimized")
            rates.append(told["bytes_read"] / ran.wall / 1e6)
            of_cpu.append(told["bytes_read"] / ran.cpu / 1e6)
            memory.append(ran.memory / MIB)
            world.table.keep("new", wall=ran.wall, cpu=ran.cpu, memory=ran.memory, **told)
    world.say("TREE alone, all new, one thread, cold: rate, for each second of CPU, greatest memory",
              f"{median(rates):.0f} MB/s, {median(of_cpu):.0f} MB, {median(memory):.0f} MiB")


def memory_by_size(world):
    """The same kind of data in two sizes."""
    for pieces in (max(1, world.arguments.pieces // 8), world.arguments.pieces):
        def fill(share):
            copied(world.tree, share / "tree")
            write_large([share / "large"], pieces)
        with Fresh(world, fill) as fresh:
            ran = fresh.program.timed("share", "optimize", fresh.share)
            read = said(ran, "optimized")["bytes_read"]
            world.say(f"optimise {read / 1e9:.1f} GB: greatest memory, rate",
                      f"{ran.memory / MIB:.0f} MiB, {read / ran.wall / 1e6:.0f} MB/s")


def alternating(world, what, unit, measure, paths, is_cold):
    figures = {name: [] for name in paths}
    for _ in range(world.runs):
        for name, path in paths.items():
            if is_cold:
                cold()
            else:
                measure(path)
            figures[name].append(measure(path))
    share, plain = median(figures["share"]), median(figures["plain"])
    world.say(f"{what}: share / plain", f"{share:.0f} / {plain:.0f} {unit}: {share / plain:.2f}",
              **figures)


def reading(world):
    for what, name in (
        ("one.tar, a stub", "one.tar"), ("the large file, a stub", "large"),
        ("file that is no stub", "young.tar"), ("all files of TREE", "tree"),
    ):
        paths = {"share": world.share / name, "plain": world.plain / name}
        measure = read_tree if name == "tree" else read_file
        for is_cold in (True, False):
            kind = "cold" if is_cold else "warm"
            alternating(world, f"{what}, {kind}", "MB/s", measure, paths, is_cold)
    count = world.arguments.count
    for what, name in (("the large file", "large"), ("file that is no stub", "young.tar")):
        paths = {"share": world.share / name, "plain": world.plain / name}
        for kind, is_direct in (("direct", True), ("buffered", False)):
            def latency(path):
                return median(random_reads(path, is_direct, count, 1))
            alternating(world, f"4 KiB at random of {what}, {kind}, cold, median", "us", latency,
                        paths, True)


class Slowed:
    """What the mount and this process read, no faster than a device of some kind gives it."""

    group, limit_file = pathlib.Path("/sys/fs/cgroup/blkio"), "blkio.throttle.read_bps_device"

    def __init__(self, world, most):
        number = os.stat(world.work).st_dev
        self.limit = f"{os.major(number)}:{os.minor(number)} {most}"
        self.own, self.processes = self.group / "onefold-slowed", [world.process.pid, os.getpid()]

    @classmethod
    def is_possible(cls):
        return (cls.group / cls.limit_file).exists()

    def move(self, group):
        for process in self.processes:
            (group / "cgroup.procs").write_text(str(process))

    def __enter__(self):
        self.own.mkdir(exist_ok=True)
        (self.own / self.limit_file).write_text(self.limit)
        self.move(self.own)

    def __exit__(self, *_):
        self.move(self.group)
        self.own.rmdir()


# What such a device reads in a second at most, in order.
DEVICES = {"hard disk": 150_000_000, "SATA flash": 500_000_000}


def reading_slowly(world):
    """The same reads from devices that are slower than this machine's."""
    if not Slowed.is_possible():
        skip("slower devices: there is no blkio controller of the first version")
        return
    paths = {"share": world.share / "large", "plain": world.plain / "large"}
    for device, most in DEVICES.items():
        with Slowed(world, most):
            alternating(world, f"the large file, a stub, cold, {device}", "MB/s",
                        lambda path: read_file(path, SLOWLY_BYTES), paths, True)


def writing(world):
    """4 KiB into the large file, with fsync, each time into another granule."""
    before = world.program.run("share", "status", world.share)["bytes_recalled"]
    count, size = 20, world.large_bytes
    for name in ("share", "plain"):
        file = os.open(getattr(world, name) / "large", os.O_RDWR)
        times, synced = [], []
        for number in range(count):
            at = (number * 37 + 5) * 7 * MIB % (size - MIB) + 12345
            began = time.perf_counter()
            os.pwrite(file, b"x" * BLOCK, at)
            times.append((time.perf_counter() - began) * 1e3)
            os.fsync(file)
            synced.append((time.perf_counter() - began) * 1e3)
        os.close(file)
        world.say(
            f"4 KiB written into a file of {size / (1 << 30):.2g} GiB, {name}: median, greatest; with fsync",
            f"{median(times):.2f}, {max(times):.2f}; {median(synced):.2f} ms", times=times, synced=synced)
    after = world.program.run("share", "status", world.share)["bytes_recalled"]
    world.say(f"recalled for each of {count} writes", f"{(after - before) / count / 1024:.0f} KiB")


# How the job is run beside the foreground.
JOBS = {
    "optimize": ["share", "optimize"],
    "run-pressure-off": ["share", "run", "--no-collect", "--no-scrub", "--pressure", "off"],
    "run-pressure-on": ["share", "run", "--no-collect", "--no-scrub"],
}


class Job(threading.Thread):
    """Optimises what has just been written."""

    def __init__(self, world, how):
        super().__init__()
        self.world, self.how, self.ran = world, how, None
        self.start()

    def run(self):
        more = ["--max-duration", f"{self.world.arguments.longest}s"] if "run" in self.how else []
        self.ran = self.world.program.timed(*JOBS[self.how], *more, self.world.share)

    def figures(self):
        self.join()
        read = said(self.ran, "optimized").get("bytes_read", 0)
        return {"rate": read / self.ran.wall / 1e6, "cpu": self.ran.cpu / self.ran.wall}


def write_work(world, number):
    """Work for the job: software, changed everywhere, and data that is nowhere else."""
    extra = world.share / "extra"
    shutil.rmtree(extra, ignore_errors=True)
    copied(world.tree, extra / "tree")
    for directory, _, names in os.walk(extra):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "r+b") as file:
                    # Each chunk of it is another one.
                    for at in range(0, os.path.getsize(path), 16 << 10):
                        file.seek(at)
                        file.write(number.to_bytes(4, "little"))
    for name in range(world.arguments.fresh):
        (extra / f"fresh {name}").write_bytes(os.urandom(32 * MIB))
    os.sync()
    time.sleep(0.2)


def load(world, job):
    """Latencies of reads of an ordinary file and of a stub, as long as there is a job, in turns."""
    times = {"plain": [], "stub": []}
    paths = {"plain": world.share / "young.tar", "stub": world.share / "one.tar"}
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 2 * world.arguments.longest:
        if not job and elapsed >= world.arguments.seconds:
            break
        found = {}
        for kind, path in paths.items():
            found[kind] = random_reads(path, True, 50, len(times[kind]))
        # What was measured while the job ended was measured without it in part.
        if job and not job.is_alive() and times["plain"]:
            break
        for kind, measured in found.items():
            times[kind].extend(measured)
        if job and not job.is_alive():
            break
    return times


def foreground(world):
    """The foreground with the job off and on, and the job with the foreground off and on."""
    points, number = [], int(time.time())
    for how in JOBS:
        found = {}
        for turn in range(world.runs):
            number += 2
            write_work(world, number)
            alone = Job(world, how).figures()
            write_work(world, number + 1)
            off = load(world, None)
            job = Job(world, how)
            on = load(world, job)
            beside = job.figures()
            for kind in off:
                for percent in (50, 99):
                    pair = (percentile(off[kind], percent), percentile(on[kind], percent))
                    found.setdefault((kind, percent), []).append(pair)
                points.append((turn + 1, f"{how}-{kind}-off", percentile(off[kind], 50)))
                points.append((turn + 1, f"{how}-{kind}-on", percentile(on[kind], 50)))
            found.setdefault("job", []).append((alone, beside))
        for kind, what in (("plain", "an ordinary file"), ("stub", "a stub")):
            for percent in (50, 99):
                pairs = found[kind, percent]
                off, on = (median([pair[which] for pair in pairs]) for which in (0, 1))
                world.say(f"4 KiB of {what}, direct, {percent} %, {how}: without / with the job",
                          f"{off:.0f} / {on:.0f} us: {on / off:.2f}", pairs=pairs)
        rates = [median([pair[which]["rate"] for pair in found["job"]]) for which in (0, 1)]
        cpu = [median([pair[which]["cpu"] for pair in found["job"]]) for which in (0, 1)]
        world.say(
            f"{how}: rate alone / beside that load; CPU",
            f"{rates[0]:.0f} / {rates[1]:.0f} MB/s: {rates[1] / max(rates[0], 0.001):.2f}; "
            f"{cpu[0]:.2f} / {cpu[1]:.2f} cores", job=found["job"])
        shutil.rmtree(world.share / "extra", ignore_errors=True)
        world.program.run("gc", "--space-goal", "all")
    world.points("foreground.points", points)


class Queue(threading.Thread):
    """How many requests a device has in flight, from time to time."""

    def __init__(self, device):
        super().__init__()
        self.device, self.is_over, self.depths = device, False, []
        self.start()

    @staticmethod
    def of(path):
        number = os.stat(path).st_dev
        device = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/inflight")
        return device if device.exists() else None

    def run(self):
        while not self.is_over:
            self.depths.append(sum(map(int, self.device.read_text().split())))
            time.sleep(0.002)

    def end(self):
        self.is_over = True
        self.join()
        return self.depths


def queue(world):
    """S4.29 and S4.30: the disk's queue and the CPU, with either index and with partitions."""
    device = Queue.of(world.work)
    if device is None:
        skip("the queue of the disk: the work directory is on no block device that tells of it")
        return
    points = []
    for index, memory in (("index in memory", "256MiB"), ("least memory", "48MiB")):
        for partitions in ("none", "type"):
            depths, cores, rates, peaks = [], [], [], []
            for turn in range(world.runs):
                def fill(share):
                    copied(world.tree, share / "tree")
                    write_large([share / "large"], world.arguments.fresh)
                with Fresh(world, fill) as fresh:
                    cold()
                    watched = Queue(device)
                    ran = fresh.program.timed(
                        "--threads", "1", "--memory", memory, "share", "optimize", "--partitions",
                        partitions, fresh.share)
                    depths.extend(watched.end())
                    read = said(ran, "optimized")["bytes_read"]
                    cores.append(ran.cpu / ran.wall * 100)
                    rates.append(read / ran.wall / 1e6)
                    peaks.append(ran.memory / MIB)
            shares = [percentile(depths, percent) for percent in (50, 75, 99)]
            world.say(
                f"optimise, one thread, {index}, partitions {partitions}: queue of the disk (50, 75, "
                "99 %); CPU of one core; rate; greatest memory",
                f"{shares[0]}, {shares[1]}, {shares[2]}; {median(cores):.0f} %; "
                f"{median(rates):.0f} MB/s; {median(peaks):.0f} MiB",
                cores=cores, rates=rates, peaks=peaks)
            name = f"{index}-{partitions}".replace(" ", "-")
            points.extend((percent, name, percentile(depths, percent)) for percent in range(1, 100))
    world.points("queue.points", points)


SECTIONS = {
    "optimize": optimizing, "reads": reading, "devices": reading_slowly, "writes": writing,
    "foreground": foreground, "new": all_new, "memory": memory_by_size, "queue": queue,
}


def asked():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("tree")
    parser.add_argument("onefold")
    parser.add_argument("large_gib", type=float, nargs="?", default=10)
    parser.add_argument("--runs", type=int, default=int(os.environ.get("RUNS", "5")))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    arguments.pieces = max(1, round(arguments.large_gib * 16))
    # What a job is given: so many times 32 or 64 MiB. Seconds of foreground, reads at random.
    arguments.fresh, arguments.seconds, arguments.count = 8, 3, 2000
    # A job that waits for the foreground is not waited for longer.
    arguments.longest = 60
    if arguments.tiny:
        arguments.runs, arguments.pieces, arguments.fresh = 1, 1, 1
        arguments.seconds, arguments.count, arguments.longest = 0.2, 100, 3
    arguments.only = arguments.only.split(",")
    if unknown := set(arguments.only) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments


def main():
    arguments = asked()
    if os.geteuid() != 0 or not can_mount():
        skip("shares were not measured: it takes root and /dev/fuse")
        return
    world = World(arguments)
    try:
        world.make()
        world.table = Table(arguments.out, "what", "figure")
        world.say("data: TREE, one.tar, the large file", " / ".join(
            f"{size / 1e6:.0f} MB" for size in (
                allocated(world.plain / "tree"), os.path.getsize(world.plain / "one.tar"),
                world.large_bytes)))
        world.mount()
        if "optimize" not in arguments.only:
            world.program.run("share", "optimize", world.share)
        for name, section in SECTIONS.items():
            if name in arguments.only:
                section(world)
    finally:
        world.end()


# Whoever ends it finds everything taken away.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
