#!/usr/bin/env python3
"""Nodes of a cluster are killed while a store is used that rests on it, and come back.

    python3 experiments/remote/killed.py --data experiments/data/a --onefold target/release/onefold \\
        --nodes 'sh examples/engines/cassandra.sh /tmp/cassandra' --node 3 \\
        --store 's3://bucket/killed?endpoint=http://127.0.0.1:7070&database=cassandra://127.0.0.1,127.0.0.2/onefold'

The cluster runs already; `--nodes` is the script that started it, which is told `kill N` and `start N`. A node is killed
with -9 half a second into a backup, and started again half a second into the next one; then the same for a restore and for a
collection, after some snapshots were forgotten. In the end `check --read-data` must find nothing, and each snapshot that
is left must restore to what was saved. Prints a line for each command: what became of the node, seconds, exit code.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

from peers import same


def restored(target, source):
    return next(pathlib.Path(target).rglob(source.name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--onefold", type=pathlib.Path, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--node", default="3")
    parser.add_argument("--generations", type=int, default=6)
    options = parser.parse_args()
    variables = dict(os.environ, ONEFOLD_REPOSITORY=options.store, ONEFOLD_PASSWORD="x")
    failures = 0

    def tell(verb):
        subprocess.run([*shlex.split(options.nodes), verb, options.node], check=True,
                       stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def run(arguments, meanwhile=None):
        nonlocal failures
        began = time.monotonic()
        process = subprocess.Popen([options.onefold.resolve(), "-q", *arguments], env=variables,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if meanwhile:
            time.sleep(0.5)
            early = process.poll() is not None
            tell(meanwhile)
            meanwhile += " (too late)" if early else ""
        said = process.communicate()[1].strip()
        seconds = time.monotonic() - began
        failures += process.returncode != 0
        print(f"| {' '.join(map(str, arguments[:2]))} | {meanwhile or ''} | {seconds:.1f} | {process.returncode} |"
              f" {said.splitlines()[0][:160] if said else ''} |", flush=True)

    generations = sorted(path for path in options.data.glob("[!.]*") if path.is_dir())[:options.generations]
    print("| command | node | seconds | exit code | said |\n| --- | --- | ---: | ---: | --- |")
    run(["init"])
    with tempfile.TemporaryDirectory() as work:
        for number, generation in enumerate(generations):
            run(["backup", generation], {1: "kill", 3: "start"}.get(number))
        run(["restore", "latest", "--target", f"{work}/killed"], "kill")
        failures += not same(generations[-1], restored(f"{work}/killed", generations[-1]))
        run(["forget", "latest~4", "latest~3", "--final"])
        run(["gc"], "start")
        run(["backup", generations[0]])
        run(["forget", "latest~3", "--final"])
        run(["gc", "--space-goal", "all"], "kill")
        tell("start")
        run(["check", "--read-data"])
        for back, generation in enumerate([generations[0], generations[-1], generations[-2]]):
            target = f"{work}/after-{back}"
            run(["restore", "latest" if back == 0 else f"latest~{back}", "--target", target])
            equal = same(generation, restored(target, generation))
            failures += not equal
            print(f"| {generation.name} | | | | {'equal' if equal else 'DIFFERS'} |", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
