"""What a scrape shows of a stream, and that it is what the heartbeat says."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from deltaworks.control.distribution import Distribution
from deltaworks.control.heartbeat import Heartbeat, StoreSize, TableFacts
from deltaworks.control.restores import Restoring
from deltaworks.metrics import stream
from deltaworks.metrics.stream import PREFIX, STATES, StreamMetrics
from deltaworks.topology.alerts import Alerts

BEAT = Heartbeat(
    pipeline="orders",
    generation=3,
    query_id="q",
    state="running",
    pid=7,
    at=1_700_000_000.5,
    up_s=12.5,
    batch_id=41,
    batch_seconds=0.75,
    batch_phases={"tasks": 0.5, "tables": 0.25},
    quiet_s=0.125,
    records_per_second=1_500.5,
    records_total=90_000,
    lag_records=7,
    lag_seconds=0.5,
    lag_by_partition={"orders": {"0": 3, "1": 4}},
    next_offsets={"orders": {"0": 100, "1": 200}},
    dropped_records=1,
    late_records=2,
    lost_results=3,
    dead_letters=4,
    state_entries=5_000,
    stale_snapshots=["a", "b"],
    store_openings={"rebuilt": 2},
    restored_entries=6,
    restore_seconds=0.0625,
    skipped_transactions=8,
    traces_dropped=10,
    store_requests={"PUT": 9},
    interval_s=1.5,
    alerts=Alerts(lag=timedelta(minutes=2), dead_letters=3),
    tasks=12,
    sent_records=11,
    stores={
        "users": StoreSize(entries=4_000, size_bytes=8_192),
        "__task__": StoreSize(entries=1_000, size_bytes=4_096),
    },
    task_phases={
        phase: Distribution().with_batch([(0.25, 1), (0.75, 1)])
        for phase in ("open", "read", "process", "commit", "keep")
    },
    latency={
        stage: Distribution().with_batch([(0.2, 3), (4.0, 1)])
        for stage in ("read", "processed", "committed", "visible")
    },
    restoring={"0-1": Restoring(done=10, total=30), "0-2": Restoring(done=5, total=20)},
    spark_phases={"addBatch": 0.75, "walCommit": 0.03125},
    call_outs={"scores": "open"},
    tables={
        "orders": TableFacts(rows=700, commits=40, commit_seconds=2.5, committed_at=1_700_000_000.0, files=17),
        "users": TableFacts(files=3, stale_since=1_699_999_940.5),
    },
)


def samples(metrics: StreamMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Name without prefix and labels without the pipeline -> value, of what is the stream's."""
    text = generate_latest(metrics.registry).decode()  # type: ignore[no-untyped-call]
    found = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for each in family.samples:
            if each.name.startswith(PREFIX):
                labels = dict(each.labels)
                assert labels.pop("pipeline") == "orders"
                found[(each.name.removeprefix(PREFIX), tuple(sorted(labels.items())))] = each.value
    return found


def test_a_scrape_shows_every_number_of_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 0.375
    monkeypatch.setattr(stream, "free_share", lambda _: free)
    metrics = StreamMetrics("orders", Path("/"))
    metrics.take(BEAT)

    found = samples(metrics)

    assert {name: value for (name, labels), value in found.items() if not labels and "duration" not in name} == {
        "generation": 3,
        "up_seconds": 12.5,
        "quiet_seconds": 0.125,
        "heartbeat_timestamp_seconds": 1_700_000_000.5,
        "records_per_second": 1_500.5,
        "lag_seconds": 0.5,
        "state_entries": 5_000,
        "tasks": 12,
        "restoring_tasks": 2,
        "restoring_entries": 50,
        "restoring_entries_done": 15,
        "last_batch": 41,
        "last_batch_seconds": 0.75,
        "interval_seconds": 1.5,
        "alert_lag_seconds": 120,
        "alert_batch_seconds": 900,
        "alert_dead_letters": 3,
        "alert_state_growth": 2,
        "home_free_ratio": free,
        "stale_snapshots": 2,
        "records_total": 90_000,
        "sent_records_total": 11,
        "dropped_records_total": 1,
        "late_records_total": 2,
        "lost_results_total": 3,
        "dead_letters_total": 4,
        "restored_entries_total": 6,
        "restore_seconds_total": 0.0625,
        "skipped_transactions_total": 8,
        "traces_dropped_total": 10,
    }
    assert found[("lag_records", (("partition", "1"), ("topic", "orders")))] == 4
    assert found[("next_offset", (("partition", "0"), ("topic", "orders")))] == 100
    assert found[("store_openings_total", (("how", "rebuilt"),))] == 2
    assert found[("object_store_requests_total", (("kind", "PUT"),))] == 9
    users, shop = (("store", "users"),), (("table", "orders"),)
    assert (found[("store_entries", users)], found[("store_bytes", users)]) == (4_000, 8_192)
    assert found[("spark_phase_seconds", (("phase", "walCommit"),))] == 0.03125
    assert found[("breaker_open", (("call_out", "scores"), ("state", "open")))] == 1
    assert (found[("table_rows_total", shop)], found[("table_commits_total", shop)]) == (700, 40)
    assert (found[("table_commit_seconds_total", shop)], found[("table_files", shop)]) == (2.5, 17)
    assert found[("table_commit_timestamp_seconds", shop)] == 1_700_000_000
    stale = {dict(labels)["table"]: value for (name, labels), value in found.items() if name == "table_stale_seconds"}
    assert stale == {"orders": 0, "users": 60}
    states = {dict(labels)[f"{PREFIX}state"]: value for (name, labels), value in found.items() if name == "state"}
    assert states == {state: float(state == "running") for state in STATES}


