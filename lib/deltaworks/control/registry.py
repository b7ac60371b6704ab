"""The registry of all pipelines, in PostgreSQL. Only `incident_book` and `connector_book` have SQL, too.

Each statement of a driver is fenced: it takes effect only while the driver's generation holds the pipeline's lease row.
A higher generation takes that row, and a lower one never gets it back. A driver that finds no row to write to has been
replaced, and gets a `FencedError`.

The files of a pipeline remain authoritative on its host; other hosts, Airflow and people look at the registry. Streams
run without it, so everything here may raise `ControlUnavailableError`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from importlib.resources import files
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from deltaworks import listeners
from deltaworks.control import fence
from deltaworks.control.batches import BatchRecord
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.model import (
    Deployment,
    DeploymentState,
    DeployOptions,
    Desired,
    DrainCommand,
    PipelineRecord,
)
from deltaworks.control.registry_schema import (
    batches,
    commands,
    connectors,
    deployments,
    heartbeats,
    incidents,
    leases,
    pipelines,
)
from deltaworks.errors import ControlUnavailableError
from deltaworks.settings import Settings

CLAIM = timedelta(minutes=3)
"""A claim without effect ends after this long."""
_LEASE = timedelta(seconds=30)
_CONNECT_S = 3
_STATEMENT_S = 30
_IDLE_S = 5
"""Timeout of idle transactions: a driver that is suspended within one must not keep its row from its successor."""
_HINT = "deltaworks up"

_NO_TABLE = "42P01"
_MIGRATION_LOCK = 7_301_100_923
_DEPLOY_LOCKS = 7_301
"""First half of the key of advisory locks; the second half is a hash of the pipeline's name."""

T = TypeVar("T")
_engines: dict[tuple[int, str], sa.Engine] = {}
"""Engines by process and URL; a fork does not use inherited ones."""

_APPEND = sa.text(
    """
    INSERT INTO batches (pipeline, query_id, batch, generation, wall_clock_ms, offsets)
    SELECT l.pipeline, :query_id, r.batch, l.generation, r.wall_clock_ms, r.offsets
    FROM leases l, jsonb_to_recordset(CAST(:records AS jsonb)) AS r(batch bigint, wall_clock_ms bigint, offsets jsonb)
    WHERE l.pipeline = :pipeline AND l.generation = :generation
    FOR SHARE OF l
    ON CONFLICT (pipeline, query_id, batch) DO UPDATE SET generation = excluded.generation
    RETURNING 1
    """
)


def migrate(settings: Settings) -> None:
    """Migrates the tables to the current version. A second caller waits and finds nothing to do."""
    _alembic(settings, "upgrade", "head")


def downgrade(settings: Settings, revision: str) -> None:
    """Reverts migrations down to `revision`; `base` is the empty database."""
    _alembic(settings, "downgrade", revision)


def supervised(settings: Settings, name: str, generation: int, by: str) -> bool:
    """Records that a supervisor watches; returns False, without an error, if the registry does not answer."""
    try:
        Registry.of(settings).supervised(name, generation, by)
    except ControlUnavailableError:
        return False
    return True


class Known(NamedTuple):
    """What the registry knows of a generation; None: nothing."""

    record: PipelineRecord | None
    """Of its pipeline."""
    deployment: Deployment | None
    beat: Heartbeat | None
    """The latest one of its pipeline, which may be of another generation."""


