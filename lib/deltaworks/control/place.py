"""Where what a stream needs to go on is: this machine notes it, so that a change of the settings is no new stream.

With another `storage`, a stream would find nothing of itself and begin anew, beside what it has written.
"""

from __future__ import annotations

from pathlib import Path

from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import replace_file
from deltaworks.settings import Settings

_HOME = "home"


def require_same(settings: Settings, name: str) -> None:
    """Refuses a pipeline that has run in this home with another `storage`.

    Raises:
        IncompatibleCheckpointError: it has; nothing was changed.
    """
    before, now = _noted(settings, name), settings.storage_address or _HOME
    if before is None or before == now:
        return
    raise IncompatibleCheckpointError(
        f"Pipeline {name!r} has its state {_told(before)}, but the settings say that it is {_told(now)}: "
        "it would begin anew.",
        hint=f"storage = '{before}' in deltaworks.toml (DELTAWORKS_STORAGE); a new home may have it elsewhere",
    )


def note(settings: Settings, name: str) -> None:
    """Notes where the state is; raises like `require_same`."""
    require_same(settings, name)
    if _noted(settings, name) is None:
        replace_file(_file(settings, name), (settings.storage_address or _HOME).encode(), durable=True)


def _noted(settings: Settings, name: str) -> str | None:
    """None: it has not run in this home."""
    try:
        return _file(settings, name).read_text()
    except FileNotFoundError:
        return _HOME if PipelinePaths.at(settings.pipeline(name)).first.plan.exists() else None


def _file(settings: Settings, name: str) -> Path:
    return settings.pipeline(name) / "storage"


def _told(address: str) -> str:
    return "in the home" if address == _HOME else f"at {address}"