def test_durations_of_tasks_and_ages_of_records_are_histograms() -> None:
    metrics = StreamMetrics("orders")
    metrics.take(BEAT)

    found = samples(metrics)

    def bucket(metric: str, label: tuple[str, str], end: str) -> float:
        return found[(f"{metric}_bucket", tuple(sorted((label, ("le", end)))))]

    process, read = ("phase", "process"), ("stage", "read")
    assert [bucket("task_phase_seconds", process, end) for end in ("0.1", "0.25", "1.0", "+Inf")] == [0, 1, 2, 2]
    assert (found[("task_phase_seconds_sum", (process,))], found[("task_phase_seconds_count", (process,))]) == (1, 2)
    assert [bucket("latency_seconds", read, end) for end in ("0.25", "2.5", "5.0", "+Inf")] == [3, 3, 4, 4]
    assert found[("latency_highest_seconds", (read,))] == 4
    assert found[("task_phase_highest_seconds", (process,))] == 0.75


def test_each_batch_counts_once_with_its_parts() -> None:
    metrics = StreamMetrics("orders")
    for batch, seconds in ((41, 0.75), (41, 0.75), (42, 2.5)):
        metrics.take(msgspec.structs.replace(BEAT, batch_id=batch, batch_seconds=seconds, batch_phases={"tasks": 0.5}))

    found = samples(metrics)

    assert found[("batch_duration_seconds_count", ())] == 2
    assert found[("batch_duration_seconds_sum", ())] == pytest.approx(3.25)
    assert found[("batch_phase_duration_seconds_sum", (("phase", "tasks"),))] == pytest.approx(1.0)


def test_what_is_not_known_yet_is_absent() -> None:
    metrics = StreamMetrics("orders")
    assert {name for name, _ in samples(metrics) if "duration" not in name} == set()
    no_limits = Alerts(lag=None, batch=None, dead_letters=None, state_growth=None)
    unknown = msgspec.structs.replace(BEAT, batch_id=None, lag_seconds=None, lag_by_partition={}, alerts=no_limits)
    metrics.take(unknown)

    names = {name for name, _ in samples(metrics)}

    assert not names & {"last_batch", "lag_seconds", "lag_records"}
    assert "records_per_second" in names
    assert not {name for name in names if name.startswith("alert_")}


def test_the_page_names_all_of_them_and_no_others() -> None:
    metrics = StreamMetrics("orders", Path("/"))
    metrics.take(BEAT)
    collected = {name for name, _ in samples(metrics)}
    there = {re.sub("_(bucket|sum|count|created)$", "", name) for name in collected} - {""}
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "metrics.md").read_text()
    table = page.partition("## What there is")[2].partition("## Names")[0]

    named = {name for row in re.findall("^[|] (`.*?) [|]", table, re.M) for name in re.findall("`(.*?)`", row)}

    assert named == there
    elsewhere = set(re.findall(PREFIX + "([a-z_]+)", page)) - {"state"}
    assert elsewhere <= collected | named
