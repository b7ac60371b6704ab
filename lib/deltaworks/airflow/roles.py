"""Roles of Airflow's FAB auth manager: `python -m deltaworks.airflow.roles shop` makes three of them, or updates them.

`shop viewer`, `shop operator` and `shop approver` may do what `deltaworks.control.roles` says, with the DAGs that have
the option `roles="shop"`; administrators have FAB's own role `Admin`. What FAB checks per DAG is in the DAGs
(`access_control`), the rest in the roles. It runs where `airflow` runs, with its database.
"""

from __future__ import annotations

import sys

from deltaworks.control.roles import Action, Role, answers, begins
from deltaworks.errors import ConfigurationError, DeltaworksError

ROLES = (Role.VIEWER, Role.OPERATOR, Role.APPROVER)
_READ = (
    *("Asset Aliases", "Assets", "Backfills", "Cluster Activity", "DAG Code", "DAG Dependencies", "DAG Runs"),
    *("DAG Versions", "DAG Warnings", "HITL Detail", "ImportError", "Jobs", "My Password", "My Profile", "Pools"),
    *("Task Instances", "Task Logs", "Website", "XComs"),
)
"""What FAB's own `Viewer` reads, but for all DAGs: the DAGs say which of them a role sees."""
_MENUS = ("Assets", "Browse", "DAG Dependencies", "DAG Runs", "DAGs", "Docs", "HITL Detail", "Task Instances")
_PREFIXES = ("DAG:", "DAG Run:")
"""Of permissions on a single DAG, which come from the DAG."""


def name_of(prefix: str, role: Role) -> str:
    """The name of a role in Airflow, such as `shop operator`."""
    return f"{prefix} {role}"


def permissions(role: Role) -> set[tuple[str, str]]:
    """What a role may do in all of Airflow: pairs of action and resource, in FAB's words."""
    found = {("can_read", resource) for resource in _READ} | {("menu_access", resource) for resource in _MENUS}
    found |= {("can_edit", "My Password"), ("can_edit", "My Profile")}
    if begins(role, Action.REPAIR):
        found |= {("can_edit", "DAG Runs"), ("can_edit", "Task Instances")}
    if answers(role, *Action):
        found |= {("can_edit", "HITL Detail")}
    return found


def access_control(prefix: str, *actions: Action) -> dict[str, dict[str, set[str]]]:
    """What the roles may do with a DAG, as `DAG(access_control=...)` takes it.

    Args:
        prefix: of the roles' names.
        actions: what one does with the DAG.
    """
    found = {}
    for role in ROLES:
        edits = {"can_edit"} if begins(role, *actions) or answers(role, *actions) else set()
        runs = {"can_create"} if begins(role, *actions) else set()
        found[name_of(prefix, role)] = {"DAGs": {"can_read", *edits}, "DAG Runs": {"can_read", *runs}}
    return found


def make(prefix: str) -> list[str]:
    """Makes the roles, or gives and takes permissions until they are those of this version; returns their names.

    Raises:
        ConfigurationError: Airflow has another auth manager.
    """
    from airflow.configuration import conf

    if "fab" not in (manager := conf.get("core", "auth_manager").lower()):
        raise ConfigurationError(
            f"Airflow's auth manager is {manager}, which has roles of its own.",
            hint="roles are made with FAB: auth_manager = "
            "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
        )
    from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

    with get_application_builder() as builder:
        security = builder.sm
        for role in ROLES:
            made = security.add_role(name_of(prefix, role))
            wanted = permissions(role)
            for permission in list(made.permissions):
                resource = permission.resource.name
                if (permission.action.name, resource) not in wanted and not resource.startswith(_PREFIXES):
                    security.remove_permission_from_role(made, permission)
            for action, resource in sorted(wanted):
                security.add_permission_to_role(made, security.create_permission(action, resource))
    return [name_of(prefix, role) for role in ROLES]


def main() -> None:
    if len(sys.argv) != 2 or not (prefix := sys.argv[1].strip()):
        sys.exit("usage: python -m deltaworks.airflow.roles PREFIX")
    try:
        print(f"made or updated: {', '.join(make(prefix))}")
    except DeltaworksError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
