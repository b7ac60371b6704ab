"""The Spark cluster of the stack, as its processes and its page show it, with an application that runs there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deltaworks.errors import StackError
from deltaworks.files import replace_file
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import ports, spark
from deltaworks.stack.lifecycle import down, log_of, status, up
from tests.support.live_stack import await_restart, listening

NAMES = ["spark-master", "spark-worker-1", "spark-worker-2"]
PATIENCE_S = 120
APPLICATION = """
import time
from pyspark import SparkConf, SparkContext

settings = {
    "spark.master": "MASTER", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.executor.memory": "512m", "spark.executor.extraJavaOptions": "-XX:-UsePerfData",
    "spark.authenticate": "true",
}
context = SparkContext(conf=SparkConf().setAll(list(settings.items())))
context.parallelize(range(4), 4).foreach(lambda _: time.sleep(600))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = settings_of(tmp_path_factory.mktemp("cluster") / "home")
    assert up(settings, only=["spark"], tethered=True).started == NAMES
    try:
        yield settings
    finally:
        down(settings)


def settings_of(home: Path) -> Settings:
    """With ports that nobody has."""
    while True:
        (port,) = ports.free_ports(1)
        if all(map(ports.is_free, range(port, port + 6))):
            return replace(own_settings(home), spark_port=port, spark_worker_cores=2, spark_worker_memory="1g")


def alive(settings: Settings) -> dict[int, int]:
    """The workers that the master has: their ports, and the cores of each."""
    state = json.loads(read(spark.ports(settings, 0)[1], "/json/"))
    return {each["port"]: each["cores"] for each in state["workers"] if each["state"] == "ALIVE"}


def read(page: int, path: str, data: bytes | None = None) -> str:
    """What a web page shows; with data, it is sent there."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{page}{path}", data, timeout=10) as answer:
        return str(answer.read().decode())


def both(settings: Settings) -> dict[int, int]:
    return {spark.ports(settings, node)[0]: 2 for node in (1, 2)}


def pids(settings: Settings) -> dict[str, int]:
    return {entry.name: entry.pid for entry in status(settings) if entry.kind == "component"}


def executors(*workers: int) -> list[psutil.Process]:
    """What runs below these processes."""
    return [child for pid in workers for child in psutil.Process(pid).children() if child.status() != "zombie"]


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


@contextmanager
def application(settings: Settings, folder: Path, secret: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with a task on each core of the cluster."""
    program, properties = folder / "application.py", folder / "application.properties"
    program.write_text(APPLICATION.replace("MASTER", spark.credentials(settings).url))
    replace_file(properties, f"spark.authenticate.secret {secret}\n".encode(), mode=0o600)
    variables = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {properties} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
    }
    with (folder / "application.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(program)], env=variables, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield driver
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def test_the_master_has_both_workers_and_their_cores(cluster: Settings) -> None:
    assert alive(cluster) == both(cluster)


def test_it_listens_on_this_machine_only(cluster: Settings) -> None:
    found = listening(*pids(cluster).values())

    assert {port for _, port in found} == set(range(cluster.spark_port, cluster.spark_port + 6))
    assert {address.removeprefix("::ffff:") for address, _ in found} == {"127.0.0.1"}


def test_no_page_shows_the_secret_and_nobody_ends_a_worker_there(cluster: Settings) -> None:
    secret, addresses = spark.credentials(cluster).password, [spark.ports(cluster, node)[1] for node in (0, 1, 2)]
    shown = [read(port, path) for port in addresses for path in ("/", "/json/")]
    shown.append(read(addresses[0], "/environment/"))
    assert "spark.authenticate.secret" in shown[-1]
    assert not [text for text in shown if secret in text]

    with pytest.raises(urllib.error.HTTPError, match=r"40[35]"):
        read(addresses[0], "/workers/kill/", data=b"host=127.0.0.1")
    assert alive(cluster) == both(cluster)


def test_another_home_does_not_start_one_on_the_same_ports(cluster: Settings, tmp_path: Path) -> None:
    other = replace(cluster, home=tmp_path / "other")

    with pytest.raises(StackError, match=rf"Port {cluster.spark_port}, where spark-master .* is used by spark-master"):
        up(other, only=["spark"], tethered=True)
    assert down(other) == []


def test_a_killed_worker_comes_back_and_leaves_no_executor(cluster: Settings, tmp_path: Path) -> None:
    before, secret = pids(cluster), spark.credentials(cluster).password
    workers = [before[name] for name in NAMES[1:]]
    with application(cluster, tmp_path, secret):
        eventually(lambda: all(executors(pid) for pid in workers))
        involved = [psutil.Process(pid) for pid in before.values()] + executors(*workers)
        assert not [word for process in involved for word in process.cmdline() if secret in word]
        left = executors(workers[0])

        psutil.Process(workers[0]).kill()

        await_restart(cluster, NAMES[1], workers[0])
        assert [process for process in left if process.is_running() and process.status() != "zombie"] == []
        assert alive(cluster) == both(cluster)
        assert pids(cluster)[NAMES[2]] == workers[1]
    assert not [name for name in NAMES if secret in log_of(cluster, name).read_text()]


def test_who_does_not_know_the_secret_gets_no_executor(cluster: Settings, tmp_path: Path) -> None:
    eventually(lambda: not executors(*(pids(cluster)[name] for name in NAMES[1:])))
    with application(cluster, tmp_path, "wrong"):
        eventually(lambda: "Failed to connect to master" in (tmp_path / "application.log").read_text())

        assert not executors(*(pids(cluster)[name] for name in NAMES[1:]))


def test_workers_find_a_master_that_was_killed_again(cluster: Settings) -> None:
    before = pids(cluster)

    psutil.Process(before[NAMES[0]]).kill()

    await_restart(cluster, NAMES[0], before[NAMES[0]])
    eventually(lambda: alive(cluster) == both(cluster))


def test_down_leaves_nothing_that_runs(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home")
    up(settings, only=["spark"], tethered=True)
    before = pids(settings)
    with application(settings, tmp_path, spark.credentials(settings).password):
        eventually(lambda: all(executors(before[name]) for name in NAMES[1:]))
        involved = [*executors(*(before[name] for name in NAMES[1:])), *map(psutil.Process, before.values())]

        assert down(settings) == NAMES[::-1]

        assert not [process for process in involved if process.is_running() and process.status() != "zombie"]
        assert all(map(ports.is_free, range(settings.spark_port, settings.spark_port + 6)))
        assert status(settings) == []
        assert not list(settings.spark.glob("worker-*/local"))
    down(settings, delete_data=True)
    assert not settings.home.exists()
