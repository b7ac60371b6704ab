"""Pipelines, deployments, leases, heartbeats, commands and the batch record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _time(name: str, *, now: bool = False, required: bool = False) -> sa.Column[object]:
    return sa.Column(
        name,
        sa.DateTime(timezone=True),
        nullable=not (now or required),
        server_default=sa.func.now() if now else None,
    )


def upgrade() -> None:
    op.create_table(
        "pipelines",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("desired", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("restarts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("gave_up", sa.Text),
        sa.Column("claimed_for", sa.Text),
        sa.Column("claimed_generation", sa.BigInteger),
        sa.Column("claimed_by", sa.Text),
        _time("claimed_at"),
        sa.PrimaryKeyConstraint("name", name="pipelines_pkey"),
        sa.CheckConstraint("desired IN ('running', 'stopped')", name=op.f("pipelines_desired_check")),
        comment="What should run, and what was tried to make it so",
    )
    op.create_table(
        "deployments",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("request_id", sa.Text),
        sa.Column("requested_by", sa.Text, nullable=False),
        _time("requested_at", now=True),
        sa.Column("options", JSONB, nullable=False),
        sa.Column("external_id", JSONB),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("exit_code", sa.Integer),
        sa.Column("reason", sa.Text),
        _time("launched_at"),
        _time("running_at"),
        _time("ended_at"),
        sa.Column("log", sa.Text, nullable=False),
        _time("supervised_at"),
        sa.Column("supervised_by", sa.Text),
        sa.PrimaryKeyConstraint("pipeline", "generation", name="deployments_pkey"),
        sa.ForeignKeyConstraint(["pipeline"], ["pipelines.name"], name="deployments_pipeline_fkey"),
        sa.CheckConstraint(
            "state IN ('launching', 'running', 'stopped', 'failed', 'superseded')",
            name=op.f("deployments_state_check"),
        ),
        comment="Every generation of every pipeline",
    )
    op.create_index(
        "deployments_pipeline_request_id_idx",
        "deployments",
        ["pipeline", "request_id"],
        unique=True,
        postgresql_where=sa.text("request_id IS NOT NULL"),
    )
    op.create_table(
        "leases",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        _time("since", now=True),
        _time("until", required=True),
        sa.PrimaryKeyConstraint("pipeline", name="leases_pkey"),
        comment="Which generation drives a pipeline; a higher one takes it, a lower one never gets it back",
    )
    op.create_table(
        "heartbeats",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        _time("received_at", now=True),
        sa.Column("beat", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", name="heartbeats_pkey"),
        comment="The latest heartbeat of each pipeline",
    )
    op.create_table(
        "commands",
        sa.Column("id", sa.BigInteger, sa.Identity(), nullable=False),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("requested_by", sa.Text, nullable=False),
        _time("requested_at", now=True),
        _time("taken_at"),
        _time("done_at"),
        sa.Column("outcome", sa.Text),
        sa.PrimaryKeyConstraint("id", name="commands_pkey"),
        sa.CheckConstraint("kind IN ('drain')", name=op.f("commands_kind_check")),
        comment="What drivers shall do; executed between batches by the generation that they are for",
    )
    op.create_index("commands_pipeline_generation_idx", "commands", ["pipeline", "generation"])
    op.create_table(
        "batches",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("wall_clock_ms", sa.BigInteger, nullable=False),
        sa.Column("offsets", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "query_id", "batch", name="batches_pkey"),
        comment="Offsets and wall clock of every micro-batch: the order in which a stream processed its records",
    )


def downgrade() -> None:
    for table in ("batches", "commands", "heartbeats", "leases", "deployments", "pipelines"):
        op.drop_table(table)
