"""What a driver does with a batch that other code has left open, and how that code is run."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from deltaworks import exits
from deltaworks.control import code
from deltaworks.control.code import Code
from deltaworks.control.intents import Intent
from deltaworks.control.opening import (
    FinishFirst,
    GoOn,
    ReplaceIntent,
    driver_command,
    finish_with,
    opening,
    records_named,
)
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import (
    DeltaworksError,
    IncompatibleCheckpointError,
    LeaseError,
    QueryError,
    RecordPosition,
    StackError,
    StreamsError,
)
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates
from tests.support.processes import is_gone

CHILD = """
import os, signal, sys, time
from pathlib import Path
from deltaworks.control import outcome
import deltaworks
from jobs.p import mark
word, log, code, reason = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
log.write_text(f"{os.getpid()} {Path(deltaworks.__file__).parents[1]} {mark} {os.environ.get('RATE_OF_A_JOB')}")
while reason == "until told" and not told:
    time.sleep(0.01)
if reason != "nothing":
    outcome.write(word, 1, code, reason)
sys.exit(code)
"""


def intent(digest: str = "old") -> Intent:
    return Intent(batch=7, lineage="l", query="q", generation=1, code=digest, clock_ms=0, tick=False, ranges=[], end={},
                  previous="")  # fmt: skip


def test_a_batch_of_the_same_code_or_none_at_all_goes_on() -> None:
    assert opening(None, "new", ()) == GoOn()
    assert opening(intent("new"), "new", ()) == GoOn()
    assert opening(intent("new"), "new", {"task 0-1"}) == GoOn()


def test_a_batch_of_other_code_is_replaced_only_if_nothing_of_it_is_durable() -> None:
    assert opening(intent(), "new", ()) == ReplaceIntent(intent())
    assert opening(intent(), "new", {"task 0-1"}) == FinishFirst(intent())
    assert opening(intent(), "new", {"table totals"}) == FinishFirst(intent())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    project = tmp_path / "project"
    (project / "jobs").mkdir(parents=True)
    (project / "jobs" / "p.py").write_text("mark = 'old'\n")
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(project)})


@pytest.fixture
def old(settings: Settings) -> Code:
    """The code of before; the project has other code now."""
    found = code.archive(settings)
    (settings.project / "jobs" / "p.py").write_text("mark = 'new'\n")
    return found


def child(
    settings: Settings, exit_code: int = exits.OK, reason: str = "nothing"
) -> Callable[[str, int], Sequence[str]]:
    paths = PipelinePaths.of(settings, "p")

    def command(name: str, generation: int) -> list[str]:
        word, log = str(paths.finished(generation)), str(settings.project / "said")
        return [sys.executable, "-c", CHILD, word, log, str(exit_code), reason]

    return command


def said(settings: Settings) -> list[str]:
    return (settings.project / "said").read_text().split()


def test_the_older_code_is_run_from_its_archive(settings: Settings, old: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE_OF_A_JOB", "0.19")  # what the pipeline computes may depend on it

    assert finish_with(settings, "p", 3, intent(old.digest), command=child(settings))

    assert said(settings)[1:] == [str(old.path), "old", "0.19"]
    assert driver_command("p", 3)[2:] == ["deltaworks.cli", "run", "p", "--generation", "3", "--finish-batch"]


def test_an_archive_that_is_gone_says_what_to_do(settings: Settings) -> None:
    with pytest.raises(
        IncompatibleCheckpointError, match=r"Batch 7 .* partly durable.*is gone.*\n.*restore that folder"
    ):
        finish_with(settings, "p", 3, intent("0" * 24), command=child(settings))


@pytest.mark.parametrize(
    ("exit_code", "error"),
    [
        (exits.DATA, StreamsError),
        (exits.LEASE, LeaseError),
        (exits.UNAVAILABLE, StackError),
        (exits.CONFIG, IncompatibleCheckpointError),
        (exits.INTERNAL, QueryError),
    ],
)
def test_the_end_of_the_older_code_is_ours(
    settings: Settings, old: Code, exit_code: int, error: type[DeltaworksError]
) -> None:
    with pytest.raises(error, match=f"The code {old.digest}, which started batch 7, cannot finish it: so it is"):
        finish_with(settings, "p", 3, intent(old.digest), command=child(settings, exit_code, "so it is"))
    assert error is QueryError or exits.code_of(error) == exit_code
    assert not PipelinePaths.of(settings, "p").finished(3).exists()


def test_a_record_that_fails_in_the_older_code_is_named_with_the_way_out(settings: Settings, old: Code) -> None:
    position = RecordPosition("map", "by-word/1", 2, 12, 5)
    reason = str(StreamsError("a record failed: ValueError", position=position, hint="no"))

    with pytest.raises(StreamsError) as failed:
        finish_with(settings, "p", 3, intent(old.digest), command=child(settings, exits.DATA, reason))
    assert "`deltaworks set-aside p by-word/1-2@12` turns" in str(failed.value)


def test_a_child_that_was_killed_is_no_end_that_forbids_a_restart(settings: Settings, old: Code) -> None:
    with pytest.raises(QueryError, match="it ended with -9, without a reason"):
        finish_with(
            settings,
            "p",
            3,
            intent(old.digest),
            command=lambda name, generation: [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"],
        )


def test_who_is_told_to_stop_tells_the_child(settings: Settings, old: Code) -> None:
    def tell() -> None:
        while not (settings.project / "said").exists() or not said(settings):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    before, thread = signal.getsignal(signal.SIGTERM), threading.Thread(target=tell)
    thread.start()
    try:
        done = finish_with(settings, "p", 3, intent(old.digest), command=child(settings, exits.OK, "until told"))
    finally:
        thread.join()

    assert not done
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_child_dies_with_us(settings: Settings, old: Code) -> None:
    import psutil

    pid = os.fork()
    if pid == 0:
        finish_with(settings, "p", 3, intent(old.digest), command=child(settings, exits.OK, "until told"))
        os._exit(0)
    end = time.monotonic() + 30
    while not (settings.project / "said").exists() or not said(settings):
        assert time.monotonic() < end
        time.sleep(0.01)
    process = psutil.Process(int(said(settings)[0]))

    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    while not is_gone(process):
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.01)


def test_records_are_found_in_the_text_of_an_error() -> None:
    first = str(StreamsError("it failed", position=RecordPosition("map", "raw-orders", 3, 17, 5), hint="look"))
    second = str(StreamsError("it failed", position=RecordPosition("sum", "a-b-repartition/0", 1, 2**33, -1)))

    assert records_named(f"{first}\n{second}\n{first}") == [
        Coordinates("raw-orders", 3, 17),
        Coordinates("a-b-repartition/0", 1, 2**33),
    ]
    assert records_named("nothing of the kind") == []
