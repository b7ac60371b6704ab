"""The stack as containers: the image and `docker-compose.yml`, rendered for a project from the templates in `infra/`.

The template repeats what `infra/components.toml` says of the native stack; tests compare the two. Differences to the
native stack are addresses and paths only. Published ports are those of the settings' defaults. `kubernetes` uses the
same image.
"""

from __future__ import annotations

import base64
import re
import secrets
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack.components import read_components

SECRETS = (
    "POSTGRES_PASSWORD",
    "AIRFLOW_DB_PASSWORD",
    "DELTAWORKS_DB_PASSWORD",
    "DELTAWORKS_SQL_PASSWORD",
    "OBJECT_STORE_SECRET_KEY",
    "SPARK_CLUSTER_SECRET",
    "AIRFLOW_ADMIN_PASSWORD",
    "AIRFLOW_FERNET_KEY",
    "AIRFLOW_SECRET_KEY",
    "AIRFLOW_JWT_SECRET",
)
"""What has no default: variables of the environment or of `.env`."""


def compose_files(settings: Settings, wheel: Path | None = None) -> dict[str, str]:
    """`docker-compose.yml` and what its image is built from: the name of each file -> its text.

    A project of its own has its own name, hence its own image and volumes, and installs deltaworks in this version from
    the index. A clone of deltaworks installs the wheel that `make dist` builds.

    Args:
        settings: of the project.
        wheel: a wheel in the folder of the project, to install instead.

    Raises:
        ConfigurationError: there is no such wheel in the project.
    """
    project = settings.project.resolve()
    is_clone = settings.infra == project / "infra"
    software = read_components(settings.infra).software
    images, version = {name: each.image for name, each in software.items()}, software["deltaworks"].version
    built = f"dist/deltaworks-{version}-py3-none-any.whl" if is_clone else None
    source = built if wheel is None else _in_project(wheel, project)
    name = "deltaworks" if is_clone else _name(project)
    image = images["deltaworks"] if is_clone else f"deltaworks-{name}:{version}"
    templates = Environment(
        loader=FileSystemLoader(settings.infra),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    values = {"project": name, "image": image, "images": images, "version": version, "wheel": source}
    return {
        file: templates.get_template(f"{file.lstrip('.')}.jinja").render(values)
        for file in ("docker-compose.yml", "Dockerfile", ".dockerignore")
    }


def new_secrets() -> str:
    """One line per secret, as `.env` has them."""
    made = {name: secrets.token_urlsafe(32) for name in SECRETS}
    made["AIRFLOW_FERNET_KEY"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return "".join(f"{name}={value}\n" for name, value in made.items())


def _in_project(wheel: Path, project: Path) -> str:
    """The path of a wheel as the builder sees it, which gets the folder of the project and nothing else."""
    file = (project / wheel).resolve()
    if file.suffix != ".whl" or not file.is_file() or not file.is_relative_to(project):
        raise ConfigurationError(f"There is no wheel {wheel} in {project}.", hint="copy it there, such as into dist/")
    return file.relative_to(project).as_posix()


def _name(project: Path) -> str:
    """The name of the folder, in the characters that Compose allows."""
    return re.sub(r"[^a-z0-9_-]", "", project.name.lower()).lstrip("_-") or "deltaworks"
