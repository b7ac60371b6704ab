"""An endpoint per driver, and the files by which it is found."""

from __future__ import annotations

import json
import stat
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from deltaworks import home
from deltaworks.control.reporter import SilentReporter
from deltaworks.errors import ConfigurationError, FencedError, SinkError
from deltaworks.metrics.endpoint import metered, served, targets
from deltaworks.metrics.stream import StreamMetrics
from deltaworks.settings import Settings
from tests.unit.metrics.test_stream import BEAT


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings.from_environment({"DELTAWORKS_HOME": str(tmp_path / "home"), "DELTAWORKS_METRICS": "on"})
    home.make(made)
    return made


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def test_a_driver_answers_while_it_runs(settings: Settings) -> None:
    with metered(settings, "orders", SilentReporter()) as reporter, metered(settings, "fraud", SilentReporter()):
        reporter.beat(BEAT)
        found = targets(settings)
        assert set(found) == {"orders", "fraud"}
        assert all(address.startswith("127.0.0.1:") for address in found.values())
        assert 'deltaworks_stream_lag_records{partition="1",pipeline="orders",topic="orders"} 4.0' in read(
            found["orders"]
        )
        assert "orders" not in read(found["fraud"])
        file = settings.home / "metrics" / "orders.json"
        assert json.loads(file.read_text()) == [{"targets": [found["orders"]], "labels": {}}]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    assert targets(settings) == {}
    with pytest.raises(urllib.error.URLError):
        read(found["orders"])


def test_an_older_driver_does_not_take_the_file_of_a_newer_one_away(settings: Settings) -> None:
    older = metered(settings, "orders", SilentReporter())
    older.__enter__()
    with metered(settings, "orders", SilentReporter()):
        newer = targets(settings)
        older.__exit__(None, None, None)
        assert targets(settings) == newer


def test_a_damaged_file_is_passed_over(settings: Settings) -> None:
    with metered(settings, "orders", SilentReporter()):
        for number, content in enumerate((b"", b"[]", b'[{"targets": []}]', b"{")):
            (settings.metrics_targets / f"damaged-{number}.json").write_bytes(content)
        assert set(targets(settings)) == {"orders"}


@pytest.mark.parametrize(("error", "stays"), [(SinkError("broken"), True), (FencedError("replaced"), False)])
def test_the_file_of_a_driver_that_has_failed_stays_so_that_it_is_missed(
    settings: Settings, error: Exception, stays: bool
) -> None:
    with pytest.raises(type(error)), metered(settings, "orders", SilentReporter()):
        raise error

    assert (set(targets(settings)) == {"orders"}) is stays


def test_metrics_of_the_home_are_beside_those_of_drivers(settings: Settings) -> None:
    metrics, file = StreamMetrics("orders"), settings.connectors_target
    metrics.take(BEAT)
    with served(metrics.registry, file) as address:
        assert "deltaworks_stream_tasks" in read(address.removeprefix("http://").removesuffix("/metrics"))
        [told] = json.loads(file.read_text())
        assert f"http://{told['targets'][0]}/metrics" == address
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert targets(settings) == {}, "it is no driver"
        port = int(told["targets"][0].rpartition(":")[2])
        with (
            pytest.raises(ConfigurationError, match="choose another one") as raised,
            served(metrics.registry, file, port=port),
        ):
            pass
        assert "127.0.0.1" in raised.value.message
        assert json.loads(file.read_text()) == [told], "the one that serves is found"

    assert not file.exists()
