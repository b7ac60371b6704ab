"""`doctor`: what it finds, and what it says about it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks.cli import app as cli
from deltaworks.cli import listings
from deltaworks.control import registry
from deltaworks.control.supervisor import client
from deltaworks.errors import ConfigurationError, ControlUnavailableError
from deltaworks.kafka import admin
from deltaworks.remote import Remote
from deltaworks.stack import java


class Registry:
    def pipelines(self) -> list[str]:
        return ["orders", "clicks"]


class Clinic:
    """A machine on which all is well, until a test says otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.patch, self._capsys = monkeypatch.setattr, capsys
        monkeypatch.setenv("DELTAWORKS_PROJECT", str(project))
        monkeypatch.setenv("DELTAWORKS_HOME", str(project / "home"))
        monkeypatch.delenv("DELTAWORKS_BOOTSTRAP", raising=False)
        (project / "jobs").mkdir()
        (project / "jobs" / "orders.py").touch()
        self.patch(java, "find_java", lambda *_: java.Java(home=Path("/java"), version=17))
        self.patch(admin, "answers", lambda _: True)
        self.patch(admin, "partition_counts", lambda _: {"orders": 4})
        self.patch(admin, "transaction_timeout_ms", lambda _: 900_000)
        self.patch(registry.Registry, "of", lambda _: Registry())
        self.patch(client, "answers", lambda _: True)

    def examine(self, monkeypatch: pytest.MonkeyPatch, code: int) -> dict[str, listings.FindingListed]:
        monkeypatch.setattr(sys, "argv", ["deltaworks", "doctor", "--json"])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = self._capsys.readouterr()
        assert int(end.value.code or 0) == code, said
        return {check.name: check for check in msgspec.json.decode(said.out, type=listings.Doctor).checks}


@pytest.fixture
def clinic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Clinic:
    return Clinic(monkeypatch, tmp_path, capsys)


def test_all_is_well(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = clinic.examine(monkeypatch, 0)

    assert {check.outcome for check in found.values()} == {"ok"}
    assert list(found) == [
        *(
            "settings",
            "pipelines",
            "home",
            "tables",
            "storage",
            "Java",
            "Spark",
            "Kafka",
            "transactions",
            "registry",
            "supervisor",
        ),
    ]
    assert found["pipelines"].found == "orders"
    assert found["Java"].found == "17 in /java"
    assert found["Kafka"].found == "127.0.0.1:19092 answers; 1 topics"
    assert not (tmp_path / "home").exists()  # nothing was changed


def _raise(error: Exception) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_what_fails_says_why_and_what_to_do(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    clinic.patch(java, "find_java", _raise(ConfigurationError("Spark and Kafka need Java 17.", hint="install one")))
    clinic.patch(admin, "answers", lambda _: False)
    clinic.patch(admin, "refusal", lambda _: ConfigurationError("Kafka refuses our clients: no.", hint="see [kafka]"))
    clinic.patch(registry.Registry, "of", _raise(ControlUnavailableError("It does not answer.", hint="deltaworks up")))
    clinic.patch(client, "answers", lambda _: False)

    found = clinic.examine(monkeypatch, 1)

    assert {name: (check.outcome, check.found, check.hint) for name, check in found.items() if check.hint} == {
        "Java": ("failed", "Spark and Kafka need Java 17.", "install one"),
        "Kafka": ("failed", "Kafka refuses our clients: no.", "see [kafka]"),
        "registry": ("failed", "It does not answer.", "deltaworks up"),
        "supervisor": ("warning", "it does not run", "`deltaworks deploy` starts it"),
    }


def test_traces_are_examined_for_each_pipeline_that_has_them(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "deltaworks.toml"
    file.write_text('[pipelines.orders.traces]\nendpoint = "http://h:4318"\n')
    found = clinic.examine(monkeypatch, 0)["traces"]
    assert (found.outcome, found.found) == ("ok", "orders: they go to h:4318")
    file.write_text('[traces]\nendpoint = { env = "NOWHERE" }\n')
    found = clinic.examine(monkeypatch, 1)["traces"]
    assert found.outcome == "failed" and found.found.startswith("orders: ") and "NOWHERE" in found.found


def test_a_warning_is_no_failure(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clinic.patch(admin, "transaction_timeout_ms", lambda _: 30_000)
    (tmp_path / "jobs" / "orders.py").unlink()

    found = clinic.examine(monkeypatch, 0)

    assert (found["transactions"].outcome, found["pipelines"].outcome) == ("warning", "warning")
    assert "transaction.max.timeout.ms" in str(found["transactions"].hint)


def test_a_broker_that_does_not_answer(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    clinic.patch(admin, "answers", lambda _: False)
    clinic.patch(admin, "refusal", lambda _: None)

    found = clinic.examine(monkeypatch, 1)

    assert (found["Kafka"].outcome, found["Kafka"].found) == ("failed", "no answer at 127.0.0.1:19092")
    assert "transactions" not in found


def test_a_cluster_that_answers_or_does_not(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DELTAWORKS_STORAGE", "s3://lake/state")
    clinic.patch(Remote, "check", lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "deltaworks.toml").write_text(
            f'[pipelines.orders.spark]\n"spark.master" = "{master}"\n"spark.authenticate" = false'
        )
        found = clinic.examine(monkeypatch, 0)["Spark cluster"]
        assert (found.outcome, found.found) == ("ok", f"{master} answers")

    found = clinic.examine(monkeypatch, 1)["Spark"]
    assert found.outcome == "failed" and master in found.found and found.hint == "start its master"


def test_a_cluster_of_yarn_that_answers_or_does_not(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DELTAWORKS_STORAGE", "s3://lake/state")
    clinic.patch(Remote, "check", lambda _: None)
    (tmp_path / "deltaworks.toml").write_text('hadoop_conf_dir = "."\n[spark]\n"spark.master" = "yarn"')
    found = clinic.examine(monkeypatch, 1)["Spark"]
    assert found.outcome == "failed" and f"{tmp_path}/yarn-site.xml" in found.found

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        name = "yarn.resourcemanager.address"
        (tmp_path / "yarn-site.xml").write_text(
            f"<configuration><property><name>{name}</name><value>{address}</value></property></configuration>"
        )
        found = clinic.examine(monkeypatch, 0)["YARN cluster"]
        assert (found.outcome, found.found) == ("ok", f"{address} answers")

    found = clinic.examine(monkeypatch, 1)["Spark"]
    assert found.outcome == "failed" and f"The YARN cluster {address} does not answer" in found.found


def test_a_supervisor_that_should_run_elsewhere_and_does_not(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAWORKS_SUPERVISOR", "elsewhere")
    clinic.patch(client, "answers", lambda _: False)

    found = clinic.examine(monkeypatch, 1)

    assert found["supervisor"].outcome == "failed"
    assert "DELTAWORKS_SUPERVISOR_HOST" in str(found["supervisor"].hint)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_of_somebody_else(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAWORKS_HOME", "/proc/home")

    found = clinic.examine(monkeypatch, 1)

    assert found["home"].outcome == "failed"
