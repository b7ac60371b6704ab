"""On real Spark and Kafka: a stream that starts with more cores spreads its state over them, whoever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from deltaworks import exits
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.paths import PipelinePaths
from tests.integration.test_replay import Payments, payments, right
from tests.support.fault_hooks import HOOK, VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
__all__ = ["payments"]
PER_HOUR = {"a": sum(100 + n for n in range(10) if n % 2), "d": sum(100 + n for n in range(10) if not n % 2)}
SPREADING, SPREAD = "spreading the state over 2 cores; 1 until now\n", "the state is spread over 2 cores, in "


class Stream:
    """A stream that runs until it has caught up, each time with some cores."""

    def __init__(self, payments: Payments) -> None:
        self.payments, self.paths = payments, PipelinePaths.of(payments.settings, "payments")

    def with_cores(self, cores: int) -> Payments:
        return replace(self.payments, settings=replace(self.payments.settings, cores=cores))

    def start(self, cores: int, kill_at: str | None = None) -> subprocess.Popen[str]:
        payments, faults = self.with_cores(cores), self.payments.settings.home / "faults"
        environment = {**os.environ, **payments.settings.process_environment()}
        if kill_at is not None:
            (faults / "inject").mkdir(parents=True, exist_ok=True)
            (faults / "inject" / kill_at).write_text("kill")
            environment |= {VARIABLE: str(faults), "DELTAWORKS_FAULT_HOOK": HOOK}
        return subprocess.Popen(
            [sys.executable, "-m", "deltaworks.cli", "run", "payments", "--until-caught-up"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=payments.settings.project, env=environment,
        )  # fmt: skip

    def run(self, cores: int) -> str:
        """What it says."""
        process = self.start(cores)
        said, _ = process.communicate()
        assert process.returncode == exits.OK, said[-3000:]
        return said

    @property
    def plan(self) -> CheckpointPlan:
        plan = stored_plan(self.paths.current.plan)
        assert plan is not None
        return plan

    @property
    def switched(self) -> list[str]:
        return list(self.paths.switched)

    def require(self, hours: int) -> None:
        """Exactly what was paid."""
        assert self.payments.balances() == {account: hours * amount for account, amount in PER_HOUR.items()}
        assert self.payments.totals() == right(hours - 1)


def test_a_restart_with_more_cores_uses_them(payments: Payments) -> None:
    stream = Stream(payments)
    payments.pay(0, 5)
    said = stream.run(1)
    assert "spread" not in said and stream.plan.shards == 1

    payments.pay(5, 6)
    process = stream.start(1, kill_at="driver.after_tasks")
    process.communicate()
    assert process.returncode == -9 and "spread" not in stream.run(2), "the batch that is open comes first"
    assert stream.plan.shards == 1

    for point in ("widening.read", "widening.made"):
        process = stream.start(2, kill_at=point)
        said, _ = process.communicate()
        assert process.returncode == -9 and SPREADING in said and stream.plan.shards == 1, said[-3000:]

    with stream.start(2) as process:
        reader = None
        while reader is None:
            assert process.poll() is None
            children = psutil.Process(process.pid).children(recursive=True)
            reader = next((each for each in children if _is_reader(each)), None)
        reader.kill()
        said, _ = process.communicate()
    assert process.returncode == exits.OK, said[-3000:]
    assert "the state is not spread over 2 cores, and 1 are used" in said and "ended with -9" in said
    assert stream.plan.shards == 1 and SPREADING in said
    stream.require(6)

    payments.pay(6, 8)
    said = stream.run(2)
    assert SPREADING in said and SPREAD in said, said
    (name,) = stream.switched
    assert (stream.plan.shards, [each.name for each in stream.paths.checkpoints.iterdir()]) == (2, [name])
    stream.require(8)
    print(said[said.index(SPREAD) :].splitlines()[0])

    process = stream.start(2, kill_at="driver.after_tasks")
    payments.pay(8, 9)
    process.communicate()
    assert "spread" not in stream.run(1) + stream.run(2), "it is done once, and fewer cores change nothing"
    stream.require(9)
    assert stream.switched == [name]
    equal = payments.deltaworks("replay", "payments", "--only-different", "--table", "totals", "--table", "balances")
    assert "Production is equal" in equal


def _is_reader(process: psutil.Process) -> bool:
    try:
        return "deltaworks.spark.state_reader" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def test_a_hand_over_is_undone_with_what_has_continued_it(payments: Payments) -> None:
    stream = Stream(payments)
    payments.write(bug=" * 2")
    payments.pay(0, 5)
    stream.run(1)
    wrong = payments.balances()

    payments.write()
    narrow = stream.with_cores(1)
    said = narrow.deltaworks("replay", "payments", "--hand-over", "--reason", "doubled", "--yes")
    run = said.split("deltaworks rollback ")[1].split()[0]
    payments.pay(5, 8)
    assert SPREAD in stream.run(2)
    assert stream.switched[:1] == [run] and len(stream.switched) == 2 and stream.plan.shards == 2
    stream.require(8)

    payments.write(bug=" * 2")
    narrow.deltaworks("rollback", run)
    assert stream.switched == [] and payments.balances() == wrong
    assert SPREAD in stream.run(2)
    assert payments.balances() == {account: wrong[account] + 3 * 2 * PER_HOUR[account] for account in wrong}
    assert len(stream.switched) == 1 and stream.plan.shards == 2
