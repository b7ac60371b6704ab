"""The cluster that runs the tasks of a stream: which settings say so, and whether a standalone one answers."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks.control import cluster
from deltaworks.control.clusters.standalone import Standalone
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings

MASTER = "spark://m:7077"
SECRET = '"spark.authenticate.secret" = { env = "SPARK_SECRET" }'


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SECRET", "s3cret")


def settings(project: Path, spark: str, *, storage: str = "s3://lake/deltaworks", **variables: str) -> Settings:
    (project / "deltaworks.toml").write_text(f'cores = 3\nstorage = "{storage}"\n{spark}')
    return Settings.from_environment(variables, cwd=project)


def table(master: str = MASTER, *more: str, name: str = "spark") -> str:
    return "\n".join([f"[{name}]", f'"spark.master" = "{master}"', *more])


def made(master: str) -> Standalone:
    return Standalone(master=master, python="python", secret=None, cores=1)


@pytest.fixture
def alive() -> Iterator[str]:
    """The address of somebody who takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def dead() -> Iterator[str]:
    """An address that is taken, where nobody takes connections."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_without_a_master_tasks_run_in_the_driver(tmp_path: Path) -> None:
    assert cluster.of(settings(tmp_path, ""), "orders") is None
    assert cluster.of(settings(tmp_path, f'[spark]\n{SECRET}\n"spark.pyspark.python" = "p"'), "orders") is None


def test_tasks_stay_here_if_somebody_says_so(tmp_path: Path) -> None:
    on_it = settings(tmp_path, table(MASTER, SECRET))
    here = settings(tmp_path, table(MASTER, SECRET), DELTAWORKS_SPARK_TASKS="here")

    assert (cluster.of(here, "orders"), cluster.of(on_it, "orders") is None) == (None, False)
    assert here.environment()["DELTAWORKS_SPARK_TASKS"] == "here"
    assert "DELTAWORKS_SPARK_TASKS" not in on_it.environment()


def test_a_cluster_has_master_python_secret_and_cores(tmp_path: Path) -> None:
    found = cluster.of(settings(tmp_path, table(MASTER, SECRET)), "orders")

    assert found == Standalone(master=MASTER, python=sys.executable, secret="s3cret", cores=3)
    assert found.addresses == [("m", 7077)]


def test_a_cluster_that_is_printed_has_no_secret(tmp_path: Path) -> None:
    found = cluster.of(settings(tmp_path, table(MASTER, SECRET)), "orders")

    assert MASTER in f"{found!r}"
    assert "s3cret" not in f"{found} {found!r}"


@pytest.mark.parametrize("python", ["/opt/python/bin/python3", "./environment/bin/python"])
def test_the_python_of_executors_is_a_path_there_and_may_be_relative(tmp_path: Path, python: str) -> None:
    found = cluster.of(settings(tmp_path, table(MASTER, SECRET, f'"spark.pyspark.python" = "{python}"')), "orders")

    assert found is not None and found.python == python


def test_one_pipeline_may_have_a_cluster_and_the_others_none(tmp_path: Path) -> None:
    found = settings(tmp_path, table(MASTER, SECRET, name="pipelines.orders.spark"))

    assert cluster.of(found, "others") is None
    assert cluster.of(found, "orders") is not None


def test_a_cluster_may_have_several_masters(tmp_path: Path) -> None:
    found = cluster.of(settings(tmp_path, table("spark://m-1:7077,m-2:7078", SECRET)), "orders")

    assert found is not None and found.addresses == [("m-1", 7077), ("m-2", 7078)]


@pytest.mark.parametrize(
    "master",
    [
        "local[2]",
        "YARN",
        "yarn-client",
        "k8s://https://host",
        "k8s://host:0",
        "k8s://ftp://host:443",
        "k8s://https://host:443/path",
        "k8s://https://host:443\\n",
        "https://host:443",
        "m:7077",
        "spark://m",
        "spark://:7077",
        "spark://m:",
        "spark://m:x",
        "spark://m:7077,",
        "spark://m:7077,spark://n:7077",
        "spark://m:7077/",
        "spark://m:7077\\n",
        "SPARK://m:7077",
        "spark://m:0",
        "spark://m:65536",
        "spark://m:7077,n:72613",
    ],
)
def test_another_master_is_refused(tmp_path: Path, master: str) -> None:
    with pytest.raises(ConfigurationError, match="of 'orders' is no cluster that runs tasks") as error:
        cluster.of(settings(tmp_path, table(master, SECRET)), "orders")

    assert "spark://HOST:PORT, yarn or k8s://https://HOST:PORT" in str(error.value.hint)


@pytest.mark.parametrize("tables", ["home", "s3://lake/tables"])
def test_executors_cannot_reach_state_in_the_home(tmp_path: Path, tables: str) -> None:
    found = settings(tmp_path, table(MASTER, SECRET), storage="home", DELTAWORKS_TABLES=tables)

    with pytest.raises(ConfigurationError, match=f"executors cannot reach the home {tmp_path}") as error:
        cluster.of(found, "orders")

    assert "in an object store" in str(error.value.hint)


def test_executors_cannot_reach_tables_in_the_home(tmp_path: Path) -> None:
    found = settings(tmp_path, table(MASTER, SECRET), DELTAWORKS_TABLES="home")
    assert found.storage is not None and found.remote is None

    with pytest.raises(ConfigurationError, match=f"executors cannot reach the home {tmp_path}"):
        cluster.of(found, "orders")


@pytest.mark.parametrize("more", [(), ('"spark.authenticate" = true',)])
def test_without_a_secret_the_settings_have_to_say_that_the_cluster_wants_none(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError, match="no secret says that it may"):
        cluster.of(settings(tmp_path, table(MASTER, *more)), "orders")


def test_an_empty_secret_is_none(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()

    with pytest.raises(ConfigurationError, match="no secret says that it may"):
        cluster.of(settings(tmp_path, table(MASTER, '"spark.authenticate.secret" = { file = "secret" }')), "orders")


@pytest.mark.parametrize("value", ["false", '"false"'])
def test_a_cluster_may_let_everybody_in(tmp_path: Path, value: str) -> None:
    found = cluster.of(settings(tmp_path, table(MASTER, f'"spark.authenticate" = {value}')), "orders")

    assert found is not None and found.shared_secret is None


def test_a_cluster_that_lets_everybody_in_needs_no_secret_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SECRET", "s3cret")

    found = cluster.of(settings(tmp_path, table(MASTER, SECRET, '"spark.authenticate" = false')), "orders")

    assert found is not None and found.shared_secret is None


def test_a_secret_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SECRET")

    with pytest.raises(ConfigurationError, match="SPARK_SECRET, which is not set"):
        cluster.of(settings(tmp_path, table(MASTER, SECRET)), "orders")


@pytest.mark.parametrize("change", ["overlaid", "without references"])
def test_a_secret_that_was_followed_is_still_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    found = settings(tmp_path, table(MASTER, SECRET))
    monkeypatch.chdir(tmp_path)
    found = Settings.overlaid({"SPARK_SECRET": "s3cret"}) if change == "overlaid" else found.without_references()

    named = cluster.of(found, "orders")

    assert named is not None and named.shared_secret == "s3cret"


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://localhost:7077,127.0.0.1:7078", True),
        ("spark://localhost:7077,other:7077", False),
        ("spark://10.0.0.1:7077", False),
        ("spark://localhost.example.com:7077", False),
    ],
)
def test_a_cluster_is_here_if_all_of_its_masters_are(master: str, here: bool) -> None:
    assert made(master).is_here is here


def test_one_master_that_answers_is_enough(alive: str, dead: str) -> None:
    made(f"spark://{alive}").require_answer()
    made(f"spark://{dead},{alive}").require_answer()
    made(f"spark://{alive},{dead}").require_answer()


def test_a_cluster_without_a_master_that_answers_is_refused(dead: str) -> None:
    with pytest.raises(StackError, match=rf"spark://{dead} does not answer: .*refused") as error:
        made(f"spark://{dead}").require_answer()

    assert error.value.hint == "start its master"


def test_a_name_that_cannot_be_one_of_a_machine_does_not_answer(dead: str, alive: str) -> None:
    with pytest.raises(StackError, match="does not answer"):
        made("spark://a..b:7077").require_answer()
    made(f"spark://a..b:7077,{alive}").require_answer()
