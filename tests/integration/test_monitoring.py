"""The real Prometheus and Alertmanager: what promtool says of the rules, and both as components of a home."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from deltaworks import home
from deltaworks.connectors.metrics import ConnectorMetrics
from deltaworks.connectors.overview import Connectors
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.reporter import SilentReporter
from deltaworks.metrics import prometheus, rules
from deltaworks.metrics.endpoint import metered, served
from deltaworks.metrics.rule import CONNECTORS_JOB
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import monitoring, pages
from deltaworks.stack.lifecycle import down, status, up
from deltaworks.stack.ports import free_ports, is_free
from tests.support import alert_cases, polling
from tests.support.alert_cases import Case
from tests.support.live_stack import await_restart, kill_component, listening
from tests.support.monitoring import asked, asked_by_panels, filled, panels, without_numbers
from tests.unit.connectors.test_metrics import RUNS
from tests.unit.metrics.test_stream import BEAT

until = partial(polling.until, timeout_s=60)
SCALES = {"1m": 1.0, "4m": 0.1}
"""Steps of series -> scale of their rules: what takes days has fewer steps."""
HOUR, DAY = 2, 36
"""In steps of four minutes, on that scale."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    ports = free_ports(2)
    own = own_settings(tmp_path_factory.mktemp("monitoring") / "home")
    made = replace(own, prometheus_port=ports[0], alertmanager_port=ports[1], metrics="on")
    home.make(made)
    return made


@pytest.fixture(scope="module")
def promtool(settings: Settings) -> str:
    program = monitoring.ensure_program(settings, monitoring.PROMETHEUS, print)
    return str(program.file.with_name("promtool"))


