"""Environments: a table of them with time limits and reference returns, and descriptions that other processes can read.

This module imports NumPy, and Gymnasium when an environment is made, but not jax.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import importlib.util
import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from winnow.errors import BadInput, install_hint
from winnow.system.processes import address, at_address
from winnow.system.progress import say


@dataclass(frozen=True)
class Environment:
    """An environment: how to make it, its time limit, and the returns that score 0 and 100."""

    name: str
    source: str | Callable[..., Any]  # a Gymnasium id, or a function that makes the environment
    time_limit: int | None = None  # None: the environment's own
    reference: tuple[float, float] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def ant_of_d4rl() -> Any:
    """Ant as D4RL recorded it: 27 numbers followed by 84 contact forces that are all zero (D4RL's issue 143)."""
    import gymnasium

    ant = gymnasium.make("Ant-v5", disable_env_checker=True, include_cfrc_ext_in_observation=False)
    space = gymnasium.spaces.Box(-np.inf, np.inf, (111,), np.float64)
    return gymnasium.wrappers.TransformObservation(ant, lambda obs: np.concatenate([obs, np.zeros(84)]), space)


ROBOTICS = "winnow.envs.robotics:"
"""Prefix of the Gymnasium ids that need the extra `robotics`: the module that registers them."""

_ANTMAZE, _KITCHEN, _ADROIT = (f"{ROBOTICS}winnow/{kind}-v0" for kind in ("AntMaze", "Kitchen", "Adroit"))
_TASKS = ("microwave", "kettle", "light switch")

# Time limits and reference returns are D4RL's (Fu et al., 2020). Entries with equal options differ only in their data.
TABLE = {
    environment.name: environment
    for environment in (
        Environment("hopper", "Hopper-v5", 1000, (-20.272305, 3234.3)),
        Environment("halfcheetah", "HalfCheetah-v5", 1000, (-280.178953, 12135.0)),
        Environment("walker2d", "Walker2d-v5", 1000, (1.629008, 4592.3)),
        Environment("ant", "Ant-v5", 1000, (-325.6, 3879.7), {"include_cfrc_ext_in_observation": False}),
        Environment("ant-v2", ant_of_d4rl, 1000, (-325.6, 3879.7)),
        Environment("antmaze-umaze", _ANTMAZE, 700, (0.0, 1.0), {"maze": "umaze"}),
        Environment("antmaze-umaze-diverse", _ANTMAZE, 700, (0.0, 1.0), {"maze": "umaze"}),
        Environment("antmaze-medium-play", _ANTMAZE, 1000, (0.0, 1.0), {"maze": "medium"}),
        Environment("antmaze-medium-diverse", _ANTMAZE, 1000, (0.0, 1.0), {"maze": "medium"}),
        Environment("antmaze-large-play", _ANTMAZE, 1000, (0.0, 1.0), {"maze": "large"}),
        Environment("antmaze-large-diverse", _ANTMAZE, 1000, (0.0, 1.0), {"maze": "large"}),
        Environment("kitchen-complete", _KITCHEN, 280, (0.0, 4.0), {"tasks": [*_TASKS, "slide cabinet"]}),
        Environment("kitchen-partial", _KITCHEN, 280, (0.0, 4.0), {"tasks": [*_TASKS, "slide cabinet"]}),
        Environment("kitchen-mixed", _KITCHEN, 280, (0.0, 4.0), {"tasks": [*_TASKS, "bottom burner"]}),
        Environment("pen", _ADROIT, 100, (96.262799, 3076.8331017826877), {"task": "pen"}),
        Environment("hammer", _ADROIT, 200, (-274.856578, 12794.134825156867), {"task": "hammer"}),
        Environment("door", _ADROIT, 200, (-56.512833, 2880.5693087298737), {"task": "door"}),
        Environment("cartpole", "CartPole-v1", 500, (22.0, 500.0)),
        Environment("acrobot", "Acrobot-v1", 500, (-500.0, -80.0)),
        Environment("relocate", _ADROIT, 200, (-6.425911, 4233.877797728884), {"task": "relocate"}),
    )
}


def register(
    name: str,
    source: str | Callable[..., Any],
    time_limit: int | None = None,
    reference: tuple[float, float] | None = None,
    **options: Any,
) -> Environment:
    """Add an environment: a Gymnasium id, or a function of an importable module that makes one."""
    TABLE[name] = Environment(name, source, time_limit, reference, options)
    return TABLE[name]


def lookup(name: str) -> Environment:
    """An environment by its name in the table, with or without D4RL's version suffix, or by its Gymnasium id. A
    Gymnasium id gets the reference returns of the table's entry with the same id, if there is one."""
    entry = _listed(name) or _registered(name)
    if entry is None:
        import gymnasium

        near = difflib.get_close_matches(name, [*TABLE, *gymnasium.registry], n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(TABLE)}."
        more = "" if importlib.util.find_spec("gymnasium_robotics") else f", {install_hint('robotics')} adds robots"
        raise BadInput(f"there is no environment {name!r}; {hint} winnow.envs.register adds your own{more}")
    return entry


def _listed(name: str) -> Environment | None:
    return TABLE.get(name) or TABLE.get(re.sub(r"-v\d+$", "", name))


def _registered(name: str) -> Environment | None:
    import gymnasium

    if name not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            importlib.import_module(ROBOTICS.removesuffix(":"))
    if (spec := gymnasium.registry.get(name)) is None:
        return None
    module = ROBOTICS if str(spec.entry_point).startswith("gymnasium_robotics") else ""
    same = next((entry.reference for entry in TABLE.values() if entry.source == module + name), None)
    return Environment(name, module + name, None, same)


def make(environment: str | Environment) -> Any:
    """A Gymnasium environment. Its time limit truncates an episode: a timeout, not a terminal.

    Dict and tuple observations become one flat array, in the order of `gymnasium.spaces.flatten`.
    """
    import gymnasium

    entry = lookup(environment) if isinstance(environment, str) else environment
    try:
        with no_log_file(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)  # the data asks for that version
            if isinstance(entry.source, str):
                limit = {} if entry.time_limit is None else {"max_episode_steps": entry.time_limit}
                made = gymnasium.make(entry.source, disable_env_checker=True, **limit, **entry.options)
            else:
                made = entry.source(**entry.options)
                made = made if entry.time_limit is None else gymnasium.wrappers.TimeLimit(made, entry.time_limit)
    except ImportError as error:
        if _is_robotics(entry):
            raise _no_robotics(entry) from error
        raise BadInput(f"{entry.name}: {error}; pip install 'gymnasium[mujoco]'") from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise BadInput(f"{entry.name}: {' '.join(map(str, error.args))}") from error
    nested = isinstance(made.observation_space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple))
    return gymnasium.wrappers.FlattenObservation(made) if nested else made


