#!/usr/bin/env python3
"""Where every chunker cuts a fixed input, with and without a secret.

Each algorithm is written here a second time, slowly, from docs/FORMAT.md, so that a stranger can
check both. The program's own tests compare (known_answers.rs).

    pip install blake3
    python3 generate.py --check              says whether cut_points.txt is what this computes
    python3 generate.py > cut_points.txt     writes it anew: only for a new version of the format
"""

import pathlib
import sys

from blake3 import blake3

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
FILLERS = (0x00, 0x20, 0xFF)
KIB = 1024
SECRET = blake3(bytes(range(32)), derive_key_context="onefold 2026 chunk boundaries").digest()
CASES = [
    ("fixed", 4096, 0), ("rabin", 4096, 0), ("rabin", 6000, 0), ("regression", 4096, 4),
    ("regression", 4096, 2), ("fastcdc", 4096, 0), ("fastcdc", 5001, 0), ("mincdc", 4096, 0),
    ("mincdc", 8192, 0),
]


def chunker_input():
    """Random bytes; few different words; short and long periods; fillers; random bytes."""
    random = blake3(b"onefold known answers: chunker input").digest(length=208 * KIB)
    few = bytes(byte & 1 for byte in random[: 24 * KIB])
    periods = [(random[:period] * 300)[: 20 * KIB] for period in (100, 256, 257, 512, 513)]
    fillers = bytes(20 * KIB) + b" " * (20 * KIB) + b"\xff" * (8 * KIB)
    return random[: 192 * KIB] + few + b"".join(periods) + fillers + random[192 * KIB :]


class Draw:
    """The words of a secret, little-endian."""

    def __init__(self, secret, context):
        self.stream = blake3(secret or b"", derive_key_context=context).digest(length=1 << 16)
        self.at = 0

    def next(self, size):
        self.at += size
        return int.from_bytes(self.stream[self.at - size : self.at], "little")


def pattern_bits(spread):
    floor = spread.bit_length() - 1
    return floor + (spread * spread > 1 << (2 * floor + 1))


