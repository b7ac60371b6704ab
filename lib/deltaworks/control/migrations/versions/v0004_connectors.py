"""Connectors of Kafka Connect."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "connectors",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("desired", sa.Text, nullable=False),
        sa.Column("properties", JSONB, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("restarts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("restarted_at", sa.DateTime(timezone=True)),
        sa.Column("failed_since", sa.DateTime(timezone=True)),
        sa.Column("drifted_since", sa.DateTime(timezone=True)),
        sa.Column("gave_up", sa.Text),
        sa.PrimaryKeyConstraint("name", name="connectors_pkey"),
        sa.CheckConstraint(
            "desired IN ('running', 'paused', 'stopped', 'deleted')", name=op.f("connectors_desired_check")
        ),
        comment="Which connectors of Kafka Connect there should be, and what was tried to make it so",
    )


def downgrade() -> None:
    op.drop_table("connectors")
