"""Does off-policy evaluation rank policies as their environment does?

python experiments/ope/rank.py train|judge|score [SET…]    WINNOW_DATA says where data is kept; RUNS (default: its ope/)

Small regenerated sets of three tasks, and 20,000 rows of the dome (`winnow.toy`, where random play covers most of what
a policy meets). A tenth of the rows is by an expert, a fifth of the episodes is held out. IQL with networks of 2×64
learns from the rest with five methods and two seeds. The truth is 20 episodes of each policy in the environment (400 in
the dome), undiscounted and discounted. The estimates are fitted Q evaluation in several variants, and the weighted
reward of the held-out rows.

train     plays the data, trains the policies, plays them: SET/truth.json
judge     estimates them, one variant after another: SET/VARIANT.json (one that is there is kept)
score     rank correlations of all that is there: results/ope/rank.json
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau, spearmanr

from winnow import envs, toy
from winnow.commands._shared import bar
from winnow.data import holdout
from winnow.data.catalogue import open_named
from winnow.data.dataset import Dataset, combine
from winnow.data.folder import home
from winnow.methods import make_algorithm, method, resized
from winnow.ope import estimate as estimating
from winnow.ope.fqe import FQE
from winnow.system.files import write_text
from winnow.training import train_runs
from winnow.training.planning import plan
from winnow.training.trained import Trained

SETS = ("dome", *(f"{task}-random-expert-10%@100000" for task in ("hopper", "walker2d", "halfcheetah")))
FRESH = ("hopper-random-medium-10%@100000", "walker2d-random-medium-10%@100000")
"""Looked at after the usual settings were settled with the others: for these only."""
METHODS = ("uniform", "aw", "pf", "dw-aw", "dual-aw")
SEEDS, STEPS, BATCH, HIDDEN, LEARNING_RATE, SHARE = 2, 20_000, 128, (64, 64), 1e-3, 0.2
EPISODES, DISCOUNT = 20, 0.99
RUNS = Path(os.environ.get("RUNS") or home() / "ope")
RESULTS = Path(__file__).parents[2] / "results" / "ope"


def folder(name: str) -> Path:
    return RUNS / name.split("%")[0]


def train(name: str) -> None:
    place = folder(name)
    files = place / "train.safetensors", place / "held-out.safetensors"
    if not all(file.exists() for file in files):
        whole = dome() if name == "dome" else open_named(name, make=True, watch=bar)
        holdout.write(*holdout.split(whole, SHARE), *files)
    from winnow.data.sources import open_dataset

    dataset = open_dataset(files[0])
    algorithm = dataclasses.replace(resized(make_algorithm("iql", dataset), HIDDEN), learning_rate=LEARNING_RATE)
    runs = []
    for word in METHODS:
        sampler, weighter = method(word, "iql")
        runs += plan(dataset, algorithm, word, sampler=sampler, weighter=resized(weighter, HIDDEN), seeds=SEEDS)
    trained = train_runs(runs, steps=STEPS, batch_size=BATCH, out=place / "runs", resume=True)
    if not (place / "truth.json").exists():
        write_text(place / "truth.json", json.dumps({one.run.name: play(one) for one in trained}))


def dome() -> Dataset:
    bad, good = toy.make(toy.random, 18_000, 0), toy.make(toy.expert, 2_000, 1)
    return combine({"random": bad, "expert": good}, name="dome")


def play(one: Trained) -> dict[str, list[float]]:
    """Returns of the mean action, undiscounted and discounted, of episodes played side by side."""
    if one.run.dataset.meta.environment == "dome":
        reward = toy.play(lambda state, _: one.policy(state), 20 * EPISODES, 12345)[2]
        factors = DISCOUNT ** np.arange(toy.STEPS)[:, None]
        return {"return": reward.sum(axis=0).tolist(), "discounted": (factors * reward).sum(axis=0).tolist()}
    games = [envs.make(str(one.run.dataset.meta.environment)) for _ in range(EPISODES)]
    obs = np.stack([game.reset(seed=1000 + i)[0] for i, game in enumerate(games)])
    going, total, discounted, factor = np.ones(EPISODES, bool), np.zeros(EPISODES), np.zeros(EPISODES), 1.0
    while going.any():
        action = one.policy(obs)
        for i in np.flatnonzero(going):
            obs[i], reward, terminal, timeout, _ = games[i].step(action[i])
            total[i] += float(reward)
            discounted[i] += factor * float(reward)
            going[i] = not (terminal or timeout)
        factor *= DISCOUNT
    return {"return": total.tolist(), "discounted": discounted.tolist()}


# ------------------------------------------------------------------------------------------------------- judging

VARIANTS: dict[str, tuple[estimating.Fit, FQE]] = {
    "usual": ("held-out", FQE()),
    "training rows": ("train", FQE()),
    "pessimism": ("held-out", FQE(pessimism=1.0)),
    "pessimism, training rows": ("train", FQE(pessimism=1.0)),
}


def judge(name: str, title: str) -> None:
    place = folder(name)
    path, (fit, settings) = place / f"{title.replace(' ', '-')}.json", VARIANTS[title]
    if path.exists() or not (place / "truth.json").exists() or (name in FRESH and title != "usual"):
        return
    trained, _ = estimating.load([place / "runs"])
    began = time.process_time()
    (found,) = estimating.judge(trained, None, settings, fit)
    write_text(path, json.dumps(found.record() | {"cpu_seconds": round(time.process_time() - began, 1)}))


def score() -> None:
    """Correlations of estimates with the truth over the policies of a set, and what a user would have chosen."""
    found: dict[str, Any] = {"settings": {"seeds": SEEDS, "steps": STEPS, "batch": BATCH, "share": SHARE}, "sets": {}}
    for name in (*SETS, *FRESH):
        place = folder(name)
        if not (place / "truth.json").exists():
            continue
        truth = json.loads((place / "truth.json").read_text())
        raw = {run: {kind: np.round(each, 1).tolist() for kind, each in of.items()} for run, of in truth.items()}
        sheet: dict[str, Any] = {"truth": raw, "variants": {}}
        for title in VARIANTS:
            path = place / f"{title.replace(' ', '-')}.json"
            if path.exists():
                sheet["variants"][title] = _scored(json.loads(path.read_text()), truth)
        found["sets"][name] = sheet
    write_text(RESULTS / "rank.json", json.dumps(found) + "\n")


def _scored(said: dict[str, Any], truth: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    runs = [one["run"] for one in said["runs"]]
    value = {one["run"]: one["value"] for one in said["runs"]}
    promised = {one["run"]: one["weighted"]["reward"]["value"] for one in said["runs"]}
    earned = {kind: {run: float(np.mean(truth[run][kind])) for run in runs} for kind in ("return", "discounted")}
    names = {run: run.rpartition(".seed")[0].rpartition(".iql.")[2] for run in runs}
    by_method = {
        word: {
            "earned": float(np.mean([earned["return"][run] for run in runs if names[run] == word])),
            "discounted": float(np.mean([earned["discounted"][run] for run in runs if names[run] == word])),
            "value": float(np.mean([value[run]["value"] for run in runs if names[run] == word])),
            "promised": float(np.mean([promised[run] for run in runs if names[run] == word])),
        }
        for word in METHODS
    }
    estimates = {"value": {run: value[run]["value"] for run in runs}, "promised": promised}
    return {
        "cpu_seconds": said["cpu_seconds"],
        "correlation": {
            kind: {
                "spearman": _rank(spearmanr, estimate, earned["return"]),
                "kendall": _rank(kendalltau, estimate, earned["return"]),
                "spearman_discounted": _rank(spearmanr, estimate, earned["discounted"]),
            }
            for kind, estimate in estimates.items()
        },
        "methods": by_method,
        "chosen": max(by_method, key=lambda word: by_method[word]["value"]),
        "best": max(by_method, key=lambda word: by_method[word]["earned"]),
        "held_by_interval": sum(value[run]["low"] <= earned["discounted"][run] <= value[run]["high"] for run in runs),
        "runs": {
            run: {"earned": earned["return"][run], "discounted": earned["discounted"][run], **value[run]}
            for run in runs
        },
    }


def _rank(of: Any, estimate: dict[str, float], truth: dict[str, float]) -> float:
    return round(float(of([estimate[run] for run in truth], list(truth.values()))[0]), 3)


if __name__ == "__main__":
    began, wanted = time.monotonic(), sys.argv[2:] or (*SETS, *FRESH)
    if sys.argv[1] == "score":
        score()
    for title in VARIANTS if sys.argv[1] == "judge" else [""]:
        for one in wanted if sys.argv[1] != "score" else []:
            judge(one, title) if title else train(one)
            print(one, title, f"{time.monotonic() - began:.0f} s", flush=True)
