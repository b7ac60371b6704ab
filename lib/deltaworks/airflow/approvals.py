"""Who has to approve what a run would publish or roll back, and who may.

Airflow asks its auth manager who may answer at all. This adds what no auth manager knows: that a question has to be
asked whatever the form says, and that the person who triggered the run is not the one who answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from airflow.sdk.execution_time.hitl import HITLUser

from deltaworks.errors import ConfigurationError

Rule: TypeAlias = Literal["form", "always", "other person"]
APPROVE, REJECT = "Approve", "Reject"


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """The rule for the DAGs of a pipeline."""

    rule: Rule = "form"
    """`form`: whoever triggers a run says whether it asks, and a rollback asks nobody. `always`: both ask. `other
    person`: both ask, and whoever triggered the run may not approve it."""
    approvers: tuple[str, ...] = ()
    """Ids of the users who may answer; empty: all whom the auth manager lets."""

    @classmethod
    def of(cls, rule: str, approvers: tuple[str, ...]) -> Approvals:
        """Checks the rule.

        Raises:
            ConfigurationError: there is no such rule.
        """
        for known in get_args(Rule):
            if rule == known:
                return cls(rule=known, approvers=approvers)
        raise ConfigurationError(f"approval={rule!r} is no rule.", hint=f"one of {', '.join(get_args(Rule))}")

    @property
    def required(self) -> bool:
        """Whether a run asks, whatever its form says."""
        return self.rule != "form"

    def wanted(self, params: Mapping[str, Any]) -> bool:
        """Whether a run with this form asks."""
        return self.required or bool(params["approval"])

    @property
    def assigned(self) -> list[HITLUser] | None:
        """The approvers, as Airflow's API checks them."""
        return [HITLUser(id=name, name=name) for name in self.approvers] or None

    def note(self, dag_run: Any) -> str:
        """Says in the question who may not approve; empty: nobody is excluded."""
        name = self._excluded(dag_run)
        return "" if name is None else f"{name} triggered this run, so somebody else has to approve it.\n\n"

    def refusal(self, event: Mapping[str, Any], dag_run: Any) -> str | None:
        """Why an answer does not count; None: it does."""
        user = event.get("responded_by_user") or {}
        if self.approvers and user.get("id") not in self.approvers:
            return f"{answered_by(event)} is not one of those who may answer: {', '.join(self.approvers)}"
        excluded = self._excluded(dag_run)
        if event.get("chosen_options") == [APPROVE] and excluded and user.get("name") in (None, excluded):
            return f"{answered_by(event)} may not approve this: {excluded} triggered the run, so somebody else has to"
        return None

    def _excluded(self, dag_run: Any) -> str | None:
        """Who may not approve; None: nobody, as a schedule has no name."""
        name: str | None = dag_run.triggering_user_name
        return name if self.rule == "other person" else None


def answered_by(event: Mapping[str, Any]) -> str:
    """Name of the person who has answered."""
    user = event.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "somebody")
