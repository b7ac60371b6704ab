"""The page of the streams within Airflow, as the item "Streams" of its menu.

Airflow finds the plugin by the entry point `airflow.plugins`, in each of its processes; only the API server makes the
page (`deltaworks.ui`). Who looks is the user of Airflow's session: they see the streams and connectors whose DAGs they
may see, and as an operator if they may trigger all of these. The page shows the home of the settings in the environment
of the API server, so it is for an Airflow on the machine of the home, or with the same object store and registry.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

    from deltaworks.settings import Settings
    from deltaworks.ui.access import Client

PREFIX = "/deltaworks"
"""Where the page is, below Airflow's own address."""
_STREAM, _CONNECTOR = "__stream", "__connector"
"""Endings of the ids of DAGs."""
_log = logging.getLogger(__name__)


def page(settings: Settings) -> Starlette:
    """The page for users of Airflow.

    Args:
        settings: of the home.
    """
    from deltaworks.ui.app import Place, application
    from deltaworks.ui.history import Watch
    from deltaworks.ui.reading import Reader

    watch = Watch(settings)

    async def who(request: Request) -> Client:
        from airflow.api_fastapi.core_api.security import bearer_scheme, get_user

        user = await get_user(request, None, await bearer_scheme(request))
        watch.start()  # Airflow does not tell the applications of plugins that it starts
        return await asyncio.to_thread(_client, user)

    return application(Reader(settings, watch), watch, who, Place(airflow=_base_path(), docs=settings.docs_url))


def _client(user: Any) -> Client:
    """What a user of Airflow may see."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

    from deltaworks.query_server.client_files import NOBODY
    from deltaworks.ui.access import Client

    manager = get_auth_manager()
    allowed = manager.get_authorized_dag_ids(user=user, method="GET")
    dags = [dag for dag in allowed if dag.endswith((_STREAM, _CONNECTOR))]
    operates = all(
        manager.is_authorized_dag(
            method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag), user=user
        )
        for dag in dags
    )
    return Client(
        sha256=NOBODY,  # no token leads here
        role="operator" if dags and operates else "viewer",
        pipelines=_named(dags, _STREAM),
        connectors=_named(dags, _CONNECTOR),
    )


def _named(dags: Iterable[str], ending: str) -> tuple[str, ...]:
    """Whose DAGs they are, of those with an ending."""
    return tuple(sorted(dag.removesuffix(ending) for dag in dags if dag.endswith(ending)))


def _base_path() -> str:
    """The path below which Airflow is served; empty: none."""
    from deltaworks.airflow.notices import base_url

    return urlsplit(base_url()).path.rstrip("/")


def _apps() -> list[dict[str, Any]]:
    if "api-server" not in sys.argv:
        return []
    from deltaworks.errors import DeltaworksError
    from deltaworks.settings import Settings

    try:
        return [{"app": page(Settings.from_environment()), "url_prefix": PREFIX, "name": "Streams"}]
    except (ModuleNotFoundError, DeltaworksError) as error:  # Airflow goes on without the page
        _log.warning("There is no page of the streams: %s", error)
        return []


class StreamsPlugin(AirflowPlugin):
    """What Airflow learns of the page."""

    name = "deltaworks"
    fastapi_apps = _apps()
    external_views = (
        [
            {
                "name": "Streams",
                "href": f"{_base_path()}{PREFIX}/",
                "destination": "nav",
                "url_route": "streams",
                "category": "browse",
            }
        ]
        if fastapi_apps
        else []
    )
