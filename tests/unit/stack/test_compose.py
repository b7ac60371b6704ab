"""The templates of the containers say what `infra/` says of the native stack, and fit a project of its own."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deltaworks.control.supervisor import client
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack import spark
from deltaworks.stack.airflow import bundle_config
from deltaworks.stack.components import Component, read_components
from deltaworks.stack.compose import SECRETS, compose_files, new_secrets
from deltaworks.stack.sql import client as sql_client

ROOT = Path(__file__).parents[3]
HERE = Settings(project=ROOT, home=ROOT, infra=ROOT / "infra", cache=ROOT)
COMPONENTS = read_components(ROOT / "infra")
SERVICES = {name: each for name, each in COMPONENTS.by_name.items() if COMPONENTS.software[each.software].image}
"""The components that have an image."""
UNLIMITED = (client.NAME, "airflow-scheduler", "spark-worker-1", "spark-worker-2")
"""Where streams and replays run, and their tasks."""
JOBS = {"scheduler": "SchedulerJob", "dag_processor": "DagProcessorJob", "triggerer": "TriggererJob"}
PORTS = {
    "kafka": (19092, 19092),
    "postgres": (19432, 5432),
    "sql": (19100, 19100),
    "s3": (19333, 8333),
    "airflow-api-server": (19080, 19080),
}
"""Of this machine, and of the container."""
PROPERTIES = "/opt/deltaworks/spark.properties"


def rendered(settings: Settings) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(compose_files(settings)["docker-compose.yml"])
    return content


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = rendered(HERE)["services"]
    return found


def test_every_component_with_an_image_is_a_service(services: dict[str, Any]) -> None:
    assert list(services) == list(SERVICES)
    assert COMPONENTS.by_name.keys() - SERVICES.keys() == {
        *("schema-registry", "connect", "connect-2", "connect-standalone"),
        *("source-postgres", "source-mariadb", "opensearch", "prometheus", "alertmanager"),
    }


@pytest.mark.parametrize("component", SERVICES.values(), ids=lambda component: component.name)
def test_a_service_starts_waits_and_stops_like_its_component(services: dict[str, Any], component: Component) -> None:
    service = services[component.name]
    own_image = component.software in ("kafka", "postgres", "seaweedfs")
    image = COMPONENTS.software[component.software if own_image else "deltaworks"].image
    waits = {
        name: {"condition": "service_completed_successfully" if COMPONENTS.by_name[name].is_step else "service_healthy"}
        for name in component.after
    }
    patience_s = 75 if component.name == client.NAME else component.stop_patience_s

    assert service["image"] == image
    if component.software == "spark":
        assert service["command"][:2] == ["spark-class", *component.command]
    elif not own_image:
        drain = [client.DRAIN] if component.name == client.NAME else []
        assert service["command"] == ["python", "-m", *component.command, *drain]
    assert service.get("depends_on", {}) == waits
    assert service["restart"] == ("no" if component.is_step else "unless-stopped")
    assert service.get("profiles") == ([component.part_of or component.name] if component.optional else None)
    assert service["stop_signal"] == component.stop_signal
    assert service["stop_grace_period"] == f"{patience_s:.0f}s"
    assert service.get("mem_limit") == (None if component.name in UNLIMITED else f"{2 * component.memory_mb}m")


@pytest.mark.parametrize("component", SERVICES.values(), ids=lambda component: component.name)
def test_a_service_is_healthy_when_its_component_is_ready(services: dict[str, Any], component: Component) -> None:
    check = services[component.name].get("healthcheck")
    if component.ready == "exit":
        assert check is None
        return
    asks = {
        "admin": f"127.0.0.1:{HERE.broker_port}",
        "login": "pg_isready",
        "http": f"http://127.0.0.1:{HERE.airflow_port}{component.path}'",
        "heartbeat": f"--job-type {JOBS.get(component.job)} ",
        "answers": client.__name__,
        "sql": sql_client.__name__,
        "s3": f"http://127.0.0.1:{PORTS['s3'][1]}/healthz",
        "spark": f"('{component.name}', 'ALIVE')" if component.node else "['status'] == 'ALIVE'",
    }

    assert asks[component.ready] in " ".join(check["test"])
    assert check["start_period"] == f"{component.ready_timeout_s:.0f}s"


def test_published_ports_are_those_of_the_settings(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}

    assert published == {name: [f"127.0.0.1:{own}:{inner}"] for name, (own, inner) in PORTS.items()}
    assert [own for own, _ in PORTS.values()] == [
        HERE.broker_port,
        HERE.postgres_port,
        HERE.sql_port,
        HERE.s3_port,
        HERE.airflow_port,
    ]


def test_postgres_has_the_settings_of_the_native_one(services: dict[str, Any]) -> None:
    settings = COMPONENTS.software["postgres"].settings

    assert services["postgres"]["command"] == [
        "postgres",
        *(text for name, value in settings.items() for text in ("-c", f"{name}={value}")),
    ]


def test_the_object_store_has_the_settings_of_the_native_one(services: dict[str, Any]) -> None:
    addresses = {"ip": "127.0.0.1", "ip.bind": "0.0.0.0", "s3.port": str(PORTS["s3"][1])}
    settings = addresses | COMPONENTS.software["seaweedfs"].settings

    assert services["s3"]["command"] == ["mini", *(f"-{name}={value}" for name, value in settings.items())]


@pytest.mark.parametrize("component", [c for c in COMPONENTS.by_name.values() if c.software == "spark"])
def test_master_and_workers_are_started_like_the_native_ones(services: dict[str, Any], component: Component) -> None:
    service = services[component.name]
    given, native = service["command"][2:], spark.command(HERE, component)[2:]
    port, page = map(str, spark.ports(HERE, 0))

    own = {"--host": component.name, "--port": port, "--webui-port": page, "--properties-file": PROPERTIES}
    expected = dict(zip(native[::2], native[1::2], strict=False)) | own
    expected.pop("--cores", None)  # all that the machine has
    assert dict(zip(given[::2], given[1::2], strict=False)) == expected
    assert service["hostname"] == component.name
    assert given[len(expected) * 2 :] == ([f"spark://spark-master:{port}"] if component.node else [])


def test_master_and_workers_have_the_properties_of_the_native_ones_and_no_other_secret() -> None:
    project = rendered(HERE)
    secret = "${SPARK_CLUSTER_SECRET:?secret of the Spark cluster}"

    assert project["configs"]["spark"]["content"] == spark._PROPERTIES.format(secret=secret)
    for service in (each for name, each in project["services"].items() if name.startswith("spark-")):
        (file,) = service["configs"]
        assert (file["source"], file["target"], file["mode"]) == ("spark", PROPERTIES, "0600")
        assert "${" not in str(service)


def test_the_broker_has_the_heap_of_the_native_one(services: dict[str, Any]) -> None:
    heap = " ".join(option for option in HERE.broker_options if option.startswith("-Xm"))

    assert services["kafka"]["environment"]["KAFKA_HEAP_OPTS"] == heap


def test_airflow_has_the_settings_of_the_native_one(services: dict[str, Any]) -> None:
    environment = services["airflow-scheduler"]["environment"]
    expected = COMPONENTS.software["airflow"].settings
    own = {name: value for name, value in environment.items() if not name.startswith("DELTAWORKS_")}
    names = {
        "home": "/opt/deltaworks/home/airflow",
        "dags": "/opt/deltaworks/dags",
        "bundles": bundle_config(replace(HERE, project=Path("/opt/deltaworks"))),
        "users": "admin:admin",
        "passwords_file": "/opt/deltaworks/passwords.json",
        "database_url": "postgresql+psycopg://airflow:${AIRFLOW_DB_PASSWORD:?password of the role airflow}"
        "@postgres:5432/airflow",
        "host": "0.0.0.0",
        "port": str(HERE.airflow_port),
        "server_url": f"http://airflow-api-server:{HERE.airflow_port}",
        "public_url": f"http://127.0.0.1:{HERE.airflow_port}",
        "fernet_key": "${AIRFLOW_FERNET_KEY:?key of Airflow's connections}",
        "secret_key": "${AIRFLOW_SECRET_KEY:?key of Airflow's sessions}",
        "jwt_secret": "${AIRFLOW_JWT_SECRET:?key of Airflow's tokens}",
    }

    assert own == {name: string.Template(value).substitute(names) for name, value in expected.items()}


def test_a_clone_installs_the_wheel_that_it_builds() -> None:
    files = compose_files(HERE)
    wheel = f"dist/deltaworks-{COMPONENTS.software['deltaworks'].version}-py3-none-any.whl"

    assert rendered(HERE)["name"] == "deltaworks"
    assert installed(files) == [f"./{wheel}"]
    assert f"COPY --chown=50000:0 {wheel} {wheel}\n" in files["Dockerfile"]
    assert f"!{wheel}" in files[".dockerignore"].splitlines()


def test_a_project_of_its_own_has_its_name_and_image_and_installs_from_the_index(tmp_path: Path) -> None:
    project = tmp_path / "_My Orders.2"
    project.mkdir()
    files = compose_files(replace(HERE, project=project))

    own, clone = rendered(replace(HERE, project=project)), rendered(HERE)

    version = COMPONENTS.software["deltaworks"].version
    assert (own.pop("name"), clone.pop("name")) == ("myorders2", "deltaworks")
    for service in [own["x-deltaworks"], own["x-spark"], *own["services"].values()]:
        if "build" in service:
            assert service["image"] == f"deltaworks-myorders2:{version}"
            service["image"] = f"deltaworks:{version}"
    assert own == clone
    assert installed(files) == [f"deltaworks=={version}"]
    assert not [line for line in files["Dockerfile"].splitlines() if line.startswith("COPY") and ".whl" in line]
    assert ".whl" not in files[".dockerignore"]


def test_a_project_of_its_own_may_have_the_wheel(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "deltaworks-9.whl").touch()

    for given in (Path("vendor/deltaworks-9.whl"), tmp_path / "vendor" / "deltaworks-9.whl"):
        files = compose_files(replace(HERE, project=tmp_path), given)
        assert installed(files) == ["./vendor/deltaworks-9.whl"]
        assert "!vendor/deltaworks-9.whl" in files[".dockerignore"].splitlines()


@pytest.mark.parametrize("wheel", ["dist/none.whl", "../outside.whl", "deltaworks.tar.gz"])
def test_a_wheel_that_the_builder_does_not_get_is_refused(tmp_path: Path, wheel: str) -> None:
    project = tmp_path / "shop"
    project.mkdir()
    for name in ("../outside.whl", "deltaworks.tar.gz"):
        (project / name).touch()

    with pytest.raises(ConfigurationError, match="There is no wheel"):
        compose_files(replace(HERE, project=project), Path(wheel))


def installed(files: dict[str, str]) -> list[str]:
    """What the image installs of deltaworks itself."""
    return re.findall(r"pip install --no-cache-dir --no-deps --only-binary :all: (\S+)", files["Dockerfile"])


def test_the_image_is_that_of_airflow_with_the_locks_of_the_wheel() -> None:
    dockerfile = compose_files(HERE)["Dockerfile"]

    assert re.findall(r"^FROM (.*)$", dockerfile, re.MULTILINE) == [COMPONENTS.software["airflow"].image]
    locks = re.findall(r'-r "\$locks/([\w.-]+)"', dockerfile)
    assert locks == ["build-constraints.txt", "runtime-constraints.txt"]
    assert [name for name in locks if not (ROOT / "infra" / name).is_file()] == []


def test_every_secret_has_no_default_and_is_generated() -> None:
    made = dict(line.split("=", 1) for line in new_secrets().splitlines())

    text = compose_files(HERE)["docker-compose.yml"]
    assert set(re.findall(r"\$\{(\w+):\?", text)) == set(SECRETS) == set(made)
    assert "${" not in re.sub(r"\$\{\w+:\?[^}]+\}", "", text)
    assert set(made.values()).isdisjoint(line.split("=", 1)[1] for line in new_secrets().splitlines())
