"""An object store that is killed while the orders pipeline writes its tables there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psutil
import pytest

from deltaworks import config
from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from deltaworks.stack.state import read_state
from tests.support.live_stack import await_restart
from tests.support.object_stores import with_free_ports

STORAGE = "s3://deltaworks/lake"
ADDRESS = f"{STORAGE}/tables"


@dataclass
class StoreUnderKills:
    """The store of a home, and how often it was killed."""

    settings: Settings
    """Say that the tables are there."""
    kills: list[int] = field(default_factory=list)
    """Its process each time."""

    def kill(self) -> None:
        """SIGKILL to the store, once it is ready; the process runner brings it back."""
        state = read_state(self.settings.run)
        found = None if state is None else state.find("s3")
        assert found is not None
        if self.kills and (found.phase != "ready" or found.pid == self.kills[-1]):
            found = await_restart(self.settings, "s3", self.kills[-1])
        psutil.Process(found.pid).kill()
        self.kills.append(found.pid)
        print(f"kill of the object store (pid {found.pid})", flush=True)

    def await_back(self) -> None:
        """Until it is ready again."""
        if self.kills:
            await_restart(self.settings, "s3", self.kills[-1])


def share_keys(here: Settings, there: Settings) -> None:
    """Another home knows how to reach the store."""
    shutil.copytree(here.s3 / "secrets", there.s3 / "secrets")
    shutil.copy(Settings.s3_access_in(here.home), there.s3)


@contextmanager
def stored(settings: Settings, *, everything: bool = False) -> Iterator[StoreUnderKills]:
    """An object store in a home, with the tables of the home; delta-rs of this process knows how to reach it.

    Args:
        settings: of the home.
        everything: the store also has whatever a stream needs to go on.
    """
    settings = with_free_ports(settings)
    up(settings, only=["s3"], tethered=True)
    try:
        values = config.with_own_server(settings.values, Settings.s3_access_in(settings.home), "s3")
        settings = replace(
            settings, values=values, tables_address=ADDRESS, storage_address=STORAGE if everything else None
        )
        with pytest.MonkeyPatch.context() as patch:
            tables = settings.tables
            assert isinstance(tables, ObjectPath)
            for name, value in tables.store.options().items():
                patch.setenv(name, value)
            yield StoreUnderKills(settings)
    finally:
        down(settings)
