"""Airflow's environment and secrets; nothing is started."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack import airflow
from deltaworks.stack.components import read_components


def test_credentials_are_made_once_and_belong_to_their_owner(tmp_path: Path) -> None:
    settings = replace(Settings.from_environment({}, cwd=tmp_path), airflow_port=1234)

    first, second = airflow.credentials(settings), airflow.credentials(settings)

    assert (first.created_now, second.created_now) == (True, False)
    assert (first.url, first.user) == ("http://127.0.0.1:1234", "admin")
    assert first.password == second.password
    assert stat.S_IMODE(first.file.stat().st_mode) == 0o600


def test_users_of_the_setting_get_passwords_roles_and_may_answer(tmp_path: Path) -> None:
    settings = Settings.from_environment({}, cwd=tmp_path)
    software = read_components(settings.infra).software["airflow"]
    first = airflow.credentials(settings)

    settings = replace(settings, airflow_users="eve:viewer, ada:operator, bob:approver")
    environment = airflow.environment(settings, software)

    passwords = json.loads(first.file.read_text())
    assert (list(passwords), passwords["admin"]) == (["admin", "eve", "ada", "bob"], first.password)
    assert len(set(passwords.values())) == 4
    assert environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "admin:admin,eve:viewer,ada:user,bob:user"
    assert settings.environment()["DELTAWORKS_AIRFLOW_USERS"] == settings.airflow_users, "for those who ask"
    with pytest.raises(ConfigurationError, match="no name with a role"):
        airflow.credentials(replace(settings, airflow_users="ada:boss"))


def test_the_environment_is_complete_stays_the_same_and_has_no_database_password(tmp_path: Path) -> None:
    settings = Settings.from_environment({}, cwd=tmp_path)
    software = read_components(settings.infra).software["airflow"]

    environment = airflow.environment(settings, software)

    assert environment == airflow.environment(settings, software)
    assert not [value for value in environment.values() if "$" in value]
    assert environment["AIRFLOW__API__HOST"] == "127.0.0.1"
    url = environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert url == f"postgresql+psycopg://airflow@127.0.0.1:19432/airflow?passfile={settings.pgpass}"
    assert url == environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"]


def test_a_process_of_the_stack_has_the_same_settings(tmp_path: Path) -> None:
    settings = replace(Settings.from_environment(), home=tmp_path, postgres_port=1, airflow_port=2)

    assert Settings.from_environment(settings.process_environment()) == settings
