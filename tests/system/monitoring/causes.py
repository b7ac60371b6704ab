"""What each alert is about, caused on a real stream; each is told once, and cleared."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from deltaworks.kafka import admin
from deltaworks.metrics import rules
from deltaworks.metrics.connector_rules import OF_CONNECTORS
from tests.support.live_stack import has_read
from tests.support.monitoring import FIRING, HOME, RESOLVED, Webhook
from tests.system.monitoring import hooks, job
from tests.system.monitoring.run import WEEK_S, Run, late, write
from tests.system.replays.project import until

_FIRES_S, _CLEARS_S, _POLL_S = 180.0, 240.0, 0.1
_FAILED, _TOO_LATE = 5, 400
_STUCK_S, _SLOW_S = 14.0, 28.0
_KEYS, _CHUNKS = 32_000, 4
_READ_S = 60.0
_BESIDE: Mapping[str, Collection[str]] = {
    # its sample data are as untidy as real ones, and it is killed again and again
    "orders": {"DeadLetters", "LateRecords", "Lagging", "LagGrows", "SlowBatches", "BatchStuck"},
    "watched": {"StreamFailed", "LagGrows", "SlowBatches", "StaleSnapshots"},
    "grown": {"StreamFailed", "Lagging", "StateGrowsFaster"},
}
"""What may follow from the causes and the kills, on this machine with all of it at once."""


def _nothing() -> None:
    """The reason ends by itself."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The reason of one or several alerts."""

    alerts: tuple[str, ...]
    pipeline: str
    begin: Callable[[], None]
    end: Callable[[], None] = _nothing

    @property
    def told(self) -> list[tuple[str, str]]:
        """Alert and pipeline, as they are told."""
        return [(alert, "" if alert in HOME else self.pipeline) for alert in self.alerts]


def caused(hook: Webhook, cause: Cause, *, fires_s: float = _FIRES_S, clears_s: float | None = _CLEARS_S) -> list[str]:
    """Causes it when all is quiet; what is wrong with what was told.

    Args:
        hook: is told.
        cause: what is caused.
        fires_s: how long it may take.
        clears_s: likewise until it is cleared; None: that is not waited for.
    """
    if not _within(lambda: all(_open(hook, each) == 0 for each in cause.told), clears_s or _CLEARS_S):
        return [f"{', '.join(cause.alerts)} of {cause.pipeline or 'the home'} fires before it is caused"]
    before = {each: hook.told[(*each, FIRING)] for each in cause.told}
    begun = time.monotonic()
    cause.begin()
    fires = _within(lambda: all(hook.told[(*each, FIRING)] > before[each] for each in cause.told), fires_s)
    after_s = time.monotonic() - begun
    cause.end()
    if not fires:
        missing = [each for each in cause.told if hook.told[(*each, FIRING)] == before[each]]
        print(f"{', '.join(cause.alerts)}: NOT TOLD {missing}", flush=True)
        return [f"{alert} of {pipeline or 'the home'} is not told" for alert, pipeline in missing]
    if clears_s is None:
        return []
    ends = _within(lambda: all(_open(hook, each) == 0 for each in cause.told), clears_s)
    times = {each: hook.told[(*each, FIRING)] - before[each] for each in cause.told}
    wrong = [
        f"{alert} of {pipeline or 'the home'} is told {n} times" for (alert, pipeline), n in times.items() if n > 1
    ]
    if not ends:
        wrong += [f"{alert} is not cleared" for alert, pipeline in cause.told if _open(hook, (alert, pipeline))]
    print(
        f"{', '.join(cause.alerts)} of {cause.pipeline or 'the home'}: told after {after_s:.0f} s, "
        f"{'; '.join(wrong) if wrong else f'once, cleared after {time.monotonic() - begun:.0f} s'}",
        flush=True,
    )
    return wrong


def strays(hook: Webhook, causes: Sequence[Cause]) -> list[str]:
    """Alerts that were told without a reason."""
    known = {each for cause in causes for each in cause.told}
    known |= {(alert, pipeline) for pipeline, alerts in _BESIDE.items() for alert in alerts}
    told = {(alert, pipeline) for alert, pipeline, status in hook.told if status == FIRING}
    return [f"{alert} of {pipeline or 'the home'} is told without a reason" for alert, pipeline in sorted(told - known)]


