"""YARN: where its resource managers are, how many executors a stream gets there, and what is refused."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from deltaworks.control import cluster
from deltaworks.control.clusters.yarn import Yarn
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings


def settings(project: Path, *spark: str, cores: int = 4, storage: str = "s3://lake/deltaworks") -> Settings:
    """Those of a project whose Hadoop is configured in `hadoop`."""
    lines = ["[spark]", '"spark.master" = "yarn"', *spark]
    top = f'cores = {cores}\nstorage = "{storage}"\nhadoop_conf_dir = "hadoop"\n'
    (project / "deltaworks.toml").write_text(top + "\n".join(lines))
    return Settings.from_environment({}, cwd=project)


def configured(project: Path, found: Mapping[str, str]) -> None:
    (project / "hadoop").mkdir(exist_ok=True)
    rows = [f"<property><name>{name}</name><value> {value} </value></property>" for name, value in found.items()]
    (project / "hadoop/yarn-site.xml").write_text(
        '<?xml version="1.0"?>\n<configuration>' + "".join(rows) + "</configuration>"
    )


def yarn(project: Path, *spark: str, cores: int = 4) -> Yarn:
    found = cluster.of(settings(project, *spark, cores=cores), "orders")
    assert isinstance(found, Yarn)
    return found


RM = "yarn.resourcemanager"


@pytest.mark.parametrize(
    ("properties", "addresses"),
    [
        ({f"{RM}.hostname": "rm"}, [("rm", 8032)]),
        ({f"{RM}.address": "rm:8050"}, [("rm", 8050)]),
        ({f"{RM}.address": "rm"}, [("rm", 8032)]),
        ({f"{RM}.hostname": "rm", f"{RM}.address": "${yarn.resourcemanager.hostname}:8040"}, [("rm", 8040)]),
        ({"a": "${b}", "b": "rm", f"{RM}.hostname": "${a}.example.com"}, [("rm.example.com", 8032)]),
        (
            {
                f"{RM}.ha.enabled": "true",
                f"{RM}.ha.rm-ids": "one, two",
                f"{RM}.hostname.one": "rm-1",
                f"{RM}.address.two": "rm-2:8033",
                f"{RM}.hostname": "none",
            },
            [("rm-1", 8032), ("rm-2", 8033)],
        ),
        ({f"{RM}.ha.enabled": "false", f"{RM}.ha.rm-ids": "one", f"{RM}.hostname": "rm"}, [("rm", 8032)]),
    ],
)
def test_hadoops_configuration_says_where_the_resource_managers_are(
    tmp_path: Path, properties: dict[str, str], addresses: list[tuple[str, int]]
) -> None:
    configured(tmp_path, properties)

    found = yarn(tmp_path)

    assert found.addresses == addresses
    assert (found.master, found.python, found.cores) == ("yarn", sys.executable, 4)
    assert found.environment == {"HADOOP_CONF_DIR": str(tmp_path / "hadoop")}
    assert found.shared_secret is None


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {f"{RM}.hostname": ""},
        {f"{RM}.address": ":8032"},
        {f"{RM}.address": "rm:port"},
        {f"{RM}.address": "rm:0"},
        {f"{RM}.ha.enabled": "true", f"{RM}.hostname": "rm"},
        {f"{RM}.ha.enabled": "true", f"{RM}.ha.rm-ids": "one,two", f"{RM}.hostname.one": "rm"},
    ],
)
def test_a_configuration_that_names_no_resource_manager_is_refused(tmp_path: Path, properties: dict[str, str]) -> None:
    configured(tmp_path, properties)

    with pytest.raises(ConfigurationError, match=r"yarn-site\.xml does not say where the resource manager is"):
        yarn(tmp_path)


def test_variables_that_name_each_other_end(tmp_path: Path) -> None:
    configured(tmp_path, {"a": "${b}", "b": "${a}", f"{RM}.hostname": "${a}"})

    assert yarn(tmp_path).addresses[0][1] == 8032


@pytest.mark.parametrize("text", [None, "", "<configuration>"])
def test_a_configuration_that_cannot_be_read_is_refused(tmp_path: Path, text: str | None) -> None:
    configured(tmp_path, {})
    file = tmp_path / "hadoop/yarn-site.xml"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)

    with pytest.raises(ConfigurationError, match=rf"configuration cannot be read: {file}"):
        yarn(tmp_path)


def test_without_a_configuration_yarn_is_refused(tmp_path: Path) -> None:
    text = 'storage = "s3://lake/deltaworks"\n[spark]\n"spark.master" = "yarn"'
    (tmp_path / "deltaworks.toml").write_text(text)

    with pytest.raises(ConfigurationError, match="nothing says where its configuration is") as error:
        cluster.of(Settings.from_environment({}, cwd=tmp_path), "orders")

    assert "hadoop_conf_dir" in str(error.value.hint) and "HADOOP_CONF_DIR" in str(error.value.hint)


@pytest.mark.parametrize("variable", ["DELTAWORKS_HADOOP_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_a_variable_may_name_the_configuration_and_other_processes_get_it(tmp_path: Path, variable: str) -> None:
    (tmp_path / "deltaworks.toml").touch()

    found = Settings.from_environment({variable: "/etc/hadoop/conf"}, cwd=tmp_path)

    assert found.hadoop_conf_dir == Path("/etc/hadoop/conf")
    # Under its own name, Hadoop's configuration would also be that of sessions without YARN.
    assert found.environment()["DELTAWORKS_HADOOP_CONF_DIR"] == "/etc/hadoop/conf"
    assert not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & found.driver_environment().keys()


def test_what_the_project_says_comes_before_hadoops_own_variable(tmp_path: Path) -> None:
    (tmp_path / "deltaworks.toml").write_text('hadoop_conf_dir = "conf"')

    found = Settings.from_environment({"HADOOP_CONF_DIR": "/etc/hadoop/conf"}, cwd=tmp_path)

    assert found.hadoop_conf_dir == tmp_path / "conf"


def test_executors_on_yarn_cannot_reach_the_home(tmp_path: Path) -> None:
    configured(tmp_path, {f"{RM}.hostname": "rm"})

    with pytest.raises(ConfigurationError, match="executors cannot reach the home"):
        cluster.of(settings(tmp_path, storage="home"), "orders")


@pytest.mark.parametrize(
    ("cores", "spark", "executors"),
    [
        (1, (), (1, 1)),
        (2, (), (1, 2)),
        (4, (), (1, 4)),
        (6, (), (2, 3)),
        (7, (), (7, 1)),
        (16, (), (4, 4)),
        (16, ('"spark.executor.cores" = 5',), (3, 5)),
        (16, ('"spark.executor.instances" = 2',), (2, 4)),
        (16, ('"spark.executor.instances" = 2', '"spark.executor.cores" = 8'), (2, 8)),
    ],
)
def test_so_many_tasks_run_at_once_at_most(
    tmp_path: Path, cores: int, spark: tuple[str, ...], executors: tuple[int, int]
) -> None:
    configured(tmp_path, {f"{RM}.hostname": "rm"})

    found = yarn(tmp_path, *spark, cores=cores).settings()

    assert (int(found["spark.executor.instances"]), int(found["spark.executor.cores"])) == executors
    assert found["spark.executor.memoryOverhead"] == f"{384 + 512 * executors[1]}m"
    assert "spark.cores.max" not in found


def test_a_project_may_say_what_executors_need_beside_their_heap(tmp_path: Path) -> None:
    configured(tmp_path, {f"{RM}.hostname": "rm"})

    assert (
        "spark.executor.memoryOverhead"
        not in yarn(tmp_path, '"spark.executor.memoryOverheadFactor" = "0.5"').settings()
    )


def test_executors_that_come_and_go_have_a_limit_too(tmp_path: Path) -> None:
    configured(tmp_path, {f"{RM}.hostname": "rm"})

    found = yarn(tmp_path, '"spark.dynamicAllocation.enabled" = true', cores=16).settings()

    assert found["spark.dynamicAllocation.maxExecutors"] == "4"
    assert "spark.executor.instances" not in found


@pytest.mark.parametrize(
    "spark",
    [
        ('"spark.executor.cores" = 5',),
        ('"spark.executor.instances" = 2', '"spark.executor.cores" = 3'),
        ('"spark.executor.instances" = 5', '"spark.executor.cores" = 1'),
        ('"spark.dynamicAllocation.enabled" = true', '"spark.dynamicAllocation.maxExecutors" = 5'),
    ],
)
def test_more_tasks_at_once_are_refused(tmp_path: Path, spark: tuple[str, ...]) -> None:
    configured(tmp_path, {f"{RM}.hostname": "rm"})

    with pytest.raises(ConfigurationError, match=r"on YARN would run \d+ tasks at once; cores = 4"):
        yarn(tmp_path, *spark)


@pytest.mark.parametrize("value", ["0", '"-1"', '"two"', '""'])
def test_a_number_of_executors_is_a_number(tmp_path: Path, value: str) -> None:
    configured(tmp_path, {f"{RM}.hostname": "rm"})

    with pytest.raises(ConfigurationError, match=r"spark\.executor\.instances is '.*'; it is a number of at least 1"):
        yarn(tmp_path, f'"spark.executor.instances" = {value}')


def test_yarn_makes_the_secret_itself(tmp_path: Path) -> None:
    configured(tmp_path, {f"{RM}.hostname": "rm"})

    found = yarn(tmp_path, '"spark.authenticate.secret" = { env = "NOT_THERE" }')

    assert found.shared_secret is None
    assert found.settings()["spark.authenticate"] == "true"


def test_a_resource_manager_that_is_away_is_said(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        configured(tmp_path, {f"{RM}.address": f"127.0.0.1:{port}"})

        with pytest.raises(StackError, match=rf"The YARN cluster 127\.0\.0\.1:{port} does not answer: .*ref") as error:
            yarn(tmp_path).require_answer()

        assert "hadoop_conf_dir" in str(error.value.hint)


def test_one_of_several_resource_managers_is_enough(tmp_path: Path) -> None:
    with socket.socket() as dead, socket.create_server(("127.0.0.1", 0)) as alive:
        dead.bind(("127.0.0.1", 0))
        names = {f"{RM}.ha.enabled": "true", f"{RM}.ha.rm-ids": "a,b"}
        ports = {f"{RM}.address.{of}": f"localhost:{each.getsockname()[1]}" for of, each in (("a", dead), ("b", alive))}
        configured(tmp_path, names | ports)

        found = yarn(tmp_path)
        found.require_answer()

        assert found.is_here
