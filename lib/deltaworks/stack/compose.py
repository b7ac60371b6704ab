"""Writes `docker-compose.yml` from `infra/components.toml`: the same components as containers.

`python -m deltaworks.stack.compose` writes the file; a test fails if the committed one differs.
`python -m deltaworks.stack.compose --secrets >.env` prints new passwords and keys for it.

It differs from the native stack only in addresses and paths. Published ports are the defaults of the settings.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import string
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_never

from deltaworks.control.supervisor import client
from deltaworks.settings import Settings
from deltaworks.stack import airflow, postgres
from deltaworks.stack.airflow_bundles import bundle_config
from deltaworks.stack.components import Component, Components, Software, read_components

SECRETS = {
    "POSTGRES_PASSWORD": "password of PostgreSQL's superuser",
    "AIRFLOW_DB_PASSWORD": "password of the role airflow",
    "DELTAWORKS_DB_PASSWORD": "password of the role deltaworks",
    "AIRFLOW_ADMIN_PASSWORD": "password of Airflow's user admin",
    "AIRFLOW_FERNET_KEY": "key of Airflow's connections",
    "AIRFLOW_SECRET_KEY": "key of Airflow's sessions",
    "AIRFLOW_JWT_SECRET": "key of Airflow's tokens",
}
"""Variables without a default, from the environment or `.env`."""
_HEADER = """\
# Made from infra/components.toml by `python -m deltaworks.stack.compose`; a test compares the two.
#   .venv/bin/python -m deltaworks.stack.compose --secrets >.env && docker compose up -d
# Every port is published only on 127.0.0.1. Streams run in the container of the supervisor: they stop before it does,
# and run again when it does. Replays run in the container of the scheduler. These two have no memory limit.
"""
_ROOT = Path("/opt/deltaworks")
_INTERNAL = "kafka:29092"
"""Kafka's address for other containers."""
_UNLIMITED = (client.NAME, "airflow-scheduler")
"""Services in which streams and replays run."""
_JOBS = {"scheduler": "SchedulerJob", "dag_processor": "DagProcessorJob", "triggerer": "TriggererJob"}
_DOCKERFILE = """\
FROM {base}
USER root
RUN apt-get update \\
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \\
 && rm -rf /var/lib/apt/lists/* \\
 && install -d -o airflow -g 0 {root} {root}/home
USER airflow
WORKDIR {root}
COPY --chown=airflow:0 pyproject.toml constraints.txt README.md LICENSE ./
COPY --chown=airflow:0 infra infra
COPY --chown=airflow:0 lib lib
RUN pip install --no-cache-dir --require-hashes -r infra/build-constraints.txt \\
 && pip install --no-cache-dir --require-hashes --no-build-isolation -r constraints.txt \\
 && pip install --no-cache-dir --no-deps --no-build-isolation .
"""
_DATABASE = """\
\\getenv password {variable}
CREATE ROLE {name} LOGIN PASSWORD :'password';
CREATE DATABASE {name} OWNER {name};
REVOKE ALL ON DATABASE {name} FROM PUBLIC;
"""


def compose(components: Components, infra: Path) -> str:
    """The content of the file."""
    ports = Settings(project=_ROOT, home=_ROOT / "home", infra=_ROOT / "infra", cache=_ROOT / "home" / "cache")
    services = {
        component.name: _service(component, components, ports, infra) for component in components.by_name.values()
    }
    content = {
        "name": "deltaworks",
        "x-deltaworks": _Anchor("deltaworks", _image(components, ports)),
        "services": services,
        "volumes": {"home": None, "kafka": None, "postgres": None},
        "configs": {
            "databases": {
                "content": "".join(_DATABASE.format(name=n, variable=_password(n)) for n in postgres.DATABASES)
            },
            "passwords": {"content": json.dumps({airflow.USER: _secret("AIRFLOW_ADMIN_PASSWORD")})},
        },
    }
    return _HEADER + "\n".join(_lines(content)) + "\n"