def without_texts(hook: Webhook) -> list[str]:
    """Alerts that do not say what, since when, why, and where to look."""
    wanted = ("summary", "what", "cause", "page", "since")
    return [
        f"{alert} is told without '{text}'"
        for alert, texts in hook.texts.items()
        for text in wanted
        if not texts.get(text)
    ]


def bad_records(run: Run) -> Cause:
    """Records that fail, and others that are late."""

    def begin() -> None:
        records = [(f"word-{number:02}", job.FAIL, 0) for number in range(_FAILED)]
        write(run.settings, "watched", [*records, *(late("word-00", "late") for _ in range(_TOO_LATE))])

    return Cause(alerts=("DeadLetters", "LateRecords"), pipeline="watched", begin=begin)


def all_causes(run: Run) -> list[list[Cause]]:
    """Each list one after the other, all lists at the same time."""
    tracks = [_of_orders(run), _of_watched(run), _of_grown(run), _of_disk(run)]
    alerts = {alert for track in tracks for cause in track for alert in cause.alerts}
    of_connectors = {rule.name for rule in OF_CONNECTORS}  # caused in tests/integration/test_alerts.py
    assert alerts == {rule.name for rule in rules.RULES} - of_connectors, "each rule has a cause"
    return tracks


def _of_orders(run: Run) -> list[Cause]:
    def kill() -> None:
        run.kill_driver("orders")

    def kill_often() -> None:
        for _ in range(3):
            run.kill_driver("orders")

    return [
        Cause(alerts=("StreamFailed",), pipeline="orders", begin=lambda: run.driver("orders").suspend(), end=kill),
        Cause(alerts=("Restarts",), pipeline="orders", begin=kill_often),
    ]


def _of_watched(run: Run) -> list[Cause]:
    def grow() -> None:
        time.sleep(max(0.0, run.begun_s["watched"] + WEEK_S + 5 - time.monotonic()))
        _grow(run, "watched")

    return [
        bad_records(run),
        Cause(alerts=("Lagging", "BatchStuck"), pipeline="watched", begin=lambda: _sleep(run, "watched", _STUCK_S)),
        Cause(alerts=("StateGrowsFaster",), pipeline="watched", begin=grow),
    ]


def _of_grown(run: Run) -> list[Cause]:
    point = "snapshot.written:grown_counts"

    def hold() -> None:
        (run.faults / "inject" / point).write_text("wait")

    def release() -> None:
        for folder in ("inject", "done"):
            (run.faults / folder / point).unlink(missing_ok=True)

    return [
        Cause(alerts=("LagGrows", "SlowBatches"), pipeline="grown", begin=lambda: _sleep(run, "grown", _SLOW_S)),
        Cause(alerts=("StaleSnapshots",), pipeline="grown", begin=hold, end=release),
        Cause(alerts=("StateGrowing",), pipeline="grown", begin=lambda: _grow(run, "grown")),
    ]


def _of_disk(run: Run) -> list[Cause]:
    home = run.settings.home

    def fall() -> None:
        for percent in range(90, 28, -3):
            hooks.tell_free(home, percent / 100)
            time.sleep(0.5)

    return [
        Cause(alerts=("DiskFillsSoon",), pipeline="", begin=fall),
        Cause(
            alerts=("DiskFilling",),
            pipeline="",
            begin=lambda: hooks.tell_free(home, 0.05),
            end=lambda: hooks.tell_free(home, 0.9),
        ),
    ]


def _sleep(run: Run, name: str, seconds: float) -> None:
    write(run.settings, name, [("word-00", job.sleep(seconds), 0)])


def _grow(run: Run, name: str) -> None:
    """Many new keys within a day; the stream reads some after the others, so that no batch takes long."""
    for chunk in range(_CHUNKS):
        write(run.settings, name, ((f"new-{chunk}-{number}", "x", 0) for number in range(_KEYS)))
        ends = admin.end_offsets(run.settings.cluster, [name])
        until(partial(_has_read, run, name, ends), f"{name} has read new keys", _READ_S)


def _has_read(run: Run, name: str, ends: Mapping[tuple[str, int], int]) -> bool:
    beat = run.beat(name)
    return beat is not None and has_read(beat, ends)


def _open(hook: Webhook, each: tuple[str, str]) -> int:
    return hook.told[(*each, FIRING)] - hook.told[(*each, RESOLVED)]


def _within(fact: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True