def sizes(kind, average):
    if kind == "fixed":
        return average, average
    if kind in ("rabin", "regression"):
        low = average - (1 << pattern_bits(average // 2))
        return low, average * (4 if kind == "rabin" else 2)
    if kind == "fastcdc":
        return average // 4, 4 * average
    return average // 2, 2 * average - average // 2


# Fixed


def fixed(average, low, high, depth, secret):
    return lambda rest: min(len(rest), average)


# MinCDC


def mincdc(average, low, high, depth, secret):
    draw = Draw(secret, "Onefold chunking 1: MinCDC")
    while True:
        multiplier, addend = draw.next(4) | 1, draw.next(4)
        ratings = [(byte * 0x01010101 * multiplier + addend) & M32 for byte in FILLERS]
        if min(ratings) >= 1 << 30:
            break

    def rating(rest, length):
        word = int.from_bytes(rest[length - 4 : length], "little")
        return (word * multiplier + addend) & M32

    def cut(rest):
        limit = min(len(rest), high)
        if len(rest) <= average or limit <= low:
            return limit
        winner = min(range(low, limit + 1), key=lambda length: rating(rest, length))
        reach = min(1024, (high - low) // 16)
        if winner - low > reach:
            return winner
        word, trials = rest[winner - 4 : winner], 0
        for period in range(1, reach + 1):
            if rest[winner - 4 + period : winner + period] != word or winner + period > limit:
                continue
            if rest[winner - 4 + period : limit] == rest[winner - 4 : limit - period]:
                return winner + (limit - winner) // period * period
            trials += 1
            if trials == 64:
                break
        return winner

    return cut


# FastCDC


def fastcdc(average, low, high, depth, secret):
    spread = average - low
    per_spread = M64 // spread
    strict, lax = per_spread // 16 * 3, min(per_spread * 3, M64)
    centre = low + spread // 4 * 3
    draw = Draw(secret, "Onefold chunking 1: gear table")
    gear = [draw.next(8) for _ in range(256)]
    for byte in FILLERS:
        while -gear[byte] & M64 < lax:
            gear[byte] = draw.next(8)

    def cut(rest):
        limit = min(len(rest), high)
        state = 0
        for byte in rest[max(low - 64, 0) : low - 1]:
            state = (2 * state + gear[byte]) & M64
        for length in range(low, limit):
            state = (2 * state + gear[rest[length - 1]]) & M64
            if state < (strict if length <= centre else lax):
                return length
        return limit

    return cut


# Rabin and regression

DEGREE = 53


def remainder(value, modulus):
    while value.bit_length() > DEGREE:
        value ^= modulus << (value.bit_length() - DEGREE - 1)
    return value


def times(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = a << 1, b >> 1
    return product


def is_irreducible(candidate):
    if candidate & 1 == 0 or candidate.bit_count() % 2 == 0:
        return False
    power = 2
    for _ in range(DEGREE):
        power = remainder(times(power, power), candidate)
    return power == 2


def rolling(secret, bits):
    draw = Draw(secret, "Onefold chunking 1: Rabin")
    while True:
        polynomial = 1 << DEGREE | draw.next(8) >> (64 - DEGREE)
        if is_irreducible(polynomial):
            break
    mask = (1 << bits) - 1
    runs = [remainder(int.from_bytes([b] * 48, "big"), polynomial) & mask for b in FILLERS]
    while True:
        pattern = draw.next(8) & mask | 1
        if pattern not in runs:
            break
    top = [remainder(byte << DEGREE, polynomial) for byte in range(256)]
    leave = [remainder(byte << (8 * 48), polynomial) for byte in range(256)]

    def fingerprints(rest, low, limit):
        """Length and fingerprint of the 48 bytes before it, for each place."""
        value = remainder(int.from_bytes(rest[low - 49 : low - 1], "big"), polynomial)
        for length in range(low, limit):
            high_bits, value = value >> (DEGREE - 8), value << 8 & ((1 << DEGREE) - 1)
            value ^= top[high_bits] ^ rest[length - 1] ^ leave[rest[length - 49]]
            yield length, value

    return pattern, fingerprints


def rabin(average, low, high, depth, secret):
    bits = pattern_bits(average - low)
    pattern, fingerprints = rolling(secret, bits)

    def cut(rest):
        limit = min(len(rest), high)
        reserve = {}
        for length, value in fingerprints(rest, low, limit) if limit > low else ():
            differs = (value ^ pattern) & ((1 << bits) - 1)
            if differs == 0:
                return length
            agreeing = (differs & -differs).bit_length() - 1
            if bits - agreeing <= depth:
                reserve[bits - agreeing] = length
        if reserve and len(rest) >= high:
            return reserve[min(reserve)]
        return limit

    return cut


KINDS = {
    "fixed": fixed, "rabin": rabin, "regression": rabin, "fastcdc": fastcdc, "mincdc": mincdc,
}


def answers():
    data = chunker_input()
    yield f"input {len(data)} {blake3(data).hexdigest()}"
    for kind, average, depth in CASES:
        low, high = sizes(kind, average)
        for secret in (None, SECRET):
            cut = KINDS[kind](average, low, high, depth, secret)
            at, lengths = 0, []
            while at < len(data):
                lengths.append(cut(data[at : at + high]) if kind == "fixed" else cut(data[at:]))
                at += lengths[-1]
            key = "keyed" if secret else "unkeyed"
            heading = f"{kind} {low} {average} {high} {depth} {key}:"
            yield " ".join([heading, *map(str, lengths)])


def main():
    text = "\n".join(answers()) + "\n"
    if sys.argv[1:] == ["--check"]:
        kept = pathlib.Path(__file__).with_name("cut_points.txt").read_text()
        print("the same" if kept == text else "DIFFERENT")
        sys.exit(kept != text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
