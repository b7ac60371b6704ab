"""A project of its own: the pipeline `parcels`, its suite, and its tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PIPELINE = """
import msgspec
from deltaworks import Pipeline, StreamsBuilder

class Parcel(msgspec.Struct, frozen=True):
    city: str | None
    grams: int

def topology(builder: StreamsBuilder) -> None:
    builder.stream("posted", key=str, value=Parcel).to_delta("parcels")

pipeline = Pipeline(name="parcels", topology=topology)
"""
SUITE = """
import great_expectations.expectations as gxe
from great_expectations.expectations.metadata_types import FailureSeverity

suites = {"parcels": [
    gxe.ExpectColumnValuesToNotBeNull(column="city", meta={"why": "A parcel goes somewhere."}),
    gxe.ExpectColumnValuesToBeBetween(column="grams", max_value=999, severity=FailureSeverity.WARNING),
]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its modules are forgotten afterwards."""
    (tmp_path / "jobs/quality").mkdir(parents=True)
    (tmp_path / "jobs/parcels.py").write_text(PIPELINE)
    (tmp_path / "jobs/quality/parcels.py").write_text(SUITE)
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        del sys.modules[name]
