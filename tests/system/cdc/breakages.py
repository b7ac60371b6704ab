"""What keeps tables and index equal to the databases, taken away: each time, `make check-connect-red` must turn red."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deltaworks.connect.connector import Connector
from deltaworks.settings import Settings
from deltaworks.stack import connect
from deltaworks.stack.components import Component

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """One of them."""

    connectors: Mapping[str, str | None] = field(default_factory=dict)
    """Settings that connectors get instead of their own; None: it is left out."""
    workers: Mapping[str, str] = field(default_factory=dict)
    """Likewise settings of the workers."""
    hook: str | None = None
    """What is called in the driver and its workers, as `Settings.fault_hook`."""
    kills: bool = False
    """Whether only a killed worker shows it."""

    def of_connector(self, connector: Connector) -> Connector:
        """The connector with it."""
        settings = {**connector.config, **self.connectors}
        return replace(connector, config={name: value for name, value in settings.items() if value is not None})

    @contextmanager
    def in_stack(self) -> Iterator[None]:
        """What is started meanwhile has it."""
        original = connect.configuration

        def configuration(settings: Settings, worker: Component) -> str:
            return original(settings, worker) + "".join(f"{name}={value}\n" for name, value in self.workers.items())

        variables = {} if self.hook is None else {"DELTAWORKS_FAULT_HOOK": self.hook, "PYTHONPATH": _with_tests()}
        with patch.object(connect, "configuration", configuration), patch.dict(os.environ, variables):
            yield


def leave_documents() -> None:
    """The sink of the search index deletes no document."""
    from deltaworks.sinks.search import SearchWriter

    writer: Any = SearchWriter
    original = writer._documents
    writer._documents = lambda self, records, refused: original(
        self, [each for each in records if each.value is not None], refused
    )


def _with_tests() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


NOTHING = Breakage()
BREAKAGES: Mapping[str, Breakage] = {
    "sources not exactly once": Breakage(
        connectors={"exactly.once.support": None}, workers={"exactly.once.source.support": "disabled"}, kills=True
    ),
    "deletions not sent": Breakage(connectors={"skipped.operations": "d,t"}),
    "rows of before not read": Breakage(connectors={"snapshot.mode": "no_data"}),
    "documents of deleted rows left": Breakage(hook=f"{__name__}:{leave_documents.__name__}"),
}
