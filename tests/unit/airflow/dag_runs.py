"""A process of its own with one DAG file and a database, in which DAGs run under Airflow's own rules (`dag.test`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

ROOT = Path(__file__).parents[3]
T = TypeVar("T")


def ended(module: str, dag: str, kind: type[T], **environment: str) -> dict[str, T]:
    """How the scenarios of a module have ended; its last line of output says so.

    Args:
        module: is run with `python -m`.
        dag: the file with the DAG.
        kind: of each scenario's end.
        environment: besides that of every such process.
    """
    with tempfile.TemporaryDirectory() as home:
        answer = subprocess.run(
            [sys.executable, "-m", module],
            capture_output=True,
            text=True,
            check=False,
            cwd=home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": home,
                "PYTHONPATH": f"{ROOT / 'lib'}:{ROOT}",
                "DELTAWORKS_PROJECT": str(ROOT),
                "DELTAWORKS_HOME": f"{home}/deltaworks",
                "AIRFLOW_HOME": f"{home}/airflow",
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__API_AUTH__JWT_SECRET": "of the tests",  # Airflow 3.2 makes none itself
                "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": _bundle(Path(home) / "dags", dag),
                **environment,
            },
        )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return msgspec.json.decode(answer.stdout.splitlines()[-1], type=dict[str, kind])  # type: ignore[valid-type]


def _bundle(folder: Path, dag: str) -> str:
    folder.mkdir()
    (folder / "one.py").write_text(f"# dag of airflow\n{dag}")
    path = "airflow.dag_processing.bundles.local.LocalDagBundle"
    return json.dumps([{"name": "one", "classpath": path, "kwargs": {"path": str(folder)}}])
