"""What a command needs not, it does not wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "never"),
    [
        (
            "deltaworks.cli.app",
            {"deltaworks.dsl", "sqlalchemy", "pydantic", "confluent_kafka", "pyarrow", "duckdb", "opentelemetry"},
        ),
        (
            "deltaworks.control.overview",
            {"deltaworks.dsl", "alembic", "confluent_kafka", "pyarrow", "pandas", "pyspark"},
        ),
    ],
)
def test_a_command_imports_what_it_needs(module: str, never: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not never & {*run.stdout.split()}
