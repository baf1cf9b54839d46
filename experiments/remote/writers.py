#!/usr/bin/env python3
"""Many machines save into one store at once, while it is collected.

Each of several machines backs up some versions of a data set, one after the other and beginning with another one
than its neighbours, all machines at the same time; a collector collects again and again meanwhile. The same backups, one after the other and by nobody
else disturbed, say what a single writer stores. Where the store is: a directory, a versitygw (`--s3`), or our own
server (`--served`), where writers have no right to delete. With `--database URL` there is a database beside the bucket.

    python3 experiments/remote/writers.py --data experiments/data/a --onefold target/release/onefold --served

Fails if a command fails, if a check with all data finds anything, or if a restore differs.
"""

import argparse
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

from peers import ACCESS, BUCKET, SECRET, Server, free_port, same


class Place:
    """A store somewhere, and what commands on it are told."""

    def __init__(self, kind, options, directory):
        self.onefold, self.directory, self.server = options.onefold, directory, None
        directory.mkdir()
        (directory / "home").mkdir()
        self.variables = {"PATH": os.environ["PATH"], "HOME": str(directory / "home"), "ONEFOLD_PASSWORD": "x"}
        self.tokens = {"writer": {}, "collector": {}}
        if kind == "directory":
            self.variables["ONEFOLD_REPOSITORY"] = str(directory / "store")
            self.stored_in = directory / "store"
        elif kind == "s3":
            self.server = Server(directory)
            self.variables |= {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
            endpoint = f"http://127.0.0.1:{self.server.port}"
            self.variables["ONEFOLD_REPOSITORY"] = f"s3://{BUCKET}/store?endpoint={endpoint}"
            if options.database:
                self.variables["ONEFOLD_REPOSITORY"] += f"&database={options.database}"
                self.variables["PGPASSWORD"] = os.environ.get("PGPASSWORD", "")
            self.stored_in = directory / "data"
        else:
            self.serve(directory)
            self.stored_in = directory / "store"
        self.run("collector", "init")

    def serve(self, directory):
        (directory / "store").mkdir()
        clients = directory / "clients.toml"
        for name, rights in [("writer", "read,append"), ("collector", "read,append,collect")]:
            command = [self.onefold, "client", "add", name, "--clients", clients, "--rights", rights]
            added = subprocess.run(command, env=self.variables, capture_output=True, text=True, check=True)
            self.tokens[name] = {"ONEFOLD_TOKEN": added.stdout.strip()}
        port = free_port()
        command = [self.onefold, "serve", directory / "store", "--clients", clients, "--listen", f"127.0.0.1:{port}",
                   "--own-certificate", "127.0.0.1"]
        self.process = subprocess.Popen(command, env=self.variables, stderr=subprocess.DEVNULL)
        certificate = directory / "certificate.pem"
        self.variables["ONEFOLD_REPOSITORY"] = f"https://127.0.0.1:{port}/store?certificate={certificate}"
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                if certificate.exists():
                    return
            time.sleep(0.02)
        raise SystemExit("the server does not listen")

    def run(self, who, *arguments):
        variables = self.variables | self.tokens[who]
        command = [self.onefold, *map(str, arguments)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.returncode}: {done.stderr[-800:]}")
        return done.stdout

    def stored(self):
        files = (path for path in self.stored_in.rglob("*") if path.is_file() and path.name != "reserve")
        return sum(path.stat().st_size for path in files)

    def stop(self):
        if self.server:
            self.server.stop()
        if process := getattr(self, "process", None):
            process.terminate()
            process.wait()


def work(options):
    """For each machine its versions, in order."""
    generations = sorted(path for path in options.data.glob("[!.]*") if path.is_dir())
    pick = lambda machine, turn: generations[(machine + turn) % len(generations)]
    return [[pick(machine, turn) for turn in range(options.turns)] for machine in range(options.machines)]


def back_up(place, machine, source):
    place.run("writer", "backup", source, "--host", f"machine-{machine}")


def collect(place):
    # The first finds what is there twice; what only its deletions make needless goes with the second.
    for _ in range(2):
        place.run("collector", "gc", "--wait", "0s", "--space-goal", "all")


def finish(place, machines):
    place.run("collector", "check", "--read-data")
    for machine, sources in enumerate(machines):
        with tempfile.TemporaryDirectory(dir=place.directory) as target:
            place.run("writer", "restore", "latest", "--host", f"machine-{machine}", "--target", target)
            source = sources[-1]
            restored = pathlib.Path(target) / source.relative_to("/")
            restored = restored if restored.exists() else next(pathlib.Path(target).rglob(source.name))
            if not same(source, restored):
                raise RuntimeError(f"machine {machine}: what is restored differs")


def alone(kind, options, directory, machines):
    place = Place(kind, options, directory)
    try:
        began = time.monotonic()
        for turn in range(options.turns):
            for machine, sources in enumerate(machines):
                back_up(place, machine, sources[turn])
        took, stored = time.monotonic() - began, place.stored()
        collect(place)
        return took, stored, place.stored()
    finally:
        place.stop()


def together(kind, options, directory, machines):
    place = Place(kind, options, directory)
    failures, over, collections = [], threading.Event(), 0

    def guard(work, *arguments):
        try:
            work(*arguments)
        except RuntimeError as error:
            failures.append(str(error))

    def machine_of(machine, sources):
        for source in sources:
            back_up(place, machine, source)

    def collector():
        nonlocal collections
        while not over.is_set():
            # As anybody runs it: told not to wait it would have running backups start over.
            place.run("collector", "gc")
            collections += 1

    try:
        began = time.monotonic()
        threads = [threading.Thread(target=guard, args=(machine_of, *one)) for one in enumerate(machines)]
        beside = threading.Thread(target=guard, args=(collector,))
        [thread.start() for thread in [*threads, beside]]
        [thread.join() for thread in threads]
        took, stored = time.monotonic() - began, place.stored()
        over.set()
        beside.join()
        if failures:
            raise RuntimeError("; ".join(failures))
        collect(place)
        after = place.stored()
        finish(place, machines)
        return took, stored, after, collections
    finally:
        place.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a directory of versions")
    parser.add_argument("--onefold", type=pathlib.Path, required=True)
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--work", type=pathlib.Path, default=None)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--database", help="beside the bucket")
    parser.add_argument("--served", action="store_true")
    options = parser.parse_args()
    options.onefold, options.data = options.onefold.resolve(), options.data.resolve()
    kind = "s3" if options.s3 else "served" if options.served else "directory"
    machines = work(options)
    with tempfile.TemporaryDirectory(dir=options.work) as place:
        place = pathlib.Path(place)
        one = alone(kind, options, place / "alone", machines)
        all_at_once = together(kind, options, place / "together", machines)
    kind += f" beside {options.database.split(':')[0]}" if options.database else ""
    print(f"{kind}: {options.machines} machines, {options.turns} backups each\n")
    print("| | seconds | stored, MB | after collections, MB | collections meanwhile |\n|---|---|---|---|---|")
    print(f"| one after the other | {one[0]:.1f} | {one[1] / 1e6:.1f} | {one[2] / 1e6:.1f} | 0 |")
    took, stored, after, collections = all_at_once
    print(f"| all at once | {took:.1f} | {stored / 1e6:.1f} | {after / 1e6:.1f} | {collections} |")
    print(f"\nAll at once stores {stored / one[1]:.3f} times as much, after collections {after / one[2]:.3f} times.")


if __name__ == "__main__":
    sys.exit(main())
