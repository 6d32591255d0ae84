"""Does off-policy evaluation rank policies as their environment does?

python experiments/ope/rank.py train|judge|score [SET…]    WINNOW_DATA says where data is kept; RUNS (default: its ope/)

Small regenerated datasets of three tasks, and 20,000 rows of the dome (`winnow.toy`, where random play visits most
states that a policy visits). A tenth of the rows is by an expert, a fifth of the episodes is held out. IQL with
networks of 2×64 learns from the rest with five methods and two seeds. The truth is 20 episodes of each policy in the
environment (400 in the dome), undiscounted and discounted. The estimates are fitted Q evaluation in several variants,
and the weighted reward of the held-out rows.

train     makes the data, trains the policies and plays them: SET/truth.json
judge     estimates their values, one variant after another: SET/VARIANT.json (existing files are kept)
score     rank correlations of all estimates so far: results/ope/rank.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
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
from winnow.errors import run_script
from winnow.methods import make_algorithm, method, resized
from winnow.ope import estimate as estimating
from winnow.ope.fqe import FQE
from winnow.system.files import write_text
from winnow.training import train_runs
from winnow.training.planning import plan
from winnow.training.trained import Trained

SETS = ("dome", *(f"{task}-random-expert-10%@100000" for task in ("hopper", "walker2d", "halfcheetah")))
FRESH = ("hopper-random-medium-10%@100000", "walker2d-random-medium-10%@100000")
"""Looked at only after the default settings were chosen on the others: judged with the default settings only."""
METHODS = ("uniform", "aw", "pf", "dw-aw", "dual-aw")
SEEDS = 2
STEPS = 20_000
BATCH = 128
HIDDEN = (64, 64)
LEARNING_RATE = 1e-3
SHARE = 0.2
EPISODES = 20
DISCOUNT = 0.99
RUNS = Path(os.environ.get("RUNS") or home() / "ope")
RESULTS = Path(__file__).parents[2] / "results" / "ope"


def folder(name: str) -> Path:
    return RUNS / name.split("%")[0]


def train(name: str) -> None:
    base = folder(name)
    files = base / "train.safetensors", base / "held-out.safetensors"
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
    trained = train_runs(runs, steps=STEPS, batch_size=BATCH, out=base / "runs", resume=True)
    if not (base / "truth.json").exists():
        write_text(base / "truth.json", json.dumps({run.run.name: play(run) for run in trained}))


def dome() -> Dataset:
    bad = toy.make(toy.random, 18_000, 0)
    good = toy.make(toy.expert, 2_000, 1)
    return combine({"random": bad, "expert": good}, name="dome")


def play(trained: Trained) -> dict[str, list[float]]:
    """Returns of episodes with the mean action, undiscounted and discounted; all episodes are played together."""
    if trained.run.dataset.meta.environment == "dome":
        reward = toy.play(lambda state, _: trained.policy(state), 20 * EPISODES, 12345)[2]
        factors = DISCOUNT ** np.arange(toy.STEPS)[:, None]
        return {"return": reward.sum(axis=0).tolist(), "discounted": (factors * reward).sum(axis=0).tolist()}
    games = [envs.make(str(trained.run.dataset.meta.environment)) for _ in range(EPISODES)]
    obs = np.stack([game.reset(seed=1000 + i)[0] for i, game in enumerate(games)])
    going = np.ones(EPISODES, bool)
    total = np.zeros(EPISODES)
    discounted = np.zeros(EPISODES)
    factor = 1.0
    while going.any():
        action = trained.policy(obs)
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
    base = folder(name)
    path = base / f"{title.replace(' ', '-')}.json"
    fit, settings = VARIANTS[title]
    if path.exists() or not (base / "truth.json").exists() or (name in FRESH and title != "usual"):
        return
    trained, _ = estimating.load([base / "runs"])
    began = time.process_time()
    (judgement,) = estimating.judge(trained, None, settings, fit)
    write_text(path, json.dumps(judgement.record() | {"cpu_seconds": round(time.process_time() - began, 1)}))


def score() -> None:
    """Correlations of estimates with the truth over the policies of a dataset, and the method a user would choose."""
    record: dict[str, Any] = {"settings": {"seeds": SEEDS, "steps": STEPS, "batch": BATCH, "share": SHARE}, "sets": {}}
    for name in (*SETS, *FRESH):
        base = folder(name)
        if not (base / "truth.json").exists():
            continue
        truth = json.loads((base / "truth.json").read_text())
        raw = {run: {kind: np.round(each, 1).tolist() for kind, each in of.items()} for run, of in truth.items()}
        sheet: dict[str, Any] = {"truth": raw, "variants": {}}
        for title in VARIANTS:
            path = base / f"{title.replace(' ', '-')}.json"
            if path.exists():
                sheet["variants"][title] = _scored(json.loads(path.read_text()), truth)
        record["sets"][name] = sheet
    write_text(RESULTS / "rank.json", json.dumps(record) + "\n")


def _scored(judged: dict[str, Any], truth: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    runs = [run["run"] for run in judged["runs"]]
    value = {run["run"]: run["value"] for run in judged["runs"]}
    promised = {run["run"]: run["weighted"]["reward"]["value"] for run in judged["runs"]}
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
        "cpu_seconds": judged["cpu_seconds"],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("train", "judge", "score"))
    parser.add_argument("sets", nargs="*", metavar="SET", help="datasets; without them all of SETS and FRESH")
    args = parser.parse_args()
    if unknown := [name for name in args.sets if name not in (*SETS, *FRESH)]:
        parser.error(f"a SET must be one of {', '.join((*SETS, *FRESH))}, got {unknown[0]}")
    began = time.monotonic()
    if args.part == "score":
        score()
        return
    for title in VARIANTS if args.part == "judge" else [""]:
        for name in args.sets or (*SETS, *FRESH):
            if args.part == "judge":
                judge(name, title)
            else:
                train(name)
            print(name, title, f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    run_script(main)
