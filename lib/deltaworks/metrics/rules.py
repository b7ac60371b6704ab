"""Alert rules for Prometheus: the incidents of streams and connectors, as metrics show them, and what comes before.

A rule whose `kind` is that of an incident has its name, its threshold and its runbook. The thresholds of a pipeline are
metrics of its driver (`deltaworks_stream_alert_...`); one that is None is absent, and its rule never fires.
`infra/monitoring/alerts.yml` is what `render` writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from deltaworks.control.incidents import DISK_FREE, DISK_FREE_AGAIN, KINDS, LEAST_GROWTH, Kind, anchor, runbook
from deltaworks.control.observation import STALLED_S
from deltaworks.errors import ConfigurationError
from deltaworks.metrics.connector_rules import OF_CONNECTORS
from deltaworks.metrics.rule import JOB, Rule, name_of, until

_GUIDE = "how-to/metrics"
_EVERY = "15s"
_DURATION = re.compile(r"(?<=\[)\d+[smhd](?=])|(?<=offset )\d+[smhd]\b")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SHORTEST_S = 3.0
_RESTARTS = 3
_SLOW = 10
_SLOW_S = 10
_LATE = 0.01
_LATE_LEAST = 100
_FASTER = 3


def _most(metric: str) -> str:
    """One series per pipeline: each driver has a port, and hence series, of its own."""
    return f"max by (pipeline) ({metric})"


def _ago(metric: str, ago: str) -> str:
    return _most(f"{metric} offset {ago}")


def _within_hour(counter: str) -> str:
    """By how much a counter of drivers has grown, exactly; a driver counts from its start."""
    most = f"max_over_time({counter}[1h])"
    return (
        "sum by (pipeline) (\n"
        f"  {most} - last_over_time({counter}[1d] offset 1h)\n"
        f"  or {most} and min_over_time(deltaworks_stream_up_seconds[1h]) < 60\n"
        f"  or {most} - min_over_time({counter}[1h])\n"
        ")"
    )


def _until(kind: Kind, opens: str, stays: str) -> str:
    """Fires when it opens, and on while it stays."""
    return until(kind, "pipeline", opens, stays)


_LAG = _most("deltaworks_stream_lag_seconds")
_LAG_LIMIT = _most("deltaworks_stream_alert_lag_seconds")
_LAG_BEFORE = _ago("deltaworks_stream_lag_seconds", "15m")
_WAITING = "sum by (pipeline) (deltaworks_stream_lag_records)"
_STATE = _most("deltaworks_stream_state_entries")
_STATE_BEFORE = _most("max_over_time(deltaworks_stream_state_entries[1h] offset 1d)")
_STATE_YESTERDAY = _ago("deltaworks_stream_state_entries", "1d")
_STATE_LAST_WEEK = _ago("deltaworks_stream_state_entries", "8d")
_GROWTH = _most("deltaworks_stream_alert_state_growth")
_FREE = "min(deltaworks_stream_home_free_ratio)"

RULES: tuple[Rule, ...] = (
    Rule(
        name=name_of("failed"),
        kind="failed",
        severity="critical",
        expr=f'{_most(f"""up{{job="{JOB}"}} == 0""")}\n'
        f'or {_most("""deltaworks_stream_state{deltaworks_stream_state="failed"} == 1""")}\n'
        f"or {_most('time() - deltaworks_stream_heartbeat_timestamp_seconds')} > {STALLED_S:g}\n"
        f'unless {_most("""deltaworks_stream_state{deltaworks_stream_state="starting"} == 1""")}',
        what="its driver does not answer, has failed, or gives no heartbeat",
        cause="it has ended, was killed or hangs; the supervisor restarts it unless it was given up",
        hold="1m",
    ),
    Rule(
        name="Restarts",
        question="A stream restarts",
        severity="warning",
        expr=f"{_most('max_over_time(deltaworks_stream_generation[1h])')}\n"
        f"- min by (pipeline) (min_over_time(deltaworks_stream_generation[1h])) >= {_RESTARTS}",
        what="{{ $value }} drivers have replaced each other within an hour",
        cause="it fails again and again, the machine has too little memory, or somebody deploys it often",
    ),
    Rule(
        name=name_of("lagging"),
        kind="lagging",
        severity="warning",
        expr=_until("lagging", f"{_LAG} > {_LAG_LIMIT}", f"{_LAG} > {_LAG_LIMIT} / 2"),
        what="it is {{ $value | humanizeDuration }} behind its topics",
        cause="more records arrive than it processes, or it catches up after a pause",
        keep="2m",
    ),
    Rule(
        name="LagGrows",
        question="Lag grows",
        severity="warning",
        expr=f"{_LAG} > {_LAG_LIMIT} / 4\nand {_LAG} - {_LAG_BEFORE} > {_LAG_LIMIT} / 4",
        what="it is {{ $value | humanizeDuration }} behind its topics, and was much less a quarter of an hour ago",
        cause="more records arrive than it processes, or one partition gets most of them",
        hold="5m",
        keep="2m",
    ),
    Rule(
        name=name_of("batch_stuck"),
        kind="batch_stuck",
        severity="critical",
        expr=f"{_most('deltaworks_stream_quiet_seconds + time() - deltaworks_stream_heartbeat_timestamp_seconds')}\n"
        f"> {_most('deltaworks_stream_alert_batch_seconds')}\nand {_WAITING} > 0",
        what="no batch has ended for {{ $value | humanizeDuration }}, and records wait",
        cause="a function, a sink or a transaction does not return, or the batch is too large",
        keep="2m",
    ),
    Rule(
        name="SlowBatches",
        question="Latency grows",
        severity="warning",
        expr="histogram_quantile(0.99, sum by (pipeline, le) (\n"
        "  rate(deltaworks_stream_batch_duration_seconds_bucket[30m])\n))\n"
        f"> clamp_min({_SLOW} * {_most('deltaworks_stream_interval_seconds')}, {_SLOW_S})",
        what="one in a hundred batches takes {{ $value | humanizeDuration }} or longer, many times its interval",
        cause="a slow function or sink, batches that are too large, or a machine that is too busy",
        hold="15m",
        keep="2m",
    ),
    Rule(
        name=name_of("dead_letters"),
        kind="dead_letters",
        severity="warning",
        expr=f"{_within_hour('deltaworks_stream_dead_letters_total')}\n"
        f">= {_most('last_over_time(deltaworks_stream_alert_dead_letters[1h])')}",
        what="{{ $value }} records have become dead letters within an hour",
        cause="the code fails on them, or their producer has changed",
    ),
    Rule(
        name="LateRecords",
        question="Records are late or dropped",
        severity="warning",
        expr=f"{_within_hour('deltaworks_stream_late_records_total')}\n"
        f"+ {_within_hour('deltaworks_stream_dropped_records_total')}\n"
        f"> clamp_min({_LATE} * {_within_hour('deltaworks_stream_records_total')}, {_LATE_LEAST})",
        what="{{ $value }} records were too late for their window, or dropped, within an hour",
        cause="producers send records late or without a key, or grace is too short",
    ),
    Rule(
        name=name_of("state_growing"),
        kind="state_growing",
        severity="warning",
        expr=_until(
            "state_growing",
            f"{_STATE} > {_GROWTH} * {_STATE_BEFORE}\nand {_STATE} - {_STATE_BEFORE} >= {LEAST_GROWTH}",
            f"{_STATE} > (1 + {_GROWTH}) / 2 * {_STATE_BEFORE}\nand {_STATE} - {_STATE_BEFORE} >= {LEAST_GROWTH}",
        ),
        what="its stores have {{ $value | humanize }} entries, a multiple of those of a day ago",
        cause="keys that never end, windows that are kept too long, or a producer with new keys",
        keep="2m",
    ),
    Rule(
        name="StateGrowsFaster",
        question="State grows",
        severity="warning",
        expr=f"{_STATE} - {_STATE_YESTERDAY} >= {LEAST_GROWTH}\n"
        f"and {_STATE} - {_STATE_YESTERDAY} > {_FASTER} * clamp_min({_STATE_YESTERDAY} - {_STATE_LAST_WEEK}, 0) / 7",
        what="its stores have grown by {{ $value | humanize }} entries in a day, much more than in the week before",
        cause="a deployment, a producer with new keys, or a day with more traffic",
        hold="30m",
    ),
    Rule(
        name="StaleSnapshots",
        question="Tables are stale",
        severity="warning",
        expr="count by (pipeline) (\n"
        "  deltaworks_stream_table_stale_seconds > 0\n"
        "  unless changes(deltaworks_stream_table_commit_timestamp_seconds[1m]) > 0\n"
        ")",
        what="{{ $value }} snapshots lack changes, and have shown no new ones for half an hour",
        cause="the machine is too busy for their rounds, or another writer holds the tables",
        hold="30m",
    ),
    Rule(
        name=name_of("disk_filling"),
        kind="disk_filling",
        subject="home",
        severity="critical",
        expr=_until("disk_filling", f"{_FREE} < {DISK_FREE:g}", f"{_FREE} < {DISK_FREE_AGAIN:g}"),
        what="{{ $value | humanizePercentage }} of the disk of the home is free",
        cause="tables, logs or staging tables of replays have grown",
    ),
    Rule(
        name="DiskFillsSoon",
        question="The disk fills",
        subject="home",
        severity="warning",
        expr=f"{_FREE} + 4 * min(delta(deltaworks_stream_home_free_ratio[6h])) < 0",
        what="at the pace of the last six hours, the disk of the home is full within a day",
        cause="tables, logs or staging tables of replays grow",
        hold="30m",
    ),
    *OF_CONNECTORS,
)
"""All of them."""


def render(*, scale: float = 1.0, docs_url: str | None = None) -> str:
    """The file of rules that Prometheus loads.

    Args:
        scale: by which each range of time is multiplied, for tests; none gets shorter than three seconds. Thresholds
            stay, as they are those of the pipelines.
        docs_url: where the documentation is as a site, for links.

    Raises:
        ConfigurationError: the scale is not above 0.
    """
    if not scale > 0:
        raise ConfigurationError(f"The scale is {scale:g}; it must be above 0.", hint="1 leaves all ranges as they are")
    return "\n".join(_lines(scale, docs_url)) + "\n"


def scaled(expr: str, scale: float) -> str:
    """An expression whose ranges are multiplied by a factor."""
    return expr if scale == 1.0 else _DURATION.sub(lambda found: times(found[0], scale, _SHORTEST_S), expr)


def _lines(scale: float, docs_url: str | None) -> Iterator[str]:
    yield "# Written by `deltaworks metrics --alert-rules`, from deltaworks.metrics.rules: change that."
    yield "groups:"
    yield f"  - name: {JOB}"
    yield f"    interval: {times(_EVERY, scale, 1.0)}"
    yield "    rules:"
    for rule in RULES:
        yield f"      - alert: {rule.name}"
        yield "        expr: |-"
        yield from (f"          {line}" for line in scaled(rule.expr, scale).splitlines())
        for name, duration in (("for", rule.hold), ("keep_firing_for", rule.keep)):
            if duration != "0s":
                yield f"        {name}: {times(duration, scale, _SHORTEST_S)}"
        labels = {"severity": rule.severity} | ({"kind": rule.kind} if rule.kind else {})
        yield "        labels:"
        yield from (f"          {name}: {value}" for name, value in labels.items())
        yield "        annotations:"
        yield from (f"          {name}: {json.dumps(text)}" for name, text in _texts(rule, docs_url).items())


def _texts(rule: Rule, docs_url: str | None) -> dict[str, str]:
    about = "the home" if rule.subject == "home" else f"{{{{ $labels.{rule.subject} }}}}"
    title = KINDS[rule.kind].title if rule.kind else rule.question
    if rule.kind:
        page = runbook(docs_url, KINDS[rule.kind].anchor)
    else:
        guide = f"docs/{_GUIDE}.md" if docs_url is None else f"{docs_url}/{_GUIDE}.html"
        page = f"{guide}#{anchor(rule.question)}"
    found = {"summary": f"{about}: {title.lower()}", "what": f"{about}: {rule.what}", "cause": rule.cause}
    if rule.kind:
        found["advice"] = KINDS[rule.kind].advice.format(pipeline=about)
    return found | {"page": page}


def times(duration: str, scale: float, least_s: float) -> str:
    """A duration times a factor, in PromQL's notation."""
    if scale == 1.0:
        return duration
    milliseconds = round(max(least_s, int(duration[:-1]) * _SECONDS[duration[-1]] * scale) * 1_000)
    return f"{milliseconds // 1_000}s" if milliseconds % 1_000 == 0 else f"{milliseconds}ms"
