"""The decision of `auto`: what it chooses for which data, and what it says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers.datasets import columns, source

from winnow import toy
from winnow.data.advice import Advice, advise, decide, percent, verdict
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.data.imbalance import Imbalance, imbalance
from winnow.data.recipes import diverse, mixed
from winnow.errors import BadInput
from winnow.methods import METHODS, for_dataset, make_sampler, method, sampler_for
from winnow.samplers import AW, PF
from winnow.training.planning import plan

LOW, HIGH = source(0.1, 200, 20), source(1, 100, 60, seed=1)


def whole(share: float = 0.1, rows: int = 12_000) -> Dataset:
    return mixed(LOW, HIGH, share, rows)


@pytest.fixture(scope="module")
def measured() -> Imbalance:
    """Whole episodes of many rows, a tenth of them good."""
    return dataclasses.replace(imbalance(whole()), rows=1_000_000, start_spread=0.02, fragments=False)


@pytest.mark.parametrize(("share", "expected"), [(0.01, "aw"), (0.1, "aw"), (0.5, "uniform")])
def test_whole_episodes_are_for_aw_and_balanced_ones_for_uniform(share, expected):
    advice = advise(whole(share))
    assert advice.method == expected
    assert advice.method in METHODS


def test_fragments_are_for_continued_also_where_their_returns_look_balanced():
    low, high = toy.make(toy.random, 6_000, 0, "random"), toy.make(toy.expert, 2_000, 1, "expert")
    fragments = diverse(low, high, 0.1, 8_000)
    assert imbalance(fragments).effective_share > 0.2
    assert advise(fragments).method == "continued"
    assert "fragments" in advise(fragments).why


@pytest.mark.parametrize(
    ("changes", "expected", "reason"),
    [
        ({}, "aw", "whole episodes"),
        ({"effective_share": 0.0199}, "aw", "may overfit"),
        ({"effective_share": 0.21}, "uniform", "not rare"),
        ({"quantiles": {"0": 100.0, "1": 100.9}}, "uniform", "hardly differ"),
        ({"count": 19}, "uniform", "19 episodes are too few"),
        ({"columns": 51, "count": 150}, "rw", "150 episodes are too few to fit the return of a start in 51 columns"),
        ({"fragments": True}, "continued", "judges them by where they lead"),
        ({"fragments": True, "count": 199}, "aw", "199 fragments are too few"),
        ({"of": "reward"}, "dw-uniform", "no episodes"),
    ],
)
def test_each_reason_for_a_choice(measured, changes, expected, reason):
    advice = decide(dataclasses.replace(measured, **changes))
    assert advice.method == expected
    assert reason in advice.why
    assert advice.line("log") == f"log: auto chose {expected}: {advice.why}"
    assert not advice.why.endswith(".")


def test_data_without_episodes_is_for_weights_of_rows():
    assert advise(from_arrays(**columns((30,), (False,)), kind="bag")).method == "dw-uniform"


def test_data_of_others_is_in_fragments_if_most_episodes_are_cut_short_of_the_longest():
    def cut(lengths: list[int]) -> bool:
        rows = sum(lengths)
        end = np.isin(np.arange(rows), np.cumsum(lengths) - 1)
        step = np.concatenate([np.arange(length) for length in lengths])[:, None]  # all begin alike
        return imbalance(from_arrays(step, step * 0.0, np.ones(rows), end & False, end)).fragments

    assert cut([30, 12, 45, 20])
    assert not cut([45, 45, 45, 20])


def test_settings_of_an_advice_reach_the_method(monkeypatch):
    data = whole()
    monkeypatch.setattr("winnow.methods.advise", lambda dataset: Advice("pf", {"sampler.share": 0.3}, "a test"))
    assert for_dataset("auto", data).sampler == PF(0.3)
    assert "auto chose pf with sampler.share 0.3: a test" in Advice("pf", {"sampler.share": 0.3}, "a test").line("log")


def test_a_run_of_auto_knows_what_was_asked_and_what_was_chosen():
    (run,) = plan(whole(), "bc", "auto")
    assert (run.method, run.resolved) == ("auto", "aw")
    assert run.name.endswith(".bc.auto.seed0")
    assert run.sampler == AW(0.1)
    (run,) = plan(whole(), "bc", "pf")
    assert (run.method, run.resolved) == ("pf", "pf")


def test_a_sampler_by_the_name_auto_says_what_it_is(capsys):
    assert sampler_for("auto", whole()) == AW(0.1)
    assert "auto chose aw: only about" in capsys.readouterr().err


def test_small_sets_get_the_temperature_that_prefers_good_rows_and_published_settings_are_asked_for():
    assert make_sampler("aw") == AW(0.1)
    assert method("aw", "cql")[0] == AW(0.2)
    assert plan(whole(rows=3_000), "bc", "aw")[0].sampler == AW(0.1)
    assert make_sampler("aw", "iql", published_rows=50_000) == AW(5.0)
    assert make_sampler("aw", "iql", published_rows=60_000) == AW(0.1)


def test_auto_needs_the_data():
    with pytest.raises(BadInput, match="auto chooses a method by the rows of a dataset"):
        method("auto")


def test_the_verdict_is_in_plain_words(measured):
    text = verdict(dataclasses.replace(measured, effective_share=0.123))
    assert text.startswith("Imbalanced: about 12 % of the rows are worth learning from; the best 5 % of episodes hold ")
    assert "all returns are nearly the same" in verdict(dataclasses.replace(measured, quantiles={"0": 9.99, "1": 10}))
    assert [percent(share) for share in (0.12345, 0.0344, 0.00081, 0.0996)] == ["12 %", "3.4 %", "0.08 %", "10 %"]
