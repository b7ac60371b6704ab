"""Who may connect to a session; without a JVM."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, java_gateway

from deltaworks.spark import session


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return session.config(partitions=2, driver_memory="1g", scratch=tmp_path, python_path="lib")


def test_a_session_listens_on_this_machine_only_and_wants_a_secret(settings: dict[str, str]) -> None:
    assert settings["spark.authenticate"] == "true"
    assert {settings["spark.driver.bindAddress"], settings["spark.driver.host"]} == {"127.0.0.1"}
    assert settings["spark.ui.enabled"] == "false"


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
