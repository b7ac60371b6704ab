"""The form that Airflow shows before a run of `<name>__stream`, and the JSON schema that it checks over REST."""

from __future__ import annotations

from airflow.sdk import Param

from deltaworks.control import launchers
from deltaworks.dsl.pipeline import Pipeline

MIN_INTERVAL_S = 0.0
_INTERNAL = "Set by streams__reconcile"


def form(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the form; a collapsed section holds the fields that only `streams__reconcile` sets."""
    own_interval = pipeline.trigger_interval.total_seconds()
    return {
        "action": Param(
            "deploy",
            type="string",
            enum=["deploy", "restart", "stop"],
            title="What to do",
            values_display={
                "deploy": "deploy: start the stream with the fields below; it replaces one that runs",
                "restart": "restart: start the stream as it was last deployed; ignores the fields below",
                "stop": "stop: finish the batch, refresh the snapshots, exit",
            },
            description="A running stream finishes its batch first; no record is lost or counted twice.",
        ),
        "launcher": Param(
            launchers.NAMES[0],
            type="string",
            enum=list(launchers.NAMES),
            title="Launcher",
            description="Where the driver runs. local: in its own process on the machine of the Airflow worker.",
        ),
        "trigger_interval_s": Param(
            None,
            type=["null", "number"],
            minimum=MIN_INTERVAL_S,
            title="Trigger interval in seconds",
            description=f"Time between micro-batches. Empty: the pipeline's own interval, {own_interval:g}.",
        ),
        "start_offsets": Param(
            None,
            type=["null", "string"],
            enum=["earliest", "latest", None],
            values_display={"null": "the value of DELTAWORKS_START_OFFSETS"},
            title="Start offsets",
            description="Where a stream without a checkpoint starts. With a checkpoint, it resumes where it stopped.",
        ),
        "attach": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Attach",
            section=_INTERNAL,
            description="Supervise this running generation and deploy nothing.",
        ),
        "expected_generation": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Expected generation",
            section=_INTERNAL,
            description="Start only if this generation is the newest and does not run. Otherwise, do nothing.",
        ),
        "given_up": Param(
            None,
            type=["null", "string"],
            title="Given up",
            section=_INTERNAL,
            description="Why the stream is no longer restarted. The run only fails with this reason.",
        ),
    }
