"""Memory of the processes and sizes of what is kept, sampled while the soak runs, and how fast they grow."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deltaworks.control.paths import PipelinePaths
from tests.system.soak.soak import NAMES, Soak

EVERY_S = 30.0
WARM_UP_S = 900.0
FLAT_PER_HOUR = 0.05


@dataclass
class Measures:
    """Samples by name: `memory JVM soak_ledger`, `size checkpoint soak_ledger`, ..."""

    soak: Soak
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """Seconds since the begin, MB."""

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="measures")
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._closed.wait(EVERY_S):
            with suppress(OSError, psutil.Error):  # something was moved or ended meanwhile
                taken = {name: value for name in NAMES for name, value in self._of(name).items()}
                at = time.monotonic() - self._begun
                for name, value in taken.items():
                    self.samples[name].append((at, value))
                self.soak.record.note("sample", **{name: round(value, 1) for name, value in taken.items()})

    def _of(self, name: str) -> dict[str, float]:
        stream, paths = self.soak.streams[name], PipelinePaths.of(self.soak.settings, name)
        sizes = {f"memory {kind} {name}": _memory(stream.victims(kind)) for kind in ("driver", "jvm", "worker")}
        with suppress(Exception):  # the pointer file may be gone for a moment
            sizes[f"size checkpoint {name}"] = _size(paths.current.spark)
            sizes[f"size local stores {name}"] = _size(paths.current.local)
        sizes[f"size pipeline {name}"] = _size(paths.root)
        if name == NAMES[0]:
            logs = self.soak.settings.tables.glob("*/_delta_log")
            sizes["size Delta logs"] = sum(map(_size, logs))
        return {key: value for key, value in sizes.items() if value}

    def table(self) -> str:
        """A row per sample: last value, growth per hour after the warm-up."""
        lines = [f"{'measure':36} {'samples':>7} {'last MB':>9} {'per hour':>9}"]
        for name, samples in sorted(self.samples.items()):
            growth = slope_per_hour([sample for sample in samples if sample[0] >= WARM_UP_S])
            shown = "too short" if growth is None else f"{growth:+.1%}"
            if growth is not None and growth > FLAT_PER_HOUR and name.startswith("memory"):
                shown += "  NOT FLAT"
            lines.append(f"{name:36} {len(samples):7} {samples[-1][1]:9.1f} {shown:>9}")
        return "\n".join(lines)


def slope_per_hour(samples: Sequence[tuple[float, float]]) -> float | None:
    """Growth per hour as a part of the mean, by least squares; None with fewer than ten samples."""
    if len(samples) < 10:
        return None
    count = len(samples)
    mean_at, mean = sum(at for at, _ in samples) / count, sum(value for _, value in samples) / count
    spread = sum((at - mean_at) ** 2 for at, _ in samples)
    slope = sum((at - mean_at) * (value - mean) for at, value in samples) / spread
    return slope * 3600 / mean if mean else None


def _memory(processes: Sequence[psutil.Process]) -> float:
    """Their own pages in MB, each shared one by its part."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 1e6


def _size(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total / 1e6
