"""Kubernetes: which API server, what its executors need, and what is refused."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks.control import cluster
from deltaworks.control.clusters import kubernetes
from deltaworks.control.clusters.kubernetes import Kubernetes
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings

NEEDED = {"spark.kubernetes.container.image": "registry/shop:1", "spark.kubernetes.namespace": "streams"}


def settings(
    project: Path, master: str, spark: dict[str, str] = NEEDED, *, cores: int = 4, storage: str = "s3://lake/d"
) -> Settings:
    lines = [f'"{name}" = "{value}"' for name, value in {"spark.master": master, **spark}.items()]
    (project / "deltaworks.toml").write_text(
        f'cores = {cores}\nstorage = "{storage}"\n[spark]\n' + "\n".join(lines) + "\n"
    )
    return Settings.from_environment({}, cwd=project)


def of(project: Path, master: str = "k8s://https://api:443", spark: dict[str, str] = NEEDED) -> Kubernetes:
    found = cluster.of(settings(project, master, spark), "orders")
    assert isinstance(found, Kubernetes)
    return found


@pytest.fixture
def server() -> Iterator[str]:
    """The master of an API server that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"k8s://https://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("master", "address"),
    [
        ("k8s://https://api.example.com:6443", ("api.example.com", 6443)),
        ("k8s://https://kubernetes.default.svc:443/", ("kubernetes.default.svc", 443)),
        ("k8s://http://127.0.0.1:8001", ("127.0.0.1", 8001)),
        ("k8s://api:443", ("api", 443)),
        ("k8s://https://[fd00::1]:443", ("fd00::1", 443)),
    ],
)
def test_the_master_is_the_address_of_the_api_server(tmp_path: Path, master: str, address: tuple[str, int]) -> None:
    found = of(tmp_path, master)

    assert (found.master, found.addresses, found.cores) == (master, [address], 4)
    assert found.shared_secret is None
    assert not found.is_here, "a pod has an address of its own"


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("spark.kubernetes.container.image", "the image of its executors"),
        ("spark.kubernetes.namespace", "the namespace of its executors"),
    ],
)
def test_image_and_namespace_have_to_be_said(tmp_path: Path, missing: str, what: str) -> None:
    without = {name: value for name, value in NEEDED.items() if name != missing}

    with pytest.raises(ConfigurationError, match=f"'orders' runs on Kubernetes, and nothing says .*{what}") as error:
        of(tmp_path, spark=without)

    assert missing in str(error.value.hint)


def test_an_image_of_the_executors_alone_is_enough(tmp_path: Path) -> None:
    of(tmp_path, spark={"spark.kubernetes.executor.container.image": "a", "spark.kubernetes.namespace": "b"})


def test_executors_in_pods_cannot_reach_the_home(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="executors cannot reach the home"):
        cluster.of(settings(tmp_path, "k8s://https://api:443", storage="home"), "orders")


def test_a_driver_asks_for_pods_only_and_tells_them_the_address_that_it_has(tmp_path: Path, server: str) -> None:
    found = of(tmp_path, server).settings()

    assert found["spark.driver.host"] == "127.0.0.1"
    assert found["spark.authenticate"] == "true"
    assert (found["spark.executor.instances"], found["spark.executor.cores"]) == ("1", "4")
    assert found["spark.executor.memoryOverhead"] == "2432m"
    off = {
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.executor.disableConfigMap": "true",
    }
    assert off.items() <= found.items()


def test_executors_have_a_volume_of_their_own_for_stores(tmp_path: Path, server: str) -> None:
    volume = "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.mount.path"
    assert of(tmp_path, server).settings()[volume] == "/var/data/deltaworks"

    claim = "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-2.mount.path"
    assert volume not in of(tmp_path, server, {**NEEDED, claim: "/fast"}).settings()
    other = "spark.kubernetes.executor.volumes.emptyDir.other.mount.path"
    assert volume in of(tmp_path, server, {**NEEDED, other: "/other"}).settings()


def test_more_tasks_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="2 executors with 3 cores on Kubernetes would run 6 tasks at once"):
        of(tmp_path, spark={**NEEDED, "spark.executor.cores": "3", "spark.executor.instances": "2"})


def test_an_address_of_ipv6_is_one_in_a_url() -> None:
    assert kubernetes._in_url("fd00::1") == "[fd00::1]"
    assert kubernetes._in_url("10.0.0.1") == "10.0.0.1"


def test_an_api_server_that_is_away_is_said(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        master = f"k8s://https://127.0.0.1:{server.getsockname()[1]}"

        with pytest.raises(
            StackError, match=f"The Kubernetes cluster {re.escape(master)} does not answer: .*ref"
        ) as error:
            of(tmp_path, master).require_answer()

    assert "k8s://https://kubernetes.default.svc:443" in str(error.value.hint)
