"""Who may do what in Airflow: the one table from which permissions, users and the documentation are made.

`deltaworks.airflow.roles` makes roles and permissions of Airflow's FAB auth manager of it. The simple auth manager has
four roles of its own (`SIMPLE`), of which two cannot be told apart: see there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, StrEnum

from deltaworks.errors import ConfigurationError


class Role(StrEnum):
    """What somebody is in Airflow."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"


class Action(Enum):
    """What somebody does on a page of Airflow, or over its API."""

    SEE = "see DAGs, runs and logs"
    DEPLOY = "deploy or restart a stream"
    STOP = "stop a stream"
    PLAN = "plan a replay, alone or by backfill"
    PUBLISH = "publish a replay, or hand over to it"
    ROLL_BACK = "roll a replay back"
    DISCARD = "discard a replay that is not published"
    COMPUTE = "check tables, compute days of a batch job"
    RESEND = "send dead letters again"
    CONNECT = "deploy, pause, resume, stop or restart a connector"
    FORGET = "delete a connector, or reset its offsets"
    REPAIR = "clear or mark tasks and runs"
    MANAGE = "change connections, pools, variables, XComs and users"


class May(StrEnum):
    """How far a role gets with an action."""

    NO = "-"
    ALONE = "yes"
    ASKS = "asks"
    """Triggers the run, which waits until somebody else answers."""
    ANSWERS = "answers"
    """Approves or rejects, and triggers nothing."""
    BOTH = "asks, answers"


_NO, _ALONE, _ASKS, _ANSWERS, _BOTH = May.NO, May.ALONE, May.ASKS, May.ANSWERS, May.BOTH
_OPERATES = (_NO, _ALONE, _NO, _ALONE)
_APPROVED = (_NO, _ASKS, _ANSWERS, _BOTH)
_ROWS: Mapping[Action, tuple[May, May, May, May]] = {
    Action.SEE: (_ALONE, _ALONE, _ALONE, _ALONE),
    Action.DEPLOY: _OPERATES,
    Action.STOP: _OPERATES,
    Action.PLAN: _OPERATES,
    Action.PUBLISH: _APPROVED,
    Action.ROLL_BACK: _APPROVED,
    Action.DISCARD: _OPERATES,
    Action.COMPUTE: _OPERATES,
    Action.RESEND: _APPROVED,
    Action.CONNECT: _OPERATES,
    Action.FORGET: _APPROVED,
    Action.REPAIR: _OPERATES,
    Action.MANAGE: (_NO, _NO, _NO, _ALONE),
}
TABLE: Mapping[Action, Mapping[Role, May]] = {
    action: dict(zip(Role, row, strict=True)) for action, row in _ROWS.items()
}
"""Action -> role -> how far it gets."""
SIMPLE: Mapping[Role, str] = {
    Role.VIEWER: "viewer",
    Role.OPERATOR: "user",
    Role.APPROVER: "user",
    Role.ADMIN: "admin",
}
"""The roles of Airflow's simple auth manager. Its `user` may do everything with every DAG, so who answers is a list of
names beside it (`approvers`), and an approver may trigger, too."""
ADMIN = "admin"
"""The user whom the stack's Airflow has in any case."""
_NAME = re.compile(r"[A-Za-z0-9._@-]+")


def begins(role: Role, *actions: Action) -> bool:
    """Whether a role may trigger the run of one of these actions."""
    return any(TABLE[action][role] in (May.ALONE, May.ASKS, May.BOTH) for action in actions)


def answers(role: Role, *actions: Action) -> bool:
    """Whether a role may answer the question of one of these actions."""
    return any(TABLE[action][role] in (May.ANSWERS, May.BOTH) for action in actions)


def users(text: str) -> dict[str, Role]:
    """The users of the stack's Airflow: the administrator, and those of the setting `airflow_users`.

    Args:
        text: name and role of each, `ada:operator, bob:approver`.

    Raises:
        ConfigurationError: an entry has no role, an unknown one, or a name that has been used.
    """
    found = {ADMIN: Role.ADMIN}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, role = (part.strip() for part in entry.partition(":"))
        if not _NAME.fullmatch(name) or role not in set(Role):
            raise ConfigurationError(
                f"airflow_users has {entry!r}, which is no name with a role.",
                hint=f"such as ada:operator; the roles are {', '.join(Role)}",
            )
        if name in found:
            raise ConfigurationError(f"airflow_users names {name!r} twice, or the administrator, who is there anyway.")
        found[name] = Role(role)
    return found


def approvers(text: str) -> list[str]:
    """Those of the users who may answer; empty: the setting names nobody, so Airflow says who may.

    Raises:
        ConfigurationError: see `users`.
    """
    known = users(text)
    return [name for name, role in known.items() if answers(role, *Action)] if len(known) > 1 else []


def markdown() -> str:
    """The table for a page."""
    head = ["", *Role]
    rows = [[action.value, *(may.value for may in row.values())] for action, row in TABLE.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))
