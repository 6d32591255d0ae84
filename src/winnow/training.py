"""Training: which runs there are, the loop over their chunks, checkpoints, and what is left at the end.

OUT/config.json          everything that was asked for
OUT/metrics.jsonl        one line for each run and chunk
OUT/NAME.safetensors     one for each finished run: policy, weighter, scaling, settings
OUT/pack-K.safetensors   the state of a pack that is not finished yet
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winnow import __version__, checkpoint
from winnow.algorithms import ALGORITHMS
from winnow.data.dataset import Dataset
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.files import sweep, write_text
from winnow.logs import Log, keep_lines, open_logs
from winnow.methods import from_record, make_algorithm, make_sampler, make_weighter, method, record
from winnow.pack import Learner, Pack, Run, packs
from winnow.policy import Policy
from winnow.progress import Progress
from winnow.samplers import SAMPLERS, Sampler
from winnow.types import Algorithm, Spec, Weighter, check_settings
from winnow.weighters import WEIGHTERS

FORMAT = "winnow-train-1"

Many = Sequence[Any]


@dataclass(frozen=True)
class Trained:
    """A finished run: its policy, its weights, and why it failed if it did."""

    run: Run
    steps: int
    failure: str | None
    policy: Policy
    weighter_state: Any

    def weights(self) -> RowWeights:
        """How often each row of the dataset is drawn, and how much it then counts."""
        pack = Pack([self.run], self.steps, batch_size=1)
        state = jax.tree.map(lambda leaf: np.asarray(leaf)[None], self.weighter_state)
        pack.learners = pack.learners._replace(weighter=state)
        probability = self.run.sampler.probabilities(self.run.dataset)
        log_weight = pack.log_weights(0).astype(np.float64)
        ratio = np.exp(log_weight - log_weight[probability > 0].max())
        return RowWeights(probability, ratio / (probability @ ratio))

    def save(self, path: str | Path) -> None:
        facts = run_record(self.run) | {"spec": list(self.run.spec), "steps": self.steps, "failure": self.failure}
        checkpoint.save(path, self.policy.tree() | {"weighter": self.weighter_state}, facts | {"winnow": __version__})

    @classmethod
    def load(cls, path: str | Path, dataset: Dataset | None = None) -> Trained:
        """A finished run from its file; the dataset from where it was, unless it is given."""
        saved = checkpoint.read_record(path)
        try:
            source, spec = saved["dataset"], Spec(*saved["spec"])
            weighter, sampler = from_record(saved["weighter"], WEIGHTERS), from_record(saved["sampler"], SAMPLERS)
            algorithm = from_record(saved["algorithm"], ALGORITHMS)
        except (KeyError, TypeError) as error:
            raise BadInput(f"{path}: is not a finished run ({error}); give a file that `winnow train` wrote") from error
        if dataset is None:
            if not source["path"]:
                raise BadInput(f"{path}: its dataset {source['name']!r} was never in a file; give it with --dataset")
            dataset = open_dataset(source["path"])
        if dataset.fingerprint != source["fingerprint"]:
            raise BadInput(f"{path}: was trained on other rows than {dataset.meta.name!r} holds; give that dataset")
        state = jax.eval_shape(lambda key: weighter.init(key, spec), jax.random.key(0))
        run = Run(dataset, algorithm, sampler, weighter, saved["seed"], saved["name"])
        kept = checkpoint.load(path, {"weighter": state})
        return cls(run, saved["steps"], saved["failure"], Policy.load(path), kept["weighter"])


@dataclass(frozen=True)
class RowWeights:
    """What a run does with each row of its dataset."""

    probability: np.ndarray
    """How often the sampler draws it; sums to 1."""
    ratio: np.ndarray
    """How much it counts when drawn, w(s,a); its mean over draws is 1."""

    @property
    def weight(self) -> np.ndarray:
        """Both together: the row's share of the weighted data times the number of rows; its mean over rows is 1."""
        return len(self.probability) * self.probability * self.ratio


