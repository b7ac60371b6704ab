"""The Spark cluster before it starts: its secret, what drivers are told, its ports, its commands and its answers."""

from __future__ import annotations

import os
import shlex
import socket
import stat
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import home
from deltaworks.control import cluster
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import ports, spark
from deltaworks.stack.components import Component, Components, read_components
from deltaworks.stack.native import NativeHost
from tests.support.receivers import says

LAST = 65_530


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(
        Settings.from_environment({"PATH": os.environ["PATH"]}, cwd=tmp_path),
        home=tmp_path / "home",
        spark_port=free_row(),
    )


@pytest.fixture
def components(settings: Settings) -> Components:
    return read_components(settings.infra)


def free_row() -> int:
    """The first of six ports that nobody has."""
    while True:
        (port,) = ports.free_ports(1)
        if all(map(ports.is_free, range(port, port + 6))):
            return port


def prepared(settings: Settings) -> Settings:
    home.make(settings)
    spark.prepare(settings, read_components(settings.infra))
    return settings


def part(components: Components, name: str) -> Component:
    return components.by_name[f"spark-{name}"]


def test_the_secret_is_made_once_and_only_its_user_can_read_it(settings: Settings) -> None:
    first, second = (spark.credentials(prepared(settings)) for _ in range(2))

    assert first.password == second.password
    assert len(first.password) == 64
    assert first.password not in repr(first)
    assert {stat.S_IMODE(file.stat().st_mode) for file in settings.spark.rglob("*") if file.is_file()} == {0o600}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in settings.spark.rglob("*") if folder.is_dir()} == {0o700}
    assert stat.S_IMODE(settings.spark.stat().st_mode) == 0o700


def test_it_is_new_only_the_first_time(settings: Settings) -> None:
    home.make(settings)

    assert [spark.credentials(settings).created_now for _ in range(2)] == [True, False]


def test_only_who_knows_the_secret_gets_in_and_nobody_ends_anything_on_a_page(settings: Settings) -> None:
    text = (prepared(settings).spark / "cluster.properties").read_text()

    assert dict(line.split(" ", 1) for line in text.splitlines()) == {
        "spark.authenticate": "true",
        "spark.authenticate.secret": spark.credentials(settings).password,
        "spark.deploy.recoveryMode": "FILESYSTEM",
        "spark.deploy.recoveryDirectory": str(settings.spark / "master"),
        "spark.master.rest.enabled": "false",
        "spark.master.ui.decommission.allow.mode": "DENY",
        "spark.ui.killEnabled": "false",
        "spark.worker.cleanup.enabled": "true",
    }


def test_drivers_are_told_where_it_is_and_where_the_secret_is(settings: Settings) -> None:
    file = settings.spark_access_in(prepared(settings).home)
    told = tomllib.loads(file.read_text())["spark"]

    assert told["spark.master"] == f"spark://127.0.0.1:{settings.spark_port}"
    secret = (file.parent / told["spark.authenticate.secret"]["file"]).read_text().strip()
    assert secret == spark.credentials(settings).password
    assert secret not in file.read_text()


def test_a_stream_that_names_it_gets_in(settings: Settings) -> None:
    prepared(settings)
    (settings.project / "deltaworks.toml").write_text(
        f'storage = "s3://lake/state"\n[spark]\n"spark.master" = "spark://127.0.0.1:{settings.spark_port}"'
    )

    found = cluster.of(Settings.from_environment({"DELTAWORKS_HOME": str(settings.home)}, cwd=settings.project), "any")

    assert found is not None
    assert found.shared_secret == spark.credentials(settings).password


def test_another_port_is_told_at_the_next_start(settings: Settings) -> None:
    prepared(settings)
    prepared(replace(settings, spark_port=7077))

    assert '"spark://127.0.0.1:7077"' in settings.spark_access_in(settings.home).read_text()


def test_each_process_has_two_ports_of_its_own(settings: Settings, components: Components) -> None:
    host = NativeHost(replace(settings, spark_port=LAST), components)
    found = [host.ports(part(components, name)) for name in ("master", "worker-1", "worker-2")]

    assert [port for each in found for port in each] == list(range(LAST, 65_536))


def test_a_port_that_leaves_no_room_for_the_others_is_refused(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=f"is {LAST + 1}; .*\n  Hint: choose one up to {LAST}"):
        prepared(replace(settings, spark_port=LAST + 1))


def test_the_cluster_is_started_by_one_name_the_master_first(components: Components) -> None:
    assert [c.name for c in components.chosen(["spark"])] == ["spark-master", "spark-worker-1", "spark-worker-2"]
    assert len([c for c in components.by_name.values() if c.part_of == "spark" and c.node]) == spark.WORKERS


