"""How all streams are, from whoever knows it soonest: for `deltaworks status` and the page."""

from __future__ import annotations

from deltaworks.control.model import Overview
from deltaworks.settings import Settings


def seen(settings: Settings, name: str | None = None) -> Overview:
    """The overview of the supervisor; if there is none, our own.

    Args:
        settings: of the home.
        name: only this pipeline, with its last deployments.
    """
    from deltaworks.control.supervisor import client

    if (told := client.overview(settings, name)) is not None:
        return told
    from deltaworks.control.overview import overview

    return overview(settings, name)
