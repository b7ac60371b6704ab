"""The task that watches a stream and tells how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException

from deltaworks.airflow.triggers import StreamTrigger
from deltaworks.exits import NO_RESTART


class SuperviseOperator(BaseOperator):
    """Defers at once and takes no worker while the stream runs.

    It succeeds when the stream was stopped or replaced, and fails without a retry when the stream failed: then its log
    has the reason and the last lines of the stream's log. Its retries are for supervision itself: a trigger that broke.

    What it does not do: start, stop or restart anything.

    Args:
        pipeline: whose stream.
        generation: which deployment of it.
        poll_s: time between two looks.
    """

    template_fields: Sequence[str] = ("generation",)
    ui_color = "#d5ece4"

    def __init__(self, *, pipeline: str, generation: int, poll_s: float = 2.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.generation = generation
        self.poll_s = poll_s

    def execute(self, context: Context) -> NoReturn:
        trigger = StreamTrigger(
            pipeline=self.pipeline,
            generation=int(self.generation),
            supervisor=f"airflow {context['dag_run'].run_id}",
            poll_s=self.poll_s,
        )
        self.log.info("waiting for the end of %s, generation %s", self.pipeline, self.generation)
        self.defer(trigger=trigger, method_name="ended")

    def ended(self, context: Context, event: dict[str, Any]) -> str:
        """Called with what the trigger saw last."""
        stream = f"{self.pipeline}, generation {self.generation}"
        state, reason = event["state"], event["reason"] or "no reason is known"
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
    """Whether somebody has to do something."""
    if exit_code in NO_RESTART:
        return "It is not restarted: the same would happen again. Repair the cause, then trigger this DAG."
    return "The supervisor starts it again, unless that happened too often; streams__reconcile has it watched."
