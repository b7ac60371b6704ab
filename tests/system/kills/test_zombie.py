"""A driver of an old generation that wakes up: it may not change anything any more, and its successor goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deltaworks import exits, processes
from deltaworks.control import batches, fence, heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.files import lock
from deltaworks.kafka import admin
from deltaworks.lakehouse import cuts
from deltaworks.settings import Settings
from deltaworks.testing.sample_data import produce
from jobs import orders
from jobs.recomputed.orders import recomputation
from jobs.sample_data import orders as sample
from tests.support.fault_hooks import HOOK, VARIABLE
from tests.support.live_stack import has_read
from tests.support.processes import running, show_stacks
from tests.system.healing.platform_under_kills import different

WAIT_S = 240.0


def driver(settings: Settings, log: Path, faults: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A real one in the foreground; the next generation."""
    command = [sys.executable, "-m", "deltaworks.cli", "run", "orders"]
    environment = settings.process_environment() | {VARIABLE: str(faults)}
    return running(command, environment=environment, log=log, cwd=settings.project)


def suspended(driver: subprocess.Popen[bytes], fence_file: Path) -> list[psutil.Process]:
    """Suspends a driver and its children, none of them within the fence: no successor gets past one that is."""
    guard = fence_file.with_name(f"{fence_file.name}.lock")
    deadline = time.monotonic() + WAIT_S
    while True:
        asleep = processes.family(psutil.Process(driver.pid))
        each(asleep, signal.SIGSTOP)
        while not all(map(is_asleep, asleep)):
            assert time.monotonic() < deadline, "it does not fall asleep"
        with guard.open("rb") as file:
            if lock(file):
                return asleep
        each(asleep, signal.SIGCONT)
        assert time.monotonic() < deadline, f"it is always within {guard}"
        time.sleep(0.01)


def is_asleep(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def each(family: list[psutil.Process], number: signal.Signals) -> None:
    for process in family:
        with suppress(psutil.NoSuchProcess):  # a child that had done its work
            process.send_signal(number)


def files_of_cuts(settings: Settings) -> list[Path]:
    return sorted(cuts.folder(settings.tables, "orders").glob("*.jsonl"))


def until(fact: Callable[[], bool], what: str, by: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        if time.monotonic() > deadline or by.poll() is not None:
            show_stacks(by)
            pytest.fail(f"{what} within {WAIT_S:.0f} s; code {by.poll()}:\n{log.read_text()[-30_000:]}")
        time.sleep(0.05)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "asleep_at",
    [
        None,
        *(
            pytest.param(point, marks=pytest.mark.slow)
            for point in ("delta.after_commit:user_revenue", "driver.before_cut", "driver.end", "store.applied")
        ),
    ],
)
def test_a_zombie_that_wakes_up_commits_nothing_and_ends_itself(
    orders_settings: Settings, tmp_path: Path, asleep_at: str | None
) -> None:
    """It sleeps while it has nothing to do; before it has told its tasks, or readers, of a commit; where all of a batch
    is done and Spark has not heard of it; or where it has the local store of a task, or of a global table, to itself.
    """
    settings = replace(orders_settings, fault_hook=HOOK)
    paths = PipelinePaths.of(settings, "orders")
    old_log, new_log, faults = tmp_path / "old.log", tmp_path / "new.log", tmp_path / "faults"

    def write(count: int) -> None:
        present = admin.end_offsets(settings.cluster, orders.pipeline.plan().source_topics)
        produce(settings.cluster, sample.records(count, seed=7), present=present)

    def at_work(generation: int) -> bool:
        beat = heartbeat.read(paths.heartbeat)
        if beat is None or beat.generation != generation or beat.batch_id is None:
            return False
        ends = admin.end_offsets(settings.cluster, orders.pipeline.plan().source_topics)
        return has_read(beat, ends)

    with ExitStack() as stack:
        write(1_000)
        old = stack.enter_context(driver(settings, old_log, faults))
        until(lambda: at_work(1), "the first generation has processed everything", old, old_log)
        if asleep_at is not None:
            (faults / "inject" / asleep_at).write_text("wait")
            write(1_500)
            # else the second generation might be the first to reach that point
            until((faults / "done" / asleep_at).exists, f"the first generation sleeps at {asleep_at}", old, old_log)
        asleep = suspended(old, paths.fence)
        write(2_000)  # what the zombie finds first when it wakes up
        paths.lease.unlink()  # as a lock is lost whose file server forgets it

        new = stack.enter_context(driver(settings, new_log, faults))
        until(lambda: at_work(2), "the second generation has processed everything", new, new_log)
        if asleep_at is not None:
            (faults / "done" / asleep_at).unlink()
        each(asleep, signal.SIGCONT)
        write(3_000)

        assert old.wait(timeout=WAIT_S) == exits.LEASE
        said = old_log.read_text()
        by_the_fence = "generation 1 of pipeline 'orders' was replaced by generation 2" in said
        by_a_table = "Generation 1 may not write the Delta table" in said and "generation 2 has taken over" in said
        assert by_the_fence or by_a_table, "whichever it met first"
        assert fence.read(paths.fence) == 2
        until(lambda: at_work(2), "the second generation goes on", new, new_log)
        new.send_signal(signal.SIGTERM)
        assert new.wait(timeout=WAIT_S) == exits.OK

    assert different(recomputation.check(settings.cluster, settings.tables, paths.batches)) == []
    shown = [json.loads(line)["batch_id"] for file in files_of_cuts(settings) for line in file.read_text().splitlines()]
    assert shown == sorted(shown), "nobody is taken back to an earlier batch"
    newest = cuts.latest(settings.tables, "orders")
    assert newest is not None
    assert newest.batch_id == shown[-1]
    assert [record.batch for record in batches.read(paths.batches)] == sorted(
        {record.batch for record in batches.read(paths.batches)}
    )
