"""Airflow's processes on this machine: their environment, their secrets, and when they are ready.

The configuration is in `infra/components.toml`; this module fills in its variables. Secrets are made once and kept in
files that only their owner can read. This module does not import Airflow.
"""

from __future__ import annotations

import base64
import json
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from deltaworks.control import roles
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import pages, postgres
from deltaworks.stack.components import Software
from deltaworks.stack.credentials import Credentials

USER = roles.ADMIN
REFRESH_S = 5
"""A new file in `jobs/` has its DAG after at most this long, and the time to parse it."""
_TIMEOUT_S = 2.0


def credentials(settings: Settings) -> Credentials:
    """The administrator's credentials, made if there are none yet, as are the passwords of the other users.

    Raises:
        ConfigurationError: the setting `airflow_users` cannot be used.
    """
    file = settings.airflow / "passwords.json"
    known = _kept(file, {user: secrets.token_urlsafe(12) for user in roles.users(settings.airflow_users)})
    return Credentials(
        url=_url(settings), user=USER, password=known.content[USER], file=file, created_now=known.created_now
    )


def environment(settings: Settings, software: Software) -> dict[str, str]:
    """The variables of every Airflow process, in addition to those of `Settings.process_environment`."""
    database = postgres.url(settings, "airflow")
    credentials(settings)
    known = _kept(
        settings.airflow / "secrets.json",
        {
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "secret_key": secrets.token_urlsafe(48),
            "jwt_secret": secrets.token_urlsafe(48),
        },
    )
    names = {
        **known.content,
        "home": str(settings.airflow),
        "dags": str(settings.project / "dags"),
        "bundles": bundle_config(settings),
        "users": ",".join(f"{user}:{roles.SIMPLE[role]}" for user, role in roles.users(settings.airflow_users).items()),
        "passwords_file": str(settings.airflow / "passwords.json"),
        "database_url": database,
        "host": "127.0.0.1",
        "port": str(settings.airflow_port),
        "server_url": _url(settings),
        "public_url": _url(settings),
    }
    return {name: string.Template(value).substitute(names) for name, value in software.settings.items()}


def bundle_config(settings: Settings) -> str:
    """Two bundles: one DAG per pipeline (`deltaworks.airflow.bundle`), and the files in `dags/` of the project."""
    dags = {"path": str(settings.project / "dags"), "refresh_interval": REFRESH_S}
    return json.dumps(
        [
            {
                "name": "pipelines",
                "classpath": "deltaworks.airflow.bundle.PipelineBundle",
                "kwargs": {"refresh_interval": REFRESH_S},
            },
            {"name": "dags", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": dags},
        ]
    )


def answers(settings: Settings, path: str) -> bool:
    """Whether the API server serves this page."""
    return _get(settings, path) is not None


def heartbeat(settings: Settings, job: str) -> datetime | None:
    """The last heartbeat of a process of that kind, be it of a predecessor; None: there is none, or nobody answers."""
    health = _get(settings, "/api/v2/monitor/health") or {}
    beat = health.get(job, {}).get(f"latest_{job}_heartbeat")
    return None if beat is None else datetime.fromisoformat(beat)


def _url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.airflow_port}"


def _get(settings: Settings, path: str) -> dict[str, Any] | None:
    return pages.said(settings.airflow_port, path, timeout_s=_TIMEOUT_S)


@dataclass(frozen=True)
class _Kept:
    content: dict[str, str]
    created_now: bool


def _kept(file: Path, new: Mapping[str, str]) -> _Kept:
    """The content of a file of secrets, which gets those that it does not have yet."""
    known: dict[str, str] = json.loads(file.read_text()) if file.is_file() else {}
    if missing := new.keys() - known.keys():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, json.dumps({**new, **known}).encode(), mode=0o600)
    return _Kept({**new, **known}, created_now=len(missing) == len(new))