# ------------------------------------------------------------------------------------------- what to train


def train(
    dataset: Dataset | str | Path | Many,
    algorithm: str | Algorithm | Many = "iql",
    method: str | Many = "dw-aw",
    *,
    sampler: str | Sampler | None = None,
    weighter: str | Weighter | None = None,
    seeds: int | Sequence[int] = 1,
    **options: Any,
) -> list[Trained]:
    """Train every combination of dataset, algorithm, method and seed, as few programs as there are shapes of run.

    A method is a sampler and a weighter by one name (`dw-aw`, see `winnow.methods`); `sampler` and `weighter`
    replace the method's. Options are those of `train_runs`: steps, batch_size, out, resume, …
    """
    opened = [data if isinstance(data, Dataset) else open_dataset(data) for data in _several(dataset)]
    return train_runs(
        [
            run
            for data in opened
            for learner in _several(algorithm)
            for name in _several(method)
            for run in plan(data, learner, name, sampler=sampler, weighter=weighter, seeds=seeds)
        ],
        **options,
    )


def plan(
    dataset: Dataset,
    algorithm: str | Algorithm,
    method_name: str,
    *,
    sampler: str | Sampler | None = None,
    weighter: str | Weighter | None = None,
    seeds: int | Sequence[int] = 1,
) -> list[Run]:
    """The runs of one dataset, algorithm and method: one for each seed.

    A run is named after its dataset, algorithm, method and seed; a sampler or weighter given by name takes the
    method's place there.
    """
    learner = make_algorithm(algorithm, dataset) if isinstance(algorithm, str) else algorithm
    title = record(learner)["name"]
    usual = method(method_name, title, len(dataset))
    drawn = make_sampler(sampler, title, len(dataset)) if isinstance(sampler, str) else sampler or usual[0]
    weighed = make_weighter(weighter, title) if isinstance(weighter, str) else weighter or usual[1]
    same = type(drawn) is type(usual[0]) and type(weighed) is type(usual[1])
    label = method_name if same else f"{record(weighed)['name']}-{record(drawn)['name']}"
    return [
        Run(dataset, learner, drawn, weighed, seed, f"{dataset.meta.name}.{title}.{label}.seed{seed}")
        for seed in (range(seeds) if isinstance(seeds, int) else seeds)
    ]


def _several(value: Any) -> Many:
    return value if isinstance(value, (list, tuple)) else [value]


def run_record(run: Run) -> dict[str, Any]:
    """A run as plain JSON."""
    data = run.dataset
    return {
        "name": run.name,
        "seed": run.seed,
        "dataset": {"name": data.meta.name, "fingerprint": data.fingerprint, "path": data.path},
        "algorithm": record(run.algorithm),
        "sampler": record(run.sampler),
        "weighter": record(run.weighter),
    }


# ------------------------------------------------------------------------------------------------ the loop


def train_runs(
    runs: Sequence[Run],
    *,
    steps: int = 1_000_000,
    batch_size: int = 256,
    chunk: int = 5_000,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 30.0,
    largest_pack: int | None = None,
    log: Sequence[str] = (),
    progress: bool = True,
    each_chunk: Callable[[Pack], None] | None = None,
) -> list[Trained]:
    """Train runs, packed by shape, one pack after another.

    steps, batch_size: updates of each run, and rows drawn for each update
    chunk: updates between two reports; weighters that look at the whole dataset do so once a chunk
    out, resume: a folder for everything that is worth keeping; go on with what is there, bit for bit
    checkpoint_seconds: the least time between two checkpoints, which are written at the end of a chunk
    largest_pack: runs in one program at the most, where the device's memory asks for it
    log: "tensorboard", "wandb"
    each_chunk: called with the pack after every chunk, to look at its policies
    """
    check(runs, steps=steps, batch_size=batch_size, chunk=chunk)
    groups = packs(runs, largest_pack)
    folder = None if out is None else Path(out)
    config = {"format": FORMAT, "steps": steps, "batch_size": batch_size, "chunk": chunk}
    bar = Progress(total=steps * len(runs), shown=progress)
    logs: list[Log] = []
    jobs = [
        _Job(group, steps, batch_size, chunk, folder, number, logs, bar, each_chunk, checkpoint_seconds)
        for number, group in enumerate(groups)
    ]
    if folder is not None:
        _claim(folder, config | {"runs": [run_record(run) for group in groups for run in group]}, resume)
        reached = {run.name: job.reached() for job in jobs for run in job.runs}
        keep_lines(folder / "metrics.jsonl", lambda line: line["step"] <= reached.get(line["run"], -1))
        logs += open_logs(folder, log)
    done: dict[str, Trained] = {}
    try:
        with bar:
            for job in jobs:
                done |= {trained.run.name: trained for trained in job.finish()}
    finally:
        for each in logs:
            each.close()
    return [done[run.name] for run in runs]


