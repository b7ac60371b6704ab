"""Who may import whom, and what importing the package costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINES = (
    *("pyspark", "delta", "deltalake", "confluent_kafka", "duckdb", "pyarrow", "lmdb", "airflow"),
    *("great_expectations", "pandas", "fastavro", "google.protobuf", "grpc_tools", "jsonschema"),
)


def run_python(code: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'lib'}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_the_import_contracts_hold() -> None:
    report = run_python("from importlinter.cli import lint_imports; print('exit', lint_imports(cache_dir=None))")

    assert report.endswith("exit 0"), report


@pytest.mark.parametrize("module", ["deltaworks", "deltaworks.testing", "deltaworks.cli", "deltaworks.settings"])
def test_importing_loads_no_engine(module: str) -> None:
    loaded = run_python(f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))").split()

    assert [engine for engine in ENGINES if engine in loaded] == []


def test_importing_quality_does_not_load_great_expectations() -> None:
    assert run_python("import sys, deltaworks.quality; print('great_expectations' in sys.modules)") == "False"


def private_parts_of_airflow(source: str) -> Iterator[str]:
    """What a module imports of Airflow that Airflow may change without a word: names that begin with an underscore."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *others = name.split(".")
            if first == "airflow" and any(part.startswith("_") for part in others):
                yield name


def test_only_public_modules_of_airflow_are_imported() -> None:
    package = ROOT / "lib" / "deltaworks"
    found = {
        str(file.relative_to(package)): names
        for file in package.rglob("*.py")
        if (names := list(private_parts_of_airflow(file.read_text())))
    }

    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "from airflow.sdk.api.datamodels._generated import DagRunType",
        "def late():\n    import airflow._shared.logging",
        "from airflow.sdk.definitions import _internal",
    ],
)
def test_a_private_module_of_airflow_is_found(source: str) -> None:
    assert len(list(private_parts_of_airflow(source))) == 1


def test_importing_the_package_is_quick_enough_for_a_command_line() -> None:
    seconds = run_python(
        "import time; begin = time.process_time(); import deltaworks; print(time.process_time() - begin)"
    )

    assert float(seconds) < 1.0


def test_pipelines_load_without_an_engine() -> None:
    loaded = run_python("import sys, jobs.orders; print(*sorted({name.split('.')[0] for name in sys.modules}))").split()

    assert [engine for engine in ENGINES if engine in loaded] == []
