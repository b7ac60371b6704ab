"""The code of a deployment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("deployments", sa.Column("code", sa.Text))


def downgrade() -> None:
    op.drop_column("deployments", "code")
