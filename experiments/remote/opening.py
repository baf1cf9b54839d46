#!/usr/bin/env python3
"""How many round trips a command waits for before it can work with a store in a bucket.

A store on a versitygw of this machine gets so many sessions, each of one small file that differs. Then
`snapshots`, and a backup that finds nothing new, run through a proxy that delays each request by 50 and by 100 ms:
what the second takes longer, divided by the difference, is the round trips that had to wait for one another. Keys
are derived each time, which cancels out. Medians of so many runs that take turns.

    python3 experiments/remote/opening.py --onefold target/release/onefold --sessions 1000
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import peers

DELAYS_MS = [50, 100]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--onefold", type=pathlib.Path, required=True)
    parser.add_argument("--sessions", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    onefold = str(arguments.onefold.resolve())
    if not shutil.which("versitygw"):
        raise SystemExit("versitygw is not on the path: nothing was measured")
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        server = peers.Server(place)
        try:
            measure(onefold, server, place, arguments)
        finally:
            server.stop()


def measure(onefold, server, place, arguments):
    source = place / "source"
    source.mkdir()
    delays = {delay: peers.Delay(server.port, delay) for delay in DELAYS_MS}

    def run(port, *words):
        keys, _ = peers.commands("onefold", onefold, port, place)
        environment = os.environ | keys | {"ONEFOLD_CACHE_DIR": str(place / "cache")}
        began = time.monotonic()
        subprocess.run([onefold, "-q", *words], cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    run(server.port, "init")
    made = 0
    print("sessions, command, round trips, seconds with 50 ms")
    for sessions in sorted(arguments.sessions):
        while made < sessions:
            (source / "file").write_bytes(os.urandom(2000))
            run(server.port, "backup", ".")
            made += 1
        for command in [("snapshots",), ("backup", ".", "--skip-if-unchanged")]:
            seconds = {delay: [] for delay in DELAYS_MS}
            for _ in range(arguments.runs):
                for delay, proxy in delays.items():
                    seconds[delay].append(run(proxy.port, *command))
            short, long = (statistics.median(seconds[delay]) for delay in DELAYS_MS)
            trips = (long - short) * 1000 / (DELAYS_MS[1] - DELAYS_MS[0])
            print(f"{sessions}, {command[0]}, {trips:.1f}, {short:.2f}", flush=True)


if __name__ == "__main__":
    main()
