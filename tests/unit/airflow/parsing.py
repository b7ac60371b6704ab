"""Parses the DAG files of a project as Airflow's dag-processor does, each in a forked process; prints what is found.

Run as a process of its own (`found_in`), so that no test has Airflow's settings or another project's modules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from deltaworks.settings import Settings

ROOT = Path(__file__).parents[3]
_ROUNDS = 3
_LOOP = 1_000_000


class ParsedFile(msgspec.Struct, frozen=True):
    """What one DAG file gave."""

    bundle: str
    file: str
    paces: float
    """CPU that parsing took, in those of a loop next to it: a busy machine slows both down. The best of some rounds."""
    errors: dict[str, str]
    dags: dict[str, dict[str, Any]]
    modules: list[str]
    """Top-level packages that are loaded afterwards."""


def found_in(project: Path) -> list[ParsedFile]:
    """All DAG files of a project."""
    from deltaworks.stack.airflow import bundle_config  # not in the process that parses

    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "PYTHONPATH": f"{ROOT / 'lib'}:{ROOT}",
            "DELTAWORKS_PROJECT": str(project),
            "DELTAWORKS_HOME": home,
            "AIRFLOW_HOME": f"{home}/airflow",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": bundle_config(
                Settings.from_environment({"DELTAWORKS_PROJECT": str(project)})
            ),
        }
        answer = subprocess.run(
            [sys.executable, "-m", "tests.unit.airflow.parsing"],
            capture_output=True,
            text=True,
            check=False,
            cwd=home,
            env=environment,
        )
    assert answer.returncode == 0, answer.stderr
    return msgspec.json.decode(answer.stdout.splitlines()[-1], type=list[ParsedFile])


def main() -> None:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag  # part of Airflow's own import, which is not measured

    files = []
    for bundle in DagBundlesManager().get_all_dag_bundles():  # type: ignore[no-untyped-call]
        bundle.initialize()
        for file in sorted(bundle.path.rglob("*.py")):
            rounds = [_forked(DagBag, file, bundle.path, bundle.name) for _ in range(_ROUNDS)]
            files.append(min(rounds, key=lambda parsed: parsed["paces"]))
    print()
    print(json.dumps(files))


def _forked(bag_class: Any, file: Path, root: Path, bundle: str) -> dict[str, Any]:
    """Nothing that one file imports is there for the next."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            json.dump(_parsed(bag_class, file, root, bundle), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        content = pipe.read()
    os.waitpid(pid, 0)
    return dict(json.loads(content))


def _parsed(bag_class: Any, file: Path, root: Path, bundle: str) -> dict[str, Any]:
    begin = time.process_time()
    bag = bag_class(file, bundle_path=root, bundle_name=bundle)
    parsed = time.process_time()
    sum(number * number for number in range(_LOOP))
    looped = time.process_time()
    return {
        "bundle": bundle,
        "file": str(file.relative_to(root)),
        "paces": (parsed - begin) / (looped - parsed),
        "errors": bag.import_errors,
        "dags": {dag_id: _facts(dag) for dag_id, dag in bag.dags.items()},
        "modules": sorted({name.split(".")[0] for name in sys.modules}),
    }


def _demanded(field: Any) -> bool:
    """Whether the form's button works only once somebody has filled this field, by the rule of Airflow's pages."""
    return "null" not in field.schema.get("type", "null") and (not field.has_value or field.value == "")


def _facts(dag: Any) -> dict[str, Any]:
    return {
        "tags": sorted(dag.tags),
        "doc_md": dag.doc_md,
        "description": dag.description,
        "catchup": dag.catchup,
        "scheduled": dag.schedule is not None,
        "max_active_runs": dag.max_active_runs,
        "run_types": sorted(dag.allowed_run_types or ()),
        "params": list(dag.params),
        "demanded": [name for name in dag.params if _demanded(dag.params.get_param(name))],
        "tasks": {
            task.task_id: {
                "owner": task.owner,
                "retries": task.retries,
                "priority_weight": task.priority_weight,
                "downstream": sorted(task.downstream_task_ids),
            }
            for task in dag.tasks
        },
    }


if __name__ == "__main__":
    main()
