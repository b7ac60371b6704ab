"""What `deltaworks` exports, and what importing it does not load."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import deltaworks
from deltaworks.dsl.mistakes import Handle


def test_every_public_name_exists_and_is_documented() -> None:
    assert sorted(deltaworks.__all__) == deltaworks.__all__
    for name in deltaworks.__all__:
        assert inspect.getdoc(getattr(deltaworks, name)), name


HANDLES = [
    public
    for name in deltaworks.__all__
    if inspect.isclass(public := getattr(deltaworks, name)) and issubclass(public, Handle)
]


def test_all_handles_are_public_and_known_here() -> None:
    assert len(HANDLES) >= 13
    assert {*HANDLES} == {leaf for handle in Handle.__subclasses__() for leaf in handle.__subclasses__() or [handle]}


@pytest.mark.parametrize("handle", HANDLES)
def test_every_operator_says_where_it_comes_from(handle: type) -> None:
    for name, method in inspect.getmembers(handle, inspect.isfunction):
        if not name.startswith("_") and name != "build":
            assert "Source: " in (inspect.getdoc(method) or ""), f"{handle.__name__}.{name}"


def test_importing_the_package_loads_no_engine() -> None:
    code = "import sys, deltaworks; print(*{name.partition('.')[0] for name in sys.modules})"
    path = str(Path(deltaworks.__file__).parents[1])

    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())

    assert "msgspec" in loaded
    assert not loaded & {
        "pyspark",
        "py4j",
        "delta",
        "deltalake",
        "confluent_kafka",
        "pyarrow",
        "duckdb",
        "lmdb",
        "airflow",
    }
