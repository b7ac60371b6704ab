"""Kafka as a container, by Testcontainers: Kafka's own image, with the version and the settings of the native broker.

Testcontainers' own `KafkaContainer` is made for the images of another distribution. Its container `ryuk` removes ours
if pytest is killed.
"""

from __future__ import annotations

import string
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from deltaworks import clock
from deltaworks.errors import StackError
from deltaworks.kafka.admin import answers
from deltaworks.settings import Settings
from deltaworks.stack.components import read_components

_CLIENTS, _BROKERS, _CONTROLLER = 9092, 9093, 9094
"""Ports in the container. Clients reach the first at a port of the machine, which the broker itself does not reach."""
_ADDRESS = "/tmp/deltaworks-advertised-listeners"
_WAIT_FOR_ADDRESS = (
    f"until [ -s {_ADDRESS} ]; do sleep 0.1; done; "
    f'export KAFKA_ADVERTISED_LISTENERS="$(cat {_ADDRESS})"; exec /etc/kafka/docker/run'
)
"""The port of the machine is known when the container runs, so Kafka starts after that."""
_LINES = 10
_POLL_S = 0.1


def engine_error() -> str | None:
    """Why no container can be started here; None: a Docker engine answers."""
    try:
        with closing(DockerClient().client) as client:
            client.ping()
    except (DockerException, OSError) as error:
        return f"no Docker engine answers: {error}"
    return None


@contextmanager
def broker(settings: Settings) -> Iterator[str]:
    """A broker until the block ends; its address.

    Raises:
        StackError: it ended, or does not answer.
    """
    components = read_components(settings.infra)
    container = (
        DockerContainer(components.software["kafka"].image)
        .with_envs(**_environment(settings))
        .with_exposed_ports(_CLIENTS)
        .with_command(["sh", "-c", _WAIT_FOR_ADDRESS])
    )
    with container:
        address = f"{container.get_container_host_ip()}:{container.get_exposed_port(_CLIENTS)}"
        listeners = f"PLAINTEXT://{address},BROKERS://127.0.0.1:{_BROKERS}"
        container.copy_into_container(listeners.encode(), _ADDRESS)
        _wait(container, address, components.by_name["kafka"].ready_timeout_s)
        yield address


def _environment(settings: Settings) -> dict[str, str]:
    """The settings of the native broker, as the image reads them, at the addresses of a container."""
    text = (settings.infra / "kafka" / "server.properties").read_text()
    lines = (line for line in text.splitlines() if "=" in line and not line.startswith("#"))
    template = string.Template("\n".join(lines))
    filled = template.substitute(port=_CLIENTS, controller_port=_CONTROLLER, data="/var/lib/kafka/data")
    properties = {name: value for name, _, value in (line.partition("=") for line in filled.splitlines())}
    properties |= {
        "listeners": ",".join(
            (
                f"PLAINTEXT://0.0.0.0:{_CLIENTS}",
                f"BROKERS://127.0.0.1:{_BROKERS}",
                f"CONTROLLER://127.0.0.1:{_CONTROLLER}",
            )
        ),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    del properties["advertised.listeners"]
    heap = " ".join(option for option in settings.broker_options if option.startswith("-Xm"))
    named = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items()}
    return {**named, "KAFKA_HEAP_OPTS": heap}


def _wait(container: DockerContainer, address: str, limit_s: float) -> None:
    """Waits until the broker answers."""
    end = clock.ticks_s() + limit_s
    while not answers(address):
        container.reload()
        ended = container.status not in ("created", "running")
        if ended or clock.ticks_s() > end:
            said = b"".join(container.get_logs()).decode(errors="replace").splitlines()
            what = f"has ended ({container.status})" if ended else f"does not answer at {address} after {limit_s:.0f} s"
            raise StackError(f"Kafka in the container {container.image} {what}.", log=said[-_LINES:])
        time.sleep(_POLL_S)
