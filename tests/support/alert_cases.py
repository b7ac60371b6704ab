"""What promtool is told of connectors: series, and when an alert fires of them; those of streams are with the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from deltaworks.metrics.rule import CONNECTORS_JOB, JOB

Series = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Series of a pipeline or connector, by their name without prefix and their other labels; when the alert fires."""

    alert: str
    series: Series
    fires: Mapping[str, str] = field(default_factory=dict)
    """Time -> the value as people see it."""
    silent: tuple[str, ...] = ()
    """Times at which it does not fire."""
    step: str = "1m"
    job: str = JOB


_case = partial(Case, job=CONNECTORS_JOB)
_RUNS = {'state{state="RUNNING"}': "1x300"}
_RESTS = {'state{state="RUNNING"}': "1x10 0x290", 'state{state="PAUSED"}': "0x10 1x290"}
_UNKNOWN = {'state{state="UNKNOWN"}': "1x300"}
_LONG_AGO = {"deployed_seconds": "90000+60x300"}

CASES: Mapping[str, Case] = {
    "a connector fails": _case(
        alert="ConnectorFailed",
        series={"failed": "0x5 1x5 0x30", "restarts": "0x60", **_RUNS},
        fires={"8m": ""},
        silent=("5m", "20m"),
    ),
    "it was restarted, and has not run for long": _case(
        alert="ConnectorFailed",
        series={"failed": "0x5 1x3 0x60", "restarts": "0x5 1x15 0x60", **_RUNS},
        fires={"8m": "", "18m": ""},
        silent=("30m",),
    ),
    "restarts of one that did not fail here": _case(
        alert="ConnectorFailed", series={"failed": "0x60", "restarts": "1x60", **_RUNS}, silent=("30m",)
    ),
    "it has failed, and somebody lets it rest": _case(
        alert="ConnectorFailed",
        series={"failed": "0x5 1x5 0x60", "restarts": "2x60", **_RESTS},
        fires={"8m": ""},
        silent=("20m",),
    ),
    "it has failed, and nobody answers": _case(
        alert="ConnectorFailed",
        series={"failed": "0x5 1x5 _x20 0x30", "restarts": "0x60", **_UNKNOWN},
        fires={"8m": "", "28m": ""},
        silent=("5m", "40m"),
    ),
    "it has failed, and was deleted": _case(
        alert="ConnectorFailed",
        series={"failed": "0x5 1x5 stale", "restarts": "0x10 stale", 'state{state="FAILED"}': "1x10 stale"},
        fires={"8m": ""},
        silent=("20m",),
    ),
    "nobody has answered yet": _case(alert="ConnectorFailed", series=_UNKNOWN, silent=("10m",)),
    "given up": _case(
        alert="ConnectorGivenUp",
        series={"given_up": "0x5 1x10 0x30", "failed": "1x15 0x30", "slot_lost": "0x60", **_RUNS},
        fires={"8m": ""},
        silent=("5m", "25m"),
    ),
    "given up, and the registry does not answer": _case(
        alert="ConnectorGivenUp",
        series={"given_up": "1x10 _x20 0x20", "failed": "1x60", **_RUNS},
        fires={"25m": ""},
        silent=("40m",),
    ),
    "given up since its slot is lost": _case(
        alert="ConnectorGivenUp",
        series={"given_up": "1x30", "failed": "1x30", "slot_lost": "1x30", **_RUNS},
        silent=("10m",),
    ),
    "given up, and it runs again": _case(
        alert="ConnectorGivenUp", series={"given_up": "1x30", "failed": "0x30", **_RUNS}, silent=("10m",)
    ),
    "it differs for long": _case(
        alert="ConnectorDrifted",
        series={"differs": "0x5 1x20 0x30", **_RUNS},
        fires={"20m": ""},
        silent=("14m", "35m"),
    ),
    "it differs, and its file cannot be read": _case(
        alert="ConnectorDrifted",
        series={"differs": "1x15 _x20 0x30", **_RUNS},
        fires={"12m": "", "30m": ""},
        silent=("9m", "50m"),
    ),
    "its file cannot be read, and it did not differ": _case(
        alert="ConnectorDrifted", series={"differs": "0x5 _x40", **_RUNS}, silent=("30m",)
    ),
    "its slot is endangered": _case(
        alert="SlotEndangered",
        series={"slot_endangered": "0x5 1x5 0x30", **_RUNS},
        fires={"8m": ""},
        silent=("5m", "20m"),
    ),
    "its slot is lost, and the database does not answer": _case(
        alert="SlotLost",
        series={"slot_lost": "0x5 1x5 _x20 0x20", **_RUNS},
        fires={"8m": "", "28m": ""},
        silent=("5m", "45m"),
    ),
    "the database of a slot does not answer": _case(
        alert="SlotLost", series={"slot_lost": "0x5 _x40", **_RUNS}, silent=("30m",)
    ),
    "a sink has dead letters": _case(
        alert="DeadLettersOfASink",
        series={"failed_records_total": "2x70 5x140", "alert_dead_letters": "3x210", **_RUNS, **_LONG_AGO},
        fires={"75m": "3"},
        silent=("70m", "140m"),
    ),
    "a few more, until none has come for an hour": _case(
        alert="DeadLettersOfASink",
        series={"failed_records_total": "2x70 5x30 6x140", "alert_dead_letters": "3x240", **_RUNS, **_LONG_AGO},
        fires={"75m": "3", "140m": "1"},
        silent=("70m", "175m"),
    ),
    "dead letters of a sink that was just deployed": _case(
        alert="DeadLettersOfASink",
        series={"failed_records_total": "4x10", "alert_dead_letters": "1x10", "deployed_seconds": "5+60x10", **_RUNS},
        fires={"5m": "4"},
    ),
    "its dead letters from before there was a Prometheus": _case(
        alert="DeadLettersOfASink",
        series={"failed_records_total": "4x10", "alert_dead_letters": "1x10", **_RUNS, **_LONG_AGO},
        silent=("5m",),
    ),
    "old dead letters of a sink that is deployed again, and their metrics served by another process": _case(
        alert="DeadLettersOfASink",
        series={
            'failed_records_total{instance="a"}': "40x100 stale",
            'failed_records_total{instance="b"}': "_x102 40x100",
            'alert_dead_letters{instance="a"}': "3x100 stale",
            'alert_dead_letters{instance="b"}': "_x102 3x100",
            'deployed_seconds{instance="a"}': "90000+60x94 5+60x5 stale",
            'deployed_seconds{instance="b"}': "_x102 425+60x100",
            **_RUNS,
        },
        silent=("97m", "103m", "110m", "140m", "170m"),
    ),
    "new ones while no process serves their metrics": _case(
        alert="DeadLettersOfASink",
        series={
            'failed_records_total{instance="a"}': "40x100 stale",
            'failed_records_total{instance="b"}': "_x110 44x150",
            'alert_dead_letters{instance="a"}': "3x100 stale",
            'alert_dead_letters{instance="b"}': "_x110 3x150",
            'deployed_seconds{instance="a"}': "90000+60x100 stale",
            'deployed_seconds{instance="b"}': "_x110 96600+60x150",
            **_RUNS,
        },
        fires={"115m": "4"},
        silent=("100m", "180m"),
    ),
    "their topic is made anew, and another process serves their metrics": _case(
        alert="DeadLettersOfASink",
        series={
            'failed_records_total{instance="a"}': "40x100 stale",
            'failed_records_total{instance="b"}': "_x102 0x70 4x60",
            'alert_dead_letters{instance="a"}': "3x100 stale",
            'alert_dead_letters{instance="b"}': "_x102 3x130",
            'deployed_seconds{instance="a"}': "90000+60x100 stale",
            'deployed_seconds{instance="b"}': "_x102 96120+60x130",
            **_RUNS,
        },
        fires={"176m": "4"},
        silent=("103m", "170m"),
    ),
    "dead letters of a sink that was just deployed, and two processes serve their metrics": _case(
        alert="DeadLettersOfASink",
        series={
            'failed_records_total{instance="a"}': "4x10",
            'failed_records_total{instance="b"}': "_x3 4x7",
            'alert_dead_letters{instance="a"}': "1x10",
            'deployed_seconds{instance="a"}': "5+60x10",
            'deployed_seconds{instance="b"}': "_x3 185+60x7",
            **_RUNS,
        },
        fires={"5m": "4"},
    ),
    "too few dead letters": _case(
        alert="DeadLettersOfASink",
        series={"failed_records_total": "2x70 4x140", "alert_dead_letters": "3x210", **_RUNS, **_LONG_AGO},
        silent=("75m",),
    ),
    "dead letters of one that rests": _case(
        alert="DeadLettersOfASink",
        series={"failed_records_total": "2x70 5x140", "alert_dead_letters": "3x210", **_RESTS, **_LONG_AGO},
        silent=("75m",),
    ),
    "Kafka Connect is away": _case(
        alert="ConnectAway", series={"connect_up": "1x5 0x5 1x20"}, fires={"8m": ""}, silent=("5m", "6m", "15m")
    ),
    "there is no Kafka Connect": _case(
        alert="ConnectAway", series={"connect_looked_timestamp_seconds": "0+60x20"}, silent=("10m",)
    ),
    "a sink falls behind": _case(
        alert="SinkLagGrows",
        series={"lag_records": "0x30 0+400x60 24000x60"},
        fires={"60m": "11.6k"},
        silent=("45m", "120m"),
    ),
    "a sink falls behind, and is not asked each time": _case(
        alert="SinkLagGrows",
        series={"lag_records": f"0x30 {' '.join(f'{400 * n} stale stale' for n in range(0, 90, 3))}"},
        fires={"61m": "12k"},
        silent=("45m",),
    ),
    "a sink commits now and then": _case(
        alert="SinkLagGrows",
        series={"lag_records": f"0x30 {'500 9000 ' * 40}"},
        silent=("40m", "45m", "50m", "55m", "60m", "90m"),
    ),
    "a sink catches up": _case(alert="SinkLagGrows", series={"lag_records": "90000-900x90"}, silent=("50m", "80m")),
    "a source falls behind": _case(
        alert="SourceLagGrows",
        series={"lag_bytes": "0x30 0+40000000x60 2400000000x60"},
        fires={"60m": "1.08Gi"},
        silent=("45m", "120m"),
    ),
    "a quiet database": _case(alert="SourceLagGrows", series={"lag_bytes": "0+1000000x90"}, silent=("50m", "80m")),
    "tasks move again and again": _case(
        alert="TasksMove",
        series={"moved_tasks_total": "0x60 0+1x20 20x90", "tasks": "2x200"},
        fires={"75m": "14"},
        silent=("64m", "160m"),
    ),
    "a worker restarts": _case(
        alert="TasksMove", series={"moved_tasks_total": "0x60 4x60", "tasks": "2x200"}, silent=("65m", "100m")
    ),
    "a connector without tasks": _case(
        alert="TasksMove", series={"moved_tasks_total": "0x90", "tasks": "0x90"}, silent=("70m",)
    ),
    "the process with their metrics is killed": _case(
        alert="ConnectorsUnseen",
        series={"connect_up": "1x10 stale", "up": "1x10 0x30 1x30"},
        fires={"20m": ""},
        silent=("10m", "50m"),
    ),
    "it has ended, a day ago": _case(
        alert="ConnectorsUnseen",
        series={"connect_up": "1x5 stale", "up": "1x5 stale"},
        fires={"60m": ""},
        silent=("20m", "200m"),
        step="4m",
    ),
    "it hangs": _case(
        alert="ConnectorsUnseen",
        series={"connect_looked_timestamp_seconds": "0+60x10 600x30", "up": "1x60"},
        fires={"25m": ""},
        silent=("10m", "15m"),
    ),
    "there are no connectors": _case(
        alert="ConnectorsUnseen",
        series={"connect_looked_timestamp_seconds": "0+60x10 stale", "up": "1x10 0x30"},
        silent=("30m",),
    ),
}


def healthy(step: str, steps: int) -> Case:
    """A connector of which there is nothing to say."""
    step_s = 60 * int(step[:-1])
    quiet = ("failed", "given_up", "differs", "restarts", "slot_lost", "slot_endangered", "failed_records_total")
    return _case(
        alert="",
        series={
            **dict.fromkeys(quiet, f"0x{steps}"),
            "up": f"1x{steps}",
            "connect_up": f"1x{steps}",
            "connect_looked_timestamp_seconds": f"0+{step_s}x{steps}",
            'state{state="RUNNING"}': f"1x{steps}",
            'state{state="PAUSED"}': f"0x{steps}",
            "tasks": f"2x{steps}",
            "moved_tasks_total": f"0x{steps}",
            "lag_records": f"5000x{steps}",
            "lag_bytes": f"500000000x{steps}",
            "alert_dead_letters": f"1x{steps}",
            "deployed_seconds": f"5+{step_s}x{steps}",
        },
        step=step,
    )
