"""A notifier that needs no other provider: it sends an incident as JSON to a web server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseNotifier

from deltaworks.errors import ConfigurationError, TransientError

if TYPE_CHECKING:
    from airflow.sdk import Context

_TIMEOUT_S = 20.0


class WebhookNotifier(BaseNotifier):
    """Posts an incident as a JSON object; an answer other than 2xx is a failure, and it is posted again later.

    The header `Idempotency-Key` is the same each time that a notice is posted, so a receiver can ignore a second one.

    Args:
        conn_id: a connection of the type `http`: its host (or an address with a path), and perhaps a password, which is
            sent as a bearer token.
        headers: of the request, besides those.
    """

    template_fields: Sequence[str] = ("conn_id",)

    def __init__(self, conn_id: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.headers = dict(headers or {})

    def notify(self, context: Context) -> None:
        """Posts `incident` of the context."""
        import httpx  # Airflow's; not where DAGs are parsed

        notice: Any = context["incident"]  # type: ignore[typeddict-item]
        connection = BaseHook.get_connection(self.conn_id)
        headers = {"Content-Type": "application/json", "Idempotency-Key": notice.key, **self.headers}
        if connection.password:
            headers["Authorization"] = f"Bearer {connection.password}"
        try:
            answer = httpx.post(_address(connection), content=notice.json, headers=headers, timeout=_TIMEOUT_S)
        except httpx.HTTPError as error:
            raise TransientError(
                f"The web server of the connection {self.conn_id!r} does not answer: {error}"
            ) from None
        if not answer.is_success:  # the address stays out of it: such addresses are often secret
            raise TransientError(f"The web server of the connection {self.conn_id!r} answers {answer.status_code}.")


def _address(connection: Any) -> str:
    host = connection.host or ""
    if "://" not in host:
        host = f"{connection.schema or 'https'}://{host}"
    scheme, _, rest = host.partition("://")
    if not rest:
        raise ConfigurationError(
            f"The connection {connection.conn_id!r} has no host.", hint="such as https://hooks.example.com/incidents"
        )
    name, slash, path = rest.partition("/")
    port = f":{connection.port}" if connection.port else ""
    return f"{scheme}://{name}{port}{slash}{path}"
