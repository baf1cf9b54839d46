#!/usr/bin/env python3
"""Known answers for everything that a store derives, seals or names.

Computed from docs/FORMAT.md with other implementations than the program's, so that a mistake in
the program cannot be in the answers as well. The program's own tests compare (known_answers.rs).

    pip install blake3 cryptography argon2-cffi
    python3 generate.py --check          says whether answers.json is what this computes
    python3 generate.py > answers.json   writes it anew: only for a new version of the format
"""

import hashlib
import hmac
import json
import pathlib
import sys

from argon2.low_level import Type, hash_secret_raw
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MASTER_KEY = bytes(range(32))
# Later generations of keys: number, since when, secret. Number 3 came to nothing.
LATER = [(2, 1_700_000_000_000_000_000, bytes(range(32, 64))),
         (4, 1_800_000_000_123_456_789, bytes(range(64, 96)))]
NAME = bytes(range(0x40, 0x50))
STORE = bytes(range(0xA0, 0xB0))
NONCE = bytes(range(0xC0, 0xCC))
SALT = bytes(range(0x10, 0x20))
PLAIN = b"The quick brown fox jumps over the lazy dog."
KEY_FILE = bytes(range(0x80, 0xA0))
PASSWORD = "corr\u00e9ct horse".encode()

CONTEXTS = {
    "sealing": "onefold 2026 sealing of stored objects",
    "data": "onefold 2026 fingerprints of data chunks",
    "nodes": "onefold 2026 fingerprints of tree nodes",
    "boundaries": "onefold 2026 chunk boundaries",
    "configuration": "onefold 2026 authenticity of the configuration",
}
GENERATION = "onefold 2026 name of a sealing generation"
KEY_FILE_CONTEXT = "onefold 2026 wrapping key of a key file"
PUBLIC_NODES = "onefold 2026 tree nodes of an unencrypted store"
PURPOSES = {
    "container": 1, "index run": 2, "outcome": 3, "mark": 4, "tombstone": 5, "plan": 6,
    "damage": 7, "session": 8, "configuration": 9, "fate": 10, "doubt": 11, "change": 12,
    "generation": 13, "checkpoint": 14, "stub": 15,
}
PARTS = [0, 1, 0x01020304, 0x80000000, 0xC0000001, 0xFFFFFFFF]
CONFIGURATION = (
    "onefold configuration\nformat_version=4\nstore_id=" + STORE.hex() + "\ncreated_ns=5\n"
    "encryption=aes-256-gcm\nhash=blake3\nchunker.kind=mincdc\nchunker.size_min_bytes=4096\n"
    "chunker.size_avg_bytes=8192\nchunker.size_max_bytes=12288\nchunker.regression_depth=0\n"
    "chunker.tar_aware=true\ncompression=zstd,2\ncontainer_size_bytes=4194304\n"
).encode()


def subkey(context, secret=MASTER_KEY):
    return blake3(secret, derive_key_context=context).digest()


def sealed(encrypted, purpose, nonce, plain, secret=MASTER_KEY):
    """The bytes and their tag; the associated data are purpose and name."""
    place = bytes([purpose]) + NAME
    if not encrypted:
        return plain + blake3(place + nonce + plain).digest()[:16]
    object_key = blake3(place, key=subkey(CONTEXTS["sealing"], secret)).digest()
    return AESGCM(object_key).encrypt(nonce, plain, place)


def seals():
    for encrypted in (True, False):
        for what, purpose in PURPOSES.items():
            # All parts for one purpose, two for the others: a nonce knows no purpose.
            for part in PARTS if purpose == 1 else PARTS[:2]:
                nonce = part.to_bytes(4, "little") + bytes(8)
                yield {
                    "encrypted": encrypted, "purpose": what, "number": purpose, "part": part,
                    "sealed": sealed(encrypted, purpose, nonce, PLAIN).hex(),
                    "record": (NONCE + sealed(encrypted, purpose, NONCE, PLAIN)).hex(),
                }


def inputs():
    """Empty, short, a BLAKE3 chunk and its neighbours, one block of HMAC, several BLAKE3 chunks."""
    for length in (0, 1, 63, 64, 65, 1023, 1024, 1025, 8192, 12289):
        yield bytes(i % 251 for i in range(length))


def digest(hash_name, key, data):
    """SHA-256 or SHA-1, as HMAC under a key; twenty bytes are followed by zeros."""
    if key is None:
        found = hashlib.new(hash_name, data).digest()
    else:
        found = hmac.new(key, data, hash_name).digest()
    return found.ljust(32, b"\0")


def fingerprints():
    for keyed in (True, False):
        data_key = subkey(CONTEXTS["data"]) if keyed else None
        if keyed:
            node_key = subkey(CONTEXTS["nodes"])
        else:
            node_key = blake3(b"", derive_key_context=PUBLIC_NODES).digest()
        for data in inputs():
            plain = blake3(data, key=data_key) if keyed else blake3(data)
            yield {
                "hash": "blake3", "keyed": keyed, "length": len(data),
                "data": plain.hexdigest(), "node": blake3(data, key=node_key).hexdigest(),
            }
            for name in ("sha256", "sha1"):
                yield {
                    "hash": name, "keyed": keyed, "length": len(data),
                    "data": digest(name, data_key, data).hex(),
                    "node": digest(name, data_key, b"onefold tree node\0" + data).hex(),
                }


