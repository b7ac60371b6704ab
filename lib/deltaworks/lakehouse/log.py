"""The Delta log of one table, read once and then continued in memory by its only committer.

A commit costs what it says, not what the table holds: one JSON file, created only if its version is free. (delta-rs
looks through all files of the table at every commit: 5 ms with ten files, 22 ms with ten thousand.)
A checkpoint is due when the log has grown by half of what the last one held, so its cost follows the changes too.
Commits use Delta's protocol (1, 2): add, remove, txn. delta-rs creates the tables.

A commit is on the disk when `commit` returns. It says how many actions it has; a commit without its end does not count.

For the choice of files see `committer`, `compaction`, `snapshots`; for reading log files `versions`; for commits of
others `foreign`, `repair`.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema

from deltaworks import files
from deltaworks.clock import wall_ms
from deltaworks.errors import FencedError, TableError, TransientError
from deltaworks.lakehouse import checkpoints, descriptions, foreign, layout, reading, versions
from deltaworks.lakehouse.checkpoints import State
from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.lakehouse.trash import Trash
from deltaworks.lakehouse.versions import TornError, Version
from deltaworks.lakehouse.writes import NewFile

_CHECKPOINT_MIN_ACTIONS = 2000
_CHECKPOINT_MAX_COMMITS = 1000
QUERY_PROPERTY = "deltaworks.query"
_STATISTICS_PROPERTY = "delta.dataSkippingStatsColumns"
_ADDED_PROPERTY = "deltaworks.added-columns"
"""The columns that were added later, as JSON."""


class OvertakenError(TransientError):
    """Another writer has harmlessly changed what this commit replaces: the commit has to be built again."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that is part of the table."""

    size_bytes: int
    statistics: str | None
    added_ms: int = 0
    """When it became part of the table, as its commit says."""
    partition: Mapping[str, str] | None = None
    """Its partition values, if its path says others: another writer named it."""

    def partition_of(self, path: str) -> Mapping[str, str]:
        """The partition values of the file, whose path in the table this is."""
        return layout.partition_of(path) if self.partition is None else self.partition

    @property
    def rows(self) -> int:
        return int(json.loads(self.statistics)["numRecords"]) if self.statistics else 0


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The changes of one version of a table."""

    added: Sequence[NewFile] = ()
    removed: Sequence[str] = ()
    partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Path of an added file -> its partition values, where they are not those of the path."""
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Application id -> version: batch ids, and times up to which windows are closed."""
    data_change: bool = True
    """False: the same rows in other files."""
    operation: str = "STREAMING UPDATE"
    parameters: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """For people and tools: the commit's `userMetadata`."""
    definition: Mapping[str, Any] | None = None
    """The table's new columns and properties: Delta's `metaData`; None: unchanged."""
    protocol: Mapping[str, Any] | None = None
    """The table's new protocol for readers and writers; None: unchanged."""


