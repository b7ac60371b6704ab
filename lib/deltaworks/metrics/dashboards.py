"""The dashboards for Grafana: what an operator looks at. `infra/monitoring/dashboards` is what `files` gives.

Each query asks for metrics of `stream.py`, of the connectors (`connectors/metrics.py`), or of Prometheus itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltaworks.metrics.grafana import Dashboard, Panel, Query, Row, Unit, Variable, render
from deltaworks.metrics.rule import CONNECTORS_JOB, JOB

_S = "deltaworks_stream_"
_C = "deltaworks_connector_"
_CHOSEN = 'pipeline=~"$pipeline"'
_PROCESS, _OPEN = (f'{_CHOSEN},phase="{phase}"' for phase in ("process", "open"))
_VISIBLE = f'{_CHOSEN},stage="visible"'
_QUANTILES = (("median", 0.5), ("95 %", 0.95), ("99 %", 0.99))
_PIPELINES = Variable(name="pipeline", metric=f"{_S}generation")
_DISK_FREE = f"min({_S}home_free_ratio)"
_DISK_FULL_IN = (
    f"({_DISK_FREE} / clamp_min(-min(deriv({_S}home_free_ratio[6h])), 1e-9)) < 30 * 86400\nor vector(30 * 86400)"
)
_BY_STORE, _BY_TABLE = "{{pipeline}} {{store}}", "{{pipeline}} {{table}}"


def _stat(title: str, what: str, expr: str, unit: Unit = "short", **more: float) -> Panel:
    return Panel(kind="stat", title=title, what=what, queries=(Query(expr=expr),), unit=unit, width=4, **more)  # type: ignore[arg-type]


def _graph(title: str, what: str, *queries: tuple[str, str], unit: Unit = "short", stacked: bool = False) -> Panel:
    made = tuple(Query(expr=expr, legend=legend) for expr, legend in queries)
    return Panel(title=title, what=what, queries=made, unit=unit, stacked=stacked)


def _most(metric: str, *labels: str, where: str = _CHOSEN) -> str:
    """The newest driver's: an older one's series may still be there for a while."""
    return f"max by ({', '.join(('pipeline', *labels))}) ({_S}{metric}{{{where}}})"


def _rate(metric: str, *labels: str, where: str = _CHOSEN) -> str:
    return f"sum by ({', '.join(('pipeline', *labels))}) (rate({_S}{metric}{{{where}}}[$__rate_interval]))"


def _average(histogram: str, *labels: str, where: str = _CHOSEN) -> str:
    return f"{_rate(f'{histogram}_sum', *labels, where=where)}\n/ {_rate(f'{histogram}_count', *labels, where=where)}"


def _quantiles(histogram: str, where: str = _CHOSEN) -> list[tuple[str, str]]:
    by_end = _rate(f"{histogram}_bucket", "le", where=where)
    return [(f"histogram_quantile({share}, {by_end})", f"{{{{pipeline}}}} {name}") for name, share in _QUANTILES]


def _within_hour(counter: str) -> str:
    return f"sum by (pipeline) (increase({_S}{counter}{{{_CHOSEN}}}[1h]))"


def _of_process(metric: str) -> str:
    return f'{metric}{{job="{JOB}",{_CHOSEN}}}'


_RESTARTS = (
    f"max by (pipeline) (max_over_time({_S}generation{{{_CHOSEN}}}[1h]))\n"
    f"- min by (pipeline) (min_over_time({_S}generation{{{_CHOSEN}}}[1h]))"
)

_DISK_FULL = _stat(
    "Disk full in", "At the pace of the last six hours; 30 days: or later.", _DISK_FULL_IN, "s", red_below=86_400
)
_CPU = f"rate({_of_process('process_cpu_seconds_total')}[$__rate_interval])"

OVERVIEW = Dashboard(
    uid="deltaworks-overview",
    title="Streams overview",
    what="All streams of a home: whether they run, how far they are behind, and what has gone wrong.",
    rows=(
        Row(
            title="Now",
            panels=(
                _stat("Running", "Streams that run.", f'sum({_S}state{{{_S}state="running"}})'),
                _stat(
                    "Not running",
                    "Drivers that do not answer though they should, or that have failed.",
                    f'(count(up{{job="{JOB}"}} == 0) or vector(0))\n'
                    f'+ (sum({_S}state{{{_S}state="failed"}}) or vector(0))',
                    red_from=1,
                ),
                _stat("Alerts", "Alerts that fire.", 'count(ALERTS{alertstate="firing"}) or vector(0)', red_from=1),
                _stat("Highest lag", "Of the stream that is furthest behind.", f"max({_S}lag_seconds)", "s"),
                _stat("Records per second", "Of all streams.", f"sum({_S}records_per_second)", "cps"),
                _stat(
                    "Dead letters in an hour",
                    "Of all streams.",
                    f"sum(increase({_S}dead_letters_total[1h])) or vector(0)",
                    red_from=1,
                ),
                _stat("Disk free", "Of the home: its space or its files.", _DISK_FREE, "percentunit", red_below=0.1),
                _DISK_FULL,
            ),
        ),
        Row(
            title="Streams",
            panels=(
                Panel(
                    kind="table",
                    title="All streams",
                    what="One row per stream.",
                    width=24,
                    queries=tuple(
                        Query(expr=f"max by (pipeline) ({expr})", legend=legend)
                        for legend, expr in (
                            ("Runs", f'{_S}state{{{_S}state="running"}}'),
                            ("Driver", f"{_S}generation"),
                            ("Up, seconds", f"{_S}up_seconds"),
                            ("Records per second", f"{_S}records_per_second"),
                            ("Lag, seconds", f"{_S}lag_seconds"),
                            ("Lag, records", f"sum by (pipeline) ({_S}lag_records)"),
                            ("Last batch, seconds", f"{_S}last_batch_seconds"),
                            ("State, entries", f"{_S}state_entries"),
                            ("Dead letters", f"{_S}dead_letters_total"),
                            ("Stale snapshots", f"{_S}stale_snapshots"),
                        )
                    ),
                ),
                _graph(
                    "Records per second",
                    "Over the last minute.",
                    (_most("records_per_second"), "{{pipeline}}"),
                    unit="cps",
                ),
                _graph(
                    "Lag",
                    "How long ago the topics ended at the stream's position.",
                    (_most("lag_seconds"), "{{pipeline}}"),
                    unit="s",
                ),
                _graph(
                    "Batches, 99 %",
                    "One in a hundred takes longer.",
                    (
                        f"histogram_quantile(0.99, {_rate('batch_duration_seconds_bucket', 'le')})",
                        "{{pipeline}}",
                    ),
                    unit="s",
                ),
                _graph(
                    "Restarts in an hour",
                    "Drivers that have replaced each other.",
                    (_RESTARTS, "{{pipeline}}"),
                ),
                _graph(
                    "Dead letters in an hour",
                    "Records that the code could not process.",
                    (_within_hour("dead_letters_total"), "{{pipeline}}"),
                ),
                _graph(
                    "CPU of drivers",
                    "Cores, of their Python processes without JVM and workers.",
                    (_CPU, "{{pipeline}}"),
                    unit="none",
                ),
            ),
        ),
    ),
    variable=_PIPELINES,
)

STREAM = Dashboard(
    uid="deltaworks-stream",
    title="One stream",
    what="Throughput, lag, latency and errors of one stream.",
    rows=(
        Row(
            title="Throughput and lag",
            panels=(
                _graph(
                    "Records per second",
                    "Read from its topics, and sent to Kafka.",
                    (_rate("records_total"), "read"),
                    (_rate("sent_records_total"), "sent"),
                    unit="cps",
                ),
                _graph(
                    "Lag in seconds",
                    "How long ago the topics ended at the stream's position.",
                    (_most("lag_seconds"), "lag"),
                    (_most("alert_lag_seconds"), "incident"),
                    unit="s",
                ),
                _graph(
                    "Lag in records",
                    "By partition: one that has most of it says that keys do not spread.",
                    (_most("lag_records", "topic", "partition"), "{{topic}} {{partition}}"),
                    stacked=True,
                ),
                _graph(
                    "Batches per second",
                    "How often results are committed.",
                    (_rate("batch_duration_seconds_count"), "batches"),
                    unit="ops",
                ),
            ),
        ),
        Row(
            title="Latency",
            panels=(
                _graph(
                    "Age of records by stage",
                    "By their timestamps: when a task had read them, when they were processed, committed to Kafka, and "
                    "visible in tables. On average.",
                    (_average("latency_seconds", "stage"), "{{stage}}"),
                    unit="s",
                ),
                _graph(
                    "Age of records in tables",
                    "From its timestamp until a record is visible.",
                    *_quantiles("latency_seconds", _VISIBLE),
                    (_most("latency_highest_seconds", where=_VISIBLE), "highest of the last batch"),
                    unit="s",
                ),
                _graph(
                    "Batches", "From the plan of a batch to its end.", *_quantiles("batch_duration_seconds"), unit="s"
                ),
                _graph(
                    "Parts of a batch",
                    "`tasks` read, process and write; `tables` are committed; `after` that it is recorded. On average.",
                    (_average("batch_phase_duration_seconds", "phase"), "{{phase}}"),
                    unit="s",
                    stacked=True,
                ),
                _graph(
                    "Parts of a task's batch",
                    "`open` its stores, `read` (poll), `process`, `commit` to Kafka and files, `keep` for recovery. On "
                    "average.",
                    (_average("task_phase_seconds", "phase"), "{{phase}}"),
                    unit="s",
                    stacked=True,
                ),
                _graph(
                    "Slowest tasks",
                    "The highest of the last batch: far above the average, one task has most of the work.",
                    (_most("task_phase_highest_seconds", "phase"), "{{phase}}"),
                    unit="s",
                ),
                _graph(
                    "Processing of a record",
                    "Time in `process` divided by records, as `process-latency-avg` of Kafka Streams.",
                    (f"{_rate('task_phase_seconds_sum', where=_PROCESS)}\n/ {_rate('records_total')}", "process"),
                    unit="s",
                ),
                _graph(
                    "Spark's part",
                    "The last batch in Spark's words; `addBatch` has all of ours.",
                    (_most("spark_phase_seconds", "phase"), "{{phase}}"),
                    unit="s",
                ),
            ),
        ),
        Row(
            title="What went wrong",
            panels=(
                _graph(
                    "Records without a result",
                    "Dropped without a key or by a failure, too late for their window, final results that expired.",
                    (_rate("dropped_records_total"), "dropped"),
                    (_rate("late_records_total"), "late"),
                    (_rate("lost_results_total"), "lost results"),
                    unit="cps",
                ),
                _graph(
                    "Dead letters",
                    "Since the driver's start, and within an hour.",
                    (_most("dead_letters_total"), "since the start"),
                    (_within_hour("dead_letters_total"), "in an hour"),
                ),
                _graph(
                    "Skipped transactions",
                    "Kafka had them from an earlier attempt: batches have run again.",
                    (_rate("skipped_transactions_total"), "skipped"),
                    unit="ops",
                ),
                _graph(
                    "Traces that were dropped",
                    "Batches whose traces were not delivered, within an hour.",
                    (_within_hour("traces_dropped_total"), "dropped"),
                ),
                _graph(
                    "Systems that are down",
                    "Call-outs whose breaker is open, or half-open.",
                    (
                        f"sum by (call_out, state) ({_S}breaker_open{{{_CHOSEN}}}) or on() vector(0)",
                        "{{call_out}} {{state}}",
                    ),
                ),
            ),
        ),
        Row(
            title="Driver",
            panels=(
                _stat("Tasks", "Of all stages.", _most("tasks")),
                _stat("Driver", "Its number; it grows with each restart and deployment.", _most("generation")),
                _stat("Up", "How long this driver has run.", _most("up_seconds"), "s"),
                _stat("Quiet", "How long no batch has ended.", _most("quiet_seconds"), "s"),
                _stat(
                    "Heartbeat",
                    "Its age.",
                    f"time() - {_most('heartbeat_timestamp_seconds')}",
                    "s",
                    red_from=60,
                ),
                _stat("Interval", "The trigger interval.", _most("interval_seconds"), "s"),
                _graph(
                    "Memory",
                    "Of its Python process, without JVM and workers.",
                    (_of_process("process_resident_memory_bytes"), "driver"),
                    unit="bytes",
                ),
                _graph(
                    "CPU",
                    "Cores, of its Python process without JVM and workers.",
                    (_CPU, "driver"),
                    unit="none",
                ),
            ),
        ),
    ),
    variable=Variable(name="pipeline", metric=f"{_S}generation", several=False),
)

_RESTORED = f"{_most('restoring_entries_done')} / ({_most('restoring_entries')} > 0)"

STORES = Dashboard(
    uid="deltaworks-stores",
    title="Stores and state",
    what="How large state stores are, how they grow, and how they come back after a loss.",
    rows=(
        Row(
            title="Size",
            panels=(
                _graph("Entries", "Of all stores of a stream.", (_most("state_entries"), "{{pipeline}}")),
                _graph(
                    "Growth in a day",
                    "Entries that stores have more than a day ago; what grows with the records is traffic.",
                    (f"max by (pipeline) (delta({_S}state_entries{{{_CHOSEN}}}[1d]))", "{{pipeline}}"),
                ),
                _graph(
                    "Entries by store",
                    "`__task__` holds the times of tasks.",
                    (_most("store_entries", "store"), _BY_STORE),
                ),
                _graph(
                    "Bytes by store",
                    "Of the pages of local stores.",
                    (_most("store_bytes", "store"), _BY_STORE),
                    unit="bytes",
                ),
                _graph(
                    "Bytes of an entry",
                    "On average; values that grow show here.",
                    (f"{_most('store_bytes', 'store')}\n/ clamp_min({_most('store_entries', 'store')}, 1)", _BY_STORE),
                    unit="bytes",
                ),
                _graph(
                    "Records",
                    "Beside the growth of state: traffic.",
                    (_rate("records_total"), "{{pipeline}}"),
                    unit="cps",
                ),
            ),
        ),
        Row(
            title="Recovery",
            panels=(
                _graph(
                    "Restores that go on",
                    "The share of their entries that is read; 1: none goes on. Short ones are not shown.",
                    (f"{_RESTORED}\nor ({_most('restoring_entries')} == 0) + 1", "{{pipeline}}"),
                    unit="percentunit",
                ),
                _graph(
                    "Tasks that restore",
                    "And take longer than some seconds.",
                    (_most("restoring_tasks"), "{{pipeline}}"),
                ),
                _graph(
                    "Restored entries per second",
                    "Read again, from Spark's state.",
                    (_rate("restored_entries_total"), "{{pipeline}}"),
                    unit="cps",
                ),
                _graph(
                    "Time in restores",
                    "Seconds per second, the sum of tasks.",
                    (_rate("restore_seconds_total"), "{{pipeline}}"),
                    unit="none",
                ),
                _graph(
                    "Stores opened",
                    "How: rebuilt or new ones were lost, or a task has moved.",
                    (_rate("store_openings_total", "how"), "{{pipeline}} {{how}}"),
                    unit="ops",
                ),
                _graph(
                    "Opening of stores",
                    "A part of a task's batch, on average.",
                    (_average("task_phase_seconds", where=_OPEN), "{{pipeline}}"),
                    unit="s",
                ),
            ),
        ),
        Row(
            title="Disk of the home",
            panels=(
                _stat("Disk free", "Its space or its files.", _DISK_FREE, "percentunit", red_below=0.1),
                _DISK_FULL,
                Panel(
                    title="Disk free",
                    what="Its space or its files.",
                    queries=(Query(expr=_DISK_FREE, legend="free"),),
                    unit="percentunit",
                    width=16,
                ),
            ),
        ),
    ),
    variable=_PIPELINES,
)

TABLES = Dashboard(
    uid="deltaworks-tables",
    title="Delta tables",
    what="What streams write into their tables, how long commits take, and how fresh tables are.",
    rows=(
        Row(
            title="Freshness",
            panels=(
                _graph(
                    "Changes that a snapshot lacks",
                    "For how long; 0: it shows all that its changelog has.",
                    (_most("table_stale_seconds", "table"), _BY_TABLE),
                    unit="s",
                ),
                _graph("Stale snapshots", "Of each stream.", (_most("stale_snapshots"), "{{pipeline}}")),
                _graph(
                    "Behind the topics",
                    "Tables show what the stream has processed.",
                    (_most("lag_seconds"), "{{pipeline}}"),
                    unit="s",
                ),
                _graph(
                    "Age of records when they are visible",
                    "On average, by their timestamps.",
                    (_average("latency_seconds", where=_VISIBLE), "{{pipeline}}"),
                    unit="s",
                ),
                _graph(
                    "Since the last commit",
                    "A table without changes has no commits, so this alone is no problem.",
                    (f"time() - {_most('table_commit_timestamp_seconds', 'table')}", _BY_TABLE),
                    unit="s",
                ),
            ),
        ),
        Row(
            title="Commits",
            panels=(
                _graph(
                    "Rows per second",
                    "Appended, updated or deleted.",
                    (_rate("table_rows_total", "table"), _BY_TABLE),
                    unit="cps",
                ),
                _graph(
                    "Commits per second", "By table.", (_rate("table_commits_total", "table"), _BY_TABLE), unit="ops"
                ),
                _graph(
                    "Time of a commit",
                    "On average.",
                    (
                        f"{_rate('table_commit_seconds_total', 'table')}\n/ {_rate('table_commits_total', 'table')}",
                        _BY_TABLE,
                    ),
                    unit="s",
                ),
                _graph(
                    "All tables of a batch",
                    "Their part of a batch, with snapshots and the cut.",
                    *_quantiles("batch_phase_duration_seconds", f'{_CHOSEN},phase="tables"'),
                    unit="s",
                ),
                _graph(
                    "Files",
                    "Of which a table consists; many small ones make readers slow.",
                    (_most("table_files", "table"), _BY_TABLE),
                ),
                _graph(
                    "Requests to the object store",
                    "By kind; nothing if tables are on a disk.",
                    (f"{_rate('object_store_requests_total', 'kind')} or on() vector(0)", "{{pipeline}} {{kind}}"),
                    unit="ops",
                ),
            ),
        ),
    ),
    variable=_PIPELINES,
)


def _of_connector(metric: str) -> str:
    return f'max by (connector) ({_C}{metric}{{connector=~"$connector"}})'


CONNECTORS = Dashboard(
    uid="deltaworks-connectors",
    title="Connectors",
    what="Connectors of Kafka Connect: `deltaworks metrics --serve` asks for them.",
    rows=(
        Row(
            title="Now",
            panels=(
                _stat("Kafka Connect", "1: it answers.", "max(deltaworks_connect_up)", "bool_yes_no", red_below=1),
                _stat("Connectors", "Of the project.", f"count(max by (connector) ({_C}tasks))"),
                _stat("Tasks", "Of all connectors.", f"sum(max by (connector) ({_C}tasks))"),
                _stat(
                    "Failed tasks", "Ended with an error.", f"sum(max by (connector) ({_C}failed_tasks))", red_from=1
                ),
                _stat(
                    "Lag of sinks", "Records, of all sinks.", f"sum(max by (connector) ({_C}lag_records)) or vector(0)"
                ),
                _stat(
                    "Lag of sources",
                    "What they have not confirmed of their databases' logs.",
                    f"sum(max by (connector) ({_C}lag_bytes)) or vector(0)",
                    "bytes",
                ),
                _stat(
                    "Asked",
                    "How long ago; else nobody serves these metrics, and all of this is old.",
                    f'time() - max(deltaworks_connect_looked_timestamp_seconds{{job="{CONNECTORS_JOB}"}})',
                    "s",
                    red_from=60,
                ),
            ),
        ),
        Row(
            title="Connectors",
            panels=(
                Panel(
                    kind="table",
                    title="All connectors",
                    what="One row per connector.",
                    width=24,
                    queries=tuple(
                        Query(expr=f"max by (connector) ({_C}{expr})", legend=legend)
                        for legend, expr in (
                            ("Runs", 'state{state="RUNNING"}'),
                            ("Failed", "failed"),
                            ("Tasks", "tasks"),
                            ("Failed tasks", "failed_tasks"),
                            ("Restarts", "restarts"),
                            ("Given up", "given_up"),
                            ("Lag, records", "lag_records"),
                            ("Dead letters", "dead_letters"),
                            ("Differs from its file", "differs"),
                            ("Slot endangered", "slot_endangered"),
                            ("Slot lost", "slot_lost"),
                        )
                    ),
                ),
                _graph("Failed tasks", "By connector.", (_of_connector("failed_tasks"), "{{connector}}")),
                _graph("Running tasks", "By connector.", (_of_connector("running_tasks"), "{{connector}}")),
                _graph(
                    "Lag of sinks",
                    "Records of its topics that a sink has not committed.",
                    (_of_connector("lag_records"), "{{connector}}"),
                ),
                _graph(
                    "Dead letters",
                    "Records in the topic of dead letters.",
                    (_of_connector("dead_letters"), "{{connector}}"),
                ),
                _graph(
                    "Restarts",
                    "Automatic ones, since it was last healthy for a while.",
                    (_of_connector("restarts"), "{{connector}}"),
                ),
                _graph(
                    "Tasks that have moved",
                    "To another worker, within an hour: workers have come or gone, and tasks were spread again.",
                    (
                        f'sum by (connector) (increase({_C}moved_tasks_total{{connector=~"$connector"}}[1h]))',
                        "{{connector}}",
                    ),
                ),
            ),
        ),
    ),
    variable=Variable(name="connector", metric=f"{_C}tasks"),
    joined_by="connector",
)

ALL: Sequence[Dashboard] = (OVERVIEW, STREAM, STORES, TABLES, CONNECTORS)


def files() -> dict[str, str]:
    """Name of a file -> what is in it."""
    return {f"{each.uid}.json": render(each) for each in ALL}
