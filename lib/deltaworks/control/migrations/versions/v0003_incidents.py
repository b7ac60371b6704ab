"""Incidents, who was told of them, and samples of heartbeats."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
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
        "incidents",
        sa.Column("id", sa.BigInteger, sa.Identity(), nullable=False),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("cause", sa.Text),
        sa.Column("place", sa.Text),
        _time("opened_at", now=True),
        _time("ended_at"),
        sa.Column("how", sa.Text),
        sa.PrimaryKeyConstraint("id", name="incidents_pkey"),
        comment="What somebody is told of; at most one open incident of a kind and key",
    )
    op.create_index(
        "incidents_pipeline_kind_key_idx",
        "incidents",
        ["pipeline", "kind", "key"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "notices",
        sa.Column("incident", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("claimed_by", sa.Text, nullable=False),
        _time("claimed_at", now=True),
        _time("told_at"),
        sa.PrimaryKeyConstraint("incident", "state", "channel", name="notices_pkey"),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], name="notices_incident_fkey", ondelete="CASCADE"),
        sa.CheckConstraint("state IN ('open', 'over')", name=op.f("notices_state_check")),
        comment="Who was told of which incident, and who is about to tell",
    )
    op.create_table(
        "samples",
        sa.Column("pipeline", sa.Text, nullable=False),
        _time("at", required=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("state_entries", sa.BigInteger, nullable=False),
        sa.Column("dead_letters", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "at", name="samples_pkey"),
        comment="Counts of heartbeats, the last ones of each ten minutes of two days",
    )


def downgrade() -> None:
    op.drop_table("samples")
    op.drop_table("notices")
    op.drop_index("incidents_pipeline_kind_key_idx", "incidents")
    op.drop_table("incidents")
