"""The form that Airflow shows before a run of `<name>__connector`, and the JSON schema that it checks over REST."""

from __future__ import annotations

from airflow.sdk import Param

DEPLOY, RESTART, RESET, DELETE = "deploy", "restart failed", "reset offsets", "delete"
ACTIONS = {
    DEPLOY: "deploy: apply the file, once it passes all checks",
    "pause": "pause: process nothing; tasks keep what they hold, such as connections",
    "resume": "resume: go on after a pause or a stop",
    "stop": "stop: end the tasks; settings and offsets stay",
    RESTART: "restart failed: restart what has failed; the pauses and the limit of restarts begin anew",
    RESET: "reset offsets: forget how far it is; it has to be stopped",
    DELETE: "delete: it is gone until somebody deploys it; its offsets stay",
}
FORGETS = (RESET, DELETE)
"""What has to be confirmed."""


def form(name: str) -> dict[str, Param]:
    """The fields of the form of one connector."""
    return {
        "action": Param(
            DEPLOY,
            type="string",
            enum=list(ACTIONS),
            values_display=dict(ACTIONS),
            title="What to do",
            description="Records that were read may come again after a deployment, a restart or a stop.",
        ),
        "confirm": Param(
            None,
            type=["null", "string"],
            title="Confirm",
            description=f"To reset offsets or to delete: the name of the connector, {name}. Else it stays empty.",
        ),
        "allow_undefined": Param(
            False,
            type="boolean",
            title="Allow undefined settings",
            description="To deploy: send settings that the class does not define, even if they look misspelt.",
        ),
    }
