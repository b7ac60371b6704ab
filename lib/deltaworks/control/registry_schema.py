"""The tables of the registry. A change here needs a migration in `migrations/versions`; a test compares the two.

Times are those of the database, so that hosts with different clocks agree. `generation` fences; see `registry`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)

pipelines = Table(
    "pipelines",
    metadata,
    Column("name", Text, primary_key=True),
    Column("desired", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("restarts", Integer, nullable=False, server_default=text("0")),
    Column("gave_up", Text),
    Column("claimed_for", Text),
    Column("claimed_generation", BigInteger),
    Column("claimed_by", Text),
    Column("claimed_at", DateTime(timezone=True)),
    CheckConstraint("desired IN ('running', 'stopped')", name="desired"),
    comment="What should run, and what was tried to make it so",
)

deployments = Table(
    "deployments",
    metadata,
    Column("pipeline", Text, ForeignKey(pipelines.c.name), primary_key=True),
    Column("generation", BigInteger, primary_key=True, autoincrement=False),
    Column("request_id", Text),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("options", JSONB, nullable=False),
    Column("external_id", JSONB),
    Column("state", Text, nullable=False),
    Column("exit_code", Integer),
    Column("reason", Text),
    Column("launched_at", DateTime(timezone=True)),
    Column("running_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("log", Text, nullable=False),
    Column("supervised_at", DateTime(timezone=True)),
    Column("supervised_by", Text),
    Column("code", Text),
    CheckConstraint("state IN ('launching', 'running', 'stopped', 'failed', 'superseded')", name="state"),
    Index(None, "pipeline", "request_id", unique=True, postgresql_where=text("request_id IS NOT NULL")),
    comment="Every generation of every pipeline",
)

leases = Table(
    "leases",
    metadata,
    Column("pipeline", Text, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("until", DateTime(timezone=True), nullable=False),
    comment="Which generation drives a pipeline; a higher one takes it, a lower one never gets it back",
)

heartbeats = Table(
    "heartbeats",
    metadata,
    Column("pipeline", Text, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("received_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("beat", JSONB, nullable=False),
    comment="The latest heartbeat of each pipeline",
)

commands = Table(
    "commands",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("pipeline", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("taken_at", DateTime(timezone=True)),
    Column("done_at", DateTime(timezone=True)),
    Column("outcome", Text),
    CheckConstraint("kind IN ('drain')", name="kind"),
    Index(None, "pipeline", "generation"),
    comment="What drivers shall do; executed between batches by the generation that they are for",
)

batches = Table(
    "batches",
    metadata,
    Column("pipeline", Text, primary_key=True),
    Column("query_id", Text, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("generation", BigInteger, nullable=False),
    Column("wall_clock_ms", BigInteger, nullable=False),
    Column("offsets", JSONB, nullable=False),
    comment="Offsets and wall clock of every micro-batch: the order in which a stream processed its records",
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("pipeline", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("cause", Text),
    Column("place", Text),
    Column("opened_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    Column("how", Text),
    Index(None, "pipeline", "kind", "key", unique=True, postgresql_where=text("ended_at IS NULL")),
    comment="What somebody is told of; at most one open incident of a kind and key",
)

notices = Table(
    "notices",
    metadata,
    Column("incident", BigInteger, ForeignKey(incidents.c.id, ondelete="CASCADE"), primary_key=True),
    Column("state", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("claimed_by", Text, nullable=False),
    Column("claimed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("told_at", DateTime(timezone=True)),
    CheckConstraint("state IN ('open', 'over')", name="state"),
    comment="Who was told of which incident, and who is about to tell",
)

samples = Table(
    "samples",
    metadata,
    Column("pipeline", Text, primary_key=True),
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("state_entries", BigInteger, nullable=False),
    Column("dead_letters", BigInteger, nullable=False),
    comment="Counts of heartbeats, the last ones of each ten minutes of two days",
)

connectors = Table(
    "connectors",
    metadata,
    Column("name", Text, primary_key=True),
    Column("desired", Text, nullable=False),
    Column("properties", JSONB, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("restarts", Integer, nullable=False, server_default=text("0")),
    Column("restarted_at", DateTime(timezone=True)),
    Column("failed_since", DateTime(timezone=True)),
    Column("drifted_since", DateTime(timezone=True)),
    Column("gave_up", Text),
    CheckConstraint("desired IN ('running', 'paused', 'stopped', 'deleted')", name="desired"),
    comment="Which connectors of Kafka Connect there should be, and what was tried to make it so",
)
