"""Faults by people and their tools: the clock, commands, topics, OPTIMIZE, deployments, replays."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta

from deltalake import DeltaTable

from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka import admin
from tests.system.soak.processes import at_work, chosen
from tests.system.soak.sample import START_MS
from tests.system.soak.soak import NAMES, ROUND_S, Soak

_STEPS_S = (60, 300, 3_600, 86_400)
_OPTIMIZED = ("soak_hours", "soak_visits")
_TOPIC = "soak-notes"


def clock_forward(soak: Soak, rng: random.Random) -> str | None:
    """The wall clock of all processes of the streams jumps."""
    step_s = rng.choice(_STEPS_S)
    return f"by {step_s} s, {soak.move_clock(step_s):.0f} s ahead" if _any_runs(soak) else None


def clock_back(soak: Soak, rng: random.Random) -> str | None:
    """The wall clock of all processes of the streams is set back."""
    step_s = rng.choice(_STEPS_S)
    return f"by {step_s} s, {soak.move_clock(-step_s):.0f} s ahead" if _any_runs(soak) else None


def _any_runs(soak: Soak) -> bool:
    return any(stream.beat() is not None for stream in soak.streams.values())


def tear_command_files(soak: Soak, rng: random.Random) -> str | None:
    """An empty and a torn command lie in a pipeline's folder."""
    name, number = rng.choice(NAMES), rng.randrange(1_000_000)
    folder = PipelinePaths.of(soak.settings, name).commands
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"empty-{number}.command.json").touch()
    (folder / f"torn-{number}.command.json").write_text('{"id":"torn","kind":"publ')
    return name


def recreate_topic(soak: Soak, rng: random.Random) -> str | None:
    """A topic that was processed to its end is deleted and recreated, with fewer or more records than before."""
    soak.flow.without_notes()
    try:
        ends = {at: end for at, end in soak.ends().items() if at[0] == _TOPIC}
        stream = soak.streams["soak_recreated"]
        if not soak.until(lambda: soak.has_processed(stream.name, ends), 120.0, f"{stream.name} is at the end"):
            return None
        for message in soak.tail.read([_TOPIC]):
            soak.models["soak_recreated"].take(message)
        if rng.random() < 0.5:
            return _recreate(soak)
        with soak.stopped(stream.name):
            return _recreate(soak)
    finally:
        soak.flow.with_notes()


def _recreate(soak: Soak) -> str:
    admin.delete_topics(soak.settings.bootstrap, [_TOPIC])
    pipeline = soak.pipelines["soak_recreated"]
    soak.until(
        lambda: admin.create_topics(soak.settings.bootstrap, admin.topic_specs(pipeline.topics)), 30.0, "recreated"
    )
    soak.tail.forget(_TOPIC)
    return _TOPIC


def optimize_running(soak: Soak, rng: random.Random) -> str | None:
    """Another program compacts a window table under the stream."""
    table = rng.choice(_OPTIMIZED)
    return _optimized(soak, table) if at_work(soak, soak.streams["soak_ledger"]) else None


def optimize_stopped(soak: Soak, rng: random.Random) -> str | None:
    """Another program compacts a window table while the stream is stopped."""
    table = rng.choice(_OPTIMIZED)
    with soak.stopped("soak_ledger"):
        return _optimized(soak, table)


def _optimized(soak: Soak, table: str) -> str | None:
    path = soak.settings.tables / table
    if not DeltaTable.is_deltatable(str(path)):
        return None
    before = DeltaTable(path).version()
    try:
        DeltaTable(path).optimize.compact()
    except Exception as error:  # the stream has committed in between: nothing happened
        soak.say(f"OPTIMIZE of {table}: {error}")
        return None
    return table if DeltaTable(path).version() > before else None


def redeploy(soak: Soak, rng: random.Random) -> str | None:
    """The job is edited, and its driver killed within a batch; the next one runs the new code."""
    stream = chosen(soak, rng)
    if not at_work(soak, stream):
        return None
    file = soak.settings.project / "jobs" / f"{stream.name}.py"
    text = file.read_text().partition("\n\nREVISION")[0]
    file.write_text(f"{text.rstrip()}\n\nREVISION = {rng.randrange(1_000_000)}\n")
    time.sleep(rng.uniform(0.0, ROUND_S))
    stream.hold()
    stream.kill_all()
    stream.go_on()
    return stream.name


def publish_replay(soak: Soak, rng: random.Random) -> str | None:
    """Two days of the windows are computed and published again; that changes nothing."""
    return _replayed(soak, rng)[0]


def roll_back(soak: Soak, rng: random.Random) -> str | None:
    """And that is taken back."""
    what, run = _replayed(soak, rng)
    if what is None or not run:
        return None
    said = soak.deltaworks("rollback", run)
    if said.code:
        soak.record.failed(f"rollback {run} ended with {said.code}: {said.text[-800:]}")
        return None
    return f"{what}, rolled back"


def _replayed(soak: Soak, rng: random.Random) -> tuple[str | None, str]:
    """What was replayed, and the id of the run."""
    days = soak.flow.sample.days
    if days < 3:
        return None, ""
    first = rng.randrange(max(1, days - 2))
    begin = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(days=first)
    end = begin + timedelta(days=1)
    said = soak.deltaworks(
        "replay", "soak_ledger", "--from", f"{begin:%Y-%m-%d}", "--to", f"{end:%Y-%m-%d}", "--reason", "soak", "--yes"
    )
    if said.code:
        soak.record.failed(f"replay of {begin:%Y-%m-%d} ended with {said.code}: {said.text[-1500:]}")
        return None, ""
    return f"soak_ledger, {begin:%Y-%m-%d}", said.text.partition("run ")[2].partition(":")[0].split()[0]
