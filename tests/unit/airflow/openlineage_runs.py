"""A replay's DAG under Airflow's own rules with the OpenLineage provider, which writes a file; prints its events.

Run as a process of its own (`emitted`), since Airflow reads its settings when it is imported.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

from tests.unit.airflow import dag_runs, replay_runs

NAME = replay_runs.NAME
_FILE = "events"


class Event(msgspec.Struct, frozen=True):
    """What the events of one kind say."""

    inputs: list[tuple[str, str]]
    outputs: dict[str, list[str]]
    """Namespace and name of a table -> its columns."""


def emitted() -> dict[str, Event]:
    """The last event of each task and kind, such as `publish COMPLETE`."""
    return dag_runs.ended(
        "tests.unit.airflow.openlineage_runs",
        f"from deltaworks.airflow.replay import replay_dag\nreplay = replay_dag({NAME!r})\n",
        Event,
        AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
        AIRFLOW__OPENLINEAGE__TRANSPORT=json.dumps({"type": "file", "log_file_path": _FILE, "append": True}),
        AIRFLOW__OPENLINEAGE__NAMESPACE="tests",
        AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT="60",
    )


def main() -> None:
    from airflow.utils.db import initdb

    file = Path(_FILE).absolute()
    os.environ["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(
        {"type": "file", "log_file_path": str(file), "append": True}
    )
    initdb()
    from deltaworks.airflow.replay import replay_dag

    assert replay_runs.run(replay_dag(NAME), approval=False).state == "success"
    found: dict[str, Event] = {}
    for line in file.read_text().splitlines():
        event = json.loads(line)
        task = event["job"]["name"].removeprefix(f"{NAME}__replay.")
        inputs = [(each["namespace"], each["name"]) for each in event["inputs"]]
        outputs = {
            f"{each['namespace']} {Path(each['name']).name}": [
                field["name"] for field in each["facets"]["schema"]["fields"]
            ]
            for each in event["outputs"]
        }
        found[f"{task} {event['eventType']}"] = Event(inputs=inputs, outputs=outputs)
    print()
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
