"""The dataset's page: its numbers against independent ones, data that leaves much out, and a real browser."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from browser import CHROMIUM, Browser
from helpers.datasets import columns, source

from winnow.algorithms.bc import BC
from winnow.cli import main
from winnow.data import store
from winnow.data.advice import Advice
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset, combine
from winnow.data.imbalance import imbalance
from winnow.data.recipes import mixed
from winnow.errors import BadInput
from winnow.inspection import coverage, episodes, page, weightings, words
from winnow.inspection.weightings import Weighting
from winnow.packs.run import Run
from winnow.policy import Policy
from winnow.samplers import AW, PF, RW, Uniform
from winnow.training.trained import Trained
from winnow.weighters.fixed import Fixed

SCRIPT = "<script>alert(1)</script>"


def mixture(**more) -> Dataset:
    """Many bad episodes of 40 steps, few good ones of 60."""
    low, high = source(0.1, 60, 40), source(1, 10, 60, seed=1)
    made = mixed(low, high, 0.1, 2400, low_label="random", high_label="expert")
    return made.describe(**more) if more else made


def weights_of(data: Dataset, seed: int = 0) -> np.ndarray:
    """Something that varies along episodes, with a mean of 1."""
    weight = np.random.default_rng(seed).exponential(size=len(data))
    return weight / weight.mean()


def finished(folder: Path, data: Dataset, weight: np.ndarray, name: str = "mine") -> Path:
    """A finished run whose weights are known: read from a file, with nothing trained."""
    folder.mkdir(exist_ok=True)
    np.save(folder / f"{name}.npy", weight)
    run = Run(data, BC(hidden=(4,)), Uniform(), Fixed(str(folder / f"{name}.npy")), 0, name)
    learner, state = (part.init(jax.random.key(0), run.spec) for part in (run.algorithm, run.weighter))
    sizes = (data.obs_dim, data.obs_dim, data.action_dim, data.action_dim)
    policy = Policy(run.algorithm, learner, *(np.ones(size) for size in sizes))
    path = folder / f"{name}.safetensors"
    Trained(run, 7, None, policy, state).save(path)
    return path


# ----------------------------------------------------------------------------------------------------------- weights


def test_the_weights_without_training_are_those_of_the_samplers():
    data = mixture()
    even, aw, pf = weightings.plain(data)
    assert even.is_even
    np.testing.assert_allclose(aw.weight, len(data) * AW().probabilities(data))
    np.testing.assert_allclose(pf.weight, len(data) * PF(0.1).probabilities(data))
    for one in (even, aw, pf):
        assert one.weight.mean() == pytest.approx(1)


def test_the_page_shows_what_it_recommends_with_its_concentration_and_the_best_and_worst_episodes(
    tmp_path, monkeypatch
):
    made = columns((5,) * 40, (True,) * 40)
    made["rewards"] = np.repeat(np.linspace(0, 1, 40) ** 4, 5).astype(np.float32)
    data = from_arrays(**made)
    for module in ("winnow.methods", "winnow.inspection.page"):
        monkeypatch.setattr(f"{module}.advise", lambda *_: Advice("rw", {}, "a test wants it"))
    page.write(tmp_path / "page.html", data, imbalance(data))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    cells = re.search(r'<tr><th scope="row">rw</th>(.*?)</tr>', text, re.DOTALL)
    assert cells
    largest = np.bincount(data.episode, RW().probabilities(data)).max()
    assert f"{100 * largest:.1f} %" in cells[1]
    assert "<dt>rw</dt><dd>recommended, since a test wants it: " in text
    assert "`" not in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    ends = re.search(r'<table id="ends">(.*?)</table>', text, re.DOTALL)
    assert ends
    assert re.findall(r"<tr><td>(\d+)</td>", ends[1]) == [*["39", "38", "37", "36", "35", "4", "3", "2", "1", "0"]]


def test_what_a_weighting_amounts_to_row_by_row():
    data = mixture()
    weight = weights_of(data)
    got = weightings.summary(data, weight)
    of_row = [data.returns[e] for e in data.episode]
    assert got.mean_return == pytest.approx(np.average(of_row, weights=weight))
    assert got.mean_reward == pytest.approx(np.average(data.reward, weights=weight))
    assert got.effective_share == pytest.approx(sum(weight) ** 2 / sum(weight**2) / len(data))
    assert got.shares == pytest.approx([weight[data.source == i].sum() / weight.sum() for i in (0, 1)])
    assert weightings.summary(data, np.ones(len(data))).effective_share == pytest.approx(1)


def test_weight_on_the_best_rows():
    score = np.array([3.0, 1.0, 2.0, 3.0, 0.0])
    weight = np.array([4.0, 1.0, 2.0, 0.0, 3.0])
    part, (line, even) = weightings.on_the_best(score, [weight, np.ones(5)])
    at = {round(float(p), 3): float(y) for p, y in zip(part, line, strict=True)}
    # the two rows with score 3 hold 4 of 10 together: half of that on the first of them, whichever it is
    assert [at[p] for p in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)] == pytest.approx([0, 0.2, 0.4, 0.6, 0.7, 1])
    np.testing.assert_allclose(even, part)


def test_weight_over_returns_and_along_episodes():
    data = mixture()
    weight, score = weights_of(data), weightings.scores(data)
    edges, (held,) = weightings.over_scores(score, [weight])
    expected, _ = np.histogram(score, edges, weights=weight)
    np.testing.assert_allclose(held, expected / weight.sum())
    steps, (means,) = weightings.along_episodes(data, [weight])
    np.testing.assert_array_equal(steps, np.arange(60))
    np.testing.assert_allclose(means, [weight[data.step == step].mean() for step in range(60)])


def test_the_scale_of_a_weightings_colours():
    assert Weighting("", "", np.array([0.9, 1.0, 1.1])).octaves == 1
    assert Weighting("", "", np.array([0.0, 0.125, 7.9])).octaves == 3
    assert Weighting("", "", np.array([1e-30, 1.0, 2.0])).octaves == weightings.WIDEST


def test_runs_are_weighed_and_told_apart(tmp_path):
    data = mixture(name="mix")
    store.save(data, tmp_path / "mix.st")
    data = store.load(tmp_path / "mix.st")
    first, second = weights_of(data, 1), weights_of(data, 2)
    files = [finished(tmp_path / "a", data, first, "mix.bc"), finished(tmp_path / "b", data, second, "mix.bc")]
    heard: list[str] = []
    found = weightings.of_runs(data, files, heard.append)
    assert [one.name for one in found] == ["a/bc", "b/bc"]
    assert found[0].description == "bc with uniform sampling and the weighter fixed, 7 updates"
    assert len(heard) == 2
    for one, weight in zip(found, (first, second), strict=True):
        np.testing.assert_allclose(one.weight, weight, rtol=1e-5)
    assert [one.name for one in weightings.of_runs(data, files[:1], heard.append)] == ["bc"]
    with pytest.raises(BadInput, match="one page can tell 12 apart"):
        weightings.of_runs(data, files * 7, heard.append)
    with pytest.raises(BadInput, match="was trained on other rows"):
        weightings.of_runs(source(1), files[:1], heard.append)


# ---------------------------------------------------------------------------------------------------------- coverage


def test_the_map_is_the_principal_components():
    rng = np.random.default_rng(0)
    made = columns((400,) * 5, (True,) * 5)
    hidden = rng.normal(size=(2000, 2)) * [3.0, 1.0]
    mixing = rng.normal(size=(2, 4))
    made["observations"] = (hidden @ mixing + 5 + 0.01 * rng.normal(size=(2000, 4))).astype(np.float32)
    made["next_observations"] = made["observations"]
    data = from_arrays(**made, kind="bag")
    place = coverage.project(data)
    assert place is not None
    states = data.rows().obs.astype(np.float64)
    states = (states - states.mean(axis=0)) / states.std(axis=0)
    left, size, _ = np.linalg.svd(states, full_matrices=False)
    for axis in (0, 1):
        mine, theirs = place.position[:, axis], left[:, axis] * size[axis]
        inside = (mine > 0) & (mine < 1)  # the tails lie on the edges
        assert inside.mean() > 0.99
        assert abs(np.corrcoef(mine[inside], theirs[inside])[0, 1]) > 0.99999
    held = (size[:2] ** 2).sum() / (size**2).sum()
    assert f"hold {100 * held:.0f} % of their variance" in place.text
    assert len(place.drawn) == len(data)


def test_how_much_of_the_map_is_reached():
    place = coverage.Map(np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [0.5, 0.5]]), ("", ""), "", np.arange(4))
    assert place.reach(np.ones(4)) == pytest.approx(2**1.5)  # entropy of 1/4, 1/4, 1/2
    assert place.reach(np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(1)
    assert len(np.unique(place.cell)) == 3


def test_more_rows_than_points_are_drawn_at_random(monkeypatch):
    monkeypatch.setattr(coverage, "MAX_POINTS", 100)
    place = coverage.project(mixture())
    assert place is not None
    assert len(place.drawn) == len(set(place.drawn)) == 100
    assert (np.diff(place.drawn) > 0).all()


# -------------------------------------------------------------------------------------------- strips and transitions


def test_the_best_typical_and_worst_episodes():
    returns = np.random.default_rng(0).permutation(101).astype(float)
    some = episodes.groups(returns)
    assert returns[some["best"]].tolist() == [100, 99, 98, 97, 96]
    assert returns[some["typical"]].tolist() == [52, 51, 50, 49, 48]
    assert returns[some["worst"]].tolist() == [4, 3, 2, 1, 0]
    assert returns[episodes.groups(returns[:9])["all episodes, best first"]].tolist() == sorted(returns[:9])[::-1]


@pytest.mark.parametrize("stretches", [7, 240])
def test_a_strip_is_the_mean_of_each_stretch(monkeypatch, stretches):
    monkeypatch.setattr(episodes, "STRETCHES", stretches)
    data = mixture()
    weight = weights_of(data)
    made = episodes.strip(data, 3, [Weighting("", "", weight)])
    here = np.flatnonzero(data.episode == 3)
    count = min(stretches, len(here))
    cuts = [here[0] + len(here) * i // count for i in range(count + 1)]
    assert len(made.reward) == len(made.weights[0]) == count
    for i, (low, high) in enumerate(pairwise(cuts)):
        assert made.weights[0][i] == pytest.approx(weight[low:high].mean())
        assert made.reward[i] == pytest.approx(data.reward[low:high].mean(), rel=1e-5)


def test_the_heaviest_and_the_lightest_rows():
    weight = np.random.default_rng(0).permutation(100).astype(float)
    order = np.argsort(weight)
    assert episodes.lightest(weight).rows.tolist() == order[:10].tolist()
    assert episodes.heaviest(weight).rows.tolist() == order[::-1][:10].tolist()
    assert episodes.heaviest(weight).alike == 1
    tied = np.array([0.0, 2.0, 0.0, 2.0, 1.0])
    assert episodes.heaviest(tied).rows.tolist() == [1, 3, 4, 0, 2]
    assert (episodes.heaviest(tied).alike, episodes.lightest(tied).alike) == (2, 2)


# ---------------------------------------------------------------------------------------------------------- the page


def written(path: Path, data: Dataset, runs: tuple[Path, ...] = (), asked: tuple[str, ...] = ("winnow",)) -> str:
    page.write(path, data, imbalance(data), runs, asked)
    return path.read_text(encoding="utf-8")


def cells(text: str, table: str) -> list[list[str]]:
    """The cells of a table of the page, as text."""
    inside = re.search(rf'<table id="{table}">.*?</table>', text, re.DOTALL)
    assert inside
    rows = re.findall(r"<tr>(.*?)</tr>", inside[0], re.DOTALL)
    return [
        [unescape(re.sub(r"<[^>]*>", " ", cell)).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in rows
    ]


def facts_of(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_says_what_was_computed(tmp_path):
    data = mixture(name="mix")
    store.save(data, tmp_path / "mix.st")
    data = store.load(tmp_path / "mix.st")
    weight = weights_of(data)
    text = written(tmp_path / "page.html", data, (finished(tmp_path, data, weight, "mix.bc.own"),))
    head, uniform, *_, own = cells(text, "compared")
    assert head == ["weights", "effective sample size", "largest episode", "mean return", "mean reward",
                    "weight on random", "weight on expert", "states reached"]  # fmt: skip
    assert uniform[:1] + uniform[5:] == ["uniform", "90.0 %", "10.0 %", "100.0 %"]
    mean = np.average(data.returns[data.episode], weights=weight)
    assert own[0] == "bc.own"
    assert own[3] == page.number(float(mean))
    heaviest = int(np.argmax(weight))
    assert f'<td class="number">{heaviest:,}</td>' in text
    facts = facts_of(text)
    assert [one["name"] for one in facts["map"]["colourings"]] == [
        "return", "reward", "source", "weight: aw", "weight: pf", "weight: bc.own"
    ]  # fmt: skip
    assert len(facts["strips"]) == 15
    assert "All 2,400 rows are drawn" in text
    assert "No run was given" not in text
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", text)


def plain_rows(**changes) -> dict:
    return columns((5, 3, 4), (True, False, True)) | changes


ODD = {
    "bag": (lambda: from_arrays(**plain_rows(), kind="bag"), "There are no episodes in bag data"),
    "continuing": (
        lambda: from_arrays(**columns((12,), (False,)), kind="continuing"),
        "There are no episodes in continuing data",
    ),
    "constant rewards": (
        lambda: from_arrays(**plain_rows(rewards=np.full(12, 2, np.float32))),
        "Every reward is 2: no row pays more",
    ),
    "constant returns": (
        lambda: from_arrays(**plain_rows(rewards=np.zeros(12, np.float32))),
        "Every return is 0: it does not tell good episodes",
    ),
    "one episode": (lambda: from_arrays(**columns((7,), (True,))), "There is one episode: nothing to compare"),
    "one row": (lambda: from_arrays(**columns((1,), (True,))), "Every episode is one step long"),
    "all terminal": (
        lambda: from_arrays(**columns((1,) * 30, (True,) * 30)),
        "Every episode is one step long: there is nothing along it",
    ),
    "one source": (lambda: source(1), "does not say that rows come from different sources"),
    "constant states": (
        lambda: from_arrays(**plain_rows(observations=np.ones((12, 2)), next_observations=np.ones((12, 2)))),
        "All states are the same",
    ),
    "one column": (
        lambda: from_arrays(
            **plain_rows(observations=np.arange(12.0)[:, None], next_observations=np.arange(1, 13.0)[:, None])
        ),
        "States are one number each",
    ),
    "huge rewards": (lambda: from_arrays(**plain_rows(rewards=np.linspace(-1e30, 1e30, 12))), "reward"),
}


@pytest.fixture(scope="module")
def odd_pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("odd")
    return {name: folder / f"{name}.html" for name in ODD if written(folder / f"{name}.html", ODD[name][0]())}


@pytest.mark.parametrize("name", ODD)
def test_data_that_leaves_something_out_gets_a_page_that_says_so(odd_pages, name):
    text = unescape(odd_pages[name].read_text())
    assert ODD[name][1] in text
    assert not re.search(r"\b(nan|inf)\b", re.sub(r'base64,[^"]*"|id="facts">.*?</script>', "", text, flags=re.DOTALL))


def test_what_is_left_out_is_not_drawn(odd_pages):
    bag = odd_pages["bag"].read_text()
    assert "There are no episodes in this data, so there are no strips" in bag
    assert [row[0] for row in cells(bag, "compared")[1:]] == ["uniform"]
    assert [one["name"] for one in facts_of(bag)["map"]["colourings"]] == ["reward"]
    alike = odd_pages["constant returns"].read_text()
    assert [one["name"] for one in facts_of(alike)["map"]["colourings"]] == ["weight: pf"]
    assert "aw weighs all rows alike here" in alike
    one = odd_pages["one row"].read_text()
    assert facts_of(one)["map"] is None


def test_names_are_escaped_everywhere(tmp_path):
    data = combine({SCRIPT: source(0.1, 8), "$\\frac": source(1, 8, seed=1)}, name=SCRIPT, notes=(SCRIPT,))
    text = written(tmp_path / "page.html", data.describe(environment=SCRIPT), asked=("winnow", SCRIPT))
    assert "<script>alert" not in text
    assert text.count("<script") == 2  # the numbers, and what draws them
    assert text.count("&lt;script&gt;alert(1)") >= 6


def test_the_points_of_the_largest_page_are_far_below_its_limit():
    """x, y and source in two bytes; row, episode, step, return, reward, AW, PF and every run in four; in base64."""
    assert coverage.MAX_POINTS * (3 * 2 + 4 * (7 + weightings.MOST_RUNS)) * 4 / 3 < 4e6


# -------------------------------------------------------------------------------------------------------- the command


def test_the_command_writes_the_page_beside_its_words(tmp_path, capsys):
    path, out = tmp_path / "mix.safetensors", tmp_path / "page.html"
    store.save(mixture(name="mix"), path)
    data = store.load(path)
    run = finished(tmp_path / "runs", data, weights_of(data), "mix.bc.own")
    assert main(["inspect", str(path), "--html", str(out), "--run", str(run), "--discount", "0.9"]) == 0
    said = capsys.readouterr().out
    assert "Recommended" in said
    assert f"page {out}" in said.replace("\n", "")
    assert f"winnow inspect {path} --html {out} --discount 0.9 --run {run}" in unescape(out.read_text())
    assert main(["inspect", str(path), "--json", "--html", str(out)]) == 0
    json.loads(capsys.readouterr().out)


def test_bad_input_leaves_no_page(tmp_path, capsys):
    path, out = tmp_path / "mix.safetensors", tmp_path / "page.html"
    store.save(mixture(), path)
    other = source(1, 5)
    run = finished(tmp_path / "runs", other, weights_of(other))
    for more, message in [
        (["--run", str(run)], "give its file with --html"),
        (["--html", str(out), "--run", str(run)], "was trained on other rows"),
        (["--html", str(out), "--run", str(tmp_path / "none")], "there is no such file"),
        (["--html", str(out), "--run", str(path)], "was not written by winnow"),
        (["--html", str(tmp_path)], "is a folder"),
    ]:
        assert main(["inspect", str(path), *more]) == 2
        said = capsys.readouterr()
        assert message in said.err
        assert said.out == ""
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mix.safetensors", "runs"]


# -------------------------------------------------------------------------------------------------------- the browser

in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine; .ci/run installs Debian's")
MAP = "document.getElementById('map').toDataURL()"
STRIP = "document.querySelector('#strips canvas').toDataURL()"
INPUTS = "[...document.querySelectorAll('input')]"
CHECKED = "document.querySelector('#{} input:checked').value"
SHOWN = "[...document.querySelectorAll('.extremes')].filter(e => !e.hidden).map(e => e.dataset.name)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A page with everything on it, of data with dangerous names."""
    folder = tmp_path_factory.mktemp("page")
    data = combine({SCRIPT: source(0.1, 30, 40), "expert": source(1, 4, 60, seed=1)}, name=SCRIPT, notes=(SCRIPT,))
    store.save(data, folder / "mix.st")
    data = store.load(folder / "mix.st")
    written(folder / "page.html", data, (finished(folder, data, weights_of(data), "own <b>"),), ("winnow", SCRIPT))
    return folder / "page.html"


