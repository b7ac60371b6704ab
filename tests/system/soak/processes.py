"""Faults of processes: killed, paused, slow, ended at a named point."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from tests.system.soak import broker
from tests.system.soak.soak import ROUND_S, Soak
from tests.system.soak.streams import Stream

_POINT_S = 25.0
_KEPT = ("soak_ledger", "soak_matches", "soak_ledger", "soak_matches", "soak_recreated")
"""The large streams more often."""


def chosen(soak: Soak, rng: random.Random) -> Stream:
    """One of the streams."""
    return soak.streams[rng.choice(_KEPT)]


def at_work(soak: Soak, stream: Stream) -> bool:
    """Until it has committed a batch since now: a fault then hits a stream and not its start."""
    before = stream.beat()
    last = before.batch_id if before is not None else None

    def goes_on() -> bool:
        beat = stream.beat()
        return beat is not None and beat.batch_id is not None and beat.batch_id != last

    return soak.until(goes_on, 120.0, f"{stream.name} is at work")


def kill(victim: str) -> Callable[[Soak, random.Random], str | None]:
    """SIGKILL to one process of a stream, somewhere within a batch."""

    def fire(soak: Soak, rng: random.Random) -> str | None:
        stream, moment, which = chosen(soak, rng), rng.uniform(0.0, ROUND_S), rng.random()
        if not at_work(soak, stream):
            return None
        time.sleep(moment)
        found = stream.victims(victim)
        if not found:
            return None
        process = found[int(which * len(found))]
        phase = stream.phase(process.pid if victim != "jvm" else None)
        try:
            process.kill()
        except psutil.NoSuchProcess:
            return None
        return f"{stream.name}, pid {process.pid} at {phase}"

    return fire


def pause(victim: str) -> Callable[[Soak, random.Random], str | None]:
    """SIGSTOP for some seconds, then SIGCONT."""

    def fire(soak: Soak, rng: random.Random) -> str | None:
        stream, seconds, which = chosen(soak, rng), rng.uniform(2.0, 15.0), rng.random()
        if not at_work(soak, stream):
            return None
        found = stream.victims(victim)
        if not found:
            return None
        process = found[int(which * len(found))]
        return f"{stream.name} for {seconds:.0f} s" if _paused([process], seconds) else None

    return fire


def slow(soak: Soak, rng: random.Random) -> str | None:
    """All processes of a stream stand still now and then."""
    stream = chosen(soak, rng)
    if not at_work(soak, stream):
        return None
    return stream.name if _stuttered(stream.members(), rng) else None


def kill_broker(soak: Soak, rng: random.Random) -> str | None:
    """SIGKILL; the runner starts it again."""
    found = broker.process(soak.stack)
    if found is None:
        return None
    found.kill()
    broker.await_other(soak.stack, found)
    return f"pid {found.pid}"


def pause_broker(soak: Soak, rng: random.Random) -> str | None:
    """It answers nobody for some seconds."""
    found, seconds = broker.process(soak.stack), rng.uniform(3.0, 20.0)
    return f"for {seconds:.0f} s" if found is not None and _paused([found], seconds) else None


def slow_broker(soak: Soak, rng: random.Random) -> str | None:
    """It stands still now and then."""
    found = broker.process(soak.stack)
    return f"pid {found.pid}" if found is not None and _stuttered([found], rng) else None


def at_point(action: str) -> Callable[[Soak, random.Random], str | None]:
    """The next process of a stream that reaches a point fails there."""

    def fire(soak: Soak, rng: random.Random) -> str | None:
        stream, which = chosen(soak, rng), rng.random()
        points = stream.points()
        if not points:
            return None
        point = points[int(which * len(points))]
        order, done = stream.faults / "inject" / point, stream.faults / "done" / point
        temporary = stream.faults / "order"
        temporary.write_text(action)
        temporary.replace(order)
        soak.until(done.exists, _POINT_S, f"{stream.name} reaches {point}")
        order.unlink(missing_ok=True)
        if not done.exists():
            return None
        done.unlink()
        return f"{stream.name} at {point}"

    return fire


def _paused(processes: Sequence[psutil.Process], seconds: float) -> bool:
    hit = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
            hit += 1
    time.sleep(seconds)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
    return hit > 0


def _stuttered(processes: Sequence[psutil.Process], rng: random.Random) -> bool:
    hits = 0
    for _ in range(12):
        hits += _paused(processes, rng.uniform(0.2, 0.8))
        time.sleep(0.15)
    return hits > 0
