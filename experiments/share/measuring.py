"""What the scripts of this directory have in common: clocks, caches, programs, tables."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20


def skip(why):
    print(f"SKIPPED: {why}", file=sys.stderr, flush=True)


def can_mount():
    """Whether there is FUSE and the right to mount."""
    probe = tempfile.mkdtemp()
    try:
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            return False
        mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", probe], capture_output=True)
        if mounted.returncode == 0:
            subprocess.run(["umount", probe], check=True)
        return mounted.returncode == 0
    finally:
        os.rmdir(probe)


def cold():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


class Table:
    """Rows of markdown, printed as they come and kept as lines of JSON."""

    def __init__(self, out, *columns):
        self.raw = open(out / "raw.jsonl", "a") if out else None
        print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns), flush=True)

    def say(self, *cells):
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)

    def keep(self, what, **values):
        if self.raw:
            self.raw.write(json.dumps({"what": what, **values}) + "\n")
            self.raw.flush()


class Peak(threading.Thread):
    """The most memory that a process has had. What the system says when it has ended is no less than
    what its parent had when it was started, so it is asked while it runs."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.status, self.bytes, self.is_over = f"/proc/{process.pid}/status", 0, False
        self.start()

    def run(self):
        while not self.is_over:
            try:
                with open(self.status) as status:
                    kib = [line.split()[1] for line in status if line.startswith("VmHWM")]
            except OSError:
                break
            # One that has ended has no memory.
            self.bytes = max([self.bytes, *(int(one) * 1024 for one in kib)])
            time.sleep(0.01)


class Ran:
    """A program that has run: seconds, CPU seconds, greatest memory, what it printed."""

    def __init__(self, command, environment=None, allowed=(0,)):
        began = time.perf_counter()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)
            peak = Peak(process)
            _, status, used = os.wait4(process.pid, 0)
            self.wall = time.perf_counter() - began
            self.code = process.returncode = os.waitstatus_to_exitcode(status)
            peak.is_over = True
            peak.join()
            self.cpu = used.ru_utime + used.ru_stime
            self.memory = peak.bytes
            out.seek(0)
            self.out = out.read()
            err.seek(0)
            if self.code not in allowed:
                raise SystemExit(f"{command}: {self.code}: {err.read()[-2000:]}")


class Program:
    """Onefold with a store of its own."""

    def __init__(self, onefold, work, name="store"):
        self.onefold, self.store = onefold, work / name
        self.environment = dict(
            os.environ, ONEFOLD_REPOSITORY=str(self.store), ONEFOLD_PASSWORD="share",
            ONEFOLD_CONFIG="/dev/null", HOME=str(work), XDG_STATE_HOME=str(work / "state"),
        )

    def timed(self, *arguments):
        command = [self.onefold, "--json", *map(str, arguments)]
        return Ran(command, self.environment, (0, 3))

    def run(self, *arguments, message=None):
        """The last line that it printed, or the last of a kind."""
        return said(self.timed(*arguments), message)

    def init(self):
        self.run("init", "--chunker", "regression", "--chunk-size", "64KiB", "--kdf-memory", "8MiB",
                 "--kdf-passes", "1")

    def mount(self, share):
        command = [self.onefold, "-q", "share", "mount", str(share)]
        process = subprocess.Popen(command, env=self.environment)
        while not os.path.ismount(share):
            if process.poll() is not None:
                raise SystemExit(f"{command} ended: {process.returncode}")
            time.sleep(0.02)
        return process


def said(ran, message=None):
    lines = [json.loads(line) for line in ran.out.splitlines()]
    if message:
        lines = [line for line in lines if line.get("message_type") == message]
    return lines[-1] if lines else {}


def ended(process, share):
    """Takes a mount away."""
    if process and process.poll() is None:
        subprocess.run(["umount", "-l", str(share)], check=False)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def read_file(path, most=None):
    """MB a second, of so many bytes at most."""
    began = time.perf_counter()
    total = 0
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(MIB)
        while (most is None or total < most) and (count := file.readinto(buffer)):
            total += count
    return total / (time.perf_counter() - began) / 1e6


def read_tree(path):
    """MB a second, of all files one after the other."""
    began = time.perf_counter()
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            name = os.path.join(directory, name)
            if os.path.islink(name) or not os.path.isfile(name):
                continue
            with open(name, "rb", buffering=0) as file:
                while data := file.read(MIB):
                    total += len(data)
    return total / (time.perf_counter() - began) / 1e6


def allocated(*paths):
    """Bytes that the blocks of all files below take, each inode once."""
    seen, total = set(), 0
    for path in paths:
        for directory, _, names in os.walk(path):
            for name in [*names, "."]:
                known = os.lstat(os.path.join(directory, name))
                if (known.st_dev, known.st_ino) not in seen:
                    seen.add((known.st_dev, known.st_ino))
                    total += known.st_blocks * 512
    return total


def used(path):
    """Bytes that the file system says are used."""
    subprocess.run(["sync", "-f", str(path)], check=True)
    known = os.statvfs(path)
    return (known.f_blocks - known.f_bfree) * known.f_frsize


def assert_same(one, other):
    """A fast wrong answer is a failure."""
    command = ["diff", "-rq", "--no-dereference", str(one), str(other)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{one} and {other} differ: {done.stdout[:2000]}{done.stderr[:2000]}")


def copied(tree, target):
    """Regular files, directories and links: what all of them can hold."""
    shutil.copytree(tree, target, symlinks=True, ignore_dangling_symlinks=True)


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * percent // 100)]


def median(values):
    return statistics.median(values)