def ring(later):
    """The master key, and of each later generation its number, its time and its secret."""
    entries = [number.to_bytes(4, "little") + since.to_bytes(8, "little") + secret
               for number, since, secret in later]
    return MASTER_KEY + b"".join(entries)


def generations():
    """Each generation: its id, a part and a record of a container, and the decision about it."""
    for number, since, secret in [(1, 0, MASTER_KEY)] + LATER:
        generation_id = subkey(GENERATION, secret)[:16]
        place = bytes([13]) + number.to_bytes(8, "little") + bytes(8)
        tag = blake3(place + NONCE + generation_id).digest()[:16]
        yield {
            "number": number, "since_ns": since, "secret": secret.hex(), "id": generation_id.hex(),
            "part": sealed(True, 1, bytes(12), PLAIN, secret).hex(),
            "record": (NONCE + sealed(True, 3, NONCE, PLAIN, secret)).hex(),
            "decision": (NONCE + generation_id + tag).hex(),
        }


def key_file():
    """The line of text that holds a key, and a checksum over what is before the last colon."""
    line = "onefold-key-file-1:" + KEY_FILE.hex()
    return line + ":" + blake3(line.encode()).hexdigest()[:8] + "\n"


def expanded(key):
    """HKDF-SHA256 (RFC 5869) of one block, with the slot's salt, for this store."""
    pseudorandom = hmac.new(SALT, key, hashlib.sha256).digest()
    info = KEY_FILE_CONTEXT.encode() + STORE
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()


def slot(memory_kib, passes, lanes, version=2, later=()):
    key = hash_secret_raw(PASSWORD, SALT, passes, memory_kib, lanes, 32, Type.ID, version=0x13)
    return wrapped("argon2id", key, (memory_kib, passes, lanes), version, later)


def key_file_slot(later=()):
    return wrapped("hkdf-sha256", expanded(KEY_FILE), (0, 0, 0), 2, later)


def wrapped(kdf, key, costs, version, later):
    number, _, secret = ([(1, 0, MASTER_KEY)] + list(later))[-1]
    generation_id = subkey(GENERATION, secret)[:16]
    memory_kib, passes, lanes = costs

    def u32(number):
        return number.to_bytes(4, "little")

    def counted(data):
        return len(data).to_bytes(8, "little") + data

    place = STORE if version == 1 else STORE + u32(number) + generation_id
    ciphertext = AESGCM(key).encrypt(NONCE, ring(later), place)
    covered = u32(version) + counted(kdf.encode()) + u32(memory_kib) + u32(passes) + u32(lanes)
    covered += counted(SALT) + counted(NONCE) + counted(ciphertext)
    claim = {}
    if version > 1:
        covered += u32(number) + counted(generation_id)
        claim = {"generation": number, "generation_id": generation_id.hex()}
    fields = {
        "version": version, "kdf": kdf, "memory_kib": memory_kib, "passes": passes,
        "lanes": lanes, "salt": SALT.hex(), "nonce": NONCE.hex(), "wrapped": ciphertext.hex(),
        **claim,
        "checksum": blake3(covered).hexdigest()[:32], "label": "", "created_ns": 0,
    }
    return json.dumps(fields, indent=2) + "\n"


def answers():
    tag = blake3(CONFIGURATION, key=subkey(CONTEXTS["configuration"])).hexdigest()
    return {
        "master_key": MASTER_KEY.hex(),
        "name": NAME.hex(),
        "store": STORE.hex(),
        "nonce": NONCE.hex(),
        "salt": SALT.hex(),
        "plain": PLAIN.hex(),
        "password": PASSWORD.hex(),
        "subkeys": {what: subkey(context).hex() for what, context in CONTEXTS.items()},
        "configuration": {"covered": CONFIGURATION.decode(), "authenticity": tag},
        "seals": list(seals()),
        "fingerprints": list(fingerprints()),
        "generations": list(generations()),
        "key_slots": [
            slot(12 * 1024, 3, 1), slot(64, 1, 1), slot(256, 2, 4, 2, LATER[:1]),
            slot(64, 1, 1, 2, LATER),
        ],
        "first_key_slots": [
            slot(12 * 1024, 3, 1, 1), slot(64, 1, 1, 1), slot(256, 2, 4, 1),
        ],
        "key_file": key_file(),
        "key_file_slots": [key_file_slot(), key_file_slot(LATER)],
    }


def main():
    text = json.dumps(answers(), indent=1) + "\n"
    if sys.argv[1:] == ["--check"]:
        kept = pathlib.Path(__file__).with_name("answers.json").read_text()
        print("the same" if kept == text else "DIFFERENT")
        sys.exit(kept != text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
