"""Alert rules of connectors: the incidents that `deltaworks.connectors.watch` finds, and what comes before them.

All of it is what `deltaworks metrics --serve` shows. While Kafka Connect, a database or the registry does not answer,
its figures are absent: then nothing fires, and what fires is not over.
"""

from __future__ import annotations

from deltaworks.control.incidents import CONNECT_AWAY_S, DRIFTS_S, Kind
from deltaworks.metrics.rule import CONNECTORS_JOB, Rule, fires, name_of, until

_C = "deltaworks_connector_"
_THERE = f"max by (connector) ({_C}state == 1)"
"""One series for each connector of the project, whatever it does."""
_WORKS = f'{_C}state{{state!~"PAUSED|STOPPED"}} == 1'
"""Likewise, for each that nobody wants to rest."""
_KEEP = "2m"
"""As long as another `deltaworks metrics --serve` needs to begin."""
_UNSEEN_S = 120
_LEAST_RECORDS, _LEAST_BYTES = 1_000, 64 << 20
_MOVES = 3


def _most(metric: str, *, over: str = "", range_: str = "") -> str:
    """One series per connector: each process that serves them has a port, and hence series, of its own."""
    inner = f"{_C}{metric}{range_}"
    return f"max by (connector) ({over}({inner}))" if over else f"max by (connector) ({inner})"


def _until(kind: Kind, opens: str, *stays: str, known: tuple[str, ...]) -> str:
    """Fires when it opens, and on while it stays, or while one of the metrics says nothing of the connector."""
    silent = [f"{_THERE} unless on (connector) {_C}{metric}" for metric in known]
    return until(kind, "connector", opens, *stays, *silent)


def _grows(metric: str, least: int) -> str:
    """The metric, where it has been above all that it was a quarter of an hour before, by at least so much.

    Of very many sinks, not each is asked each time.
    """
    now, before = (_most(metric, over=f"{edge}_over_time", range_=span)
                   for edge, span in (("min", "[10m]"), ("max", "[15m] offset 15m")))  # fmt: skip
    last = _most(metric, over="last_over_time", range_="[5m]")
    return f"{last}\nand on (connector)\n{now}\n- {before} >= {least}"


_LETTERS = f"{_C}failed_records_total"
_BEFORE = f"last_over_time({_LETTERS}[1d] offset 1h)"
_NEW_LETTERS = (
    "max by (connector) (\n"
    f"  max_over_time({_LETTERS}[1h]) - {_BEFORE}\n"
    f"  or max_over_time({_LETTERS}[1h]) - on (connector) group_left () max by (connector) ({_BEFORE})\n"
    f"  or max_over_time({_LETTERS}[1h]) and {_C}deployed_seconds < 3600\n"
    f"  or max_over_time({_LETTERS}[1h]) - min_over_time({_LETTERS}[1h])\n"
    ")"
)
"""By how much they have grown within an hour; of one that was deployed since, all of them count.

A process that has just begun to serve them goes on from what those before it have said: it has an instance of its own.
"""

