"""Corrupting good files, reproducibly for a seed: their bytes, or the tree of their JSON."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
NUMBERS = (0, 1, 2**7, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (
    b"NaN", b"1e999", b"-1", b"null", b"true", b'""', b"{}", b"[]", b'"\\ud800"', b"\xff\xfe", b"\x00", b"9" * 5000,
)  # fmt: skip
NESTED = 100_000
"""Brackets; a recursive parser can't go that deep."""


def spoiled(good: bytes, dice: random.Random) -> bytes:
    """Bytes with one to four corruptions: flips, wrong lengths, cuts, copies, runs of zeros, inserted text."""
    data = bytearray(good)
    for _ in range(dice.choice((1, 1, 2, 4))):
        if not data:
            break
        dice.choice(EDITS)(data, dice)
    return bytes(data)


def _flip(data: bytearray, dice: random.Random) -> None:
    for _ in range(dice.choice((1, 1, 3, 8))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] = dice.choice(BYTES)


def _length(data: bytearray, dice: random.Random) -> None:
    """Replace an integer of 1 to 8 bytes by an extreme one, the file's length, or one near or twice the old one."""
    width = dice.choice((1, 2, 4, 8))
    at = dice.randrange(len(data))
    order = dice.choice(("little", "little", "big"))
    old = int.from_bytes(data[at : at + width], order)
    new = dice.choice((*NUMBERS, len(data), old + 1, old - 1, 2 * old))
    data[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, order)


def _cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def _remove(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data))
    del data[at : at + dice.choice((1, 2, 8, 64, 512))]


def _copy(data: bytearray, dice: random.Random) -> None:
    """Copy a part of the file to another offset, either over the bytes there or before them."""
    size = dice.choice((4, 16, 128, 1024))
    source = dice.randrange(len(data))
    target = dice.randrange(len(data))
    stretch = data[source : source + size]
    data[target : target + (len(stretch) if dice.random() < 0.5 else 0)] = stretch


def _run(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data))
    size = dice.choice((4, 16, 64, 512))
    data[at : at + size] = bytes([dice.choice((0, 0, 0xFF))]) * len(data[at : at + size])


def _word(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice(TEXTS)


def _digits(data: bytearray, dice: random.Random) -> None:
    """Replace a number written in digits by an extreme one."""
    if numbers := list(re.finditer(rb"\d+", data)):
        begin, end = dice.choice(numbers).span()
        data[begin:end] = str(dice.choice((*NUMBERS, 10**30))).encode()


EDITS = (_flip, _flip, _set, _length, _length, _length, _cut, _remove, _copy, _copy, _run, _word, _digits)

# ------------------------------------------------------------------------------------------------------------- trees

JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**63, 10**12, 10**400, 0.5, -0.0, 1e308, 1e-308, float("nan"), float("inf"),
    "", "a", " ", "\0", "a\nb", "\ud800", "é" * 300, "x" * 5_000, ".", "..", "../x", "/etc/passwd", "a/b", "C:\\x",
    "\x1b[2J", "<script>alert(1)</script>", "$\\frac{", "{{ 7 * 7 }}", "[red]x[/]", "NaN", "1",
    [], {}, [[]], [None], [1, "a"], {"name": "a"}, {"a": {"b": []}}, [0] * 1_000, ["a", "a"],
)  # fmt: skip
"""Values that no field expects."""


def warped(tree: Any, dice: random.Random, junk: tuple[Any, ...] = JUNK) -> Any:
    """A JSON tree with one or two values replaced, removed, doubled, renamed or nested."""
    tree = copy.deepcopy(tree)
    for _ in range(dice.choice((1, 1, 2))):
        places = list(_places(tree))
        if not places:
            return dice.choice(junk)
        parent, key = dice.choice(places)
        match dice.randrange(8):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.insert(key, copy.deepcopy(parent[key]))
            case 1:
                parent[str(dice.choice(junk))] = parent.pop(key)
            case 2:
                parent[key] = [parent[key]]
            case 3:
                parent[key] = {"a": parent[key]}
            case _:
                parent[key] = copy.deepcopy(dice.choice(junk))
    return tree


def _places(tree: Any) -> Any:
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(tree[key])


def written(tree: Any, dice: random.Random) -> bytes:
    """A tree as JSON text; in 2 % of the calls nested too deep for a parser."""
    text = json.dumps(tree).encode()
    if dice.random() < 0.02:
        deep = b"[" * NESTED + b"]" * NESTED if dice.random() < 0.5 else b'{"a":' * NESTED + b"1" + b"}" * NESTED
        return re.sub(rb'(?<=[:,\[])("[^"]*"|\d+)', lambda _: deep, text, count=1) if dice.random() < 0.7 else deep
    return text
