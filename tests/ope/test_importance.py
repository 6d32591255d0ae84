"""Importance sampling beside the exact values of a small tabular process."""

from __future__ import annotations

import numpy as np
import pytest

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.ope.importance import importance

STATES, CHOICES, STEPS, DISCOUNT = 5, 3, 6, 0.9
RNG = np.random.default_rng(0)
NEXT = RNG.dirichlet(np.ones(STATES), size=(STATES, CHOICES))
REWARD = RNG.normal(size=(STATES, CHOICES))
BEHAVIOUR, TARGET = RNG.dirichlet(np.full(CHOICES, 5.0), size=(2, STATES))


def exact() -> tuple[float, np.ndarray]:
    """The target's value from state 0, and Q of every step, by backward induction."""
    value, q = np.zeros(STATES), []
    for _ in range(STEPS):
        q.append(REWARD + DISCOUNT * NEXT @ value)
        value = (TARGET * q[-1]).sum(axis=1)
    return float(value[0]), np.array(q[::-1])


def log(episodes: int, seed: int = 1) -> tuple[Dataset, np.ndarray, np.ndarray]:
    """Episodes of the behaviour from state 0, and the state and step of every row."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, int, float, int, bool]] = []
    for _ in range(episodes):
        state = 0
        for step in range(STEPS):
            action = int(rng.choice(CHOICES, p=BEHAVIOUR[state]))
            following = int(rng.choice(STATES, p=NEXT[state, action]))
            rows.append((state, step, action, REWARD[state, action], following, step == STEPS - 1))
            state = following
    state, step, action, reward, following, last = (np.array(column) for column in zip(*rows, strict=True))
    # The step is part of the observation, so that what follows is determined by it.
    data = from_arrays(
        np.column_stack([state, step]),
        action,
        reward,
        last,
        next_observations=np.column_stack([following, step + 1]),
        timeouts=np.zeros(len(last)),
        action_choices=CHOICES,
        propensities=BEHAVIOUR[state, action],
    )
    return data, state, step


@pytest.fixture(scope="module")
def many() -> tuple[Dataset, np.ndarray, np.ndarray]:
    return log(4000)


def test_every_estimate_finds_the_exact_value(many: tuple[Dataset, np.ndarray, np.ndarray]) -> None:
    data, state, step = many
    truth, q = exact()
    estimates = importance(data, TARGET[state], DISCOUNT, q[step, state])
    for name, interval in estimates._asdict().items():
        if name != "effective":
            assert interval
            assert interval.low <= truth <= interval.high, name
            assert interval.high - interval.low < 0.5, name
    widths: dict[str, float] = {
        name: pair.high - pair.low for name, pair in estimates._asdict().items() if name != "effective"
    }
    assert widths["doubly_robust"] < widths["per_decision"] < widths["importance"]
    assert 20 < estimates.effective < 4000


def test_a_wrong_q_leaves_the_doubly_robust_estimate_right(many: tuple[Dataset, np.ndarray, np.ndarray]) -> None:
    data, state, step = many
    truth, q = exact()
    wrong = importance(data, TARGET[state], DISCOUNT, q[step, state] + np.arange(3)).doubly_robust
    assert wrong is not None
    assert wrong.low <= truth <= wrong.high


def test_the_right_q_corrects_wrong_propensities(many: tuple[Dataset, np.ndarray, np.ndarray]) -> None:
    data, state, step = many
    truth, q = exact()
    wrong = from_arrays(
        data.rows().obs,
        data.rows().action[:, 0],
        data.rows().reward,
        terminals=data.rows().terminal,
        next_observations=data.rows().next_obs,
        timeouts=np.zeros(len(data)),
        action_choices=CHOICES,
        propensities=np.full(len(data), 0.5),
    )
    estimates = importance(wrong, TARGET[state], DISCOUNT, q[step, state])
    assert estimates.doubly_robust
    assert estimates.importance
    assert estimates.doubly_robust.low <= truth <= estimates.doubly_robust.high
    assert not estimates.importance.low <= truth <= estimates.importance.high


def test_the_policy_that_logged_is_worth_its_own_return(many: tuple[Dataset, np.ndarray, np.ndarray]) -> None:
    data, state, _ = many
    estimates = importance(data, BEHAVIOUR[state], DISCOUNT)
    own = float((data.reward.reshape(-1, STEPS) @ DISCOUNT ** np.arange(STEPS)).mean())
    assert estimates.importance
    assert estimates.weighted
    assert estimates.importance.value == pytest.approx(own, rel=1e-5)
    assert estimates.weighted.value == pytest.approx(own, rel=1e-5)
    assert estimates.effective == pytest.approx(4000, rel=1e-5)
    assert estimates.doubly_robust is None


def test_a_policy_that_the_log_never_follows_has_no_estimate_by_whole_episodes() -> None:
    data, state, _ = log(20)
    never = np.zeros((len(state), CHOICES))
    never[np.arange(len(state)), (data.rows().action[:, 0] + 1) % CHOICES] = 1
    estimates = importance(data, never, DISCOUNT)
    assert (estimates.importance, estimates.weighted, estimates.effective) == (None, None, 0.0)


def test_a_log_without_propensities_or_whole_episodes_is_refused() -> None:
    data, state, _ = log(5)
    plain = from_arrays(
        data.rows().obs, data.rows().action[:, 0], data.reward, next_observations=data.rows().next_obs, kind="bag",
        action_choices=CHOICES,
    )  # fmt: skip
    with pytest.raises(BadInput, match="column `propensity`"):
        importance(plain, TARGET[state], DISCOUNT)
