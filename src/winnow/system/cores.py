"""How many cores this process may use: its CPU affinity, its container's share, and $WINNOW_CORES as upper limits."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from winnow.errors import BadInput


def cores_here() -> int:
    """Cores this process may use: the smallest of its CPU affinity, its container's share, and $WINNOW_CORES."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("WINNOW_CORES") or str(cores)
    if not given.isdecimal() or int(given) < 1:
        raise BadInput(f"WINNOW_CORES must be a whole number of at least 1, got {given!r}")
    return max(1, int(min(cores, int(given), container_share())))


def container_share(process: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> float:
    """Cores by the quota of this process's control groups (version 1 or 2); infinite if there is no quota."""
    try:
        groups = [line.split(":", 2) for line in Path(process).read_text("utf-8").splitlines()]
    except OSError:  # not Linux
        return float("inf")
    shares = [float("inf")]
    for _, controllers, name in groups:
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = Path(root, controllers)
        group = top / name.lstrip("/")
        shares += [_quota(folder) for folder in (group, *group.parents) if folder.is_relative_to(top)]
    return min(shares)


def _quota(group: Path) -> float:
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with contextlib.suppress(OSError, ValueError):
            quota, period = " ".join((group / name).read_text("utf-8") for name in names).split()
            return int(quota) / int(period) if quota not in ("max", "-1") else float("inf")
    return float("inf")
