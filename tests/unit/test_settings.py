"""What the environment decides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings


def test_defaults_lie_in_the_project_and_in_the_users_cache(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    below = tmp_path / "jobs" / "deeper"
    below.mkdir()

    settings = Settings.from_environment({"HOME": "/users/me"}, cwd=below)

    assert settings.project == tmp_path
    assert settings.home == tmp_path / ".deltaworks"
    assert settings.cache == Path("/users/me/.cache/deltaworks")
    assert (settings.bootstrap, settings.broker_port) == ("127.0.0.1:19092", 19092)


def test_variables_win_over_defaults(tmp_path: Path) -> None:
    settings = Settings.from_environment(
        {
            "DELTAWORKS_HOME": str(tmp_path / "home"),
            "DELTAWORKS_CACHE": str(tmp_path / "cache"),
            "DELTAWORKS_BOOTSTRAP": "kafka-1:9092,kafka-2:9093",
            "DELTAWORKS_CONTROLLER_PORT": "9999",
            "DELTAWORKS_BROKER_OPTIONS": "-Xmx1g -Xms1g",
            "JAVA_HOME": "/java",
        },
        cwd=tmp_path,
    )

    assert settings.tables == tmp_path / "home" / "tables"
    assert settings.pipeline("orders") == tmp_path / "home" / "pipelines" / "orders"
    assert settings.cache == tmp_path / "cache"
    assert (settings.broker_port, settings.controller_port) == (9092, 9999)
    assert settings.broker_options == ("-Xmx1g", "-Xms1g")
    assert settings.java_home == Path("/java")


@pytest.mark.parametrize("value", ["localhost", "localhost:", ":9092", "localhost:http", "localhost:70000", "a:1,b"])
def test_an_address_that_is_none_says_what_is_expected(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DELTAWORKS_BOOTSTRAP is .*expected host:port"):
        Settings.from_environment({"DELTAWORKS_BOOTSTRAP": value}, cwd=tmp_path)


def test_a_port_that_is_none_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DELTAWORKS_CONTROLLER_PORT is 'x'; expected a port"):
        Settings.from_environment({"DELTAWORKS_CONTROLLER_PORT": "x"}, cwd=tmp_path)


def test_other_values_for_some_variables_stay_out_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAWORKS_CORES", "3")
    monkeypatch.setenv("DELTAWORKS_KAFKA_CLIENT_ID", "outer")
    own = {"DELTAWORKS_PROJECT": str(tmp_path), "DELTAWORKS_KAFKA_SASL_PASSWORD": "s3cret"}

    settings = Settings.overlaid(own)

    assert (settings.project, settings.cores) == (tmp_path, 3)
    client = settings.cluster.client({})
    assert (client["sasl.password"], client["client.id"]) == ("s3cret", "outer")
    assert "DELTAWORKS_KAFKA_SASL_PASSWORD" not in os.environ
    assert "s3cret" not in f"{settings!r}{settings.values!r}{settings.cluster!r}"


def test_where_the_supervisor_runs_reaches_other_processes(tmp_path: Path) -> None:
    settings = Settings.from_environment({"DELTAWORKS_SUPERVISOR": "elsewhere"}, cwd=tmp_path)

    assert Settings.from_environment(settings.environment()).supervisor == "elsewhere"
    assert "DELTAWORKS_SUPERVISOR" not in Settings.from_environment({}, cwd=tmp_path).environment()
    with pytest.raises(ConfigurationError, match="must be one of here, elsewhere"):
        Settings.from_environment({"DELTAWORKS_SUPERVISOR": "there"}, cwd=tmp_path)


def test_how_much_a_batch_may_hold_reaches_the_driver(tmp_path: Path) -> None:
    text = {"DELTAWORKS_MAX_BYTES_PER_BATCH": "1000000", "DELTAWORKS_MAX_RECORDS_PER_BATCH": "500"}

    settings = Settings.from_environment(text, cwd=tmp_path)

    assert (settings.max_bytes_per_batch, settings.max_records_per_batch) == (1_000_000, 500)
    assert text.items() <= settings.environment().items()
    assert Settings.from_environment({}, cwd=tmp_path).max_bytes_per_batch == 256 * 1024 * 1024


@pytest.mark.parametrize("value", ["0", "-1", "256MB", "1e6"])
def test_bytes_of_a_batch_that_are_no_number_say_what_is_expected(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DELTAWORKS_MAX_BYTES_PER_BATCH is .*whole number above 0"):
        Settings.from_environment({"DELTAWORKS_MAX_BYTES_PER_BATCH": value}, cwd=tmp_path)
