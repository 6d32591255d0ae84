"""Joining a Ray cluster as a driver, for grids and for weights of many files. Other modules import Ray from here."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from winnow.errors import BadInput, install_hint

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise BadInput(f"a cluster needs Ray installed: {install_hint('ray')}") from error

__all__ = ["RETRIES", "NodeAffinitySchedulingStrategy", "RayError", "RayTaskError", "connected", "ray"]

RETRIES = 10
"""How often a task is retried when its node or process has died."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to the cluster at this address while the block runs. A connection that this process already has is used
    instead, and stays open."""
    if ray.is_initialized():
        yield
        return
    advice = "start one with `ray start --head`, or say where one is: --ray-address HOST:PORT"
    _check_listening(address, advice)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"--ray-address {address}: no Ray cluster can be joined there ({error}); {advice}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_listening(address: str, advice: str) -> None:
    """Refuse an address where nothing listens. Ray would try for a minute, and might then end the process."""
    if address == "auto":
        return
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        socket.create_connection((parts.hostname or "", parts.port or 10001), timeout=5).close()
    except (OSError, ValueError) as error:
        raise BadInput(f"--ray-address {address}: nothing answers there ({error}); {advice}") from error
