"""Corrections on a real broker: a sender that is killed in a transaction, and the one after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import Corrections, Pipeline, StreamsBuilder, Topic
from deltaworks.control import corrections as sending
from tests.support.live_stack import LiveStack
from tests.unit.control.test_corrections import Home

KILLED = """
import os, signal, sys
from pathlib import Path
from deltaworks import faults
from deltaworks.control import corrections
from deltaworks.settings import Settings
from dataclasses import replace

point, times, reached = sys.argv[2], int(sys.argv[3]), 0
def hook(at):
    global reached
    reached += at == point
    if at == point and reached == times:
        os.kill(os.getpid(), signal.SIGKILL)
faults.arm(hook)
corrections.send(replace(Settings.from_environment(), home=Path(sys.argv[1])), "shop")
"""


def topology(builder: StreamsBuilder) -> None:
    builder.stream("shop-in", key=str, value=int).to_delta("counts")


def pipeline(topic: str) -> Pipeline:
    return Pipeline(
        name="shop", topology=topology, topics=(Topic(topic, partitions=2),), corrections=Corrections(topic)
    )


@pytest.mark.parametrize(
    ("point", "times"),
    [("corrections.before_commit", 2), ("corrections.after_commit", 2), ("corrections.before_note", 1)],
)
def test_a_killed_sender_leaves_the_rest_to_the_next(kafka: LiveStack, tmp_path: Path, point: str, times: int) -> None:
    topic = kafka.topic("shop-corrections", partitions=2)
    sending.prepare(kafka.bootstrap, pipeline(topic))
    home = Home(tmp_path, topic=topic)
    home.settings = replace(kafka.settings, home=tmp_path)
    run = topic  # the markers of all cases are in one topic
    home.release(run, 25)

    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), point, str(times)],
        env=kafka.environment() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        check=False,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    home.release(run, 25, action="rollback", at_ms=2_000)
    sent = [kept.name for kept in sending.send(home.settings, "shop")]

    assert sent == [f"{run}/publish-1", f"{run}/rollback-1"]
    assert sending.send(home.settings, "shop") == []
    found = [json.loads(message.value() or b"") for message in kafka.read(topic)]
    for action in ("publish", "rollback"):
        rows = [each for each in found if each["action"] == action]
        assert sorted(row["sequence"] for row in rows if row["kind"] == "row") == list(range(1, 26))
        assert [row["count"] for row in rows if row["kind"] == "end"] == [25, 25]
    one = next(message for message in kafka.read(topic) if (message.key() or b"").startswith(b'{"key"'))
    assert dict(one.headers() or ()) == {"kind": b"row", "run": run.encode(), "action": b"publish", "count": b"25"}
