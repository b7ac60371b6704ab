"""What Airflow learns of the package through its entry point."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest

from deltaworks.airflow.hook import DeltaworksHook
from deltaworks.airflow.provider import get_provider_info

ROOT = Path(__file__).parents[3]
_ASK = """
import json, logging, os
said = []
handler = logging.Handler(logging.WARNING)
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("airflow.providers_manager").addHandler(handler)
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
hook = ProvidersManagerTaskRuntime().hooks["deltaworks"]
manager = ProvidersManager()
from airflow.models.connection import Connection
extra = json.dumps({"project": os.environ["HOME"], "environment": "nowhere"})
tested = Connection(conn_id="on_the_page", conn_type="deltaworks", host="db", password="s3:cret/", extra=extra)
os.environ["AIRFLOW_CONN_ON_THE_PAGE"] = tested.get_uri()  # as the API server does
widgets = {w.field_name: w.field for n, w in manager.connection_form_widgets.items() if "__deltaworks__" in n}
print()
print(json.dumps({
    "hook": hook._asdict(),
    "fields": {name: field["schema"]["title"] for name, field in widgets.items()},
    "behaviour": manager.field_behaviours["deltaworks"],
    "tested": tested.test_connection(),
    "said": [text for text in said if "deltaworks" in text],
}))
"""


def entry_point() -> str:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    (name,) = points["apache_airflow_provider"].values()
    return str(name)


def test_the_entry_point_leads_to_the_description() -> None:
    module, function = entry_point().split(":")
    found: Callable[[], dict[str, Any]] = getattr(importlib.import_module(module), function)

    assert found() == get_provider_info()


def test_the_description_is_as_airflow_wants_it() -> None:
    [folder] = airflow.__path__
    schema = json.loads((Path(folder) / "provider_info.schema.json").read_text())

    jsonschema.validate(get_provider_info(), schema)


def test_all_that_it_names_can_be_imported() -> None:
    info = get_provider_info()

    named = [each for kind in ("operators", "hooks", "triggers", "bundles") for each in info[kind]]
    assert all(importlib.import_module(module) for each in named for module in each["python-modules"])
    [connection] = info["connection-types"]
    assert (connection["hook-class-name"], connection["connection-type"], connection["hook-name"]) == (
        f"{DeltaworksHook.__module__}.{DeltaworksHook.__qualname__}",
        DeltaworksHook.conn_type,
        DeltaworksHook.hook_name,
    )


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow makes of it where the package is installed."""
    folder = tmp_path_factory.mktemp("installed")
    package = folder / "deltaworks-9.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: deltaworks\nVersion: 9\n")
    (package / "entry_points.txt").write_text(f"[apache_airflow_provider]\nprovider_info = {entry_point()}\n")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "PYTHONPATH": f"{folder}:{ROOT / 'lib'}:{ROOT}",
    }
    answer = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def test_airflow_finds_the_hook_and_can_test_connections(known: dict[str, Any]) -> None:
    assert known["hook"]["hook_class_name"] == "deltaworks.airflow.hook.DeltaworksHook"
    assert known["hook"]["connection_id_attribute_name"] == "deltaworks_conn_id"
    assert known["hook"]["connection_testable"] is True
    assert known["said"] == []


def test_the_button_on_the_page_tests_the_connection(known: dict[str, Any]) -> None:
    passed, said = known["tested"]

    assert not passed
    assert "The connection 'on_the_page' cannot be used: DELTAWORKS_ENVIRONMENT is 'nowhere'" in said
    assert "s3" not in said


def test_the_form_has_fields_with_names(known: dict[str, Any]) -> None:
    assert known["fields"] == {
        "project": "Project",
        "environment": "Environment",
        "home": "Home",
        "kafka_conn_id": "Kafka connection",
        "connect_conn_id": "Kafka Connect connection",
        "sslmode": "Registry sslmode",
        "sslrootcert": "Registry sslrootcert",
    }
    assert known["behaviour"]["relabeling"]["password"] == "Registry password"