OLD = {"up_seconds": "90000+60x200"}
YOUNG = {"up_seconds": "5+60x200"}
CASES = {
    "away": Case(alert="StreamFailed", series={"up": "1x10 0x30"}, fires={"15m": ""}, silent=("10m",)),
    "failed": Case(
        alert="StreamFailed", series={'state{deltaworks_stream_state="failed"}': "0x10 1x30"}, fires={"15m": ""}
    ),
    "hangs": Case(
        alert="StreamFailed",
        series={"heartbeat_timestamp_seconds": "0+60x10 600x30", 'state{deltaworks_stream_state="starting"}': "0x40"},
        fires={"15m": ""},
        silent=("10m",),
    ),
    "starts slowly": Case(
        alert="StreamFailed",
        series={"heartbeat_timestamp_seconds": "0x40", 'state{deltaworks_stream_state="starting"}': "1x40"},
        silent=("15m",),
    ),
    "restarts": Case(
        alert="Restarts",
        series={
            'generation{instance="a"}': "3x20 stale",
            'generation{instance="b"}': "_x21 4x5 stale",
            'generation{instance="c"}': "_x30 5x5 stale",
            'generation{instance="d"}': "_x40 6x80",
        },
        fires={"50m": "3"},
        silent=("38m", "110m"),
    ),
    "lagging": Case(
        alert="Lagging",
        series={"lag_seconds": "1x5 1000x5 600x10 400x20", "alert_lag_seconds": "900x60"},
        fires={"7m": "16m 40s", "15m": "10m 0s"},
        silent=("5m", "35m"),
    ),
    "no limit": Case(alert="Lagging", series={"lag_seconds": "1000x60"}, silent=("30m",)),
    "lag grows": Case(
        alert="LagGrows",
        series={"lag_seconds": "0x16 300x40", "alert_lag_seconds": "900x60"},
        fires={"25m": "5m 0s"},
        silent=("16m", "45m"),
    ),
    "stuck": Case(
        alert="BatchStuck",
        series={
            "quiet_seconds": "0+60x30",
            "heartbeat_timestamp_seconds": "0+60x30",
            "alert_batch_seconds": "900x30",
            'lag_records{topic="t",partition="0"}': "5x30",
        },
        fires={"20m": "20m 0s"},
        silent=("15m",),
    ),
    "idle": Case(
        alert="BatchStuck",
        series={
            "quiet_seconds": "0+60x30",
            "heartbeat_timestamp_seconds": "0+60x30",
            "alert_batch_seconds": "900x30",
            'lag_records{topic="t",partition="0"}': "0x30",
        },
        silent=("20m",),
    ),
    "slow": Case(
        alert="SlowBatches",
        series={
            'batch_duration_seconds_bucket{le="10"}': "0x60",
            'batch_duration_seconds_bucket{le="15"}': "0+3x60",
            'batch_duration_seconds_bucket{le="+Inf"}': "0+3x60",
            "interval_seconds": "1x60",
        },
        fires={"50m": "14.95s"},
        silent=("10m",),
    ),
    "slow by intent": Case(
        alert="SlowBatches",
        series={
            'batch_duration_seconds_bucket{le="10"}': "0x60",
            'batch_duration_seconds_bucket{le="15"}': "0+3x60",
            'batch_duration_seconds_bucket{le="+Inf"}': "0+3x60",
            "interval_seconds": "2x60",
        },
        silent=("50m",),
    ),
    "dead letters": Case(
        alert="DeadLetters",
        series={"dead_letters_total": "2x70 5x100", "alert_dead_letters": "3x170", **OLD},
        fires={"75m": "3"},
        silent=("70m", "140m"),
    ),
    "dead letters of its first batch": Case(
        alert="DeadLetters",
        series={"dead_letters_total": "4x10", "alert_dead_letters": "1x10", **YOUNG},
        fires={"5m": "4"},
    ),
    "dead letters from before there was a Prometheus": Case(
        alert="DeadLetters",
        series={"dead_letters_total": "4x10", "alert_dead_letters": "1x10", **OLD},
        silent=("5m",),
    ),
    "late": Case(
        alert="LateRecords",
        series={
            "late_records_total": "0+4x60",
            "dropped_records_total": "0+6x60",
            "records_total": "0+100x60",
            **YOUNG,
        },
        fires={"30m": "300"},
        silent=("5m",),
    ),
    "a few are late": Case(
        alert="LateRecords",
        series={
            "late_records_total": "0+10x60",
            "dropped_records_total": "0x60",
            "records_total": "0+2000x60",
            **YOUNG,
        },
        silent=("30m",),
    ),
    "state": Case(
        alert="StateGrowing",
        series={
            "state_entries": f"100000x{DAY + HOUR} 500000x5 170000x5 140000x20",
            "alert_state_growth": f"2x{DAY + 60}",
        },
        fires={f"{(DAY + HOUR + 3) * 4}m": "500k"},
        silent=(f"{(DAY + HOUR) * 4}m", f"{(DAY + HOUR + 20) * 4}m"),
        step="4m",
    ),
    "small state": Case(
        alert="StateGrowing",
        series={"state_entries": f"10x{DAY + HOUR} 99000x10", "alert_state_growth": f"2x{DAY + 60}"},
        silent=(f"{(DAY + HOUR + 3) * 4}m",),
        step="4m",
    ),
    "state grows faster": Case(
        alert="StateGrowsFaster",
        series={"state_entries": f"1000000x{8 * DAY} 1400000x60"},
        fires={f"{(8 * DAY + 20) * 4}m": "400k"},
        silent=(f"{8 * DAY * 4}m",),
        step="4m",
    ),
    "state grows as before": Case(
        alert="StateGrowsFaster", series={"state_entries": f"1000000+10000x{9 * DAY}"}, silent=("1224m",), step="4m"
    ),
    "stale": Case(
        alert="StaleSnapshots",
        series={
            'table_stale_seconds{table="a"}': "0x5 60+60x60",
            'table_commit_timestamp_seconds{table="a"}': "60x65",
            'table_stale_seconds{table="b"}': "0x5 60+60x60",
            'table_commit_timestamp_seconds{table="b"}': "60x65",
        },
        fires={"40m": "2"},
        silent=("30m",),
    ),
    "refreshed again and again": Case(
        alert="StaleSnapshots",
        series={
            'table_stale_seconds{table="a"}': "10x90",
            'table_commit_timestamp_seconds{table="a"}': "0+60x90",
        },
        silent=("40m", "80m"),
    ),
    "disk": Case(
        alert="DiskFilling",
        series={"home_free_ratio": "0.2x5 0.08x5 0.12x5 0.2x15"},
        fires={"7m": "8%", "14m": "12%"},
        silent=("5m", "20m"),
    ),
    "disk soon": Case(
        alert="DiskFillsSoon", series={"home_free_ratio": "0.5-0.001x360"}, fires={"200m": ""}, silent=("60m",)
    ),
}


