"""Settings of the stack's Spark cluster, and who gets its secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks import config
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

OWN = """
[spark]
"spark.master" = "spark://127.0.0.1:7077"
"spark.authenticate.secret" = { file = "secrets/secret" }
"""
HERE = '"spark.master" = "spark://127.0.0.1:7077"\n'
THERE = '"spark.master" = "spark://elsewhere:7077"\n'


def settings(project: Path, text: str, **variables: str) -> Settings:
    (project / "deltaworks.toml").write_text(text)
    return Settings.from_environment(variables, cwd=project)


def own_access(project: Path, text: str = OWN) -> Path:
    file = Settings.spark_access_in(project / ".deltaworks")
    (file.parent / "secrets").mkdir(parents=True, exist_ok=True)
    (file.parent / "secrets" / "secret").write_text("s3cret\n")
    file.write_text(text)
    return file


def test_the_size_of_the_cluster_is_a_setting_that_other_processes_get(tmp_path: Path) -> None:
    text = 'spark_port = 7000\nspark_worker_cores = 3\nspark_worker_memory = "5g"'
    found = settings(tmp_path, text, DELTAWORKS_SPARK_PORT="7100")

    assert (found.spark_port, found.spark_worker_cores, found.spark_worker_memory) == (7100, 3, "5g")
    (tmp_path / "deltaworks.toml").unlink()
    assert Settings.from_environment(found.environment(), cwd=Path("/")) == found


def test_whoever_names_the_cluster_of_the_stack_gets_its_secret(tmp_path: Path) -> None:
    file = own_access(tmp_path)

    found = settings(tmp_path, f"[spark]\n{HERE}")

    assert found.spark_secret_of("any") == "s3cret"
    assert found.spark_of("any") == {"spark.master": "spark://127.0.0.1:7077"}
    origin = found.values.table_origins[("spark", ""), config.SPARK_SECRET]
    assert origin == f"spark.spark.authenticate.secret in {file}"
    assert "s3cret" not in repr(found.values)


def test_a_pipeline_may_be_the_only_one_that_names_it(tmp_path: Path) -> None:
    own_access(tmp_path)

    found = settings(tmp_path, f"[pipelines.a.spark]\n{HERE}[pipelines.b.spark]\n{THERE}")

    assert [found.spark_secret_of(name) for name in ("a", "b", "c")] == ["s3cret", None, None]


def test_no_secret_of_ours_goes_to_another_cluster(tmp_path: Path) -> None:
    own_access(tmp_path)

    found = settings(tmp_path, f'[spark]\n{HERE}[pipelines.a.spark]\n{THERE}[pipelines.b.spark]\n"spark.x" = 1')

    assert [found.spark_secret_of(name) for name in ("a", "b", "c")] == [None, "s3cret", "s3cret"]
    assert found.spark_of("a") == {"spark.master": "spark://elsewhere:7077"}


@pytest.mark.parametrize(
    "text",
    ["", "[spark]\n'spark.x' = 1", f"[spark]\n{THERE}", f"[kafka]\n'client.id' = 'a'\n[pipelines.a.spark]\n{THERE}"],
)
def test_whoever_names_no_cluster_or_another_gets_nothing(tmp_path: Path, text: str) -> None:
    without = settings(tmp_path, text).values
    own_access(tmp_path)

    found = settings(tmp_path, text)

    assert (found.values.tables, found.values.table_origins) == (without.tables, without.table_origins)
    assert found.spark_secret_of("a") is None


def test_no_other_table_gets_it(tmp_path: Path) -> None:
    own_access(tmp_path)

    found = settings(tmp_path, f"[kafka]\n'client.id' = 'a'\n[spark]\n{HERE}").values

    assert found.table("kafka") == {"client.id": "a"}
    assert [table for table, said in found.tables.items() if config.SPARK_SECRET in said] == [("spark", "")]


def test_a_secret_that_the_project_names_wins(tmp_path: Path) -> None:
    own_access(tmp_path)
    (tmp_path / "mine").write_text("other\n")
    mine = '"spark.authenticate.secret" = { file = "mine" }\n'

    general = settings(tmp_path, f"[spark]\n{HERE}{mine}")
    assert general.spark_secret_of("any") == "other"

    of_one = settings(tmp_path, f"[spark]\n{HERE}[pipelines.a.spark]\n{mine}")
    assert [of_one.spark_secret_of(name) for name in ("a", "b")] == ["other", "s3cret"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spark = 1", "spark in .*access.toml is not a table"),
        ("", "is not as the stack has written it"),
        (f"[spark]\n{HERE}", "is not as the stack has written it"),
        ('[spark]\n"spark.authenticate.secret" = { file = "a" }', "is not as the stack has written it"),
        ("[", "(?s)cannot be read.*Hint: deltaworks up spark"),
    ],
)
def test_a_damaged_access_to_the_cluster_of_the_stack_is_told(tmp_path: Path, text: str, message: str) -> None:
    own_access(tmp_path, text)

    with pytest.raises(ConfigurationError, match=message):
        settings(tmp_path, "")
