"""The description of the components: what needs what, and what makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack.components import Components, read_components

INFRA = Settings.from_environment().infra


def changed(folder: Path, old: str, new: str) -> Components:
    text = (INFRA / "components.toml").read_text()
    assert old in text
    (folder / "components.toml").write_text(text.replace(old, new))
    return read_components(folder)


def test_a_component_comes_with_what_it_needs_in_the_order_of_starting() -> None:
    components = read_components(INFRA)

    assert [c.name for c in components.chosen(["kafka"])] == ["kafka"]
    assert [c.name for c in components.chosen(["airflow-scheduler"])] == [
        "postgres",
        "registry",
        "airflow-migrate",
        "airflow-api-server",
        "airflow-scheduler",
    ]
    assert [c.name for c in components.chosen(["sql"])] == ["sql"]
    assert [c.name for c in components.chosen(["s3"])] == ["s3"]
    assert [c.name for c in components.chosen(["spark-worker-1"])] == ["spark-master", "spark-worker-1"]
    assert [c.name for c in components.chosen(["connect"])] == ["kafka", "connect"]
    names = {"sql", "s3", "schema-registry", "connect", "connect-2", "connect-standalone"}
    names |= {"source-postgres", "source-mariadb", "opensearch", "prometheus", "alertmanager"}
    optional = [c for c in components.by_name.values() if c.name in names or c.part_of == "spark"]
    assert components.chosen(None) == [c for c in components.by_name.values() if c not in optional]


def test_a_name_that_is_none_lists_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no component 'kafak'\.\n  Hint: components: kafka, postgres, "):
        read_components(INFRA).chosen(["kafak"])


def test_components_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="wait for each other"):
        changed(tmp_path, 'after = ["airflow-migrate"]', 'after = ["airflow-scheduler"]')


def test_a_component_that_waits_for_nobody_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no component 'postgers'"):
        changed(tmp_path, 'after = ["postgres"]', 'after = ["postgers"]')


def test_a_misspelt_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown field `redy`"):
        changed(tmp_path, 'ready = "admin"', 'redy = "admin"')