OF_CONNECTORS: tuple[Rule, ...] = (
    Rule(
        name=name_of("connector_failed"),
        kind="connector_failed",
        subject="connector",
        severity="critical",
        expr=_until(
            "connector_failed",
            f"{_most('failed')} == 1",
            f"{_most('restarts')} > 0\nand on (connector) {_WORKS}",
            known=("failed", "restarts"),
        ),
        what="it or a task of it has failed, or it is gone though it should run",
        cause="its database or target is away or has changed, a record that it cannot take, or somebody has deleted it",
        keep=_KEEP,
    ),
    Rule(
        name=name_of("connector_given_up"),
        kind="connector_given_up",
        subject="connector",
        severity="critical",
        expr=_until(
            "connector_given_up",
            f"{_most('given_up')} == 1\nand on (connector) {_C}failed == 1\nunless on (connector) {_C}slot_lost == 1",
            known=("given_up", "failed"),
        ),
        what="it has failed, and nothing restarts it",
        cause="several restarts in a row have not helped: `deltaworks connect status` says why it fails",
        keep=_KEEP,
    ),
    Rule(
        name=name_of("connector_drifted"),
        kind="connector_drifted",
        subject="connector",
        severity="warning",
        expr=_until("connector_drifted", f"{_most('differs')} == 1", known=("differs",)),
        what="it has not been as its file says for some time",
        cause="somebody has changed the connector, or a changed file was not deployed",
        hold=f"{DRIFTS_S / 60:g}m",
        keep=_KEEP,
    ),
    Rule(
        name=name_of("slot_endangered"),
        kind="slot_endangered",
        subject="connector",
        severity="critical",
        expr=_until("slot_endangered", f"{_most('slot_endangered')} == 1", known=("slot_endangered",)),
        what="what it has not read of its database's log is removed with the next checkpoint",
        cause="it rests or has failed for too long, or reads more slowly than the database writes",
        keep=_KEEP,
    ),
    Rule(
        name=name_of("slot_lost"),
        kind="slot_lost",
        subject="connector",
        severity="critical",
        expr=_until("slot_lost", f"{_most('slot_lost')} == 1", known=("slot_lost",)),
        what="its database no longer has what it has not read",
        cause="it was away for longer than the database keeps its log, or somebody has dropped its slot",
        keep=_KEEP,
    ),
    Rule(
        name=name_of("sink_dead_letters"),
        kind="sink_dead_letters",
        subject="connector",
        severity="warning",
        expr=f"{_NEW_LETTERS}\n>= {_most('alert_dead_letters', over='last_over_time', range_='[1h]')}\n"
        f"and on (connector) {_WORKS}\n"
        f"or\n{_NEW_LETTERS} > 0\nand on (connector) {_WORKS}\n{fires('sink_dead_letters', 'connector')}",
        what="{{ $value }} records have become dead letters within an hour",
        cause="it cannot convert or write them: their producer, their schema or the target has changed",
        keep=_KEEP,
    ),
    Rule(
        name=name_of("connect_away"),
        kind="connect_away",
        subject="home",
        severity="critical",
        expr="min(deltaworks_connect_up) == 0",
        what="no worker of Kafka Connect answers, so nothing is known of connectors",
        cause="its workers do not run, or `url` in `[connect]` is not theirs",
        hold=f"{CONNECT_AWAY_S:g}s",
    ),
    Rule(
        name="SinkLagGrows",
        question="A connector lags",
        subject="connector",
        severity="warning",
        expr=_grows("lag_records", _LEAST_RECORDS),
        what="it is {{ $value | humanize }} records behind its topics, and that has grown all the time",
        cause="its target is slow or away, it has too few tasks, or a task hangs",
        hold="10m",
        keep=_KEEP,
    ),
    Rule(
        name="SourceLagGrows",
        question="A connector lags",
        subject="connector",
        severity="warning",
        expr=_grows("lag_bytes", _LEAST_BYTES),
        what="{{ $value | humanize1024 }}B of its database's log are not confirmed, and that has grown all the time",
        cause="it rests or is slow, or others write into the same database server and it has no heartbeat",
        hold="10m",
        keep=_KEEP,
    ),
    Rule(
        name="TasksMove",
        question="Tasks move",
        subject="connector",
        severity="warning",
        expr=f"sum by (connector) (increase({_C}moved_tasks_total[1h]))\n>= {_MOVES} * clamp_min({_most('tasks')}, 1)",
        what='its tasks have moved to another worker {{ $value | printf "%.0f" }} times within an hour',
        cause="workers come and go, do not reach each other in time, or connectors are changed again and again",
        keep=_KEEP,
    ),
    Rule(
        name="ConnectorsUnseen",
        question="Connectors are not seen",
        subject="home",
        severity="warning",
        expr="max(last_over_time(deltaworks_connect_up[1d]))\n"
        f'unless on () max(up{{job="{CONNECTORS_JOB}"}}) == 1\n'
        f"or time() - max(deltaworks_connect_looked_timestamp_seconds) > {_UNSEEN_S}",
        what="nobody serves the metrics of its connectors any more, so none of their alerts can fire",
        cause="`deltaworks metrics --serve` has ended, was killed or hangs",
        hold="5m",
    ),
)
"""All of them."""
