"""Launchers, which start drivers where they should run and observe them.

- `base`: the interface of launchers
- `local`: detached processes on this host, started by the supervisor
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from deltaworks.control.launchers.base import DriverSpec, ExternalId, Launcher, Life
from deltaworks.control.launchers.local import LocalLauncher
from deltaworks.control.supervisor import client
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

__all__ = ["NAMES", "DriverSpec", "ExternalId", "Launcher", "Launchers", "Life", "LocalLauncher", "launcher"]

NAMES = ("local",)
Launchers = Callable[[Settings, str], Launcher]


def launcher(settings: Settings, name: str) -> Launcher:
    """The launcher of that name.

    Raises:
        ConfigurationError: there is no such launcher.
    """
    match name:
        case "local":
            return LocalLauncher(settings, launch=partial(client.launch, settings))
        case _:
            raise ConfigurationError(f"There is no launcher {name!r}.", hint=f"launchers: {', '.join(NAMES)}")