def healthy(step: str, steps: int) -> Case:
    """A stream of which there is nothing to say."""
    step_s = 60 * int(step[:-1])
    return Case(
        alert="",
        series={
            "up": f"1x{steps}",
            "generation": f"3x{steps}",
            'state{deltaworks_stream_state="failed"}': f"0x{steps}",
            'state{deltaworks_stream_state="starting"}': f"0x{steps}",
            "heartbeat_timestamp_seconds": f"0+{step_s}x{steps}",
            "lag_seconds": f"1x{steps}",
            "alert_lag_seconds": f"900x{steps}",
            'lag_records{topic="t",partition="0"}': f"5x{steps}",
            "quiet_seconds": f"1x{steps}",
            "alert_batch_seconds": f"900x{steps}",
            "interval_seconds": f"1x{steps}",
            'batch_duration_seconds_bucket{le="1"}': f"0+60x{steps}",
            'batch_duration_seconds_bucket{le="+Inf"}': f"0+60x{steps}",
            "up_seconds": f"5+{step_s}x{steps}",
            "dead_letters_total": f"0x{steps}",
            "alert_dead_letters": f"1x{steps}",
            "late_records_total": f"0+1x{steps}",
            "dropped_records_total": f"0x{steps}",
            "records_total": f"0+2000x{steps}",
            "state_entries": f"1000000+100x{steps}",
            "alert_state_growth": f"2x{steps}",
            'table_stale_seconds{table="t"}': f"1 0x{steps}",
            'table_commit_timestamp_seconds{table="t"}': f"0+{step_s}x{steps}",
            "home_free_ratio": f"0.5x{steps}",
        },
        step=step,
    )


def selector(name: str, job: str) -> str:
    """The series of a short name."""
    metric, _, labels = name.partition("{")
    prefix, subject = ("deltaworks_stream_", 'pipeline="orders"')
    if job == CONNECTORS_JOB:
        of_home = metric == "up" or metric.startswith("connect_")
        prefix, subject = ("deltaworks_", "") if of_home else ("deltaworks_connector_", 'connector="orders"')
    own = [f'job="{job}"', subject, labels.rstrip("}"), "" if 'instance="' in labels else 'instance="i"']
    return f"{'' if metric == 'up' else prefix}{metric}{{{','.join(each for each in own if each)}}}"


def expected(alert: str, shown: str) -> dict[str, Any]:
    """The alert as the rules say it."""
    [group] = yaml.safe_load(rules.render())["groups"]
    [said] = [each for each in group["rules"] if each["alert"] == alert]
    [rule] = [each for each in rules.RULES if each.name == alert]
    subject = {} if rule.subject == "home" else {rule.subject: "orders"}
    texts = {
        name: re.sub(r"{{ \$labels.[a-z]+ }}", "orders", re.sub(r"{{ \$value[^}]*}}", shown, text))
        for name, text in said["annotations"].items()
    }
    return {"exp_labels": said["labels"] | subject, "exp_annotations": texts}


def checked(case: Case, name: str, silent: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """A case as promtool reads it."""
    checks = [
        {"eval_time": at, "alertname": case.alert, "exp_alerts": [expected(case.alert, shown)]}
        for at, shown in case.fires.items()
    ]
    checks += [
        {"eval_time": at, "alertname": alert, "exp_alerts": []} for alert, times in silent.items() for at in times
    ]
    series = [{"series": selector(each, case.job), "values": values} for each, values in case.series.items()]
    return {"name": name, "interval": case.step, "input_series": series, "alert_rule_test": checks}


def run(promtool: str, *arguments: str) -> str:
    answer = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_each_rule_fires_with_its_texts_and_not_without_need(promtool: str, tmp_path: Path) -> None:
    all_cases = {**CASES, **alert_cases.CASES}
    for wanted in ("fires", "silent"):
        shown = {case.alert for case in all_cases.values() if getattr(case, wanted)}
        assert shown == {rule.name for rule in rules.RULES}
    for step, scale in SCALES.items():
        # Evaluated at the steps of the series: each quarter of a minute would take promtool minutes.
        text = re.sub("    interval: .*\n", "", rules.render(scale=scale))
        (tmp_path / "alerts.yml").write_text(text)
        chosen = {name: case for name, case in all_cases.items() if case.step == step}
        cases = [checked(case, name, {case.alert: case.silent}) for name, case in chosen.items()]
        times = ("10m", "100m", "190m") if step == "1m" else ("1h", "1240m")
        silent = {rule.name: times for rule in rules.RULES}
        steps = 200 if step == "1m" else 320
        for well in (healthy(step, steps), alert_cases.healthy(step, steps)):
            cases.append(checked(well, f"healthy, {well.job}", silent))
        content = {"rule_files": ["alerts.yml"], "evaluation_interval": step, "tests": cases}
        (tmp_path / "tests.yml").write_text(yaml.safe_dump(content))
        run(promtool, "test", "rules", str(tmp_path / "tests.yml"))


def test_the_configuration_and_scaled_rules_are_valid(promtool: str, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(rules.render(scale=0.0001))
    (tmp_path / "prometheus.yml").write_text(prometheus.prometheus_config(settings, tmp_path / "alerts.yml", scale=0.1))

    assert f"{len(rules.RULES)} rules found" in run(promtool, "check", "config", str(tmp_path / "prometheus.yml"))


def test_the_queries_of_dashboards_are_promql(promtool: str, tmp_path: Path) -> None:
    exprs = {filled(query.expr) for _, query in asked_by_panels()}
    assert not [expr for expr in exprs if "$" in expr]
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(sorted(exprs))]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))

    assert f"{len(exprs)} rules found" in run(promtool, "check", "rules", str(tmp_path / "panels.yml"))


