"""What people and programs get to see of connectors: answers of a worker, output of commands, the registry."""

from __future__ import annotations

import sys

import pytest
import sqlalchemy as sa

from deltaworks import exits
from deltaworks.cli import app as cli
from deltaworks.settings import Settings

_COMMANDS = {
    "status": exits.OK,
    "status --json": exits.OK,
    "connect plan guarded": exits.OK,
    "connect plan guarded --json": exits.OK,
    "connect plan mistaken": exits.CONFIG,
    "connect validate guarded": exits.OK,
    "connect validate mistaken": exits.CONFIG,
    "connect apply mistaken": exits.CONFIG,
    "connect status": exits.OK,
    "connect status --json": exits.OK,
    "connect offsets guarded": exits.OK,
    "incidents": exits.OK,
}
"""What is asked, and how it ends."""
PATHS = (
    "/",
    "/connectors?expand=info&expand=status",
    "/connectors/guarded",
    "/connectors/guarded/config",
    "/connectors/guarded/status",
    "/connectors/guarded/tasks",
    "/connectors/guarded/tasks/0/status",
    "/connectors/guarded/tasks-config",
    "/connectors/guarded/topics",
    "/connectors/guarded/offsets",
    "/connector-plugins?connectorsOnly=false",
    "/connector-plugins/FileStreamSink/config",
    "/admin/loggers",
)
VALIDATE = "/connector-plugins/FileStreamSink/config/validate"


def by_commands(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, str]:
    """What the commands say of the sink `guarded`, and of `mistaken`, which the worker refuses."""
    said = {}
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    for words, code in _COMMANDS.items():
        monkeypatch.setattr(sys, "argv", ["deltaworks", *words.split()])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        assert (ended.value.code or exits.OK) == code, (words, shown)
        said[words] = f"{shown.out}{shown.err}"
    return said


def in_registry(settings: Settings) -> dict[str, str]:
    """All rows of all tables, with all columns."""
    engine = sa.create_engine(settings.registry_url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        tables = sa.inspect(connection).get_table_names()
        rows = {name: connection.execute(sa.text(f'SELECT t::text FROM "{name}" t')).scalars().all() for name in tables}
    return {f"table {name}": "\n".join(found) for name, found in rows.items()}
