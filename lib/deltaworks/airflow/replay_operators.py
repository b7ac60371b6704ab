"""The operators of a replay: the heavy phases, and the questions to a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLBranchOperator
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow import openlineage, replay_actions, replay_tasks, reprocess_tasks
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.approvals import APPROVE, REJECT, Approvals
from deltaworks.airflow.asking import Asks
from deltaworks.airflow.child import command
from deltaworks.airflow.child_operator import ChildOperator
from deltaworks.airflow.replay_form import Tables
from deltaworks.airflow.tasks import no_retry_where_it_cannot_help

_NONE = Tables((), ())
_BY_FORM = Approvals()


class PhaseOperator(ChildOperator):
    """Does a heavy phase of a replay in a child process, whose output is the log of the task.

    After a killed try, the next one resumes where it stopped. However the task ends, no part of the child survives (see
    `child`).

    It does not do the earlier phases; it fails if they are not done.

    Args:
        pipeline: name of the pipeline.
        replay: id of the replay.
        phase: the phase to do.
        access: where the settings are from.
    """

    template_fields: Sequence[str] = ("replay",)
    ui_color = "#e8ddf3"

    def __init__(
        self,
        *,
        pipeline: str,
        replay: str,
        phase: Literal["run", "gate", "publish"],
        access: Access = ENVIRONMENT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.replay = replay
        self.phase = phase
        self.access = access

    def execute(self, context: Context) -> None:
        settings = self.access.settings()
        if replay_tasks.has_ended(settings, self.pipeline, self.replay):
            self.log.info("replay %s has ended: nothing to do", self.replay)
            return
        with no_retry_where_it_cannot_help():
            paths = replay_tasks.resume(settings, self.replay).paths
        state = paths.read_state()
        replay_tasks.require_turn(state, self.phase)
        if not state.has_done(self.phase):
            log = paths.root / "log"
            code = self.run_child(settings, f"replay-{self.replay}", log, self._command())
            state = paths.read_state()
            if self.phase == "gate" and state.passed is False and state.error is None:
                raise AirflowFailException(self._not_passed())
            if not state.has_done(self.phase) or code != 0:
                raise self.failure(self.phase, code, log)

    def _command(self) -> list[str]:
        """The command that does the phase."""
        arguments = ["replay", self.pipeline, "--resume", self.replay, "--until", self.phase]
        agreed = ["--yes"] if self.phase == "publish" else []
        return command(*arguments, *agreed)

    def _not_passed(self) -> str:
        return (
            f"Replay {self.replay} has not passed the gate; nothing was published. Its staging tables are kept so that "
            "you can look at them. While they exist, no other replay may publish the same days.\n"
            f"To remove them: deltaworks discard {self.replay}"
        )


class PublishOperator(PhaseOperator):
    """Publishes a replay, once it is approved if an approval was requested.

    A handover runs in a child process, because it may have to catch up with the stream. If the pipeline's `reprocess=`
    says in which window of time it may happen, the task waits for that window without a worker.

    Args:
        pipeline: name of the pipeline.
        replay: id of the replay.
        tables: its tables; `outlets` are their assets, in the order of `Tables.all`, or empty.
        approvals: who has to approve.
        by_policy: the pipeline's `reprocess=` says whether an approval is needed, not the form.
    """

    def __init__(
        self,
        *,
        pipeline: str,
        replay: str,
        tables: Tables = _NONE,
        approvals: Approvals = _BY_FORM,
        by_policy: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, replay=replay, phase="publish", **kwargs)
        self.tables = tables
        self.approvals = approvals
        self.by_policy = by_policy

    def execute(self, context: Context) -> None:
        settings = self.access.settings()
        if self.by_policy and (opens_at := reprocess_tasks.opens_at(settings, self.pipeline, self.replay)) is not None:
            self.log.info("waits until %s UTC, when the stream may be switched", f"{opens_at:%Y-%m-%d %H:%M}")
            self.defer(trigger=DateTimeTrigger(opens_at), method_name="execute_later")
        approved_by = self._approved_by(context)
        if replay_tasks.hands_over(settings, self.pipeline, self.replay):
            replay_tasks.approve(self.pipeline, self.replay, approved_by, self.access)
            super().execute(context)
        else:
            replay_tasks.publish(self.pipeline, self.replay, approved_by, self.access)
        if self.outlets:
            events = replay_tasks.published(self.access.settings(), self.pipeline, self.replay, self.tables)
            for asset, event in zip(self.outlets, events, strict=True):
                context["outlet_events"][asset].extra = event.extra

    def execute_later(self, context: Context, event: Any) -> None:
        """Called when the window has opened; if that was a while ago, the task may have to wait for the next one."""
        self.execute(context)

    def get_openlineage_facets_on_start(self) -> Any:
        """For OpenLineage: what the replay has read."""
        return self._flow().lineage()

    def get_openlineage_facets_on_complete(self, ti: Any) -> Any:
        """For OpenLineage: also the tables that are published."""
        return self._flow().lineage()

    def _flow(self) -> openlineage.Flow:
        return openlineage.of_publication(self.access.settings(), self.pipeline, self.replay, self.tables.all)

    def _approved_by(self, context: Context) -> str | None:
        settings, ti, plan_ms = self.access.settings(), context["ti"], None
        if self.approvals.required:
            plan_ms = replay_tasks.plan_ms(settings, self.pipeline, self.replay)
        if self.by_policy:
            return reprocess_tasks.approved_by(settings, self.pipeline, self.replay, ti, plan_ms)
        return replay_tasks.require_approval(self.approvals.wanted(context["params"]), ti, plan_ms=plan_ms)


class ApproveReplayOperator(Asks, HITLBranchOperator):
    """Asks a person whether to publish; shows what would change and what the gate found.

    It waits without a worker and without a trigger. It is skipped if the form requests no approval or if nothing is
    left to approve.

    Args:
        pipeline: name of the pipeline.
        replay: id of the replay.
        publish: task that follows an approval.
        discard: task that follows a rejection.
        access: where the settings are from.
        approvals: who has to approve, and who may.
        by_policy: the pipeline's `reprocess=` says whether an approval is needed, not the form.
    """

    template_fields: Sequence[str] = ("subject", "replay")  # not the body: it contains values from tables

    def __init__(
        self,
        *,
        pipeline: str,
        replay: str,
        publish: str,
        discard: str,
        access: Access = ENVIRONMENT,
        approvals: Approvals = _BY_FORM,
        by_policy: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            subject=f"Publish this replay of {pipeline}?",
            options=[APPROVE, REJECT],
            options_mapping={APPROVE: publish, REJECT: discard},
            assigned_users=approvals.assigned,
            **kwargs,
        )
        self.pipeline = pipeline
        self.replay = replay
        self.access = access
        self.approvals = approvals
        self.by_policy = by_policy

    def execute(self, context: Context) -> None:
        from deltaworks.cascade.readers import readers
        from deltaworks.replay.report import markdown

        if not self.by_policy and not self.approvals.wanted(context["params"]):
            raise AirflowSkipException("no approval was requested")
        settings = self.access.settings()
        if replay_tasks.has_ended(settings, self.pipeline, self.replay):
            raise AirflowSkipException(f"replay {self.replay} has ended: nothing to approve")
        with replay_tasks.at_its_turn(settings, self.replay, "publish") as run:
            if "publish" in run.paths.read_state().done:
                raise AirflowSkipException(f"replay {self.replay} is published: nothing to approve")
            run.ask(f"{context['dag_run'].dag_id}/runs/{context['dag_run'].run_id}")
        state = run.paths.read_state()
        why = reprocess_tasks.decided(run).why if self.by_policy else None
        changes = markdown(run.paths, run.plan, state, why, readers(settings, run.plan, state).lines)
        self.body = self.approvals.note(context["dag_run"]) + changes
        super().execute(context)

    def approved(self, ti: Any) -> None:
        if self.approvals.required:
            plan_ms = replay_tasks.plan_ms(self.access.settings(), self.pipeline, self.replay)
            ti.xcom_push(key=replay_tasks.APPROVED_PLAN, value=plan_ms)


class ApproveRollBackOperator(Asks, ApprovalOperator):
    """Asks a person whether to roll back the run that the form names; a rejection skips what follows.

    Args:
        pipeline: name of the pipeline.
        access: where the settings are from.
        approvals: who may answer.
    """

    template_fields: Sequence[str] = ("subject",)

    def __init__(self, *, pipeline: str, approvals: Approvals, access: Access = ENVIRONMENT, **kwargs: Any) -> None:
        super().__init__(subject=f"Roll back a replay of {pipeline}?", assigned_users=approvals.assigned, **kwargs)
        self.pipeline = pipeline
        self.access = access
        self.approvals = approvals

    def execute(self, context: Context) -> None:
        settings, run = self.access.settings(), context["params"]["run"].strip()
        what = replay_actions.what_is_rolled_back(settings, self.pipeline, run)
        self.waits(context, settings, self.pipeline, f"rolling back {run} waits for an approval")
        self.body = self.approvals.note(context["dag_run"]) + what
        super().execute(context)