def new_secrets() -> str:
    """New secrets, one line each, in the format of `.env`."""
    made = {name: secrets.token_urlsafe(32) for name in SECRETS}
    made["AIRFLOW_FERNET_KEY"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return "".join(f"{name}={value}\n" for name, value in made.items())


def _service(component: Component, components: Components, ports: Settings, infra: Path) -> dict[str, Any]:
    software = components.software[component.software]
    match component.software:
        case "kafka":
            own: dict[str, Any] = _kafka(software, ports, infra)
        case "postgres":
            own = _postgres(software)
        case "airflow" | "deltaworks":
            own = {"<<": _Alias("deltaworks"), "command": ["python", "-m", *component.command]}
            if component.name == client.NAME:
                own |= {"command": [*own["command"], client.DRAIN], "hostname": client.NAME, "init": True}
        case _:
            assert_never(component.software)
    waits = {
        name: {"condition": "service_completed_successfully" if components.by_name[name].is_step else "service_healthy"}
        for name in component.after
    }
    published = {"broker_port": None, "postgres_port": 5432, "airflow_port": None}
    own |= {
        "depends_on": waits,
        "ports": [
            f"127.0.0.1:{getattr(ports, name)}:{published[name] or getattr(ports, name)}"
            for name in component.ports
            if name in published
        ],
        "healthcheck": _healthcheck(component, ports),
        "restart": "no" if component.is_step else "unless-stopped",
        "stop_signal": component.stop_signal,
        "stop_grace_period": f"{75 if component.name == client.NAME else component.stop_patience_s:.0f}s",
        "mem_limit": None if component.name in _UNLIMITED else f"{2 * component.memory_mb}m",
    }
    return {name: value for name, value in own.items() if value not in ({}, [], None)}


def _kafka(software: Software, ports: Settings, infra: Path) -> dict[str, Any]:
    """Kafka with the configuration of `kafka/server.properties` and one more listener for the other containers."""
    text = string.Template((infra / "kafka" / "server.properties").read_text()).safe_substitute(
        port=ports.broker_port, controller_port=ports.controller_port, data="/var/lib/kafka/data"
    )
    properties = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    internal_port = _INTERNAL.rpartition(":")[2]
    properties["listeners"] = (
        f"PLAINTEXT://0.0.0.0:{ports.broker_port},INTERNAL://0.0.0.0:{internal_port},"
        f"CONTROLLER://127.0.0.1:{ports.controller_port}"
    )
    properties["advertised.listeners"] += f",INTERNAL://{_INTERNAL}"
    properties["listener.security.protocol.map"] += ",INTERNAL:PLAINTEXT"
    heap = " ".join(option for option in ports.broker_options if option.startswith("-Xm"))
    named = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items()}
    return {
        "image": software.image,
        "environment": {"KAFKA_HEAP_OPTS": heap, **named},
        "volumes": ["kafka:/var/lib/kafka/data"],
    }


def _postgres(software: Software) -> dict[str, Any]:
    return {
        "image": software.image,
        "command": ["postgres", *(text for k, v in software.settings.items() for text in ("-c", f"{k}={v}"))],
        "environment": {
            "POSTGRES_INITDB_ARGS": "--auth=scram-sha-256 --encoding=UTF8 --no-locale",
            **{name: _secret(name) for name in ("POSTGRES_PASSWORD", *map(_password, postgres.DATABASES))},
        },
        "configs": [{"source": "databases", "target": "/docker-entrypoint-initdb.d/databases.sql"}],
        "volumes": ["postgres:/var/lib/postgresql"],
    }


def _image(components: Components, ports: Settings) -> dict[str, Any]:
    """The common part of all services of Airflow and of this project."""
    base = components.software["airflow"]
    return {
        "image": components.software["deltaworks"].image,
        "build": {"context": ".", "dockerfile_inline": _DOCKERFILE.format(base=base.image, root=_ROOT)},
        "environment": _environment(base, ports),
        "configs": [
            {"source": "passwords", "target": str(_ROOT / "passwords.json"), "uid": "50000", "gid": "0", "mode": "0600"}
        ],
        "volumes": [f"home:{_ROOT}/home", f"./dags:{_ROOT}/dags:ro", f"./jobs:{_ROOT}/jobs:ro"],
    }


