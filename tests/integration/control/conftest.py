"""A registry for the tests of `control`: one server, an empty database and a home for each test."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from deltaworks import processes
from deltaworks.control import registry
from deltaworks.control.launchers import Launcher, LocalLauncher
from deltaworks.control.registry import Registry
from deltaworks.settings import Settings
from tests.integration.control import fake_driver
from tests.integration.control.server import Server

ROOT = Path(__file__).parents[3]
PIPELINE = 'from deltaworks import Pipeline\npipeline = Pipeline(name="p", topology=lambda builder: None)\n'


@dataclass(frozen=True)
class Control:
    """A project with the pipeline `p`, whose driver is a fake one."""

    settings: Settings
    driver_options: tuple[str, ...] = ()

    @property
    def registry(self) -> Registry:
        return Registry.of(self.settings)

    def launchers(self, settings: Settings, name: str) -> Launcher:
        assert name == "local"
        return LocalLauncher(settings, command=fake_driver.command(*self.driver_options))

    def with_driver(self, *options: str) -> Control:
        """The same, with drivers that behave differently."""
        return replace(self, driver_options=options)


def project(folder: Path, control_url: str) -> Settings:
    """A project with one pipeline."""
    (folder / "jobs").mkdir(parents=True)
    (folder / "jobs" / "p.py").write_text(PIPELINE)
    settings = Settings.from_environment({"DELTAWORKS_PROJECT": str(folder), "PYTHONPATH": f"{ROOT / 'lib'}:{ROOT}"})
    return replace(settings, control_url=control_url)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Not for tests that kill it: those make their own."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as folder, running(Path(folder)) as server:
        yield server


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server in an empty folder."""
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def control(server: Server, tmp_path: Path) -> Iterator[Control]:
    """A migrated registry. What a test leaves running is ended."""
    settings = project(tmp_path / "project", server.new_database())
    registry.migrate(settings)
    with ended(settings):
        yield Control(settings)


@contextlib.contextmanager
def ended(settings: Settings) -> Iterator[None]:
    """Ends what was launched in the home, and closes our connections."""
    try:
        yield
    finally:
        for entry in processes.registered(settings.run):
            processes.stop(settings.run, entry, timeout_s=0.0)
        registry.close()