def test_a_worker_offers_what_the_settings_say_to_the_master(settings: Settings, components: Components) -> None:
    given = replace(settings, spark_port=7077, spark_worker_cores=3, spark_worker_memory="5g")

    command = spark.command(given, part(components, "worker-2"))

    assert command[0].endswith("/pyspark/bin/spark-class")
    assert command[1] == "org.apache.spark.deploy.worker.Worker"
    assert command[-1] == "spark://127.0.0.1:7077"
    assert dict(zip(command[2:-1:2], command[3:-1:2], strict=True)) == {
        "--host": "127.0.0.1",
        "--port": "7081",
        "--webui-port": "7082",
        "--cores": "3",
        "--memory": "5g",
        "--properties-file": f"{settings.spark}/cluster.properties",
    }


def test_the_master_listens_on_this_machine(settings: Settings, components: Components) -> None:
    command = spark.command(replace(settings, spark_port=7077), part(components, "master"))

    assert command[1] == "org.apache.spark.deploy.master.Master"
    assert dict(zip(command[2::2], command[3::2], strict=True)) == {
        "--host": "127.0.0.1",
        "--port": "7077",
        "--webui-port": "7078",
        "--properties-file": f"{settings.spark}/cluster.properties",
    }


@pytest.mark.parametrize("name", ["master", "worker-1"])
def test_the_secret_is_in_no_command_line_and_no_variable(
    settings: Settings, components: Components, name: str
) -> None:
    launch = NativeHost(prepared(settings), components).launch(part(components, name))

    secret = spark.credentials(settings).password
    assert not [word for word in (*launch.command, *launch.environment.values()) if secret in word]


def test_executors_get_no_variable_of_deltaworks_and_a_folder_of_their_worker(
    settings: Settings, components: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAWORKS_CONTROL_URL", "postgresql://u:p@h/d")
    found = [spark.environment(settings, components, part(components, f"worker-{node}")) for node in (1, 2)]

    assert not [name for each in found for name in each if name.startswith(("DELTAWORKS_", "_SPARK_AUTH"))]
    assert [each["SPARK_WORKER_DIR"] for each in found] == [f"{settings.spark}/worker-{node}" for node in (1, 2)]
    assert all(Path(each["SPARK_LOCAL_DIRS"]).parent == Path(each["SPARK_WORKER_DIR"]) for each in found)
    assert {each["SPARK_LOCAL_IP"] for each in found} == {"127.0.0.1"}


def test_a_home_with_spaces_is_one_option_of_the_jvm(settings: Settings, components: Components) -> None:
    own = replace(settings, home=Path('/srv/my "home"'))

    options = shlex.split(spark.environment(own, components, part(components, "master"))["SPARK_DAEMON_JAVA_OPTS"])

    assert f"-Djava.io.tmpdir={own.temporary}" in options


def test_the_master_answers_when_it_is_at_work_and_a_worker_when_the_master_knows_it(
    settings: Settings, components: Components
) -> None:

    def answers() -> list[bool]:
        return [spark.answers(settings, part(components, name)) for name in ("master", "worker-1")]

    (_, master), (port, page) = spark.ports(settings, 0), spark.ports(settings, 1)
    known = {"port": port, "state": "ALIVE"}
    assert answers() == [False, False]

    with says(master, "/json/", {"status": "STANDBY", "workers": []}):
        assert answers() == [False, False]
    with says(page, "/json/", {"id": "worker"}):
        for workers in ([], [known | {"state": "DEAD"}], [known | {"port": port + 2}]):
            with says(master, "/json/", {"status": "ALIVE", "workers": workers}):
                assert answers() == [True, False]
        with says(
            spark.ports(settings, 0)[1], "/json/", {"status": "ALIVE", "workers": [known | {"state": "DEAD"}, known]}
        ):
            assert answers() == [True, True]
    with says(master, "/json/", {"status": "ALIVE", "workers": [known]}):
        assert answers() == [True, False], "the worker itself does not answer"


def test_whoever_has_a_port_is_named(settings: Settings) -> None:
    host, port = NativeHost.of(settings), settings.spark_port + 3

    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(StackError, match=rf"(?s)Port {port}, where spark-worker-1 .*Hint: .*DELTAWORKS_SPARK_PORT"):
            host.require_room_and_ports(host.components.by_name["spark-worker-1"])


def test_what_killed_executors_leave_is_removed_and_their_logs_stay(settings: Settings) -> None:
    spark.tidy(settings)
    left, log = prepared(settings).spark / "worker-2/local/blocks", settings.spark / "worker-2/app-1/0/stderr"
    for file in (left, log):
        file.parent.mkdir(parents=True)
        file.touch()

    spark.tidy(settings)

    assert (left.exists(), log.exists()) == (False, True)


@pytest.mark.parametrize("there", [False, True])
def test_without_jars_of_spark_it_says_what_to_install(
    settings: Settings, components: Components, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    class Spec:
        origin = str(tmp_path / "__init__.py")

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-class").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec if there else None)

    with pytest.raises(ConfigurationError, match=r"needs PySpark with its jars\.\n  Hint: pip install"):
        spark.prepare(settings, components)


def test_without_java_it_says_so(settings: Settings, components: Components) -> None:
    home.make(settings)
    with pytest.raises(ConfigurationError, match="need Java 8"):
        spark.prepare(settings, replace(components, java_versions=(8,)))
