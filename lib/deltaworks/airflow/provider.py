"""What Airflow learns of this package: its connection type with the form, and where its operators are.

Airflow calls `get_provider_info` through the entry point `apache_airflow_provider`, in every component and at every
start, so this module imports nothing.
"""

from __future__ import annotations

from typing import Any

CONNECTION_TYPE = "deltaworks"
_NAME = "deltaworks"
_OPERATORS = tuple(f"deltaworks.airflow.{name}" for name in ("batch", "quality", "replay_operators", "supervise"))


def get_provider_info() -> dict[str, Any]:
    """The description of the provider, as Airflow's `provider_info.schema.json` wants it."""
    return {
        "package-name": "deltaworks",
        "name": _NAME,
        "description": "Kafka Streams topologies in typed Python: deploys, supervises, replays and checks them.",
        "integrations": [{"integration-name": _NAME, "tags": ["software"]}],
        "operators": [_modules(*_OPERATORS)],
        "hooks": [_modules("deltaworks.airflow.hook")],
        "triggers": [_modules("deltaworks.airflow.triggers")],
        "notifications": ["deltaworks.airflow.webhook.WebhookNotifier"],
        "bundles": [_modules("deltaworks.airflow.bundle")],
        "connection-types": [
            {
                "connection-type": CONNECTION_TYPE,
                "hook-name": "deltaworks",
                "hook-class-name": "deltaworks.airflow.hook.DeltaworksHook",
                "conn-fields": {
                    "project": _field("Project", "Folder with jobs/ and deltaworks.toml, on the workers."),
                    "environment": _field("Environment", "An environment of deltaworks.toml, such as prod."),
                    "home": _field(
                        "Home", "Folder for checkpoints and tables; the workers and the supervisor share it."
                    ),
                    "kafka_conn_id": _field(
                        "Kafka connection",
                        "Id of a connection of the type kafka, such as kafka_default. Its extra has settings of "
                        "librdkafka; those that exactly-once depends on, such as group.id, are not used.",
                    ),
                    "connect_conn_id": _field(
                        "Kafka Connect connection",
                        "Id of a connection of the type http, such as deltaworks_connect: the address of a worker of "
                        "Kafka Connect, and its user and password. Its extra may have ca_file.",
                    ),
                    "sslmode": _field("Registry sslmode", "libpq's sslmode, such as verify-full."),
                    "sslrootcert": _field(
                        "Registry sslrootcert", "File with the certificates that the registry needs."
                    ),
                },
                "ui-field-behaviour": {
                    "hidden-fields": [],
                    "relabeling": {
                        "host": "Registry host",
                        "port": "Registry port",
                        "schema": "Registry database",
                        "login": "Registry user",
                        "password": "Registry password",
                    },
                    "placeholders": {
                        "host": "empty: as deltaworks.toml or the environment says",
                        "port": "5432",
                        "schema": "deltaworks",
                        "login": "deltaworks",
                    },
                },
            }
        ],
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": _NAME, "python-modules": list(names)}


def _field(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}
