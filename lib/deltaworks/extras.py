"""The extras that hold what parts of the package need beyond the core: `pip install 'deltaworks[spark]'`."""

from __future__ import annotations

from types import TracebackType

from deltaworks.errors import ConfigurationError

EXTRAS = {
    "airflow": "airflow",
    "batch": "batch",
    "cli": "cli",
    "connect": "connect",
    "connectors": "airflow",
    "control": "control",
    "explain": "spark",
    "kafka": "kafka",
    "cascade": "spark",
    "catalogue": "delta",
    "lakehouse": "delta",
    "object_store": "s3",
    "listeners": "control",
    "processes": "control",
    "metrics": "metrics",
    "quality": "quality",
    "query_server": "queries",
    "queries": "spark",
    "replay": "spark",
    "rescale": "spark",
    "erase": "spark",
    "runtime": "spark",
    "serdes": "schemas",
    "sinks": "spark",
    "spark": "spark",
    "stack": "stack",
    "tables": "delta",
    "traces": "traces",
    "ui": "queries",
}
"""Package below `deltaworks` -> the extra that it needs, or some functions of it; others need nothing but the core."""


def missing(error: ModuleNotFoundError) -> ConfigurationError | None:
    """What to install; None: the module is not one that we import."""
    importing = _importing(error.__traceback__)
    extras = [EXTRAS[package] for package in importing if package in EXTRAS]
    if not extras or not error.name or error.name.partition(".")[0] == "deltaworks":
        return None
    wanted = next((extra for extra in extras if extra != "cli"), "cli")
    return ConfigurationError(
        f"'{error.name}' is not installed, which deltaworks.{importing[-1]} needs.",
        hint=f"pip install 'deltaworks[{wanted}]'",
    )


def _importing(traceback: TracebackType | None) -> list[str]:
    """Packages below `deltaworks` in the order of their frames; none if something else imports last."""
    packages: list[str] = []
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if not name.startswith("importlib."):
            above, _, below = name.partition(".")
            packages = [*packages, below.partition(".")[0]] if above == "deltaworks" and below else []
        traceback = traceback.tb_next
    return packages