def _is_robotics(entry: Environment) -> bool:
    return isinstance(entry.source, str) and entry.source.startswith(ROBOTICS)


def _no_robotics(entry: Environment) -> BadInput:
    return BadInput(f"{entry.name}: needs gymnasium-robotics; {install_hint('robotics')}")


@contextlib.contextmanager
def no_log_file() -> Iterator[None]:
    """Send MuJoCo's warnings to stderr. By default it writes them to a file in the current folder."""
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:
        yield
        return

    def warn(text: str) -> None:
        if "is deprecated" not in text:  # only Gymnasium can fix its model files
            say(f"MuJoCo: {text}")

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(warn)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


class Shape(NamedTuple):
    """Sizes of an environment's observations and actions, and its bounds."""

    obs_dim: int
    low: np.ndarray  # [A] bounds of each action; ±1 for each choice if actions are discrete
    high: np.ndarray
    time_limit: int | None
    first_choice: int | None = None
    """The environment's number of the first choice; None where actions are continuous."""

    @property
    def action_kind(self) -> str:
        return "continuous" if self.first_choice is None else "discrete"

    def choice(self, scores: np.ndarray) -> np.ndarray:
        """The environment's numbers of the choices with the highest scores [..., K]."""
        assert self.first_choice is not None
        return self.first_choice + scores.argmax(axis=-1)

    @property
    def action_dim(self) -> int:
        return len(self.low)


def shape(environment: str | Environment, made: Any = None) -> Shape:
    """The sizes of an environment. `made`: the environment itself, if the caller has made one already."""
    entry = lookup(environment) if isinstance(environment, str) else environment
    if made is None:
        made = make(entry)
        made.close()
    obs = made.observation_space
    action = made.action_space
    limit = entry.time_limit or getattr(made.spec, "max_episode_steps", None)
    if type(action).__name__ == "Discrete" and len(getattr(obs, "shape", None) or ()) == 1:
        edge = np.ones(int(action.n))
        return Shape(obs.shape[0], -edge, edge, limit, int(action.start))
    flat = all(getattr(space, "shape", None) is not None and len(space.shape) == 1 for space in (obs, action))
    if not flat or not np.all(np.isfinite(action.low)) or not np.all(np.isfinite(action.high)):
        raise BadInput(
            f"{entry.name}: observations must be flat, and actions flat and bounded or one choice (Discrete), "
            f"got {obs} and {action}"
        )
    return Shape(obs.shape[0], np.asarray(action.low, np.float64), np.asarray(action.high, np.float64), limit)


def normalised(name: str, returns: Any) -> np.ndarray | None:
    """100 · (G − low) / (high − low) with the reference returns. None, with a warning, if there are none."""
    entry = _listed(name) or _registered(name)
    reference = entry.reference if entry else None
    if reference is None:
        warnings.warn(f"{name}: no reference returns are known, so there is no normalised score", stacklevel=2)
        return None
    return 100 * (np.asarray(returns, np.float64) - reference[0]) / (reference[1] - reference[0])


def physics(environment: str | Environment | None = None) -> str:
    """The versions of the simulator and of the tasks. Only the same versions regenerate the same data bit for bit."""
    import gymnasium
    import mujoco

    versions = f"mujoco {mujoco.__version__}, gymnasium {gymnasium.__version__}"
    entry = lookup(environment) if isinstance(environment, str) else environment
    if entry is None or not _is_robotics(entry):
        return versions
    try:
        return f"{versions}, gymnasium-robotics {importlib.metadata.version('gymnasium-robotics')}"
    except ImportError as error:
        raise _no_robotics(entry) from error


def episode_seed(base: int, number: int, episode: int) -> int:
    """The seed of an episode, from a base seed, the environment's number, and the episode's number in it."""
    return int(np.random.SeedSequence([base, number, episode]).generate_state(1, np.uint64)[0] >> 1)


EVALUATION_SEEDS = 1 << 40
"""Added to the base seed of evaluation episodes, so that none has the seed of a training episode."""


# ---------------------------------------------------------------------------------- for another process


def describe(entry: Environment) -> dict[str, Any]:
    """An environment as plain JSON for another process, without its reference returns."""
    named = isinstance(entry.source, str)
    try:
        source = {"source": entry.source} if named else {"function": address(entry.source)}
        return json.loads(
            json.dumps({"name": entry.name, "limit": entry.time_limit, "options": entry.options} | source)
        )
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{entry.name}: can't be sent to a worker ({error}); register a function of an importable module"
        ) from error


def from_description(description: dict[str, Any]) -> Environment:
    """The environment that `describe` described."""
    source = description["source"] if "source" in description else at_address(description["function"])
    return Environment(description["name"], source, description["limit"], None, description["options"])
