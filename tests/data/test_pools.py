"""Pools of episodes: the same whatever the processes and the interruptions, and never half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from winnow import envs
from winnow.collect import behaviour
from winnow.data import pools, store
from winnow.envs import episodes
from winnow.envs.workers import WorkerError
from winnow.errors import BadInput
from winnow.nets import squashed_mean


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path))


def test_a_pool_is_the_same_for_any_number_of_processes(tmp_path, monkeypatch):
    made = []
    for processes in (1, 3):
        monkeypatch.setenv("WINNOW_DATA", str(tmp_path / str(processes)))
        made.append(pools.pool("hopper", "random", 1500, processes=processes))
    files = [sorted((tmp_path / str(n) / "pools").iterdir()) for n in (1, 3)]
    assert [file.name for file in files[0]] == [file.name for file in files[1]]
    assert files[0][0].read_bytes() == files[1][0].read_bytes()
    assert made[0].fingerprint == made[1].fingerprint


def test_a_pool_holds_what_its_environment_and_policy_do():
    """Its first episode, played again by hand with the same seeds: same observations, rewards and ending."""
    dataset = pools.pool("hopper", "random", 200)
    job = pools.Job("hopper", "random")
    env = envs.make("hopper")
    obs, _ = env.reset(seed=envs.episode_seed(job.base, 0, 0))
    rows = dataset.rows(np.arange(dataset.episodes.length[0]))
    terminated = truncated = False
    for row in range(len(rows.reward)):
        np.testing.assert_array_equal(obs.astype(np.float32), rows.obs[row])
        obs, reward, terminated, truncated, _ = env.step(rows.action[row])
        assert np.float32(reward) == rows.reward[row]
        assert terminated == rows.terminal[row]
    assert terminated
    assert not truncated
    np.testing.assert_array_equal(obs.astype(np.float32), rows.next_obs[-1])
    assert dataset.meta.environment == "hopper"
    assert dataset.meta.physics == envs.physics()


def test_a_policy_without_noise_acts_as_its_mean():
    """The forward pass in NumPy is the network of nets.py."""

    class Silent:
        def standard_normal(self, count):
            return np.zeros(count)

    actor, record = behaviour("walker2d", "expert")
    job = pools.Job("walker2d", "expert")
    player = episodes.Player("walker2d", str(job.policy), job.base)
    obs = np.random.default_rng(0).normal(size=record["spec"][0]).astype(np.float32)
    np.testing.assert_allclose(player._unit_action(obs, Silent()), squashed_mean(actor, obs), atol=1e-5)  # pyright: ignore


def test_a_timeout_is_no_terminal():
    dataset = pools.pool("halfcheetah", "random", 1000)
    assert dataset.episodes.length.tolist() == [1000]
    assert not dataset.episodes.terminated.any()
    assert not dataset.rows().terminal.any()


def test_a_smaller_pool_is_the_beginning_of_a_larger_one_and_helps_to_make_it(monkeypatch):
    small = pools.pool("hopper", "random", 300)
    played = []
    monkeypatch.setattr(
        episodes.EpisodeWorkers,
        "finished",
        lambda self, real=episodes.EpisodeWorkers.finished: played.append(real(self)) or played[-1],
    )
    large = pools.pool("hopper", "random", 1200)
    assert len(large) >= 1200
    assert not {one.number for one in played} & set(range(len(small.episodes)))
    again = pools.pool("hopper", "random", 300)
    assert again.fingerprint == small.fingerprint == large.select(np.arange(len(small.episodes))).fingerprint


def test_without_make_an_error_says_how():
    with pytest.raises(BadInput, match="winnow data make 'hopper-expert@77'"):
        pools.pool("hopper", "expert", 77, make=False)


def test_a_killed_process_is_replaced_and_its_episodes_are_played_again(tmp_path, monkeypatch):
    undisturbed = pools.pool("hopper", "medium", 4000, processes=2)
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "other"))
    killed = []

    def finished(self, real=episodes.EpisodeWorkers.finished):
        one = real(self)
        if len(killed) < 2:
            child = next(iter(self._queued))
            child.kill()
            killed.append(child.pid)
        return one

    monkeypatch.setattr(episodes.EpisodeWorkers, "finished", finished)
    disturbed = pools.pool("hopper", "medium", 4000, processes=2)
    assert len(killed) == 2
    assert disturbed.fingerprint == undisturbed.fingerprint


def test_an_episode_that_always_kills_its_process_is_given_up(monkeypatch):
    def begin(self, real=episodes.EpisodeWorkers.begin):
        real(self)
        for child in self._queued:
            child.kill()

    monkeypatch.setattr(episodes.EpisodeWorkers, "begin", begin)
    with pytest.raises(WorkerError, match="killed its process 3 times"):
        pools.pool("hopper", "random", 100, processes=1)


def test_an_error_in_the_environment_is_shown(monkeypatch):
    monkeypatch.setattr(pools.Job, "base", -1)  # no seed can be made of it
    with pytest.raises(WorkerError, match="stopped with an error"):
        pools.pool("hopper", "random", 100, processes=1)


def test_interrupted_work_keeps_its_finished_episodes_and_is_taken_up_again(tmp_path, monkeypatch):
    undisturbed = pools.pool("hopper", "random", 3000)
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "other"))
    counts = []

    def finished(self, real=episodes.EpisodeWorkers.finished):
        counts.append(1)
        if len(counts) == 40:
            raise KeyboardInterrupt
        return real(self)

    monkeypatch.setattr(episodes.EpisodeWorkers, "finished", finished)
    with pytest.raises(KeyboardInterrupt):
        pools.pool("hopper", "random", 3000)
    job = pools.Job("hopper", "random")
    kept = [store.load(file) for file in job.parts.iterdir()]
    assert sum(len(part.episodes) for part in kept) == 39
    again = pools.pool("hopper", "random", 3000)
    assert again.fingerprint == undisturbed.fingerprint
    assert not job.parts.exists()
    assert [file.suffix for file in job.folder.iterdir()] == [".safetensors"]


def test_kill_9_at_any_moment_leaves_nothing_that_harms(tmp_path, monkeypatch):
    script = (
        "from winnow.data import pools; pools.SAVE_SECONDS = 0.05; print('go', flush=True);"
        "pools.pool('hopper', 'random', 6000, processes=2)"
    )
    for wait in (0.6, 0.9, 1.2):
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
        assert child.stdout
        child.stdout.readline()
        time.sleep(wait)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    after = pools.pool("hopper", "random", 6000)
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "other"))
    assert pools.pool("hopper", "random", 6000).fingerprint == after.fingerprint


def test_a_disk_too_small_is_refused_before_anything_is_played(monkeypatch):
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))  # pyright: ignore
    with pytest.raises(BadInput, match="MB free"):
        pools.pool("hopper", "random", 1000)


def test_progress_reaches_the_end():
    seen = []
    pools.pool("hopper", "random", 500, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (500, 500)
    assert all(done <= total for done, total in seen)
