"""What the handles say about themselves, and what importing `deltaworks` does not load.

The list of public names is `tests/architecture/test_public_names.py`.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltaworks
from deltaworks.dsl.mistakes import Handle

HANDLES = [
    public
    for name in deltaworks.__all__
    if inspect.isclass(public := getattr(deltaworks, name)) and issubclass(public, Handle)
]


def leaves(kind: type[Handle]) -> Iterator[type[Handle]]:
    below = kind.__subclasses__()
    if not below:
        yield kind
    for each in below:
        yield from leaves(each)


def test_all_handles_are_public_and_known_here() -> None:
    assert len(HANDLES) >= 13
    assert {*HANDLES} == {*leaves(Handle)}


@pytest.mark.parametrize("handle", HANDLES)
def test_every_operator_says_where_it_comes_from(handle: type) -> None:
    for name, method in inspect.getmembers(handle, inspect.isfunction):
        if not name.startswith("_") and name != "build":
            assert "Source: " in (inspect.getdoc(method) or ""), f"{handle.__name__}.{name}"


def loaded_by(code: str) -> set[str]:
    """The modules that a new process has imported then."""
    path = str(Path(deltaworks.__file__).parents[1])
    code = f"import sys; {code}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_a_package_that_no_name_was_taken_from_loads_no_operators() -> None:
    assert not {name for name in loaded_by("import deltaworks; from deltaworks import clock") if "dsl" in name}


def test_importing_the_package_loads_no_engine() -> None:
    loaded = {name.partition(".")[0] for name in loaded_by("from deltaworks import StreamsBuilder")}

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