def check(runs: Sequence[Run], **counts: int) -> None:
    """Refuse what can't be trained, before anything is compiled or written."""
    for name, count in counts.items():
        if count < 1:
            raise BadInput(f"{name} is {count}; it must be at least 1")
    if not runs:
        raise BadInput("there is nothing to train; give at least one seed")
    names = [run.name for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice:
        raise BadInput(f"two runs are called {twice!r}; give them different names")
    for run in runs:
        if Path(run.name).name != run.name or run.name.startswith("."):
            raise BadInput(f"the run's name {run.name!r} can't be a file's name; choose one without slashes")
        for where, part in (("algorithm", run.algorithm), ("weighter", run.weighter)):
            check_settings(part, where)
    # What looks at whole datasets does so once for each of them, not once for every seed.
    for run in {(id(run.dataset), run.weighter): run for run in runs}.values():
        checker = getattr(run.weighter, "check", None)
        if checker:
            checker(run.dataset)
    for run in {(id(run.dataset), run.sampler): run for run in runs}.values():
        if run.sampler.probabilities(run.dataset).sum() <= 0:
            raise BadInput(f"{run.name}: the sampler draws no row at all")


def _claim(folder: Path, config: dict[str, Any], resume: bool) -> None:
    """Make the output folder ours: fresh, or one that holds the same runs."""
    path = folder / "config.json"
    wanted = json.loads(json.dumps(config))
    if not path.exists():
        write_text(path, json.dumps(wanted | {"winnow": __version__, "jax": jax.__version__}, indent=1))
        return
    if not resume:
        raise BadInput(f"{folder}: already holds runs; resume them (--resume) or choose another --out")
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: is damaged ({error}); choose another --out") from error
    for name in wanted:
        if held.get(name) != wanted[name]:
            raise BadInput(
                f"{folder}: holds runs with other {name}; resume with the same words, or choose another --out"
            )
    sweep(folder)


@dataclass
class _Job:
    """One pack from its first step, or from its checkpoint, to its files."""

    runs: list[Run]
    steps: int
    batch_size: int
    chunk: int
    folder: Path | None
    number: int
    logs: list[Log]
    bar: Progress
    each_chunk: Callable[[Pack], None] | None
    checkpoint_seconds: float

    def finish(self) -> list[Trained]:
        first = self.runs[0]
        words = (f"pack {self.number + 1}: {len(self.runs)} ×", record(first.algorithm)["name"])
        self.bar.describe(" ".join([*words, "with weights", record(first.weighter)["name"]]))
        if self._finished:
            self.bar.skip(self.steps * len(self.runs))
            return [Trained.load(file, run.dataset) for file, run in zip(self._files, self.runs, strict=True)]
        pack = Pack(self.runs, self.steps, self.batch_size)
        failures = self._restore(pack)
        self._loop(pack, failures)
        trained = [self._take_out(pack, i, failures.get(run.name)) for i, run in enumerate(self.runs)]
        if self.folder:
            for file, one in zip(self._files, trained, strict=True):
                one.save(file)
            self._checkpoint.unlink(missing_ok=True)
        return trained

    def _loop(self, pack: Pack, failures: dict[str, str]) -> None:
        saved = time.monotonic()
        while pack.step < self.steps and len(failures) < len(self.runs):
            self.bar.run(pack, min(self.chunk - pack.step % self.chunk, self.steps - pack.step))
            means = pack.end_chunk()
            for number, run in enumerate(self.runs):
                if run.name not in failures:
                    self._report(run, pack.step, {name: float(mean[number]) for name, mean in means.items()}, failures)
            if self.each_chunk:
                self.each_chunk(pack)
            if self.folder and time.monotonic() - saved >= self.checkpoint_seconds:
                self._save(pack, failures)
                saved = time.monotonic()
        if self.folder:
            self._save(pack, failures)

    def _report(self, run: Run, step: int, means: dict[str, float], failures: dict[str, str]) -> None:
        line: dict[str, Any] = {"run": run.name, "step": step}
        odd = next((name for name, mean in means.items() if not np.isfinite(mean)), None)
        if odd:
            failures[run.name] = f"{odd} was {means[odd]} in the {self.chunk} updates before step {step}"
            line["failed"] = failures[run.name]
            self.bar.say(f"{run.name} stopped: {failures[run.name]}; lower its learning rate or look at its rewards")
        else:
            line |= means
        for log in self.logs:
            log.write(line)

    # ------------------------------------------------------------------------------------------ checkpoints

    @property
    def _files(self) -> list[Path]:
        assert self.folder is not None
        return [self.folder / f"{run.name}.safetensors" for run in self.runs]

    @property
    def _checkpoint(self) -> Path:
        assert self.folder is not None
        return self.folder / f"pack-{self.number}.safetensors"

    @property
    def _finished(self) -> bool:
        """The checkpoint goes when every run of the pack has its file."""
        return bool(self.folder) and not self._checkpoint.exists() and all(file.exists() for file in self._files)

    def reached(self) -> int:
        """The step that an earlier call has left on disk."""
        if self._checkpoint.exists():
            return checkpoint.read_record(self._checkpoint)["step"]
        return self.steps if self._finished else 0

    def _save(self, pack: Pack, failures: dict[str, str]) -> None:
        checkpoint.save(self._checkpoint, _states(pack.learners), {"step": pack.step, "failures": failures})

    def _restore(self, pack: Pack) -> dict[str, str]:
        """Put the pack where its checkpoint left it. Returns the runs that had failed by then, and why."""
        if not self.folder or not self._checkpoint.exists():
            return {}
        states = jax.tree.map(jax.numpy.asarray, checkpoint.load(self._checkpoint, _states(pack.learners)))
        pack.learners = pack.learners._replace(**states)
        saved = checkpoint.read_record(self._checkpoint)
        pack.step = saved["step"]
        self.bar.skip(pack.step * len(self.runs))
        return saved["failures"]

    def _take_out(self, pack: Pack, number: int, failure: str | None) -> Trained:
        lane, learner = pack.lane(number)
        run, state = self.runs[number], jax.tree.map(np.asarray, learner.algorithm)
        scaling = map(np.asarray, (lane.shift, lane.scale, lane.action_centre, lane.action_half))
        return Trained(
            run, pack.step, failure, Policy(run.algorithm, state, *scaling), _own_rows(learner.weighter, run)
        )


def _states(learners: Learner) -> dict[str, Any]:
    return {"weighter": learners.weighter, "algorithm": learners.algorithm}


def _own_rows(state: Any, run: Run) -> Any:
    """A weighter's state without the padding to the longest dataset of its pack."""
    like = jax.eval_shape(lambda key: run.weighter.init(key, run.spec), jax.random.key(0))
    return jax.tree.map(lambda leaf, own: np.asarray(leaf)[tuple(slice(n) for n in own.shape)], state, like)
