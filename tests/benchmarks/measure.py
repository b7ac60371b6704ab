"""CPU seconds and memory of a process tree, read from /proc, and what a run cost by them.

The broker is no child of what is measured, so it is never counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STEADY_FROM = 0.20
STEADY_TO = 0.95


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The state of a run at one moment."""

    elapsed_s: float
    cpu_s: float
    """User and system time of the tree since its start, ended children included."""
    consumed: int
    """Input records whose results are committed."""
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run cost, steady and as a whole."""

    records: int
    wall_s: float
    cpu_s: float
    records_per_cpu_s: float
    records_per_s: float
    steady_records: int
    steady_cpu_s: float
    steady_records_per_cpu_s: float
    steady_records_per_s: float
    peak_memory_mb: float


def _stat(pid: int) -> tuple[int, float, float] | None:
    """Parent and CPU seconds of a process: with those of children it has waited for, and its own."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    own, waited_for = (sum(map(int, fields[at : at + 2])) / TICKS_PER_SECOND for at in (11, 13))
    return int(fields[1]), own + waited_for, own


def tree(root: int) -> dict[int, float]:
    """CPU seconds of every living process of a tree by pid, with those of children it has waited for."""
    return {pid: total for pid, (total, _) in _members(root).items()}


class CpuClock:
    """CPU seconds of a tree whose processes come and go: what each was last seen to have used, ended ones included.

    What a process uses between the last look and its end is missed, so look often.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[int, float] = {}

    def seconds(self) -> float:
        """Looks."""
        for pid, (_, own) in _members(self._root).items():
            self._seen[pid] = max(own, self._seen.get(pid, 0.0))
        return sum(self._seen.values())


def _members(root: int) -> dict[int, tuple[float, float]]:
    """Per living process of a tree: CPU seconds with those of waited-for children, and its own."""
    found: dict[int, tuple[int, float, float]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            found[int(entry.name)] = stat
    members = {root} & found.keys()
    grown = True
    while grown:
        more = {pid for pid, (parent, _, _) in found.items() if parent in members} - members
        members |= more
        grown = bool(more)
    return {pid: found[pid][1:] for pid in members}


def memory_bytes(pids: Sequence[int]) -> int:
    """Memory of processes, pages shared between them counted once (PSS)."""
    total = 0
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return total


class Watch:
    """Samples a process tree while it runs.

    CPU time of a child that ended is kept by the parent that waited for it; a total never goes down,
    so that a child which was not waited for counts as far as it was seen.
    """

    def __init__(self, pid: int, progress: Callable[[], int]) -> None:
        self._pid = pid
        self._progress = progress
        self._started = time.monotonic()
        self._memory_at = 0.0
        self._memory = 0
        self.samples: list[Sample] = []

    def sample(self) -> Sample:
        """Takes and keeps one sample."""
        consumed = self._progress()
        processes = tree(self._pid)
        now = time.monotonic()
        if now - self._memory_at >= 1.0:
            self._memory, self._memory_at = memory_bytes(list(processes)), now
        before = self.samples[-1].cpu_s if self.samples else 0.0
        taken = Sample(
            elapsed_s=now - self._started,
            cpu_s=max(before, sum(processes.values())),
            consumed=consumed,
            memory_bytes=self._memory,
        )
        self.samples.append(taken)
        return taken


def cost(samples: Sequence[Sample], records: int) -> Cost:
    """The cost of a run that consumed `records`; steady state lies between 20 % and 95 % of them.

    Progress moves in steps (commits, micro-batches), so the steady state is taken from the first step at or after
    20 % to the last one at or before 95 %.
    """
    last = next(sample for sample in samples if sample.consumed >= records)
    steps = [now for before, now in pairwise(samples) if now.consumed > before.consumed]
    inside = [step for step in steps if STEADY_FROM * records <= step.consumed <= STEADY_TO * records]
    if len(inside) >= 2:
        first, final = inside[0], inside[-1]
        steady = (
            final.consumed - first.consumed,
            final.cpu_s - first.cpu_s,
            final.elapsed_s - first.elapsed_s,
        )
    else:
        steady = (0, 0.0, 0.0)
    return Cost(
        records=records,
        wall_s=round(last.elapsed_s, 2),
        cpu_s=round(last.cpu_s, 2),
        records_per_cpu_s=_rate(records, last.cpu_s),
        records_per_s=_rate(records, last.elapsed_s),
        steady_records=steady[0],
        steady_cpu_s=round(steady[1], 2),
        steady_records_per_cpu_s=_rate(steady[0], steady[1]),
        steady_records_per_s=_rate(steady[0], steady[2]),
        peak_memory_mb=round(max(sample.memory_bytes for sample in samples) / 2**20, 1),
    )


def _rate(records: int, seconds: float) -> float:
    return round(records / seconds, 1) if seconds > 0 else 0.0


def end_tree(pid: int, timeout_s: float = 30.0) -> None:
    """Ends a process and all its descendants: asked first, then by force."""
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    root.terminate()
    _, alive = psutil.wait_procs([root], timeout=timeout_s)
    members = [process for process in members if process.is_running()]
    for process in members:
        process.kill()
    psutil.wait_procs(members, timeout=10)
    if alive and root.is_running():
        raise RuntimeError(f"process {pid} does not end")
