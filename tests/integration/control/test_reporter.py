"""A driver's reports, with a registry that goes away and comes back."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from deltaworks.control import batches, registry
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import RegistryReporter
from deltaworks.errors import ControlUnavailableError, FencedError
from tests.integration.control.conftest import Control, ended, project, running
from tests.integration.control.server import Server
from tests.integration.control.test_registry import beat, record
from tests.support.polling import until


class Driver:
    """Commits batches as fast as it is told to; how long the reporter kept it is the longest call."""

    def __init__(self, control: Control, generation: int = 1) -> None:
        self.files = PipelinePaths.of(control.settings, "p").batches
        self.reporter = RegistryReporter(control.settings, "p", generation, period_s=0.05)
        self.generation = generation
        self.longest_s = 0.0

    def commit(self, *numbers: int) -> None:
        for number in numbers:
            batches.append(self.files, record(number))
            begun = time.monotonic()
            self.reporter.batch(record(number), "q")
            self.reporter.beat(beat(self.generation, batch_id=number, at=float(number)))
            self.reporter.asked_to_drain()
            self.longest_s = max(self.longest_s, time.monotonic() - begun)


@pytest.fixture
def mortal() -> Iterator[Server]:
    """A server that may be killed."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as folder, running(Path(folder)) as server:
        yield server


@pytest.fixture
def mortal_control(mortal: Server, tmp_path: Path) -> Iterator[Control]:
    settings = project(tmp_path / "project", mortal.new_database())
    registry.migrate(settings)
    with ended(settings):
        yield Control(settings)


def test_batches_and_the_latest_beat_arrive(control: Control) -> None:
    driver = Driver(control)
    driver.commit(*range(20))
    driver.reporter.close()

    assert control.registry.batches("p", "q") == [record(n) for n in range(20)]
    assert control.registry.known("p", 0).beat == beat(1, batch_id=19, at=19.0)


def test_an_outage_leaves_no_gap_and_no_double(
    mortal: Server, mortal_control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    book = mortal_control.registry
    driver = Driver(mortal_control)
    driver.commit(*range(5))
    until(lambda: book.last_batch("p", "q") == 4)

    mortal.kill()
    with caplog.at_level(logging.WARNING):
        driver.commit(*range(5, 30))
        until(lambda: "keeps running and reports later" in caplog.text)
        driver.commit(*range(30, 40))
        mortal.start()
        driver.commit(*range(40, 50))
        until(lambda: book.last_batch("p", "q") == 49)
        driver.commit(*range(50, 55))
        driver.reporter.close()

    assert book.batches("p", "q") == [record(n) for n in range(55)]
    assert book.known("p", 0).beat == beat(1, batch_id=54, at=54.0)
    assert driver.longest_s < 0.5
    assert [r.getMessage().split()[0:3] for r in caplog.records if "registry" in r.name or "reporter" in r.name] == [
        ["The", "registry", "(PostgreSQL)"],
        ["the", "registry", "is"],
    ]


def test_what_an_earlier_driver_could_not_report_is_caught_up(control: Control) -> None:
    files = PipelinePaths.of(control.settings, "p").batches
    for number in range(10):
        batches.append(files, record(number))
    control.registry.beat(beat(1), host="h")
    control.registry.append_batches("p", 1, "q", [record(n) for n in range(4)])

    driver = Driver(control, generation=2)
    driver.commit(10)
    driver.reporter.close()

    assert control.registry.batches("p", "q") == [record(n) for n in range(11)]


def test_a_reporter_without_a_registry_ends_soon(tmp_path: Path) -> None:
    control = Control(project(tmp_path / "project", "postgresql+psycopg://nobody@127.0.0.1:9/nothing"))
    driver = Driver(control)
    driver.commit(1, 2, 3)
    begun = time.monotonic()
    driver.reporter.close()

    assert time.monotonic() - begun < 6
    registry.close()


def test_a_fenced_driver_is_told(control: Control) -> None:
    driver = Driver(control, generation=1)
    driver.commit(0)
    until(lambda: control.registry.known("p", 0).beat)
    control.registry.beat(beat(2), host="h")

    def is_fenced() -> bool:
        try:
            driver.commit(1)
        except FencedError as error:
            return "generation 2" in str(error)
        return False

    until(is_fenced)
    driver.reporter.close()
    assert control.registry.known("p", 0).beat == beat(2)


def test_a_driver_that_hangs_does_not_look_alive(control: Control) -> None:
    driver = Driver(control)
    driver.commit(0)
    until(lambda: control.registry.known("p", 0).beat)
    beats: list[Heartbeat] = []
    written = control.registry.beat
    said = threading.Event()

    def seen(self: object, beat: Heartbeat, *, host: str) -> None:
        beats.append(beat)
        written(beat, host=host)

    def asked(self: object, name: str, generation: int) -> list[object]:
        said.set()
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry.Registry, "beat", seen)
        patch.setattr(registry.Registry, "take_commands", asked)
        for _ in range(5):
            said.clear()
            assert said.wait(10)
        driver.reporter.beat(msgspec.structs.replace(beat(1), at=5.0))
        until(lambda: beats)
    driver.reporter.close()

    assert [beat.at for beat in beats] == [5.0]


def test_a_drain_command_reaches_the_driver_and_is_ticked_off(control: Control) -> None:
    driver = Driver(control)
    driver.commit(0)
    until(lambda: control.registry.known("p", 0).beat)
    assert not driver.reporter.asked_to_drain()
    control.registry.drain("p", 1, "test")

    until(driver.reporter.asked_to_drain)
    driver.reporter.beat(beat(1, state="stopped"))
    driver.reporter.close()

    with sa.create_engine(control.settings.registry_url, poolclass=sa.NullPool).connect() as connection:
        (row,) = connection.execute(sa.text("SELECT taken_at, done_at, outcome FROM commands"))
    assert row.done_at >= row.taken_at
    assert row.outcome == "stopped"


def test_a_lost_lease_row_is_taken_again(control: Control) -> None:
    """A registry that was restored from a backup knows nothing of those who run now."""
    driver = Driver(control)
    driver.commit(0)
    until(lambda: control.registry.last_batch("p", "q") == 0)
    with sa.create_engine(control.settings.registry_url, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text("DELETE FROM leases"))
    with pytest.raises(ControlUnavailableError):
        control.registry.append_batches("p", 1, "q", [record(1)])

    driver.commit(1)

    until(lambda: control.registry.last_batch("p", "q") == 1)
    driver.reporter.close()
