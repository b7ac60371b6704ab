"""Who may import whom, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINES = (
    *("pyspark", "delta", "deltalake", "confluent_kafka", "duckdb", "pyarrow", "lmdb", "airflow"),
    *("great_expectations", "pandas"),
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


def test_importing_the_package_is_quick_enough_for_a_command_line() -> None:
    seconds = run_python(
        "import time; begin = time.process_time(); import deltaworks; print(time.process_time() - begin)"
    )

    assert float(seconds) < 1.0


def test_pipelines_load_without_an_engine() -> None:
    loaded = run_python("import sys, jobs.orders; print(*sorted({name.split('.')[0] for name in sys.modules}))").split()

    assert [engine for engine in ENGINES if engine in loaded] == []
