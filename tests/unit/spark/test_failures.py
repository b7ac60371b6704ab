"""The reason of a failed query, out of what Spark makes of it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

from deltaworks import exits
from deltaworks.errors import DiskFullError, KafkaReadError, QueryError
from deltaworks.spark import failures

OURS = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback (most recent call last):
  File "worker.py", line 3, in main
deltaworks.errors.KafkaReadError: no offsets from 127.0.0.1:9092 for 60 s
  Hint: check that the broker runs
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: orders [id = 1, runId = 2]
"""


def test_an_error_of_ours_is_found_without_what_spark_says_around_it() -> None:
    error = failures.as_error(StreamingQueryException(OURS))

    assert isinstance(error, KafkaReadError)
    assert str(error) == ("KafkaReadError: no offsets from 127.0.0.1:9092 for 60 s\n  Hint: check that the broker runs")
    assert exits.code_of(error) == exits.UNAVAILABLE


def test_any_other_error_is_told_in_its_first_line() -> None:
    error = failures.as_error(StreamingQueryException("[STREAM_FAILED] out of memory\nJVM stacktrace: ..."))

    assert isinstance(error, QueryError)
    assert str(error) == "[STREAM_FAILED] out of memory"
    assert exits.code_of(error) == exits.INTERNAL


def test_a_disk_without_room_is_told_whoever_wrote() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem.write(RawLocalFileSystem.java:1)"""

    error = failures.as_error(StreamingQueryException(text))

    assert isinstance(error, DiskFullError)
    assert exits.code_of(error) == exits.DISK_FULL
    assert str(error).startswith("A disk that Spark writes to is full: org.apache.hadoop.fs.FSError")


def test_a_record_that_says_so_is_none() -> None:
    error = failures.as_error(StreamingQueryException("[STREAM_FAILED] x\nValueError: 'No space left on device'"))

    assert isinstance(error, QueryError)


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


LOST = [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("Answer from Java side is empty")]


@pytest.mark.parametrize("error", [*LOST, RuntimeError("anything")], ids=repr)
def test_the_end_of_the_jvm_is_told_whatever_came_of_it(jvm: subprocess.Popen[bytes], error: Exception) -> None:
    jvm.kill()
    jvm.wait()

    told = failures.of_lost_jvm(jvm, error)

    assert told is not None and str(told).startswith(f"Spark's JVM (process {jvm.pid}) was ended by SIGKILL.")
    assert exits.code_of(told) == exits.UNAVAILABLE


@pytest.mark.parametrize("error", LOST, ids=repr)
def test_a_jvm_that_is_just_ending_is_waited_for(jvm: subprocess.Popen[bytes], error: Exception) -> None:
    jvm.send_signal(signal.SIGTERM)
    assert "SIGTERM" in str(failures.of_lost_jvm(jvm, error))


def test_an_error_beside_a_jvm_that_runs_stays_what_it_is(
    jvm: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_GONE_S", 0.01)
    assert [failures.of_lost_jvm(jvm, error) for error in (*LOST, RuntimeError("anything"))] == [None] * 3
