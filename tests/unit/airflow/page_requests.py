"""Each role of Airflow looks at the page of the streams within Airflow; prints what it was told.

Run as a process of its own (`looked`), since Airflow reads its settings when it is imported. No server is started.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from tests.unit.airflow import dag_runs
from tests.unit.airflow.role_requests import MANAGERS, NAME

_DAGS = f"""
from deltaworks.airflow.dags import pipeline_dags
globals().update(pipeline_dags("{NAME}"))
"""


def looked() -> dict[str, dict[str, Any]]:
    """Who -> what they were told."""
    return dag_runs.ended(
        "tests.unit.airflow.page_requests",
        _DAGS,
        dict[str, Any],
        AIRFLOW__CORE__AUTH_MANAGER=MANAGERS["simple"],
        AIRFLOW__LOGGING__LOGGING_LEVEL="ERROR",
        AIRFLOW__API__SECRET_KEY="of the tests",
        AIRFLOW__API__BASE_URL="http://flow.example/base",
        AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT="600",
        DELTAWORKS_CONTROL_URL="postgresql+psycopg://nobody@127.0.0.1:9/none",
    )


def main() -> None:
    warnings.simplefilter("ignore")
    sys.argv = [sys.argv[0], "api-server"]
    plugins = Path(os.environ["AIRFLOW_HOME"], "plugins")  # as the entry point does where the package is installed
    plugins.mkdir(parents=True)
    (plugins / "page.py").write_text("from deltaworks.airflow.plugin import StreamsPlugin\n")
    import msgspec
    from airflow.utils.db import initdb

    initdb()
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from fastapi.testclient import TestClient

    from deltaworks.airflow.plugin import PREFIX, StreamsPlugin
    from deltaworks.settings import Settings
    from tests.support.homes import Stream
    from tests.unit.airflow import role_requests

    for name in (NAME, "hidden"):
        Stream(Settings.from_environment(), name).fails("ValueError: 'customer-4711'")
    role_requests._store_dags()
    app = create_app()
    manager = get_auth_manager()
    found: dict[str, dict[str, Any]] = {"view": StreamsPlugin.external_views[0]}
    tokens = {role.value: manager.generate_jwt(user) for role, user in role_requests._simple_users().items()}
    tokens |= {"nobody": "", "another key": "eyJhbGciOiJIUzUxMiJ9.e30.c2lnbmVk"}
    paths = ("", "api/me", "api/streams", "api/streams/hidden")
    for role, token in tokens.items():
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        client = TestClient(app, headers=headers)
        answers = {path: client.get(f"/base{PREFIX}/{path}") for path in paths}
        found[role] = {
            "status": [answer.status_code for answer in answers.values()],
            "me": answers["api/me"].json(),
            "streams": answers["api/streams"].json().get("streams"),
        }
    print()
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
