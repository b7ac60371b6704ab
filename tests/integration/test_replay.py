"""A bug and its repair on real Spark, Kafka and Delta: replayed while records arrive, published under the stream."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from deltaworks.control import heartbeat
from deltaworks.kafka.admin import TopicSpec, create_topics, delete_topics
from deltaworks.kafka.control_topic import control_topic
from deltaworks.settings import Settings
from tests.support.live_stack import LiveStack

pytestmark = pytest.mark.timeout(600)

START_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000
HOURS = 60
JOB = '''"""Amounts per account and hour."""

from datetime import timedelta

from deltaworks import Pipeline, StreamsBuilder, TimeWindows, Topic


def topology(builder: StreamsBuilder) -> None:
    amounts = builder.stream("payments", key=str, value=int)
    amounts.to_delta("payments")
    by_account = amounts.group_by_key()
    by_account.reduce(lambda total, amount: total + amount{bug}, store="balances").to_delta("balances")
    (
        amounts.group_by(lambda key, _: key.upper(), key=str, name="by-account")
        .windowed_by(TimeWindows(size=timedelta(hours=1), grace=timedelta(0)))
        .reduce(lambda total, amount: total + amount{bug}, store="totals")
        .to_delta("totals")
    )


pipeline = Pipeline(name="payments", topology=topology, topics=(Topic("payments", partitions=2),))
'''
SUITE = '''"""What the tables of payments are like."""

import great_expectations.expectations as gxe

suites = {"totals": [gxe.ExpectColumnValuesToBeBetween(column="value", min_value=0, max_value=1_000_000)]}
'''


@dataclass(frozen=True)
class Payments:
    """A project with one job, and a stream of it."""

    settings: Settings

    def write(self, bug: str = "") -> None:
        """The job, with a bug or without."""
        folder = self.settings.project / "jobs"
        (folder / "quality").mkdir(parents=True, exist_ok=True)
        (folder / "payments.py").write_text(JOB.replace("{bug}", bug))
        (folder / "quality" / "payments.py").write_text(SUITE)

    def pay(self, first: int, last: int) -> None:
        """Ten payments in each of these hours.

        The totals of the two accounts are in different tasks, so that each of these sees one partition, in order. In
        one task, what a batch has read of only one partition would close the windows of the other.
        """
        producer = Producer({"bootstrap.servers": self.settings.bootstrap, "log_level": 0})
        for hour in range(first, last):
            for number in range(10):
                key = b"a" if number % 2 else b"d"
                time_ms = START_MS + hour * HOUR_MS + number * 1_000
                amount = (100 + number).to_bytes(8, "big")
                producer.produce("payments", amount, key, timestamp=time_ms, partition=number % 2)
        assert producer.flush(30) == 0

    def deltaworks(self, *arguments: str, code: int = 0) -> str:
        """What the command line says."""
        done = subprocess.run(
            [sys.executable, "-m", "deltaworks.cli", *arguments], capture_output=True, text=True, check=False,
            cwd=self.settings.project, env={**os.environ, **self.settings.process_environment()},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self) -> subprocess.Popen[bytes]:
        """The stream, in the foreground of a process of its own."""
        with (self.settings.home / "stream.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "deltaworks.cli", "run", "payments"], stdout=log, stderr=subprocess.STDOUT,
                cwd=self.settings.project, env={**os.environ, **self.settings.process_environment()},
            )  # fmt: skip

    def await_records(self, count: int, process: subprocess.Popen[bytes], timeout_s: float = 240) -> None:
        """Until this process says that the stream has processed so many."""
        end = time.monotonic() + timeout_s
        while True:
            beat = heartbeat.read(self.settings.pipeline("payments") / "heartbeat.json")
            mine = beat is not None and beat.pid == process.pid
            if mine and beat is not None and sum(sum(parts.values()) for parts in beat.next_offsets.values()) >= count:
                return
            log = self.settings.home / "stream.log"
            assert time.monotonic() < end, log.read_text()[-3_000:] if log.exists() else "it never started"
            time.sleep(0.05)

    def totals(self) -> dict[tuple[str, datetime], int]:
        """The windows that are final."""
        rows = DeltaTable(self.settings.tables / "totals").to_pyarrow_table().to_pylist()
        return {(row["key"], row["window_start"]): row["value"] for row in rows if row["is_final"]}

    def balances(self) -> dict[str, int]:
        """Of every account; as the changelog says, which is never late."""
        rows = DeltaTable(self.settings.tables / "balances_changelog").to_pyarrow_table().to_pylist()
        return {
            row["key"]: row["value"] for row in sorted(rows, key=lambda row: (row["batch_id"], row["source_offset"]))
        }


@pytest.fixture
def payments(kafka: LiveStack, tmp_path: Path) -> Iterator[Payments]:
    project = tmp_path / "project"
    package, *_ = kafka.settings.python_path
    settings = replace(kafka.settings, project=project, home=tmp_path / "home", python_path=(package, project), cores=2)
    settings.home.mkdir()
    found = Payments(settings)
    found.write()
    create_topics(kafka.bootstrap, [TopicSpec(name="payments", partitions=2)])
    try:
        yield found
    finally:
        delete_topics(kafka.bootstrap, ["payments", control_topic("payments")])  # another test has another home


def right(hours: int) -> dict[tuple[str, datetime], int]:
    """The totals without a bug."""
    sums = {"A": sum(100 + n for n in range(10) if n % 2), "D": sum(100 + n for n in range(10) if not n % 2)}
    starts = [datetime.fromtimestamp((START_MS + hour * HOUR_MS) / 1000, UTC) for hour in range(hours)]
    return {(key, start): total for key, total in sums.items() for start in starts}


def test_a_bug_is_repaired_in_the_past_while_the_stream_goes_on(payments: Payments) -> None:
    payments.write(bug=" * 2")
    payments.pay(0, HOURS)
    stream = payments.start()
    try:
        payments.await_records(10 * HOURS, stream)
        wrong = payments.totals()
        assert len(wrong) == 2 * (HOURS - 1) and wrong != right(HOURS - 1)

        payments.write(bug=" * 100000")
        refused = payments.deltaworks("replay", "payments", "--table", "totals", "--yes", code=1)
        assert "Nothing was published" in refused
        assert payments.totals() == wrong
        run = refused.split("deltaworks discard ")[1].split()[0]
        assert run in payments.deltaworks("replays", "payments")
        payments.deltaworks("discard", run)

        payments.write()
        payments.pay(HOURS, HOURS + 5)
        said = payments.deltaworks(
            "replay", "payments", "--from", "2026-03-01", "--to", "2026-03-03", "--reason", "doubled", "--yes"
        )
        assert "96 rows differ" in said and "production holds what was published" in said
        payments.pay(HOURS + 5, HOURS + 8)
        payments.await_records(10 * (HOURS + 8), stream)
        repaired = payments.totals()
        for window, total in right(48).items():
            assert repaired[window] == total
        assert all(repaired[window] == total for window, total in wrong.items() if window not in right(48))

        run = said.split("deltaworks rollback ")[1].split()[0]
        payments.deltaworks("rollback", run)
        back = payments.totals()
        assert {window: total for window, total in back.items() if window in wrong} == wrong
        assert len(back) == 2 * (HOURS + 7)
    finally:
        stream.terminate()
        assert stream.wait(60) == 0


@pytest.mark.slow
def test_a_stream_goes_on_with_the_balances_of_a_replay_and_is_given_back(payments: Payments) -> None:
    """What has no window cannot be published by the day: every later balance depends on the one before."""
    per_hour = {"a": sum(100 + n for n in range(10) if n % 2), "d": sum(100 + n for n in range(10) if not n % 2)}

    def stream(hours: int) -> None:
        process = payments.start()
        try:
            payments.await_records(10 * hours, process)
        finally:
            process.terminate()
            assert process.wait(60) == 0

    payments.write(bug=" * 2")
    payments.pay(0, 5)
    stream(5)
    wrong = payments.balances()
    assert wrong != {account: 5 * amount for account, amount in per_hour.items()}

    payments.write()
    payments.pay(5, 8)
    said = payments.deltaworks("replay", "payments", "--hand-over", "--reason", "doubled", "--yes")
    assert "the stream goes on from checkpoint" in said and "production holds what was published" in said
    assert payments.balances() == {account: 5 * amount for account, amount in per_hour.items()}
    stream(8)
    assert payments.balances() == {account: 8 * amount for account, amount in per_hour.items()}
    assert payments.totals() == right(7)

    run = said.split("deltaworks rollback ")[1].split()[0]
    payments.write(bug=" * 2")
    payments.deltaworks("rollback", run)
    assert payments.balances() == wrong
    stream(8)
    assert payments.balances() == {account: wrong[account] + 3 * 2 * per_hour[account] for account in wrong}
    assert "undone" in payments.deltaworks("replays", "payments")