class DeltaLog:
    """The state of one table, kept in memory by the only process that commits to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = -1
        self.files: dict[str, FileEntry] = {}
        self.tombstones: deque[tuple[int, str]] = deque()
        """Removed files that are still on disk for readers of older versions: time of removal, path; oldest first."""
        self.transactions: dict[str, int] = {}
        self._fence: tuple[str, int] | None = None
        self._schema: TableSchema | None = None
        """The schema that the table must have, if known."""
        self.torn: int | None = None
        """The number of a last version that is not whole, and so does not count."""
        self._token = 0
        """A number that stands for the paths of all files."""
        self._token_of_ours: int | None = None
        """The token after our last commit; None: unknown."""
        self.protocol: dict[str, Any] = {}
        self.definition: dict[str, Any] = {}
        """Delta's `metaData`."""
        self.properties: dict[str, str] = {}
        self.user_metadata: dict[str, Any] = {}
        """The user metadata of the latest commit that had any."""
        self.partition_by: tuple[str, ...] = ()
        self.schema_text = ""
        self._actions_since_checkpoint = 0
        self._commits_since_checkpoint = 0

    @property
    def pipeline(self) -> str | None:
        """The pipeline that writes the table, from its transactions; None: no pipeline does."""
        for app in self.transactions:
            if layout.step_of(app) == layout.GENERATION and app.count("/") >= 3:
                return app.rsplit("/", 3)[0]
        return None

    @classmethod
    def create_or_open(
        cls,
        root: Path,
        schema: TableSchema,
        *,
        query_id: str,
        properties: Mapping[str, str],
        may_lack: bool = False,
    ) -> DeltaLog:
        """Opens the table of `schema`, or creates it; for its only committer.

        A last version that is not whole was never a commit: it is moved to the trash first.

        Args:
            root: folder of all tables.
            schema: of the table.
            query_id: the owner.
            properties: of a new table, beside those that every table has.
            may_lack: the table may lack columns of the value, which `add_columns` adds.

        Raises:
            TableError: the table has other columns, belongs to another checkpoint, or another writer has changed it.
        """
        log = cls(root / schema.name)
        versions.remove_temporaries(log._folder)
        log.load()
        if log.torn is not None:
            Trash(log.path).put_version(versions.file_name(log.torn), wall_ms())
            log.load()
        if log.version < 0:
            log._create_table(schema, query_id, properties)
            log.load()
        log.check_owner(schema.role, query_id)
        log.require_ours(schema)
        log.check(schema, query_id, may_lack=may_lack)
        return log

    @property
    def owner(self) -> str | None:
        """The query that the table belongs to."""
        return self.properties.get(QUERY_PROPERTY)

    @property
    def is_as_left(self) -> bool:
        """Whether the table has exactly the files that it had after our last commit; False if unknown."""
        return self._token_of_ours == self._token

    @property
    def is_untold(self) -> bool:
        """Whether no commit has recorded the files of the table yet."""
        return self._token_of_ours is None

    def check_owner(self, role: Role, query_id: str) -> None:
        """Raises `TableError` if the table belongs to another query."""
        owner = self.owner
        if owner is not None and owner != query_id:
            raise TableError(
                f"Delta table '{self.path.name}' at {self.path} belongs to the checkpoint of query {owner}, "
                f"not to that of query {query_id}; going on would write its records twice.",
                hint="restore the checkpoint, or move the table's folder away: it may hold what Kafka has not"
                if role is Role.ARCHIVE
                else "restore the checkpoint, or remove the table's folder to build it again from the topics",
            )

    def check(self, schema: TableSchema, query_id: str, *, may_lack: bool = False) -> None:
        """Raises `TableError` if this log is not that of `schema`, written by `query_id`.

        Args:
            schema: what the table must be.
            query_id: whose it must be.
            may_lack: it may lack columns of the value.
        """
        self.check_owner(schema.role, query_id)
        if self.differences(schema, may_lack=may_lack):
            differences = self.differences(schema)
            raise TableError(
                f"Delta table '{schema.name}' at {self.path} has other columns than the pipeline "
                f"(table -> pipeline): {'; '.join(differences)}.",
                hint="a value can get columns, and nothing else can change: give the old names again (key= and value= "
                "of to_delta, fields of the type), write to a table of another name, or build this one again with the "
                "new columns: deltaworks replay <pipeline> --hand-over",
            )

    def describe(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Commits the description and the comments of `schema`, and properties, if the table has others; for its only
        committer.

        Raises:
            FencedError, TableError: see `commit`.
        """
        while (definition := descriptions.described(self.definition, schema, properties)) != self.definition:
            with suppress(OvertakenError):
                self.commit(Commit(definition=definition, data_change=False, operation="DESCRIBE TABLE"))

    def add_columns(self, schema: TableSchema) -> list[str]:
        """Commits the columns of `schema` that the table lacks, in which the rows that are there have null; for its
        only committer.

        Returns:
            Their names.

        Raises:
            FencedError, TableError: see `commit`.
        """
        added: list[str] = []
        while True:
            found = {each["name"]: each for each in json.loads(self.schema_text)["fields"]}
            wanted = {each["name"]: each for each in _columns(schema.commented)}
            if not (missing := [name for name in wanted if name not in found]):
                return added
            told = json.dumps([*self.added_columns, *missing])
            fields = [found.get(name, each) for name, each in wanted.items()]
            definition = {
                **self.definition,
                "schemaString": json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False),
                "configuration": {**self.properties, _ADDED_PROPERTY: told},
            }
            with suppress(OvertakenError):
                self.commit(Commit(definition=definition, data_change=False, operation="ADD COLUMNS"))
                added = missing

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Columns that were added to the table after its first files were written, which may lack them."""
        return tuple(json.loads(self.properties.get(_ADDED_PROPERTY, "[]")))

    def differences(self, schema: TableSchema, *, may_lack: bool = False) -> list[str]:
        """The differences between the columns, as `table -> schema`; but for those of the value that it may lack."""
        found = {f["name"]: f["type"] for f in json.loads(self.schema_text)["fields"]}
        wanted = {f["name"]: f["type"] for f in _columns(schema.arrow)}
        if found == wanted and self.partition_by == schema.partition_by:
            return []
        missing = {each.name for each in schema.value if may_lack} - found.keys()
        differences = [
            f"{name}: {found.get(name, 'not there')} -> {wanted.get(name, 'not there')}"
            for name in sorted((found.keys() | wanted.keys()) - missing)
            if found.get(name) != wanted.get(name)
        ]
        if self.partition_by != schema.partition_by:
            differences.append(f"partitions: {self.partition_by} -> {schema.partition_by}")
        return differences

    def require_ours(self, schema: TableSchema | None) -> None:
        """Raises `TableError` if another writer has changed the table so that the stream cannot go on with it.

        From now on, commits of others are judged by `schema`.
        """
        self._schema = schema
        others, is_complete = self.foreign()
        self._judge(others, is_complete=is_complete)

    def foreign(self) -> tuple[list[Version], bool]:
        """Commits of others since our last one, in order; and whether these are all of them."""
        found: list[Version] = []
        for number in range(self.version, -1, -1):
            try:
                version = versions.read(self._folder, number)
            except TornError:
                version = None  # a checkpoint has replaced it
            if version is None or version.is_ours:
                return found[::-1], version is not None
            found.append(version)
        return found[::-1], True

    def load(self, up_to: int | None = None) -> None:
        """Reads the log from its last checkpoint, from an earlier one if that is not whole, or from the beginning.

        Args:
            up_to: a version; None: the last one that is whole.

        Raises:
            TableError: the log is damaged; the hint says what can be done.
        """
        there = [number for number in versions.numbers(self._folder) if up_to is None or number <= up_to]
        problems: list[str] = []
        starts = (start for start in versions.starts(self._folder) if up_to is None or start[0] <= up_to)
        for start, parts in (*starts, (-1, [])):
            self.__init__(self.path)  # type: ignore[misc]
            try:
                self._load_checkpoint(parts)
            except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
                problems.append(f"the checkpoint of version {start} cannot be read ({error})")
                continue
            self.version = start
            self.catch_up(up_to, versions.ahead(self._folder, [number for number in there if number > start]))
            if there and max(there) > self.version + (self.torn is not None):
                problems.append(f"version {self.version + 1} is missing")
            elif self.version < 0 and self.torn is None and versions.has_checkpoint(self._folder):
                problems.append("the log from its beginning on is gone")
            elif up_to is None or self.version == up_to:
                return
        raise TableError(
            f"The log of the Delta table at {self.path} is damaged: {'; '.join(problems)}.",
            hint="restore the table's _delta_log from a backup; or move the folder of the table away and build it "
            "again: deltaworks replay <pipeline> --hand-over",
        )

    def catch_up(self, up_to: int | None = None, ahead: Mapping[int, bytes] | None = None) -> list[Version]:
        """Applies and returns the commits that others have made since; ignores a last one that is not whole.

        Args:
            up_to: a version; None: all.
            ahead: contents of versions that were read already.

        Raises:
            TableError: a version is not whole, but later ones follow; or another engine wrote it.
        """
        found = []
        while up_to is None or self.version < up_to:
            number = self.version + 1
            data = None if ahead is None else ahead.get(number)
            try:
                if data is None:
                    version = versions.read(self._folder, number)
                else:
                    version = versions.decoded(self._folder, number, data)
            except TornError as error:
                if error.foreign or any(later > number for later in versions.numbers(self._folder)):
                    raise TableError(
                        f"Version {number} of the Delta table at {self.path} is not whole: {error}.",
                        hint=f"restore {versions.file_name(number)} from a backup; or move the folder of the table "
                        "away and build it again: deltaworks replay <pipeline> --hand-over",
                    ) from None
                self.torn = number
                break
            if version is None:
                break
            self._take(version)
            found.append(version)
        return found

    def fence(self, app_id: str, generation: int) -> None:
        """Lets `generation` write, and no earlier one from now on: they find the mark when they commit.

        A writer must read every earlier version before it commits, and so meets the mark. An older generation, however
        late it wakes up, cannot get a commit in.

        Raises:
            FencedError: a higher generation has marked the table.
        """
        self._fence = (app_id, generation)
        self._check_fence()
        if self.transactions.get(app_id) != generation:
            self.commit(Commit(transactions={app_id: generation}, data_change=False, operation="FENCE"))

    def transaction_version(self, app_id: str) -> int | None:
        """The highest version committed under an application id."""
        return self.transactions.get(app_id)

    def find(self, app_id: str, version: int, after: int) -> int:
        """The version of the table, after another one, whose commit has a transaction.

        If a checkpoint replaced that commit long ago, the next version is taken for it.
        """
        for number in range(after + 1, self.version + 1):
            try:
                found = versions.read(self._folder, number)
            except TornError:
                continue
            for action in () if found is None else found.actions:
                transaction = action.get("txn", {})
                if (transaction.get("appId"), transaction.get("version")) == (app_id, version):
                    return number
        return after + 1

    def commit(self, commit: Commit, *, checked: bool = False) -> int:
        """Makes the next version of the table; it is on the disk when this returns.

        Args:
            commit: what changes.
            checked: the caller has just called `check_files`.

        Returns:
            The version.

        Raises:
            FencedError: a newer generation has taken over.
            TableError: another writer has removed a file that this commit removes, committed the same transaction, or
                changed the table so that the stream cannot go on with it.
            TransientError: a file that it adds is missing; or a file that it removes was harmlessly rewritten.
        """
        self._check_fence()
        if not checked:
            self.check_files(commit.added)
        now_ms = wall_ms()
        log = files.files_in(self._folder)
        while True:
            lines = self._lines(commit, now_ms)
            data = b"\n".join(msgspec.json.encode(line) for line in lines) + b"\n"
            if log.put_if_absent(versions.file_name(self.version + 1), data):
                break
            self._overtaken(commit)
        self._take(Version(self.version + 1, lines))
        return self.version

    def check_files(self, added: Iterable[NewFile]) -> None:
        """Raises `TransientError` if a file is missing, or has another size than when it was written."""
        wanted = list(added)
        for new, size in zip(wanted, files.sizes([self.path / new.path for new in wanted]), strict=True):
            if size != new.size_bytes:
                self.catch_up()
                self._check_fence()  # a newer generation removes files of older ones
                there = "gone" if size is None else f"of {size} bytes instead of {new.size_bytes}"
                raise TransientError(
                    f"{new.path}, which was written for the Delta table at {self.path}, is {there}.",
                    hint="the batch runs again; did somebody VACUUM with a retention of 0 hours?",
                )

    @property
    def steps(self) -> dict[str, int]:
        """Step -> version of the transactions of the table's owner."""
        mine = self.transactions.items()
        return {layout.step_of(app): version for app, version in mine if layout.query_of(app) == self.owner}

    @property
    def closed_ms(self) -> dict[int, int]:
        """Task -> the time before which windows are final."""
        steps = ((layout.closed_task(step), version) for step, version in self.steps.items())
        return {task: version for task, version in steps if task is not None}

    def owned_by(self, query_id: str, like: DeltaLog | None = None) -> dict[str, Any]:
        """The `Commit.definition` that gives the table another owner, and the columns of another table."""
        like = like or self
        properties = {**self.properties, QUERY_PROPERTY: query_id}
        for name in (_STATISTICS_PROPERTY, *descriptions.PROPERTIES):
            if name in like.properties:
                properties[name] = like.properties[name]
        columns = {name: like.definition.get(name) for name in ("description", "schemaString", "partitionColumns")}
        return {**self.definition, **columns, "configuration": properties}

    def checkpoint_due(self) -> bool:
        """Whether the log has grown enough since the last checkpoint for another one."""
        held = len(self.files) + len(self.tombstones)
        grown = self._actions_since_checkpoint >= max(_CHECKPOINT_MIN_ACTIONS, held // 2)
        return grown or self._commits_since_checkpoint >= _CHECKPOINT_MAX_COMMITS

    def checkpoint_begins(self) -> None:
        """Starts to count the growth towards the next checkpoint."""
        self._actions_since_checkpoint = self._commits_since_checkpoint = 0

    def state(self) -> State:
        """What a checkpoint of the latest version says; later commits do not change it."""
        files_app = {} if self._token_of_ours is None else {layout.FILES_APP: self._token_of_ours}
        return State(
            version=self.version,
            protocol=dict(self.protocol),
            definition=dict(self.definition),
            transactions=self.transactions | files_app,
            files=dict(self.files),
            removed=list(self.tombstones),
        )

    def expire(self, older_than_ms: int, kept: Collection[str] = (), limit: int = 10_000) -> int:
        """Deletes files that were removed before a time.

        Args:
            older_than_ms: the time.
            kept: files that stay nevertheless.
            limit: how many to look at; the others are left to the next call.

        Returns:
            How many still existed.
        """
        found = []
        while self.tombstones and self.tombstones[0][0] < older_than_ms and limit > 0:
            _, path = self.tombstones.popleft()
            limit -= 1
            if path not in kept:
                found.append(path)
        return self.delete(found)

    def delete(self, paths: Iterable[str]) -> int:
        """Deletes files unless they are part of the table again; returns how many existed, as far as that is known."""
        return files.delete([self.path / path for path in paths if path not in self.files])

    def _check_fence(self) -> None:
        if self._fence is None:
            return
        app_id, generation = self._fence
        highest = self.transactions.get(app_id, 0)
        if highest > generation:
            raise FencedError(
                f"Generation {generation} may not write the Delta table at {self.path} any more: "
                f"generation {highest} has taken over.",
                hint="nothing to do: the newer generation goes on where this one stopped",
            )

    @property
    def _folder(self) -> Path:
        return self.path / layout.LOG_FOLDER

    def _create_table(self, schema: TableSchema, query_id: str, properties: Mapping[str, str]) -> None:
        files.make_folder(self.path)
        DeltaTable.create(
            str(self.path),
            schema=Schema.from_arrow(schema.commented),
            description=schema.description,
            partition_by=list(schema.partition_by),
            configuration={
                **properties,
                # delta-rs finds no rows by a column for which it expects bounds that are missing.
                _STATISTICS_PROPERTY: ",".join(schema.statistics),
                QUERY_PROPERTY: query_id,
                **descriptions.properties_of(schema),
            },
            raise_if_key_not_exists=False,
            storage_options=reading.options(self.path),
        )
        files.sync([self._folder / versions.file_name(0)])
        files.sync_folder(self.path)

    def _take(self, version: Version) -> None:
        """Applies the next version."""
        for action in version.actions:
            self._apply(action)
        if version.is_ours and not any(
            action.get("txn", {}).get("appId") == layout.FILES_APP for action in version.actions
        ):
            self._token_of_ours = None  # an earlier version of this package did not record it
        self.version = version.number
        self._commits_since_checkpoint += 1

    def _overtaken(self, commit: Commit) -> None:
        """Handles a version that another writer has made in place of this commit."""
        expected = {app: self.transactions.get(app) for app in commit.transactions}
        since = self.catch_up()
        if not since:
            raise TransientError(
                f"Version {self.version + 1} of the Delta table at {self.path} is not whole.",
                hint="the next start moves it to the trash, if it is the last one",
            )
        self._check_fence()
        others = [version for version in since if not version.is_ours]
        if self._schema is not None or self.pipeline is not None:  # else any writer may change it
            self._judge(others)
        removed = {unquote(action["path"]) for version in since for action in version.removed}
        gone = not removed.isdisjoint(commit.removed)
        if any(self.transactions.get(app) != version for app, version in expected.items()) or (gone and not others):
            raise TableError(
                f"Version {self.version} of the Delta table at {self.path} was committed by another process "
                f"and contradicts batch {dict(commit.transactions)}.",
                hint="only one driver may write a table: stop the other one, then start this pipeline again",
            )
        if commit.definition is not None and any("metaData" in action for v in others for action in v.actions):
            raise OvertakenError(
                f"{others[-1]} of the Delta table at {self.path} has changed the definition that was to be replaced.",
                hint="nothing to do: the commit is tried again",
            )
        if gone:
            raise OvertakenError(
                f"{others[-1]} of the Delta table at {self.path} has rewritten files that were to be replaced.",
                hint="nothing to do: the commit is tried again",
            )

    def _judge(self, others: Sequence[Version], *, is_complete: bool = True) -> None:
        try:
            foreign.judge(self, self._schema, others, is_complete=is_complete)
        except TableError:
            paths = [unquote(action["path"]) for version in others for action in version.removed]
            Trash(self.path).keep(paths, wall_ms())
            raise

    def _lines(self, commit: Commit, now_ms: int) -> list[dict[str, Any]]:
        info: dict[str, Any] = {
            "timestamp": now_ms,
            "operation": commit.operation,
            "operationParameters": dict(commit.parameters),
            "isBlindAppend": not commit.removed,
            "engineInfo": versions.ENGINE,
        }
        if commit.metadata:
            info["userMetadata"] = json.dumps(commit.metadata)
        lines: list[dict[str, Any]] = [{"commitInfo": info}]
        if commit.protocol is not None:
            lines.append({"protocol": dict(commit.protocol)})
        if commit.definition is not None:
            lines.append({"metaData": dict(commit.definition)})
        lines += [
            {"txn": {"appId": app, "version": version, "lastUpdated": now_ms}}
            for app, version in [*commit.transactions.items(), (layout.FILES_APP, self._token_after(commit))]
        ]
        for path in commit.removed:
            entry = self.files.get(path)
            if entry is None:
                raise TableError(
                    f"The Delta table at {self.path} has no file {path} that could be removed.",
                    hint="the files of an earlier attempt were mixed with those of this one; start the pipeline again",
                )
            lines.append(
                {
                    "remove": {
                        "path": layout.quoted(path),
                        "deletionTimestamp": now_ms,
                        "dataChange": commit.data_change,
                        "extendedFileMetadata": True,
                        "partitionValues": layout.partition_of(path),
                        "size": entry.size_bytes,
                    }
                }
            )
        lines += [
            {
                "add": {
                    "path": layout.quoted(new.path),
                    "partitionValues": commit.partitions.get(new.path, layout.partition_of(new.path)),
                    "size": new.size_bytes,
                    "modificationTime": now_ms,
                    "dataChange": commit.data_change,
                    "stats": new.statistics or None,
                }
            }
            for new in commit.added
        ]
        info[versions.MARK] = {"format": versions.FORMAT, "actions": len(lines)}
        return lines

    def _token_after(self, commit: Commit) -> int:
        """The token of the files after this commit."""
        token = self._token
        for path in dict.fromkeys(commit.removed):
            token ^= _token(path)
        for path in dict.fromkeys(new.path for new in commit.added):
            if path not in self.files or path in commit.removed:
                token ^= _token(path)
        return token

    def _apply(self, action: Mapping[str, Any]) -> None:
        self._actions_since_checkpoint += 1
        match action:
            case {"add": add}:
                path = unquote(add["path"])
                if path not in self.files:
                    self._token ^= _token(path)
                values = dict(add.get("partitionValues") or ())
                odd = None if values == layout.partition_of(path) else values
                self.files[path] = FileEntry(add["size"], add.get("stats"), add.get("modificationTime") or 0, odd)
            case {"remove": remove}:
                path = unquote(remove["path"])
                if self.files.pop(path, None) is not None:
                    self._token ^= _token(path)
                self.tombstones.append((remove.get("deletionTimestamp") or 0, path))
            case {"txn": {"appId": layout.FILES_APP, "version": token}}:
                self._token_of_ours = token
            case {"txn": txn}:
                self.transactions[txn["appId"]] = txn["version"]
            case {"metaData": metadata}:
                self.definition = dict(metadata)
                self.schema_text = metadata["schemaString"]
                self.partition_by = tuple(metadata["partitionColumns"])
                self.properties = dict(metadata["configuration"])
            case {"protocol": protocol}:
                self.protocol = {name: value for name, value in protocol.items() if value is not None}
            case {"commitInfo": {"userMetadata": str(text)}} if text.startswith("{"):
                self.user_metadata = json.loads(text)
            case _:
                pass

    def _load_checkpoint(self, parts: Iterable[Path]) -> None:
        tombstones: list[tuple[int, str]] = []
        for action in checkpoints.read(parts):
            match action:
                case {"remove": remove}:
                    tombstones.append((remove.get("deletionTimestamp") or 0, unquote(remove["path"])))
                case _:
                    self._apply(action)
        self.tombstones = deque(sorted(tombstones))
        self._actions_since_checkpoint = 0


def _token(path: str) -> int:
    """Hashes a path to a number of 62 bits."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest()) >> 2


def _columns(schema: pa.Schema) -> list[dict[str, Any]]:
    """As the log has them."""
    columns: list[dict[str, Any]] = json.loads(Schema.from_arrow(schema).to_json())["fields"]
    return columns
