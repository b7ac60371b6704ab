"""The pytest plugin `deltaworks`: test drivers, and the real thing, which `live` starts when a test asks for it.

```python
def test_payments_on_the_real_thing(kafka, stream, tables):
    kafka.produce("payments", [("ann", Payment(Decimal("2.50")), 0)])
    stream(pipeline)
    assert [row["revenue"] for row in tables["payments_revenue"]] == [Decimal("2.50")]
```
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

KINDS = ("auto", "native", "container")
"""How the broker runs; `auto`: the first of the others that is possible here."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltaworks.dsl.pipeline import Pipeline
    from deltaworks.pytest_plugin.live import LiveKafka, LiveStreams, LiveTables
    from deltaworks.settings import Settings
    from deltaworks.testing.driver import TopologyTestDriver
    from deltaworks.topology.plan import Plan


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that says how the broker of the fixture `kafka` runs."""
    said = (
        "the Kafka of the fixture `kafka`: native (deltaworks[stack] and Java), container (deltaworks[containers] and "
        "Docker), or auto, the first of them that is possible"
    )
    parser.getgroup("deltaworks").addoption(
        "--deltaworks-kafka", choices=KINDS, help=f"{said}; default: the ini option"
    )
    parser.addini("deltaworks_kafka", f"{said}; default: auto", default="auto")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses an unknown kind of broker at once."""
    if (kind := config.getini("deltaworks_kafka")) not in KINDS:
        raise pytest.UsageError(f"deltaworks_kafka is {kind!r}; it must be one of {', '.join(KINDS)}")


@pytest.fixture
def driver_for() -> Iterator[Callable[..., TopologyTestDriver]]:
    """Makes a test driver for a pipeline or a plan, closed at the end of the test: `driver = driver_for(pipeline)`.

    It takes the arguments of `TopologyTestDriver`.
    """
    # Imported here, so that projects with the plugin do not pay for the import in other tests.
    from deltaworks.testing.driver import TopologyTestDriver

    with ExitStack() as drivers:

        def make(topology: Pipeline | Plan, **options: Any) -> TopologyTestDriver:
            return drivers.enter_context(TopologyTestDriver(topology, **options))

        yield make


@pytest.fixture(scope="session")
def deltaworks_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A Kafka broker that ends with pytest, even if pytest is killed; `--deltaworks-kafka` says how it runs."""
    from deltaworks.pytest_plugin.brokers import running

    kind = pytestconfig.getoption("deltaworks_kafka") or pytestconfig.getini("deltaworks_kafka")
    with running(kind, tmp_path_factory.mktemp("deltaworks-broker")) as settings:
        yield settings


@pytest.fixture
def kafka(deltaworks_broker: Settings) -> Iterator[LiveKafka]:
    """A real Kafka without topics.

    `kafka.produce("payments", [(key, value)])`, `kafka.read("totals", key=str, value=int)`.
    """
    from deltaworks.pytest_plugin.live import LiveKafka

    kafka = LiveKafka(deltaworks_broker)
    kafka.delete_topics()
    yield kafka
    kafka.delete_topics()


@pytest.fixture
def deltaworks_home(deltaworks_broker: Settings, tmp_path: Path) -> Settings:
    """The settings of the streams of one test: its own home, at the broker of all."""
    from dataclasses import replace

    return replace(deltaworks_broker, home=tmp_path / "deltaworks")


@pytest.fixture
def stream(kafka: LiveKafka, deltaworks_home: Settings) -> LiveStreams:
    """Runs a pipeline on Spark until it has processed what its topics hold: `stream(pipeline)`."""
    from deltaworks.pytest_plugin.live import LiveStreams

    return LiveStreams(deltaworks_home)


@pytest.fixture
def tables(deltaworks_home: Settings) -> LiveTables:
    """The Delta tables that `stream` has written: `tables["payments_revenue"]` is a list of rows."""
    from deltaworks.pytest_plugin.live import LiveTables

    return LiveTables(deltaworks_home.tables)