@in_a_browser
def test_the_page_opens_and_is_coloured_by_mouse_and_keyboard(browser, whole):
    browser.look()
    browser.complaints.clear()
    browser.open(whole)
    assert browser.run("document.title") == SCRIPT
    assert browser.run("document.querySelector('h1').textContent") == SCRIPT
    assert browser.run("document.querySelectorAll('b').length") == 0
    names = browser.run("[...document.querySelectorAll('#colouring input')].map(i => i.value)")
    assert names == ["return", "reward", "source", "weight: aw", "weight: pf", "weight: own <b>"]
    seen = {browser.run(MAP)}
    said = {browser.run("document.getElementById('coloured').textContent")}
    browser.click("#colouring label:nth-of-type(3) input")
    assert browser.run(CHECKED.format("colouring")) == "source"
    seen.add(browser.run(MAP))
    said.add(browser.run("document.getElementById('coloured').textContent"))
    assert SCRIPT in browser.run("document.querySelector('.map .key').textContent")
    for expected in ("weight: aw", "weight: pf", "weight: own <b>", "return"):
        arrow(browser, "ArrowRight")
        assert browser.run(CHECKED.format("colouring")) == expected
        seen.add(browser.run(MAP))
        said.add(browser.run("document.getElementById('coloured').textContent"))
    assert len(seen) == len(said) == 5  # the first one came again, and looks as before
    assert "Coloured by the return" in browser.run("document.getElementById('map').getAttribute('aria-label')")
    assert browser.complaints == []


