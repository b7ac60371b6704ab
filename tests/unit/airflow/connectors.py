"""A project with two connectors, for tests of their DAGs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.fake_connect import FILE_SOURCE, POSTGRES

LINES = {"name": "lines", "connector.class": FILE_SOURCE, "tasks.max": "1", "file": "/lines.txt", "topic": "lines"}
CDC = """\
from deltaworks.connect import DebeziumPostgres

connector = DebeziumPostgres(
    name="orders_cdc",
    hostname="db",
    user="cdc",
    password={"env": "CDC_PASSWORD"},
    dbname="shop",
    topic_prefix="shop",
    tables=["public.orders"],
    on_drift="repair",
)
"""
CLASSES = {"lines": FILE_SOURCE, "orders_cdc": POSTGRES}


def make(project: Path) -> Path:
    """Writes the files; returns their folder."""
    folder = project / "jobs" / "connectors"
    folder.mkdir(parents=True)
    (folder / "lines.json").write_text(json.dumps(LINES))
    (folder / "orders_cdc.py").write_text(CDC)
    (folder / "_common.py").write_text("shared = 1\n")
    return folder
