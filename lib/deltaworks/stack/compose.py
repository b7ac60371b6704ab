"""The stack as containers: renders `infra/docker-compose.yml.jinja` for a project.

The template repeats what `infra/components.toml` says of the native stack; tests compare the two. Differences to the
native stack are addresses and paths only. Published ports are those of the settings' defaults.
"""

from __future__ import annotations

import base64
import re
import secrets
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from deltaworks.settings import Settings
from deltaworks.stack.components import read_components

SECRETS = (
    "POSTGRES_PASSWORD",
    "AIRFLOW_DB_PASSWORD",
    "DELTAWORKS_DB_PASSWORD",
    "AIRFLOW_ADMIN_PASSWORD",
    "AIRFLOW_FERNET_KEY",
    "AIRFLOW_SECRET_KEY",
    "AIRFLOW_JWT_SECRET",
)
"""What has no default: variables of the environment or of `.env`."""
_CLONE = "${DELTAWORKS_SOURCE:?folder of a clone of deltaworks, from which the image is built}"


def compose_file(settings: Settings) -> str:
    """The text of `docker-compose.yml` in the folder of the project.

    A project of its own has its own name, hence its own volumes, and builds the image from the clone that
    `DELTAWORKS_SOURCE` names; a clone of deltaworks builds it from itself.
    """
    project = settings.project.resolve()
    is_clone = settings.infra == project / "infra"
    templates = Environment(
        loader=FileSystemLoader(settings.infra), undefined=StrictUndefined, keep_trailing_newline=True
    )
    return templates.get_template("docker-compose.yml.jinja").render(
        project="deltaworks" if is_clone else _name(project),
        source="." if is_clone else _CLONE,
        images={name: software.image for name, software in read_components(settings.infra).software.items()},
    )


def new_secrets() -> str:
    """One line per secret, as `.env` has them."""
    made = {name: secrets.token_urlsafe(32) for name in SECRETS}
    made["AIRFLOW_FERNET_KEY"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return "".join(f"{name}={value}\n" for name, value in made.items())


def _name(project: Path) -> str:
    """The name of the folder, in the characters that Compose allows."""
    return re.sub(r"[^a-z0-9_-]", "", project.name.lower()).lstrip("_-") or "deltaworks"
