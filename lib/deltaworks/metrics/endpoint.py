"""The endpoint of a driver, and the files by which Prometheus finds all of a home (`file_sd_configs`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, start_http_server

from deltaworks.control.batches import BatchRecord
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.reporter import Reporter
from deltaworks.errors import ConfigurationError, LeaseError
from deltaworks.files import replace_file
from deltaworks.metrics.stream import StreamMetrics
from deltaworks.settings import Settings

_LOOPBACK = "127.0.0.1"
_log = logging.getLogger(__name__)


class Target(msgspec.Struct, frozen=True):
    """Where one driver answers, as Prometheus reads it."""

    targets: list[str]
    labels: dict[str, str] = {}


class MeteredReporter:
    """Gives heartbeats to the metrics, and everything to another reporter."""

    def __init__(self, metrics: StreamMetrics, reporter: Reporter) -> None:
        self._metrics, self._reporter = metrics, reporter

    def beat(self, beat: Heartbeat) -> None:
        """Takes a heartbeat."""
        self._metrics.take(beat)
        self._reporter.beat(beat)

    def batch(self, record: BatchRecord, query_id: str) -> None:
        """Passes it on."""
        self._reporter.batch(record, query_id)

    def asked_to_drain(self) -> bool:
        """Passes it on."""
        return self._reporter.asked_to_drain()

    def close(self) -> None:
        """Passes it on."""
        self._reporter.close()


@contextmanager
def metered(settings: Settings, pipeline: str, reporter: Reporter) -> Iterator[Reporter]:
    """A reporter whose heartbeats can be read at an endpoint while the block runs.

    It listens on 127.0.0.1, at any free port. The file that says where is taken away at the end; that of a driver that
    has failed or was killed stays, so that Prometheus sees that it does not answer, until the next driver replaces it,
    or the stream is stopped.

    Args:
        settings: of the home.
        pipeline: the name of the pipeline.
        reporter: gets what the driver reports.
    """
    metrics = StreamMetrics(pipeline, settings.home)
    try:
        server, thread = start_http_server(0, addr=_LOOPBACK, registry=metrics.registry)
    except OSError as error:  # a stream goes on without
        _log.warning("metrics are not served: %s", error)
        yield reporter
        return
    file, failed = settings.metrics_target(pipeline), False
    address = f"{_LOOPBACK}:{server.server_port}"
    try:
        _tell(file, address)
        _log.info("metrics at http://%s/metrics", address)
        yield MeteredReporter(metrics, reporter)
    except Exception as error:
        failed = not isinstance(error, LeaseError)  # that one was replaced
        raise
    finally:
        if not failed and targets(settings).get(pipeline) == address:  # not that of a newer driver
            file.unlink(missing_ok=True)
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served(registry: CollectorRegistry, file: Path, *, port: int = 0) -> Iterator[str]:
    """Metrics that can be read while the block runs, on 127.0.0.1.

    Args:
        registry: of the metrics.
        file: says where, as Prometheus reads it; it is taken away at the end.
        port: where to listen; 0: any free one.

    Returns:
        The address of the metrics.

    Raises:
        ConfigurationError: the port is in use.
    """
    try:
        server, thread = start_http_server(port, addr=_LOOPBACK, registry=registry)
    except OSError as error:
        raise ConfigurationError(
            f"{_LOOPBACK}:{port} cannot be used: {error}.", hint="choose another one with --port; 0 is any free one"
        ) from error
    address = f"{_LOOPBACK}:{server.server_port}"
    try:
        _tell(file, address)
        yield f"http://{address}/metrics"
    finally:
        if _told(file) == address:  # not that of another process
            file.unlink(missing_ok=True)
        server.shutdown()
        server.server_close()
        thread.join()


def targets(settings: Settings) -> dict[str, str]:
    """Pipeline -> host and port of the driver that has run last, unless it was stopped."""
    found = {}
    for file in sorted(settings.metrics_targets.glob("*.json")):
        if (address := _told(file)) is not None:
            found[file.stem] = address
    return found


def _tell(file: Path, address: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(file, msgspec.json.encode([Target([address])]), mode=0o600)


def _told(file: Path) -> str | None:
    try:
        (target,) = msgspec.json.decode(file.read_bytes(), type=list[Target])
        return target.targets[0]
    except (OSError, ValueError, IndexError):  # taken away just now, or damaged: the next process replaces it
        return None
