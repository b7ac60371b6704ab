"""The task that watches a stream and reports how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException

from deltaworks.airflow import openlineage
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.triggers import StreamTrigger
from deltaworks.exits import NO_RESTART


class SuperviseOperator(BaseOperator):
    """Defers at once and takes no worker while the stream runs.

    It succeeds if the stream was stopped or replaced. If the stream failed, it fails without a retry, and its log has
    the reason and the last lines of the stream's log. Its retries are for failures of the trigger.

    It does not start, stop or restart anything.

    Args:
        pipeline: name of the pipeline.
        generation: the deployment to watch.
        poll_s: seconds between observations.
        access: where the settings are from.
    """

    template_fields: Sequence[str] = ("generation",)
    ui_color = "#d5ece4"

    def __init__(
        self, *, pipeline: str, generation: int, poll_s: float = 2.0, access: Access = ENVIRONMENT, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.generation = generation
        self.poll_s = poll_s
        self.access = access

    def execute(self, context: Context) -> NoReturn:
        trigger = StreamTrigger(
            pipeline=self.pipeline,
            generation=int(self.generation),
            supervisor=f"airflow {context['dag_run'].run_id}",
            poll_s=self.poll_s,
            conn_id=self.access.conn_id,
            project=self.access.project,
        )
        self.log.info("waiting for the end of %s, generation %s", self.pipeline, self.generation)
        self.defer(trigger=trigger, method_name="ended")

    def get_openlineage_facets_on_start(self) -> Any:
        """For OpenLineage: what the stream reads and writes."""
        return openlineage.of_stream(self.access.settings(), self.pipeline).lineage()

    def ended(self, context: Context, event: dict[str, Any]) -> str:
        """Called with the trigger's last observation."""
        stream = f"{self.pipeline}, generation {self.generation}"
        state, reason = event["state"], event["reason"] or "reason unknown"
        if state in ("stopped", "superseded"):
            self.log.info("%s: %s (%s)", stream, state, reason)
            return str(state)
        for line in event["log_lines"]:
            self.log.error("  | %s", line)
        code = event["exit_code"]
        raise AirflowFailException(
            f"{stream}: {state}{'' if code is None else f' with exit code {code}'}: {reason}\n{what_next(code)}"
        )


def what_next(exit_code: int | None) -> str:
    """Says whether somebody has to act."""
    if exit_code in NO_RESTART:
        return "It is not restarted, because it would fail again. Fix the cause, then trigger this DAG."
    return "The supervisor restarts it, unless it has failed too often; streams__reconcile supervises it again."