class Registry:
    """Access to the registry. The engine is one per process and database, because it must not cross a fork."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = _engine(settings)

    @classmethod
    def of(cls, settings: Settings) -> Registry:
        """The registry of the settings; it connects when it is first used."""
        return cls(settings)

    # ---- What should run

    def pipeline(self, name: str) -> PipelineRecord | None:
        """The record of a pipeline; None if it was never deployed."""
        return next(iter(self.pipelines(name)), None)

    def pipelines(self, name: str | None = None) -> list[PipelineRecord]:
        """All pipelines that were ever deployed, by name; or only one."""
        with self._begin() as connection:
            return _pipelines(connection, name)

    def known(self, name: str, generation: int) -> Known:
        """All that an observer of a generation needs, in one transaction: a look at many pipelines is mostly waiting
        for answers."""
        with self._begin() as connection:
            return Known(
                next(iter(_pipelines(connection, name)), None),
                _deployment(connection, deployments.c.pipeline == name, deployments.c.generation == generation),
                _heartbeat(connection, name),
            )

    def desire(self, name: str, desired: Desired) -> bool:
        """Sets the desired state; returns False if the pipeline was never deployed."""
        statement = sa.update(pipelines).where(pipelines.c.name == name).values(desired=desired)
        with self._begin() as connection:
            return connection.execute(statement).rowcount > 0

    # ---- Deployments

    @contextmanager
    def deploying(self, name: str) -> Iterator[None]:
        """Admits one deployment of a pipeline at a time, across all hosts; others wait here.

        The lock belongs to its own connection, so it ends with this process, however that ends.
        """
        with self._lock_connection() as connection:
            connection.execute(sa.text("SET statement_timeout = 0"))
            connection.execute(sa.select(sa.func.pg_advisory_lock(*_lock_key(name))))
            try:
                yield
            finally:
                with suppress(DBAPIError):  # the server also notices the end of the connection, only later
                    connection.execute(sa.select(sa.func.pg_advisory_unlock(*_lock_key(name))))

    def being_deployed(self, name: str) -> bool:
        """Whether a caller is in `deploying` now."""
        with self._begin() as connection:
            free = connection.execute(sa.select(sa.func.pg_try_advisory_xact_lock(*_lock_key(name)))).scalar_one()
        return not free

    def allocate(
        self,
        name: str,
        options: DeployOptions,
        *,
        above: int,
        request_id: str | None,
        requested_by: str,
        log: str,
        healing: bool,
        code: str | None = None,
    ) -> Deployment:
        """Allocates the next generation, above all earlier ones; from now on the pipeline should run.

        Args:
            above: the highest generation that is known where the pipeline runs.
            healing: whether this is an automatic restart, which counts; any other deployment resets the count.
            code: digest of the archive that it runs from.
        """
        fresh = insert(pipelines).values(name=name, desired="running", generation=above + 1)
        restarts = pipelines.c.restarts + 1 if healing else sa.literal(0)
        upsert = fresh.on_conflict_do_update(
            index_elements=[pipelines.c.name],
            set_={
                "desired": "running",
                "generation": sa.func.greatest(pipelines.c.generation, sa.literal(above)) + 1,
                "restarts": restarts,
                "gave_up": None,
                "claimed_for": None,
                "claimed_generation": None,
                "claimed_by": None,
                "claimed_at": None,
            },
        ).returning(pipelines.c.generation)
        with self._begin() as connection:
            generation = connection.execute(upsert).scalar_one()
            row = connection.execute(
                insert(deployments)
                .values(
                    pipeline=name,
                    generation=generation,
                    request_id=request_id,
                    requested_by=requested_by,
                    options=msgspec.to_builtins(options),
                    state="launching",
                    log=log,
                    code=code,
                )
                .returning(deployments)
            ).one()
            return _struct(Deployment, row)

    def deployment(self, name: str, generation: int) -> Deployment | None:
        """One generation."""
        return self._one_deployment(deployments.c.pipeline == name, deployments.c.generation == generation)

    def deployment_of_request(self, name: str, request_id: str) -> Deployment | None:
        """The deployment of an earlier try of the same request."""
        return self._one_deployment(deployments.c.pipeline == name, deployments.c.request_id == request_id)

    def deployments(self, name: str, limit: int = 20) -> list[Deployment]:
        """The deployments of a pipeline, latest first."""
        query = (
            sa.select(deployments)
            .where(deployments.c.pipeline == name)
            .order_by(deployments.c.generation.desc())
            .limit(limit)
        )
        with self._begin() as connection:
            return [_struct(Deployment, row) for row in connection.execute(query)]

    def takes_code(self, name: str, generation: int, code: str) -> None:
        """Records that the deployment runs from another archive than it was allocated with."""
        self._change(name, generation, code=code)

    def launched(self, name: str, generation: int, external_id: dict[str, Any]) -> None:
        """Records that the launcher has started the driver."""
        self._change(name, generation, external_id=external_id, launched_at=sa.func.now())

    def running(self, name: str, generation: int) -> None:
        """Records that the driver processes batches."""
        self._change(name, generation, state="running", running_at=sa.func.now())

    def ended(
        self, name: str, generation: int, state: DeploymentState, *, exit_code: int | None, reason: str | None
    ) -> None:
        """Records that the driver has ended; the first record of an end stays."""
        self._change(
            name,
            generation,
            deployments.c.ended_at.is_(None),
            state=state,
            exit_code=exit_code,
            reason=reason,
            ended_at=sa.func.now(),
        )

    def supervised(self, name: str, generation: int, by: str) -> None:
        """Records that a supervisor watches the stream."""
        self._change(name, generation, supervised_at=sa.func.now(), supervised_by=by)

    # ---- Restarts; `reconcile` decides what is tried and when

    def claim(self, name: str, generation: int, action: str, by: str, *, restarts: int) -> bool:
        """Claims an action; returns whether the caller should act. Other callers get False while the claim lasts.

        The holder of a claim may claim again: it may have been killed before it could act.

        Args:
            restarts: the number of counted automatic restarts before this one.
        """
        taken = sa.and_(
            pipelines.c.claimed_generation == generation,
            pipelines.c.claimed_for == action,
            pipelines.c.claimed_by != by,
            pipelines.c.claimed_at > sa.func.now() - CLAIM,
        )
        statement = (
            sa.update(pipelines)
            .where(
                pipelines.c.name == name,
                pipelines.c.generation == generation,
                pipelines.c.desired == "running",
                sa.func.coalesce(taken, sa.false()).is_(sa.false()),
            )
            .values(
                claimed_for=action,
                claimed_generation=generation,
                claimed_by=by,
                claimed_at=sa.func.now(),
                restarts=restarts,
            )
        )
        with self._begin() as connection:
            return connection.execute(statement).rowcount > 0

    def gave_up(self, name: str, generation: int, reason: str) -> None:
        """Records that the stream is not restarted until somebody deploys it."""
        self._change_pipeline(name, generation, gave_up=reason)

    def erase_texts(self, unwanted: Callable[[str], bool], replacement: str) -> None:
        """Replaces reasons, outcomes and texts of incidents that tell something unwanted, such as a person's key."""
        with self._begin() as connection:
            others = (incidents.c.what, incidents.c.cause, connectors.c.gave_up)
            for column in (deployments.c.reason, pipelines.c.gave_up, commands.c.outcome, *others):
                told = connection.execute(sa.select(column).where(column.is_not(None)).distinct()).scalars().all()
                for text in filter(unwanted, told):
                    connection.execute(column.table.update().where(column == text).values({column.name: replacement}))

    def healthy(self, name: str, generation: int) -> None:
        """Resets the count of restarts, since the stream has run long enough."""
        self._change_pipeline(name, generation, restarts=0, gave_up=None)

    # ---- Commands

    def drain(self, name: str, generation: int, by: str) -> int:
        """Asks a generation to finish and stop; returns the id of the command."""
        statement = (
            insert(commands)
            .values(pipeline=name, generation=generation, kind="drain", requested_by=by)
            .returning(commands.c.id)
        )
        with self._begin() as connection:
            return int(connection.execute(statement).scalar_one())

    # ---- Statements of drivers; fenced

    def beat(self, beat: Heartbeat, *, host: str) -> None:
        """Takes or keeps the lease, and replaces the heartbeat.

        Raises:
            FencedError: a higher generation holds the lease.
        """
        until = sa.func.now() + _LEASE
        fresh = insert(leases).values(
            pipeline=beat.pipeline, generation=beat.generation, host=host, pid=beat.pid, until=until
        )
        new = fresh.excluded
        lease = (
            fresh.on_conflict_do_update(
                index_elements=[leases.c.pipeline],
                set_={
                    "generation": new.generation,
                    "host": new.host,
                    "pid": new.pid,
                    "until": new.until,
                    "since": sa.case((leases.c.generation < new.generation, sa.func.now()), else_=leases.c.since),
                },
                where=leases.c.generation <= new.generation,
            )
            .returning(leases.c.pipeline, leases.c.generation)
            .cte("lease")
        )
        content = sa.literal(msgspec.to_builtins(beat), heartbeats.c.beat.type)
        statement = insert(heartbeats).from_select(
            ["pipeline", "generation", "received_at", "beat"],
            sa.select(lease.c.pipeline, lease.c.generation, sa.func.now(), content),
        )
        statement = statement.on_conflict_do_update(
            index_elements=[heartbeats.c.pipeline],
            set_={name: statement.excluded[name] for name in ("generation", "received_at", "beat")},
        )
        with self._begin() as connection:
            if connection.execute(statement.returning(heartbeats.c.pipeline)).first() is None:
                self._raise_fenced(connection, beat.pipeline, beat.generation)

    def append_batches(self, name: str, generation: int, query_id: str, records: Sequence[BatchRecord]) -> None:
        """Adds batches to the batch record; existing ones stay.

        Raises:
            FencedError: another generation holds the lease.
        """
        if not records:
            return
        values = {
            "pipeline": name,
            "generation": generation,
            "query_id": query_id,
            "records": msgspec.json.encode(records).decode(),
        }
        with self._begin() as connection:
            if connection.execute(_APPEND, values).first() is None:
                self._raise_fenced(connection, name, generation)

    def last_batch(self, name: str, query_id: str) -> int | None:
        """The last batch in the batch record, which has no gap before it."""
        query = sa.select(sa.func.max(batches.c.batch)).where(
            batches.c.pipeline == name, batches.c.query_id == query_id
        )
        with self._begin() as connection:
            last: int | None = connection.execute(query).scalar_one()
        return last

    def batches(self, name: str, query_id: str) -> list[BatchRecord]:
        """The batch record of one checkpoint, in order."""
        query = (
            sa.select(batches.c.batch, batches.c.wall_clock_ms, batches.c.offsets)
            .where(batches.c.pipeline == name, batches.c.query_id == query_id)
            .order_by(batches.c.batch)
        )
        with self._begin() as connection:
            return [_struct(BatchRecord, row) for row in connection.execute(query)]

    def take_commands(self, name: str, generation: int) -> list[DrainCommand]:
        """Takes the commands for a generation; each is handed out once."""
        statement = (
            sa.update(commands)
            .where(
                commands.c.pipeline == name,
                commands.c.generation == generation,
                commands.c.taken_at.is_(None),
            )
            .values(taken_at=sa.func.now())
            .returning(commands.c.id, commands.c.kind, commands.c.requested_by)
        )
        with self._begin() as connection:
            return [_struct(DrainCommand, row) for row in connection.execute(statement)]

    def command_done(self, command_id: int, outcome: str) -> None:
        """Records that a driver has executed a command."""
        statement = (
            sa.update(commands).where(commands.c.id == command_id).values(done_at=sa.func.now(), outcome=outcome)
        )
        with self._begin() as connection:
            connection.execute(statement)

    # ----

    def _one_deployment(self, *conditions: sa.ColumnElement[bool]) -> Deployment | None:
        with self._begin() as connection:
            return _deployment(connection, *conditions)

    def _change(self, name: str, generation: int, *conditions: sa.ColumnElement[bool], **values: Any) -> None:
        statement = sa.update(deployments).where(
            deployments.c.pipeline == name, deployments.c.generation == generation, *conditions
        )
        with self._begin() as connection:
            connection.execute(statement.values(**values))

    def _change_pipeline(self, name: str, generation: int, **values: Any) -> None:
        statement = sa.update(pipelines).where(pipelines.c.name == name, pipelines.c.generation == generation)
        with self._begin() as connection:
            connection.execute(statement.values(**values))

    def _raise_fenced(self, connection: sa.Connection, name: str, generation: int) -> None:
        holder = connection.execute(
            sa.select(leases.c.generation).where(leases.c.pipeline == name)
        ).scalar_one_or_none()
        if holder is not None and holder > generation:
            raise fence.fenced(name, generation, holder)
        raise ControlUnavailableError(
            f"the registry has lost the lease of pipeline {name!r}", hint="the next heartbeat acquires it again"
        )

    def transaction(self) -> AbstractContextManager[sa.Connection]:
        """A transaction of a caller, for tables of its own."""
        return self._begin()

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        with _available(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _lock_connection(self) -> Iterator[sa.Connection]:
        """A connection outside the pool, so that it is closed and never reused with its lock."""
        engine = sa.create_engine(self._engine.url, poolclass=sa.NullPool, connect_args=_connect_args())
        _only_own(engine, self._settings)
        with _available():
            connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            yield connection
        except DBAPIError as error:
            raise _unavailable(error) from error
        finally:
            connection.close()  # releases the lock


def _pipelines(connection: sa.Connection, name: str | None) -> list[PipelineRecord]:
    query = sa.select(*(pipelines.c[field] for field in PipelineRecord.__struct_fields__)).order_by(pipelines.c.name)
    if name is not None:
        query = query.where(pipelines.c.name == name)
    return [_struct(PipelineRecord, row) for row in connection.execute(query)]


def _deployment(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> Deployment | None:
    row = connection.execute(sa.select(deployments).where(*conditions)).one_or_none()
    return None if row is None else _struct(Deployment, row)


def _heartbeat(connection: sa.Connection, name: str) -> Heartbeat | None:
    content = connection.execute(sa.select(heartbeats.c.beat).where(heartbeats.c.pipeline == name)).scalar_one_or_none()
    return None if content is None else msgspec.convert(content, Heartbeat)


def close() -> None:
    """Closes this process's connections; they reopen when needed."""
    for key in [key for key in _engines if key[0] == os.getpid()]:
        _engines.pop(key).dispose()


def _engine(settings: Settings) -> sa.Engine:
    """The engine of this process and database; a forked child makes its own."""
    url = settings.registry_url
    key = os.getpid(), url
    if key not in _engines:
        new = sa.create_engine(
            url, pool_size=2, max_overflow=2, pool_timeout=10, pool_pre_ping=True, connect_args=_connect_args()
        )
        _only_own(new, settings)
        if _engines.setdefault(key, new) is not new:
            new.dispose()
    return _engines[key]


def _only_own(engine: sa.Engine, settings: Settings) -> None:
    """Refuses to connect to the PostgreSQL of another project's stack, unless the settings name it explicitly."""

    def check(*_: object) -> None:
        if settings.control_url is None:
            listeners.require_none_of_another(settings, settings.postgres_port, error=ControlUnavailableError)

    sa.event.listen(engine, "do_connect", check)


def _connect_args() -> dict[str, Any]:
    return {
        "connect_timeout": _CONNECT_S,
        "client_encoding": "utf8",  # else texts of a database without an encoding are bytes
        "application_name": f"deltaworks {socket.gethostname()}",
        "options": f"-c timezone=UTC -c statement_timeout={_STATEMENT_S * 1000}"
        f" -c idle_in_transaction_session_timeout={_IDLE_S * 1000}",
        "prepare_threshold": None,
    }


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        raise _unavailable(error) from error
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != _NO_TABLE:
            raise
        raise ControlUnavailableError("The registry's database has no tables yet.", hint=_HINT) from error
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> ControlUnavailableError:
    cause = getattr(error, "orig", None) or error
    first = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    return ControlUnavailableError(f"The registry (PostgreSQL) does not answer: {first}", hint=_HINT)


def _alembic(settings: Settings, do: Literal["upgrade", "downgrade"], revision: str) -> None:
    from alembic import command  # most users of the registry never migrate it
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(files("deltaworks.control") / "migrations"))
    engine = _engine(settings)
    with _available(), engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
        config.attributes["connection"] = connection
        (command.upgrade if do == "upgrade" else command.downgrade)(config, revision)


def _lock_key(name: str) -> tuple[Any, Any]:
    return sa.cast(_DEPLOY_LOCKS, sa.Integer), sa.func.hashtext(name)


def _struct(kind: type[T], row: sa.Row[*tuple[Any, ...]]) -> T:
    return msgspec.convert({str(name): value for name, value in row._mapping.items()}, kind)
