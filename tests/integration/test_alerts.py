"""Alerts of a real Prometheus, through a real Alertmanager, to a webhook: drivers without Spark say what happens.

All ranges are 10,000 times shorter, so a day takes nine seconds. Each fault has a pipeline of its own.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from deltaworks.control.heartbeat import Heartbeat, TableFacts
from deltaworks.control.reporter import Reporter, SilentReporter
from deltaworks.errors import SinkError
from deltaworks.metrics import prometheus, rules, stream
from deltaworks.metrics.endpoint import metered
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import monitoring
from deltaworks.stack.ports import free_ports
from tests.support import polling
from tests.support.monitoring import HOME, Webhook

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
until = partial(polling.until, timeout_s=240)
SCALE = 0.0001
HISTORY_S = 8 * 86_400 * SCALE + 15
"""How long all is well at first: a week, for what is compared with one."""

Fault = Callable[[Heartbeat, float], Heartbeat]
"""What becomes of a heartbeat, so many seconds after the fault began."""
FAULTS: Mapping[str, Fault] = {
    "Lagging": lambda beat, _: msgspec.structs.replace(beat, lag_seconds=1_000.0),
    "LagGrows": lambda beat, s: msgspec.structs.replace(beat, lag_seconds=min(890.0, 230 + 100 * s)),
    "BatchStuck": lambda beat, _: msgspec.structs.replace(beat, quiet_s=1_000.0, lag_records=7),
    "SlowBatches": lambda beat, s: msgspec.structs.replace(beat, batch_id=1_000 + int(5 * s), batch_seconds=14.0),
    "DeadLetters": lambda beat, _: msgspec.structs.replace(beat, dead_letters=9),
    "LateRecords": lambda beat, _: msgspec.structs.replace(beat, late_records=500),
    "StateGrowing": lambda beat, _: msgspec.structs.replace(beat, state_entries=900_000),
    "StateGrowsFaster": lambda beat, _: msgspec.structs.replace(beat, state_entries=450_000),
    "StaleSnapshots": lambda beat, s: msgspec.structs.replace(
        beat, tables={"orders": TableFacts(committed_at=beat.at - s - 1, stale_since=beat.at - s - 1)}
    ),
    "StreamFailed": lambda beat, _: msgspec.structs.replace(beat, state="failed"),
}


@dataclass
class Driver:
    """Gives heartbeats until it is ended; `begun` is when its fault began."""

    alert: str
    reporter: Reporter
    generation: int = 3
    begun: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        start = time.time()
        while not self.ended.wait(0.2):
            now = time.time()
            beat = Heartbeat(
                pipeline=self.alert,
                generation=self.generation,
                query_id="q",
                state="running",
                pid=1,
                at=now,
                up_s=now - start,
                batch_id=int(now - start),
                batch_seconds=0.3,
                quiet_s=0.1,
                records_total=int(100 * (now - start)),
                lag_records=7,
                lag_seconds=0.5,
                lag_by_partition={"orders": {"0": 7}},
                state_entries=300_000,
                interval_s=1.0,
            )
            begun = self.begun
            self.reporter.beat(beat if begun is None else FAULTS[self.alert](beat, now - begun))


@contextmanager
def watching(settings: Settings) -> Iterator[None]:
    """Prometheus and Alertmanager, with everything scaled."""
    monitoring.ensure_program(settings, monitoring.PROMETHEUS, print)
    folder = settings.monitoring
    (folder / "alerts.yml").write_text(rules.render(scale=SCALE))
    config = prometheus.prometheus_config(settings, folder / "alerts.yml", scale=SCALE)
    (folder / "prometheus.yml").write_text(config)
    (folder / "alertmanager.yml").write_text(prometheus.alertmanager_config(settings, scale=SCALE))
    with ExitStack() as processes:
        for name, own in (
            (monitoring.ALERTMANAGER, ["--storage.path", str(folder / "a"), "--cluster.listen-address="]),
            (monitoring.PROMETHEUS, ["--storage.tsdb.path", str(folder / "p"), "--rules.alert.resend-delay=1s"]),
        ):
            program = monitoring.ensure_program(settings, name, print)
            listen = f"--web.listen-address=127.0.0.1:{monitoring.port(settings, name)}"
            log = processes.enter_context((folder / f"{name}.log").open("wb"))
            process = processes.enter_context(
                subprocess.Popen(
                    [str(program.file), f"--config.file={folder / name}.yml", listen, *own],
                    cwd=program.folder,
                    stdout=log,
                    stderr=log,
                )
            )
            processes.callback(process.terminate)
            until(partial(monitoring.answers, settings, name))
        yield


def test_each_alert_reaches_the_webhook_once_and_clears(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"share": 0.9}
    monkeypatch.setattr(stream, "free_share", lambda _: free["share"])
    hook, ports = Webhook(), free_ports(2)
    with tempfile.TemporaryDirectory(prefix="deltaworks-alerts-") as place, ExitStack() as running:
        settings = replace(
            own_settings(Path(place) / "home"),
            prometheus_port=ports[0],
            alertmanager_port=ports[1],
            alert_webhook=hook.url,
        )
        running.enter_context(watching(settings))
        drivers = {}

        def start(alert: str, generation: int = 3) -> Driver:
            reporter = running.enter_context(metered(settings, alert, SilentReporter()))
            driver = Driver(alert=alert, reporter=reporter, generation=generation)
            thread = threading.Thread(target=driver.run)
            thread.start()
            running.callback(thread.join)
            running.callback(driver.ended.set)
            drivers[alert] = driver
            return driver

        def fired(*alerts: str, status: str = "firing") -> bool:
            return all(hook.told[alert, "" if alert in HOME else alert, status] for alert in alerts)

        for alert in (*FAULTS, "Restarts"):
            start(alert)
        time.sleep(HISTORY_S)
        assert not hook.told, "all is well"

        for alert in FAULTS:
            drivers[alert].begun = time.time()
        until(lambda: fired(*FAULTS))
        for alert in FAULTS:
            drivers[alert].begun = None
        until(lambda: fired(*FAULTS, status="resolved"))

        # Its hour is three seconds here, so nobody sees those that were between two drivers.
        for generation in range(6, 30, 3):
            drivers["Restarts"].ended.set()
            start("Restarts", generation)
            with suppress(AssertionError):
                until(lambda: fired("Restarts"), timeout_s=15)
                break
        assert fired("Restarts")
        until(lambda: fired("Restarts", status="resolved"))

        with pytest.raises(SinkError), metered(settings, "gone", SilentReporter()):
            raise SinkError("broken")
        until(lambda: hook.told["StreamFailed", "gone", "firing"])
        settings.metrics_target("gone").unlink()
        until(lambda: hook.told["StreamFailed", "gone", "resolved"])

        while not fired("DiskFillsSoon"):
            free["share"] = max(0.3, free["share"] - 0.03)
            time.sleep(0.5)
        until(lambda: fired("DiskFillsSoon", status="resolved"))
        free["share"] = 0.05
        until(lambda: fired("DiskFilling"))
        free["share"] = 0.5
        until(lambda: fired("DiskFilling", status="resolved"))

    assert set(hook.texts) == {rule.name for rule in rules.RULES}
    own = {key: count for key, count in hook.told.items() if key[0] == key[1] or not key[1]}
    assert {key: count for key, count in own.items() if key[2] == "firing" and count > 1} == {}
    texts = hook.texts["Lagging"]
    assert texts["summary"] == "Lagging: lagging" and "16m 40s" in texts["what"] and texts["since"]
