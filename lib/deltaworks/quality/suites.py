"""The suites of a job: `suites` in `jobs/quality/<name>.py`."""

from __future__ import annotations

from collections.abc import Mapping

from deltaworks.control import jobs
from deltaworks.errors import ConfigurationError
from deltaworks.quality import engine
from deltaworks.quality.validation import Suites
from deltaworks.settings import Settings


def load_if_there(settings: Settings, name: str) -> Suites:
    """Like `load`; none if there is no such file."""
    return load(settings, name) if (settings.jobs / "quality" / f"{name}.py").is_file() else {}


def load(settings: Settings, name: str) -> Suites:
    """Loads the suites of a job: table -> expectations.

    Raises:
        ConfigurationError: the file does not exist, or it has no suites.
    """
    engine.load()  # before the module imports it, where a failure would not be recognised
    module = jobs.load_module(settings, f"quality.{name}")
    suites = getattr(module, "suites", None)
    if not isinstance(suites, Mapping) or not suites:
        raise ConfigurationError(
            f"{module.__file__} defines no suites.", hint="suites = {<table>: [<expectations of great_expectations>]}"
        )
    return suites
