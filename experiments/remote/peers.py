#!/usr/bin/env python3
"""Onefold, restic, kopia and rustic on one S3 server, side by side.

Each run gives each tool a fresh bucket of a fresh versitygw on this machine. Every tool backs up the first
generations of a data set, the last of them again, restores it, and checks what it stored. What the tools
take turns with in each run is: CPU seconds of the command (user and system), seconds from start to end,
requests by kind as the server's access log has them, and bytes of all objects in the end. The order of the tools
rotates from run to run. With --delay each request waits so many milliseconds more, both ways together, in a
proxy that passes bytes on as they are.

    python3 experiments/remote/peers.py --data experiments/data/a --onefold target/release/onefold

Tools that are not on the PATH are passed over, and named. Onefold must restore what was saved, or this fails.
"""

import argparse
import asyncio
import collections
import contextlib
import filecmp
import json
import os
import pathlib
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ACCESS, SECRET, PASSWORD = "experiment", "experiment-secret", "experiment"
BUCKET = "bucket"


def kind_of(operation):
    """The kind of an operation as S3 names it: s3_PutObject, s3_ListObjectsV2 ..."""
    if "List" in operation:
        return "LIST"
    for kind in ("Get", "Head", "Delete"):
        if kind in operation:
            return kind.upper()
    return "PUT"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A versitygw with one bucket and an access log."""

    def __init__(self, place):
        self.data, self.log = place / "data", place / "access.log"
        (self.data / BUCKET).mkdir(parents=True)
        (place / "side").mkdir()
        self.port = free_port()
        command = ["versitygw", "--port", f"127.0.0.1:{self.port}", "--access", ACCESS, "--secret", SECRET,
                   "--access-log", self.log, "--quiet", "posix", "--sidecar", place / "side", self.data]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        raise SystemExit("versitygw does not listen")

    def requests(self):
        """How many of each kind there were so far."""
        kinds = collections.Counter()
        with open(self.log, errors="replace") as lines:
            for line in lines:
                # As S3 writes its own logs: the operation is the eighth word.
                words = line.split()
                operation = words[7] if len(words) > 7 and words[7].startswith("s3_") else None
                if operation:
                    kinds[kind_of(operation)] += 1
        return kinds

    def stored(self):
        sizes = (entry.stat().st_size for entry in (self.data / BUCKET).rglob("*") if entry.is_file())
        return sum(sizes)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Delay:
    """Passes bytes on to a port, each piece so much later."""

    def __init__(self, port, milliseconds):
        self.target, self.seconds, self.port = port, milliseconds / 2000, free_port()
        started = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.run(started)), daemon=True).start()
        started.wait()

    async def run(self, started):
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        started.set()
        async with server:
            await server.serve_forever()

    async def serve(self, reader, writer):
        with contextlib.suppress(OSError):
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(self.pass_on(reader, to_writer), self.pass_on(to_reader, writer))

    async def pass_on(self, reader, writer):
        """Pieces keep their distance: the delay is of each, not of their sum."""
        queue = asyncio.Queue()

        async def send():
            while True:
                due, piece = await queue.get()
                await asyncio.sleep(max(0, due - time.monotonic()))
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
            writer.close()

        sending = asyncio.create_task(send())
        with contextlib.suppress(OSError):
            while piece := await reader.read(1 << 16):
                await queue.put((time.monotonic() + self.seconds, piece))
        await queue.put((time.monotonic() + self.seconds, b""))
        with contextlib.suppress(OSError):
            await sending


def commands(tool, onefold, port, place):
    """The environment and the command lines of a tool."""
    keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    target = place / "restored"
    endpoint = f"http://127.0.0.1:{port}"
    if tool == "onefold":
        keys |= {"ONEFOLD_REPOSITORY": f"s3://{BUCKET}/store?endpoint={endpoint}", "ONEFOLD_PASSWORD": PASSWORD}
        return keys, {"init": [onefold, "init"], "backup": [onefold, "backup", "."],
                      "restore": [onefold, "restore", "latest", "--target", target],
                      "check": [onefold, "check", "--read-data"]}
    if tool == "restic":
        keys |= {"RESTIC_REPOSITORY": f"s3:{endpoint}/{BUCKET}/store", "RESTIC_PASSWORD": PASSWORD}
        return keys, {"init": ["restic", "init"], "backup": ["restic", "backup", "."],
                      "restore": ["restic", "restore", "latest", "--target", target],
                      "check": ["restic", "check", "--read-data"]}
    if tool == "rustic":
        keys |= {"RUSTIC_REPOSITORY": "opendal:s3", "RUSTIC_PASSWORD": PASSWORD,
                 "OPENDAL_BUCKET": BUCKET, "OPENDAL_ROOT": "/store", "OPENDAL_ENDPOINT": endpoint,
                 "OPENDAL_REGION": "us-east-1", "OPENDAL_ACCESS_KEY_ID": ACCESS,
                 "OPENDAL_SECRET_ACCESS_KEY": SECRET}
        return keys, {"init": ["rustic", "init"], "backup": ["rustic", "backup", "."],
                      "restore": ["rustic", "restore", "latest", target],
                      "check": ["rustic", "check", "--read-data"]}
    keys |= {"KOPIA_PASSWORD": PASSWORD, "KOPIA_CHECK_FOR_UPDATES": "false"}
    create = ["kopia", "repository", "create", "s3", "--bucket", BUCKET, "--prefix", "store/",
              "--endpoint", f"127.0.0.1:{port}", "--disable-tls", "--access-key", ACCESS,
              "--secret-access-key", SECRET]
    return keys, {"init": create, "compress": ["kopia", "policy", "set", "--global", "--compression=zstd-fastest"],
                  "backup": ["kopia", "snapshot", "create", "."],
                  "restore": ["kopia", "restore", "{latest}", target],
                  "check": ["kopia", "snapshot", "verify", "--verify-files-percent=100"]}


class Run:
    """One tool in one run."""

    def __init__(self, tool, options, place):
        self.place, self.server = place, Server(place)
        port = Delay(self.server.port, options.delay).port if options.delay else self.server.port
        keys, self.commands = commands(tool, options.onefold, port, place)
        home = place / "home"
        home.mkdir()
        self.variables = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(place)} | keys
        self.figures = {}

    def step(self, name, command, cwd=None):
        before, asked, began = resource.getrusage(resource.RUSAGE_CHILDREN), self.server.requests(), time.monotonic()
        done = subprocess.run(command, env=self.variables, cwd=cwd or self.place, capture_output=True, text=True)
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {' '.join(map(str, command))}: {done.stderr[-800:]}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.figures[name] = (cpu, wall, self.server.requests() - asked)
        return done.stdout

    def all(self, generations):
        self.step("init", self.commands["init"])
        if "compress" in self.commands:
            self.step("compress", self.commands["compress"])
        # The same path for each version, as one directory that changes has it.
        source = self.place / "source"
        for number, generation in enumerate(generations):
            shutil.rmtree(source, ignore_errors=True)
            shutil.copytree(generation, source, symlinks=True)
            os.sync()
            name = "first backup" if number == 0 else f"version {number + 1}"
            self.step(name, self.commands["backup"], source)
        self.step("unchanged", self.commands["backup"], source)
        restore = self.commands["restore"]
        if "{latest}" in restore:
            listed = self.step("list", ["kopia", "snapshot", "list", "--all", "--json"])
            latest = json.loads(listed)[-1]["rootEntry"]["obj"]
            restore = [latest if part == "{latest}" else part for part in restore]
        self.step("restore", restore)
        self.step("check", self.commands["check"])
        self.figures["stored"] = self.server.stored()
        restored = next(path for path in [self.place / "restored", *(self.place / "restored").rglob("source")]
                        if (path / os.listdir(source)[0]).exists())
        return same(source, restored)

    def stop(self):
        self.server.stop()


def same(one, other):
    found = filecmp.dircmp(one, other)
    if found.left_only or found.right_only or found.funny_files:
        return False
    _, different, failed = filecmp.cmpfiles(one, other, found.common_files, shallow=False)
    return not different and not failed and all(same(one / name, other / name) for name in found.common_dirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a directory of versions")
    parser.add_argument("--onefold", type=pathlib.Path, required=True)
    parser.add_argument("--versions", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0, help="milliseconds for each request and its answer")
    parser.add_argument("--tools", default="onefold,restic,kopia,rustic")
    parser.add_argument("--work", type=pathlib.Path, default=None)
    options = parser.parse_args()
    options.onefold = options.onefold.resolve()
    if not shutil.which("versitygw"):
        print("SKIPPED: versitygw is not installed", file=sys.stderr)
        return 0
    tools = [tool for tool in options.tools.split(",") if tool == "onefold" or shutil.which(tool)]
    for tool in set(options.tools.split(",")) - set(tools):
        print(f"SKIPPED: {tool} is not installed", file=sys.stderr)
    generations = sorted(path for path in options.data.glob("[!.]*") if path.is_dir())[:options.versions]
    results = {tool: [] for tool in tools}
    failed = False
    for number in range(options.runs):
        for tool in tools[number % len(tools):] + tools[:number % len(tools)]:
            with tempfile.TemporaryDirectory(dir=options.work) as place:
                run = Run(tool, options, pathlib.Path(place))
                try:
                    is_same = run.all(generations)
                    results[tool].append(run.figures)
                    print(f"run {number + 1}: {tool}: {'same' if is_same else 'DIFFERENT'}", file=sys.stderr)
                    failed |= tool == "onefold" and not is_same
                except RuntimeError as error:
                    print(f"run {number + 1}: {tool}: FAILED: {error}", file=sys.stderr)
                    failed |= tool == "onefold"
                finally:
                    run.stop()
    show(results, tools)
    return int(failed)


def show(results, tools):
    present = [tool for tool in tools if results[tool]]
    steps = [step for step in results[present[0]][0] if step not in ("stored", "compress", "list")]
    for title, figure, digits in [("CPU seconds", 0, 2), ("Seconds", 1, 2)]:
        print(f"\n{title}, medians\n\n| | {' | '.join(present)} |\n|---|{'---|' * len(present)}")
        for step in steps:
            cells = [statistics.median(run[step][figure] for run in results[tool]) for tool in present]
            print(f"| {step} | {' | '.join(f'{cell:.{digits}f}' for cell in cells)} |")
    print(f"\nRequests (put and post / get and head / list / delete), last run\n\n| | {' | '.join(present)} |")
    print(f"|---|{'---|' * len(present)}")
    for step in steps:
        cells = []
        for tool in present:
            kinds = results[tool][-1][step][2]
            counts = [kinds["PUT"] + kinds["POST"], kinds["GET"] + kinds["HEAD"], kinds["LIST"], kinds["DELETE"]]
            cells.append(" / ".join(map(str, counts)))
        print(f"| {step} | {' | '.join(cells)} |")
    stored = [statistics.median(run["stored"] for run in results[tool]) / 1e6 for tool in present]
    print(f"| stored, MB | {' | '.join(f'{size:.1f}' for size in stored)} |")


if __name__ == "__main__":
    sys.exit(main())
