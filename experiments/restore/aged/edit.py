"""Edits a tree in place, as one generation of work on it would: edit.py TREE GENERATION.

A tenth of the files get a few insertions and replacements, one in three hundred is new, one in four
hundred is deleted. The same tree and generation give the same result.
"""

import os
import random
import sys

tree, generation = sys.argv[1], int(sys.argv[2])
chance = random.Random(1000 + generation)
paths = sorted(os.path.join(parent, name) for parent, _, names in os.walk(tree) for name in names)
files = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
files = [path for path in files if os.path.getsize(path) > 0]
for path in chance.sample(files, len(files) // 10):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    for _ in range(1 + len(data) // (256 << 10)):
        at = chance.randrange(len(data) + 1)
        data[at : at + chance.randrange(100)] = chance.randbytes(chance.randrange(1, 200))
    with open(path, "wb") as file:
        file.write(data)
for number, path in enumerate(chance.sample(files, max(1, len(files) // 300))):
    with open(f"{os.path.dirname(path)}/new-{generation}-{number}", "wb") as file:
        file.write(chance.randbytes(chance.randrange(100, 60000)))
for path in chance.sample(files, max(1, len(files) // 400)):
    os.remove(path)