def arrow(browser: Browser, key: str) -> None:
    code = {"ArrowRight": 39, "ArrowLeft": 37}[key]
    for kind in ("rawKeyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


@in_a_browser
def test_strips_and_transitions_follow_the_chosen_weights(browser, whole):
    browser.look()
    browser.complaints.clear()
    browser.open(whole)
    assert browser.run(CHECKED.format("weighting")) == "own <b>"  # what was learnt is shown first
    assert browser.run(SHOWN) == ["own <b>"]
    before = browser.run(STRIP)
    browser.click("#weighting label:nth-of-type(3) input")
    assert browser.run(SHOWN) == ["pf"]
    assert browser.run("document.querySelector('#strips .mean').textContent") != "1"
    after = browser.run(STRIP)
    assert before != after
    arrow(browser, "ArrowLeft")
    arrow(browser, "ArrowLeft")
    assert browser.run(CHECKED.format("weighting")) == "uniform"
    assert browser.run(SHOWN) == []
    assert browser.run("document.querySelector('#strips .mean').textContent") == "1"
    assert not browser.run("document.getElementById('all-alike').hidden")
    assert browser.complaints == []


@in_a_browser
def test_the_map_says_which_row_is_under_the_pointer(browser, whole):
    browser.look()
    browser.open(whole)
    middle = "(r => [r.x + r.width / 2, r.y + r.height / 2])(document.getElementById('map').getBoundingClientRect())"
    browser.run("document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    x, y = browser.run(middle)
    for shift in range(0, 60, 6):
        browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x + shift, y=y)
        if not browser.run("document.querySelector('.tip').hidden"):
            break
    told = browser.run("document.querySelector('.tip').textContent")
    assert re.fullmatch(r"row [\d,]+ · episode \d+ · step \d+ · .+ · return [-\d.]+", told)


@in_a_browser
def test_dark_narrow_and_with_the_keyboard_alone(browser, whole):
    browser.look(dark=True, width=420)
    browser.complaints.clear()
    browser.open(whole)
    dark = browser.run(MAP)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    browser.look(dark=False, width=420)
    assert browser.run(MAP) != dark  # drawn again in the other colours
    reached = []
    for _ in range(20):
        browser.press("Tab")
        reached.append(browser.run("document.activeElement.name || document.activeElement.className"))
    assert reached[0] == "skip"
    assert "colouring" in reached
    assert browser.run("[...document.querySelectorAll('img')].every(i => i.alt.length > 40)")
    assert browser.run(
        "[...document.querySelectorAll('input')].every(i => i.closest('fieldset').querySelector('legend'))"
    )
    assert browser.complaints == []


@in_a_browser
def test_pages_of_odd_data_open(browser, odd_pages):
    browser.look()
    browser.complaints.clear()
    for name, path in odd_pages.items():
        browser.open(path)
        drawn = browser.run("!!document.getElementById('map')")
        assert drawn == (facts_of(path.read_text())["map"] is not None), name
        assert browser.run("document.querySelectorAll('fieldset:not([hidden]) input').length") > 0 or not drawn
    assert browser.complaints == []


def test_even_weights_are_told_in_words():
    assert words.heaviness(Weighting("", "", np.ones(3))) == "every row counts alike"
