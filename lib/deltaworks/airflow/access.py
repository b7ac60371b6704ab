"""Where the tasks and the DAG files of a project get their settings: from the environment or from a connection.

A DAG file reads no connection: the DAG processor needs the folder of the project and no secret, unless a setting of the
project refers to one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from deltaworks import config
from deltaworks.airflow.executors import placed
from deltaworks.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Access:
    """Names the settings; it has none of them, so it may be seen by everybody who sees a DAG."""

    conn_id: str | None = None
    """A connection of the type `deltaworks`; None: the environment of the process."""
    project: str | None = None
    """Folder of the project; None: DELTAWORKS_PROJECT. A task prefers the folder that the connection names."""

    def parsed(self) -> Settings:
        """The settings for a DAG file."""
        return Settings.overlaid({} if self.project is None else {config.PROJECT: self.project})

    def settings(self) -> Settings:
        """The settings for a task."""
        if self.conn_id is None:
            return placed(self.parsed())
        from deltaworks.airflow.hook import DeltaworksHook  # not where DAGs are parsed

        return DeltaworksHook(self.conn_id, self.project).settings()

    async def settings_async(self) -> Settings:
        """The settings for a trigger."""
        if self.conn_id is None:
            return await asyncio.to_thread(self.settings)
        from deltaworks.airflow.hook import DeltaworksHook

        return await DeltaworksHook(self.conn_id, self.project).settings_async()


ENVIRONMENT = Access()
"""The settings of the environment."""