def _environment(software: Software, ports: Settings) -> dict[str, str]:
    here = {
        "DELTAWORKS_PROJECT": str(ports.project),
        "DELTAWORKS_HOME": str(ports.home),
        "DELTAWORKS_CACHE": str(ports.cache),
        "DELTAWORKS_BOOTSTRAP": _INTERNAL,
        "DELTAWORKS_CONTROL_URL": _database_url("deltaworks"),
        "DELTAWORKS_AIRFLOW_PORT": str(ports.airflow_port),
        "DELTAWORKS_SUPERVISOR_HOST": client.NAME,
    }
    names = {
        "home": str(ports.airflow),
        "dags": str(ports.project / "dags"),
        "bundles": bundle_config(ports),
        "passwords_file": str(_ROOT / "passwords.json"),
        "database_url": _database_url("airflow"),
        "host": "0.0.0.0",
        "port": str(ports.airflow_port),
        "server_url": f"http://airflow-api-server:{ports.airflow_port}",
        "public_url": f"http://127.0.0.1:{ports.airflow_port}",
        "fernet_key": _secret("AIRFLOW_FERNET_KEY"),
        "secret_key": _secret("AIRFLOW_SECRET_KEY"),
        "jwt_secret": _secret("AIRFLOW_JWT_SECRET"),
    }
    return here | {name: string.Template(value).substitute(names) for name, value in software.settings.items()}


def _healthcheck(component: Component, ports: Settings) -> dict[str, Any] | None:
    match component.ready:
        case "admin":
            program = "/opt/kafka/bin/kafka-broker-api-versions.sh"
            test = ["CMD", program, "--bootstrap-server", f"127.0.0.1:{ports.broker_port}"]
        case "login":
            role = postgres.DATABASES[0]
            test = ["CMD", "pg_isready", "--host=127.0.0.1", f"--username={role}", f"--dbname={role}"]
        case "http":
            url = f"http://127.0.0.1:{ports.airflow_port}{component.path}"
            test = ["CMD", "python", "-c", f"import urllib.request as r; r.urlopen('{url}', timeout=5)"]
        case "heartbeat":
            test = ["CMD-SHELL", f'airflow jobs check --job-type {_JOBS[component.job]} --hostname "$$(hostname)"']
        case "answers":
            test = ["CMD", "python", "-m", "deltaworks.control.supervisor.client"]
        case "exit":
            return None
        case _:
            assert_never(component.ready)
    return {
        "test": test,
        "interval": "15s",
        "timeout": "30s",
        "retries": 5,
        "start_period": f"{component.ready_timeout_s:.0f}s",
    }


def _secret(name: str) -> str:
    return f"${{{name}:?{SECRETS[name]}}}"


def _database_url(name: str) -> str:
    return f"postgresql+psycopg://{name}:{_secret(_password(name))}@postgres:5432/{name}"


def _password(role: str) -> str:
    """The name of the variable with the password of a role."""
    return f"{role.upper()}_DB_PASSWORD"


class _Anchor:
    """A mapping that others refer to."""

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        self.name, self.content = name, content


class _Alias(str):
    """The name of an anchor."""


def _lines(content: Mapping[str, Any], indent: str = "") -> list[str]:
    """Writes the subset of YAML that compose needs: mappings, lists, and text that is always quoted."""
    lines = []
    for key, value in content.items():
        name = key if re.fullmatch(r"[\w.<-]+", key) else json.dumps(key)
        deeper = indent + "  "
        match value:
            case None:
                lines.append(f"{indent}{name}:")
            case _Anchor():
                lines += [f"{indent}{name}: &{value.name}", *_lines(value.content, deeper)]
            case _Alias():
                lines.append(f"{indent}{name}: *{value}")
            case str() if "\n" in value:
                lines += [f"{indent}{name}: |", *(f"{deeper}{line}".rstrip() for line in value.splitlines())]
            case list():
                lines.append(f"{indent}{name}:")
                for item in value:
                    block = _lines(item, deeper + "  ") if isinstance(item, dict) else [f"{deeper}  {json.dumps(item)}"]
                    lines += [f"{deeper}- {block[0].strip()}", *block[1:]]
            case dict():
                lines += [f"{indent}{name}:", *_lines(value, deeper)]
            case _:
                lines.append(f"{indent}{name}: {json.dumps(value)}")
    return lines


def main() -> None:
    """Writes the file to the working directory, or prints secrets."""
    if sys.argv[1:] == ["--secrets"]:
        sys.stdout.write(new_secrets())
        return
    infra = Settings.from_environment().infra
    Path("docker-compose.yml").write_text(compose(read_components(infra), infra))


if __name__ == "__main__":
    main()
