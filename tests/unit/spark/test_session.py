"""Who may connect to a session; without a JVM."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, java_gateway

from deltaworks.control.clusters.standalone import Standalone
from deltaworks.errors import ConfigurationError
from deltaworks.spark import session
from deltaworks.spark.cluster import Executors


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return session.placed(config(tmp_path), {}, cores=2, scratch=tmp_path)


def config(scratch: Path) -> dict[str, str]:
    return session.config(partitions=2, driver_memory="1g", scratch=scratch, python_path="lib")


def executors(master: str) -> Executors:
    return Executors(Standalone(master=master, python="python3", secret="s3cret", cores=2), {})


def test_a_session_listens_on_this_machine_only_and_wants_a_secret(settings: dict[str, str]) -> None:
    assert settings["spark.authenticate"] == "true"
    assert {settings["spark.driver.bindAddress"], settings["spark.driver.host"]} == {"127.0.0.1"}
    assert settings["spark.ui.enabled"] == "false"


def test_the_project_cannot_open_a_session_of_this_machine(settings: dict[str, str], tmp_path: Path) -> None:
    own = {
        "spark.master": "spark://m:7077",
        "spark.authenticate": "false",
        "spark.pyspark.python": "/theirs/python",
        "spark.driver.host": "10.0.0.1",
        "spark.driver.bindAddress": "0.0.0.0",
    }

    found = session.placed(
        config(tmp_path), own | {"spark.x": "1", "spark.locality.wait": "7s"}, cores=2, scratch=tmp_path
    )

    assert found == settings | {"spark.x": "1", "spark.locality.wait": "7s"}
    assert found["spark.master"] == "local[2,3]"


def test_executors_of_other_machines_reach_the_driver_where_the_project_says(tmp_path: Path) -> None:
    own = {"spark.driver.host": "10.0.0.1", "spark.locality.wait": "7s"}

    found = session.placed(config(tmp_path), own, cores=2, scratch=tmp_path, executors=executors("spark://m:7077"))

    assert (found["spark.master"], found["spark.authenticate"]) == ("spark://m:7077", "true")
    assert (found["spark.driver.host"], found["spark.locality.wait"]) == ("10.0.0.1", "7s")
    assert "spark.driver.bindAddress" not in found
    assert found["spark.executor.extraJavaOptions"] == session.JVM
    assert found["spark.sql.shuffle.partitions"] == "2", "the settings of all sessions hold"
    assert "s3cret" not in f"{found}"


def test_a_driver_whose_cluster_is_on_its_machine_listens_there_only(tmp_path: Path) -> None:
    own = {"spark.driver.host": "10.0.0.1"}

    found = session.placed(config(tmp_path), own, cores=2, scratch=tmp_path, executors=executors("spark://127.0.0.1:1"))

    assert found["spark.master"] == "spark://127.0.0.1:1"
    assert {found["spark.driver.bindAddress"], found["spark.driver.host"]} == {"127.0.0.1"}


def test_a_disk_on_which_nothing_can_be_started_is_said(tmp_path: Path) -> None:
    class Forks:
        def executable(self, folder: Path) -> str:
            return sys.executable

    options: dict[str, Any] = {"cores": 1, "partitions": 1, "driver_memory": "1g", "python_path": "", "forks": Forks()}
    with pytest.raises(ConfigurationError, match="No program can be started in"):
        session.build("a", scratch=tmp_path, executors=executors("spark://m:7077"), **options)


def test_no_secret_is_among_the_settings_since_they_are_on_the_command_line(settings: dict[str, str]) -> None:
    assert [name for name in settings if "secret" in name.lower() or "password" in name.lower()] == []


def test_pyspark_authenticates_py4j_with_a_secret_that_only_a_file_has(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM writes port and secret into a file of this user; the rest of the gateway is not needed here."""
    started: dict[str, Any] = {}

    class Process:
        def __init__(self, command: list[str], env: dict[str, str], **_: object) -> None:
            started["command"], started["environment"] = command, env
            secret = b"of this session"
            file = Path(env["_PYSPARK_DRIVER_CONN_INFO_PATH"])
            started["folder"] = file.parent.stat().st_mode & 0o777
            file.write_bytes(struct.pack("!ii", 4711, len(secret)) + secret)

        def poll(self) -> None:
            return None

    class Gateway:
        def __init__(self, *, java_parameters: Any, python_parameters: Any) -> None:
            started["java"], started["python"] = java_parameters, python_parameters
            self.jvm = None

    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_PIN_THREAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(java_gateway, "Popen", Process)
    monkeypatch.setattr(java_gateway, "ClientServer", Gateway)
    monkeypatch.setattr(java_gateway, "java_import", lambda *_: None)

    launch: Any = java_gateway.launch_gateway
    launch(SparkConf(loadDefaults=False, _jvm=None).setAll(list(settings.items())))

    assert started["java"].auth_token == "of this session"
    assert {started["java"].address, started["python"].address} == {"127.0.0.1"}
    assert "--conf" in started["command"] and "spark.authenticate=true" in started["command"]
    assert "of this session" not in " ".join(started["command"])
    assert "of this session" not in " ".join(started["environment"].values())
    assert started["folder"] == 0o700
