"""Lease, heartbeat, batch record and checkpoint plan: files that must be right after any kill."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deltaworks import StreamsBuilder
from deltaworks.control import batches
from deltaworks.control.checkpoint import open_plan
from deltaworks.control.lease import Lease, read_holder
from deltaworks.errors import IncompatibleCheckpointError, LeaseError
from deltaworks.kafka.ranges import Range
from deltaworks.topology.plan import Plan


def test_a_second_driver_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    code = (
        "import sys; from pathlib import Path; from deltaworks.control.lease import Lease\n"
        f"with Lease(Path({str(path)!r}), 'orders', 1): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(LeaseError, match=f"pid {other.pid}"), Lease(path, "orders", 1):
            pass
        other.kill()
    with Lease(path, "orders", 1):
        pass
    assert read_holder(path) is None


def test_the_next_holder_ends_what_a_killed_driver_left(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    jvm, forks = (subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2))
    code = (
        "import os, signal; from pathlib import Path; from deltaworks.control.lease import Lease\n"
        f"lease = Lease(Path({str(path)!r}), 'orders', 1).__enter__(); lease.owns(jvm={jvm.pid}, forks={forks.pid})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert jvm.poll() is forks.poll() is None
    with Lease(path, "orders", 1):
        assert all(process.poll() is not None for process in (jvm, forks))


def test_batch_record_survives_a_torn_line_and_a_repeated_batch(tmp_path: Path) -> None:
    for batch in (0, 1):
        batches.append(tmp_path, batches.record_of(batch, 1000 + batch, [Range("t", 0, batch, batch + 1)], tick=False))
    file = next(tmp_path.iterdir())
    with file.open("ab") as out:
        out.write(b'{"batch": 2, "wall')
    batches.append(tmp_path, batches.record_of(2, 1002, [Range("t", 0, 2, 3), Range("a", 1, 5, 9)], tick=True))
    batches.append(tmp_path, batches.record_of(2, 1002, [Range("t", 0, 2, 3), Range("a", 1, 5, 9)], tick=True))
    records = list(batches.read(tmp_path))
    assert [r.batch for r in records] == [0, 1, 2]
    assert records[2].offsets == {"a": {"1": (5, 9)}, "t": {"0": (2, 3)}}


def test_a_checkpoint_of_another_plan_is_refused_with_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    before, after = counting("counts").fingerprint(), counting("totals").fingerprint()
    first = open_plan(path, "orders", before, {"t": 4}, (4,), 2)
    assert open_plan(path, "orders", before, {"t": 4}, (4,), 8) == first
    with pytest.raises(IncompatibleCheckpointError) as error:
        open_plan(path, "orders", after, {"t": 6}, (6,), 2)
    assert "counts" in str(error.value) and "totals" in str(error.value)
    assert "partitions of the source topics: was {'t': 4}, is {'t': 6}" in str(error.value)
    assert "Hint: deploy the old code again" in str(error.value)


class Short(msgspec.Struct):
    name: str


class Long(msgspec.Struct):
    name: str
    town: str = ""


def last_of(kind: type) -> Plan:
    builder = StreamsBuilder()
    builder.table("t", key=str, value=kind, store="rows")
    return builder.build()


def test_a_plan_that_fits_is_what_the_next_start_is_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    before, after = last_of(Short).fingerprint(), last_of(Long).fingerprint()
    first = open_plan(path, "users", before, {"t": 1}, (1,), 1)

    second = open_plan(path, "users", after, {"t": 1}, (1,), 1)

    assert (second.query_id, second.shards) == (first.query_id, first.shards)
    assert second.fingerprint == after != before
    assert open_plan(path, "users", after, {"t": 1}, (1,), 1) == second


def counting(store: str) -> Plan:
    builder = StreamsBuilder()
    builder.stream("t", key=str, value=str).group_by_key().count(store=store)
    return builder.build()