def later(batch: int) -> Heartbeat:
    """A heartbeat after so many batches, each like the others."""
    again = {
        field: {name: each.with_batch([(0.25, 4)] * batch) for name, each in getattr(BEAT, field).items()}
        for field in ("task_phases", "latency")
    }
    tables = {
        name: msgspec.structs.replace(each, rows=each.rows + batch, commits=each.commits + batch)
        for name, each in BEAT.tables.items()
    }
    return msgspec.structs.replace(
        BEAT, batch_id=batch, records_total=BEAT.records_total + batch, at=time.time(), tables=tables, **again
    )


@pytest.fixture
def stack(settings: Settings) -> Iterator[Settings]:
    try:
        yield settings
    finally:
        down(settings)


def test_they_watch_drivers_on_this_machine_only_and_keep_data(stack: Settings) -> None:
    names = [monitoring.PROMETHEUS, monitoring.ALERTMANAGER]
    started = up(stack, only=names, tethered=True)
    assert sorted(started.started) == sorted(names)
    assert started.prometheus == f"http://127.0.0.1:{stack.prometheus_port}"
    heard = {
        (address.removeprefix("::ffff:"), port) for each in names for address, port in listening(started[each].pid)
    }
    assert heard == {("127.0.0.1", stack.prometheus_port), ("127.0.0.1", stack.alertmanager_port)}
    assert pages.shows(stack.prometheus_port, "/classic/graph", timeout_s=10) or pages.shows(
        stack.prometheus_port, "/graph", timeout_s=10
    )

    with metered(stack, "orders", SilentReporter()) as reporter:
        reporter.beat(BEAT)
        until(lambda: asked(stack, 'deltaworks_stream_lag_seconds{pipeline="orders"} and up{pipeline="orders"} == 1'))
        managers = pages.said(stack.prometheus_port, "/api/v1/alertmanagers", timeout_s=10) or {}
        assert len(managers["data"]["activeAlertmanagers"]) == 1
        loaded = pages.said(stack.prometheus_port, "/api/v1/rules", timeout_s=10) or {}
        assert len(loaded["data"]["groups"][0]["rules"]) == len(rules.RULES)
        batches = itertools.count(BEAT.batch_id or 0)
        connectors = ConnectorMetrics()
        connectors.take(Connectors(connectors=(RUNS,)))
        with served(connectors.registry, stack.connectors_target):

            def goes_on() -> None:
                reporter.beat(later(next(batches)))

            assert without_numbers(stack, panels(), goes_on, within_s=60) == {}

    await_restart(stack, monitoring.PROMETHEUS, kill_component(stack, monitoring.PROMETHEUS))
    until(lambda: asked(stack, 'last_over_time(deltaworks_stream_lag_seconds{pipeline="orders"}[1h])'))

    assert sorted(down(stack)) == sorted(names)
    assert is_free(stack.prometheus_port) and is_free(stack.alertmanager_port)
    assert (stack.monitoring / "prometheus-data").is_dir()
    assert status(stack) == []
    assert json.dumps(stack.alert_webhook) == "null"
    down(stack, delete_data=True)
    assert not stack.monitoring.exists()
