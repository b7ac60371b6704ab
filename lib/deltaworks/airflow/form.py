"""The form that Airflow shows before a run of `<name>__stream`, and the JSON schema that it checks over REST."""

from __future__ import annotations

from airflow.sdk import Param

from deltaworks.control import launchers
from deltaworks.dsl.pipeline import Pipeline

MIN_INTERVAL_S = 0.0
_INTERNAL = "Set by streams__reconcile"


def form(pipeline: Pipeline) -> dict[str, Param]:
    """The fields; those that only `streams__reconcile` sets are in a section of their own, collapsed at first."""
    own_interval = pipeline.trigger_interval.total_seconds()
    return {
        "action": Param(
            "deploy",
            type="string",
            enum=["deploy", "restart", "stop"],
            title="What to do",
            values_display={
                "deploy": "deploy: start it as given below, in place of the one that runs",
                "restart": "restart: start it as it was deployed last; the fields below do not count",
                "stop": "stop: finish the batch, refresh the snapshots, end",
            },
            description="A stream that runs finishes its batch first; no record is lost or counted twice.",
        ),
        "launcher": Param(
            launchers.NAMES[0],
            type="string",
            enum=list(launchers.NAMES),
            title="Launcher",
            description="Where the driver runs. local: a process of its own on the machine of the Airflow worker.",
        ),
        "trigger_interval_s": Param(
            None,
            type=["null", "number"],
            minimum=MIN_INTERVAL_S,
            title="Trigger interval in seconds",
            description=f"Time from one micro-batch to the next; empty: {own_interval:g}, as the pipeline says.",
        ),
        "start_offsets": Param(
            None,
            type=["null", "string"],
            enum=["earliest", "latest", None],
            values_display={"null": "as DELTAWORKS_START_OFFSETS says"},
            title="Start offsets",
            description="Where a stream without a checkpoint begins; one with a checkpoint goes on where it stopped.",
        ),
        "attach": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Attach",
            section=_INTERNAL,
            description="A generation that runs: only supervise it, deploy nothing.",
        ),
        "expected_generation": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Expected generation",
            section=_INTERNAL,
            description="Start only if this generation is still the newest and does not run; else end without effect.",
        ),
        "given_up": Param(
            None,
            type=["null", "string"],
            title="Given up",
            section=_INTERNAL,
            description="Why the stream is not restarted any more: the run does nothing but fail and say so.",
        ),
    }
