"""Spoiled files of every kind, a few of each; `soak.py` tries as many as there is time for."""

from __future__ import annotations

import json
import random

import pytest
from helpers.hostile.corpus import KINDS
from helpers.hostile.mutations import spoiled, warped
from helpers.hostile.spoiled_reads import distinct, tried

LIGHT = [kind for kind, about in KINDS.items() if not about.heavy]
HEAVY = [kind for kind, about in KINDS.items() if about.heavy]


@pytest.mark.parametrize("kinds", [LIGHT, HEAVY], ids=["data", "runs and results"])
def test_a_spoiled_file_is_read_or_refused_and_nothing_else(kinds):
    tallies = tried(kinds, seed=1, count=25)
    assert [tally.kind for tally in tallies] == kinds
    for tally in tallies:
        assert not tally.defects, f"{tally.kind}: {distinct(tally)}"
        assert tally.tried == 25
    assert sum(tally.refused for tally in tallies) > 5 * len(kinds)


def test_inputs_are_the_same_every_time_and_differ_from_the_good_file():
    good = json.dumps({"a": [1, 2, {"b": "c"}], "d": None}).encode()
    made = [spoiled(good, random.Random(number)) for number in range(200)]
    assert made == [spoiled(good, random.Random(number)) for number in range(200)]
    assert sum(one != good for one in made) > 190
    assert len(set(made)) > 150
    tree = json.loads(good)
    bent = [warped(tree, random.Random(number)) for number in range(200)]
    assert json.loads(good) == tree
    assert sum(one != tree for one in bent) > 190
