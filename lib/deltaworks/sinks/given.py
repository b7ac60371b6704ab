"""Settings of a sink as the process that writes reads them; what a reference leads to is never shown."""

from __future__ import annotations

from deltaworks.config import Reference
from deltaworks.topology.external import Given


def text(given: Given | None) -> str | None:
    """The setting, wherever it is.

    Raises:
        ConfigurationError: the variable or the file is not there.
    """
    if given is None or given.text is not None:
        return None if given is None else given.text
    return Reference(origin=given.what, env=given.env, file=given.file).read()


def needed(given: Given) -> str:
    """A setting that the author has to give."""
    return text(given) or ""
