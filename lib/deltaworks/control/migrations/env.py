"""Run by Alembic: migrates over the connection of `registry.migrate`, within its transaction."""

from __future__ import annotations

from alembic import context

from deltaworks.control.registry_schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
