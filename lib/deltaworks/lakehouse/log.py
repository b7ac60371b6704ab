"""The Delta log of one table, read once and then continued in memory by its only committer.

A commit costs what it says, not what the table holds: one JSON file, created only if its version is free. (delta-rs
looks through all files of the table at every commit: 5 ms with ten files, 22 ms with ten thousand.)
Creating tables and writing checkpoints is left to delta-rs; a checkpoint is due when the log has grown by half of what
the last one held, so its cost follows the changes too. What is written is Delta's protocol (1, 2): add, remove, txn.

Not here: which files to write or remove (`committer`, `compaction`, `snapshots`).
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from deltaworks import clock
from deltaworks.errors import FencedError, TableError
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.lakehouse.writes import NewFile

_CHECKPOINT_MIN_ACTIONS = 2000
_CHECKPOINT_MAX_COMMITS = 1000
QUERY_PROPERTY = "deltaworks.query"
_STATISTICS_PROPERTY = "delta.dataSkippingStatsColumns"
_ENGINE = "deltaworks"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that is part of the table."""

    size_bytes: int
    statistics: str | None

    @property
    def rows(self) -> int:
        return int(json.loads(self.statistics)["numRecords"]) if self.statistics else 0


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What one version of a table changes."""

    added: Sequence[NewFile] = ()
    removed: Sequence[str] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Application id -> version: batch ids, and times up to which windows are closed."""
    data_change: bool = True
    """False: the same rows in other files."""
    operation: str = "STREAMING UPDATE"
    parameters: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """For people and tools: the commit's `userMetadata`."""
    definition: Mapping[str, Any] | None = None
    """Columns and properties that the table has from now on: Delta's `metaData`; None: those it has."""


class DeltaLog:
    """The state of one table, kept in memory by the only process that commits to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = -1
        self.files: dict[str, FileEntry] = {}
        self.tombstones: deque[tuple[int, str]] = deque()
        """Removed files that are still there for readers of older versions: time of removal, path; oldest first."""
        self.transactions: dict[str, int] = {}
        self._fence: tuple[str, int] | None = None
        self.definition: dict[str, Any] = {}
        """Delta's `metaData`."""
        self.properties: dict[str, str] = {}
        self.user_metadata: dict[str, Any] = {}
        """Of the latest commit that had any."""
        self.partition_by: tuple[str, ...] = ()
        self.schema_text = ""
        self._actions_since_checkpoint = 0
        self._commits_since_checkpoint = 0

    @classmethod
    def create_or_open(
        cls, root: Path, schema: TableSchema, *, query_id: str, properties: Mapping[str, str]
    ) -> DeltaLog:
        """Opens the table of `schema`, after creating it if there is none.

        Raises:
            TableError: the table has other columns, or belongs to another checkpoint.
        """
        path = root / schema.name
        if not (path / layout.LOG_FOLDER / f"{0:020d}.json").exists() and not _has_checkpoint(path):
            path.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                path,
                schema=Schema.from_arrow(schema.arrow),
                partition_by=list(schema.partition_by),
                configuration={
                    **properties,
                    # delta-rs finds no rows by a column that it expects bounds of and that has none.
                    _STATISTICS_PROPERTY: ",".join(schema.statistics),
                    QUERY_PROPERTY: query_id,
                },
                raise_if_key_not_exists=False,
            )
        log = cls(path)
        log.load()
        log.check(schema, query_id)
        return log

    @property
    def owner(self) -> str | None:
        """The query that the table belongs to."""
        return self.properties.get(QUERY_PROPERTY)

    def check(self, schema: TableSchema, query_id: str) -> None:
        """Raises `TableError` when this log is not that of `schema`, written by `query_id`."""
        owner = self.owner
        if owner is not None and owner != query_id:
            raise TableError(
                f"Delta table '{schema.name}' at {self.path} belongs to the checkpoint of query {owner}, "
                f"not to that of query {query_id}; going on would write its records twice.",
                hint="bring back the checkpoint, or move the table's folder away: it may hold what Kafka has not"
                if schema.role is Role.ARCHIVE
                else "bring back the checkpoint, or remove the table's folder to build it again from the topics",
            )
        found = {f["name"]: f["type"] for f in json.loads(self.schema_text)["fields"]}
        wanted = {f["name"]: f["type"] for f in json.loads(Schema.from_arrow(schema.arrow).to_json())["fields"]}
        if found == wanted and self.partition_by == schema.partition_by:
            return
        differences = [
            f"{name}: {found.get(name, 'not there')} -> {wanted.get(name, 'not there')}"
            for name in sorted(found.keys() | wanted.keys())
            if found.get(name) != wanted.get(name)
        ]
        if self.partition_by != schema.partition_by:
            differences.append(f"partitions: {self.partition_by} -> {schema.partition_by}")
        raise TableError(
            f"Delta table '{schema.name}' at {self.path} has other columns than the pipeline "
            f"(table -> pipeline): {'; '.join(differences)}.",
            hint="write to a new table name, or remove the table's folder to build it again from the topics",
        )

    def load(self) -> None:
        """Reads the log from its last checkpoint on."""
        self.__init__(self.path)  # type: ignore[misc]
        folder = self.path / layout.LOG_FOLDER
        if (start := _last_checkpoint(folder)) is not None:
            self._load_checkpoint(folder, start)
            self.version = start
        self.catch_up()

    def catch_up(self) -> list[str]:
        """Applies commits made by others since; returns the paths they removed."""
        removed: list[str] = []
        while (commit := self._commit_path(self.version + 1)).exists():
            for line in commit.read_bytes().splitlines():
                action = msgspec.json.decode(line)
                if "remove" in action:
                    removed.append(unquote(action["remove"]["path"]))
                self._apply(action)
            self.version += 1
            self._commits_since_checkpoint += 1
        return removed

    def fence(self, app_id: str, generation: int) -> None:
        """Lets `generation` write, and none before it from now on: they find the mark when they commit.

        Whoever wants to commit must first read every version before his own, and so meets the mark: there is no
        moment at which an older generation, however late it wakes up, can still get a commit in.

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
        """The version of the table, after another one, that has a transaction.

        Its own commit says so, unless a checkpoint has taken its place long ago; then the next one is what it was.
        """
        for number in range(after + 1, self.version + 1):
            try:
                lines = self._commit_path(number).read_bytes().splitlines()
            except FileNotFoundError:
                continue
            for line in lines:
                transaction = msgspec.json.decode(line).get("txn", {})
                if (transaction.get("appId"), transaction.get("version")) == (app_id, version):
                    return number
        return after + 1

    def commit(self, commit: Commit) -> int:
        """Makes the next version of the table.

        Returns:
            The version.

        Raises:
            FencedError: a newer generation has taken over.
            TableError: someone else has removed a file that this commit removes, or committed the same transaction.
        """
        self._check_fence()
        now_ms = clock.wall_ms()
        lines = self._lines(commit, now_ms)
        data = b"\n".join(msgspec.json.encode(line) for line in lines) + b"\n"
        while not self._create(self.version + 1, data):
            expected = {app: self.transactions.get(app) for app in commit.transactions}
            gone = set(self.catch_up()) & set(commit.removed)
            self._check_fence()
            if gone or any(self.transactions.get(app) != version for app, version in expected.items()):
                raise TableError(
                    f"Version {self.version} of the Delta table at {self.path} was committed by another process "
                    f"and contradicts batch {dict(commit.transactions)}.",
                    hint="only one driver may write a table: stop the other one, then start this pipeline again",
                )
        for line in lines:
            self._apply(line)
        self.version += 1
        self._commits_since_checkpoint += 1
        return self.version

    @property
    def steps(self) -> dict[str, int]:
        """Step -> version of the transactions of the query that the table belongs to."""
        mine = self.transactions.items()
        return {layout.step_of(app): version for app, version in mine if layout.query_of(app) == self.owner}

    @property
    def closed_ms(self) -> dict[int, int]:
        """Task -> windows that end before are final."""
        steps = ((layout.closed_task(step), version) for step, version in self.steps.items())
        return {task: version for task, version in steps if task is not None}

    def owned_by(self, query_id: str, like: DeltaLog | None = None) -> dict[str, Any]:
        """What `Commit.definition` is when the table gets another owner, and the columns of another table."""
        like = like or self
        properties = {**self.properties, QUERY_PROPERTY: query_id}
        if _STATISTICS_PROPERTY in like.properties:
            properties[_STATISTICS_PROPERTY] = like.properties[_STATISTICS_PROPERTY]
        columns = {name: like.definition[name] for name in ("schemaString", "partitionColumns")}
        return {**self.definition, **columns, "configuration": properties}

    def checkpoint_due(self) -> bool:
        """Whether the log has grown enough since the last checkpoint for the next one."""
        held = len(self.files) + len(self.tombstones)
        grown = self._actions_since_checkpoint >= max(_CHECKPOINT_MIN_ACTIONS, held // 2)
        return grown or self._commits_since_checkpoint >= _CHECKPOINT_MAX_COMMITS

    def checkpoint_begins(self) -> None:
        """From here on the growth towards the next checkpoint counts."""
        self._actions_since_checkpoint = self._commits_since_checkpoint = 0

    def checkpoint(self) -> None:
        """Lets delta-rs write a checkpoint of the latest version and drop log files that are no longer needed.

        It uses nothing of this object but the path, so another thread may do it while commits go on.
        """
        table = DeltaTable(self.path)
        table.create_checkpoint()
        table.cleanup_metadata()

    def expire(self, older_than_ms: int, limit: int = 10_000) -> int:
        """Deletes removed files whose removal lies before a time; returns how many were there."""
        deleted = 0
        while self.tombstones and self.tombstones[0][0] < older_than_ms and limit > 0:
            _, path = self.tombstones.popleft()
            limit -= 1
            if path not in self.files:
                try:
                    (self.path / path).unlink()
                    deleted += 1
                except FileNotFoundError:
                    pass
        return deleted

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

    def _commit_path(self, version: int) -> Path:
        return self.path / layout.LOG_FOLDER / f"{version:020d}.json"

    def _create(self, version: int, data: bytes) -> bool:
        """Whether the version was free. A link either makes the whole file visible or fails."""
        folder = self.path / layout.CONTROL_FOLDER
        temporary = folder / f".commit-{layout.nonce()}"
        try:
            temporary.write_bytes(data)
        except FileNotFoundError:
            folder.mkdir()
            temporary.write_bytes(data)
        try:
            os.link(temporary, self._commit_path(version))
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def _lines(self, commit: Commit, now_ms: int) -> list[dict[str, Any]]:
        info: dict[str, Any] = {
            "timestamp": now_ms,
            "operation": commit.operation,
            "operationParameters": dict(commit.parameters),
            "isBlindAppend": not commit.removed,
            "engineInfo": _ENGINE,
        }
        if commit.metadata:
            info["userMetadata"] = json.dumps(commit.metadata)
        lines: list[dict[str, Any]] = [{"commitInfo": info}]
        if commit.definition is not None:
            lines.append({"metaData": dict(commit.definition)})
        lines += [
            {"txn": {"appId": app, "version": version, "lastUpdated": now_ms}}
            for app, version in commit.transactions.items()
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
                        "path": quote(path, safe="/=-_."),
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
                    "path": quote(new.path, safe="/=-_."),
                    "partitionValues": layout.partition_of(new.path),
                    "size": new.size_bytes,
                    "modificationTime": now_ms,
                    "dataChange": commit.data_change,
                    "stats": new.statistics or None,
                }
            }
            for new in commit.added
        ]
        return lines

    def _apply(self, action: Mapping[str, Any]) -> None:
        self._actions_since_checkpoint += 1
        match action:
            case {"add": add}:
                self.files[unquote(add["path"])] = FileEntry(add["size"], add.get("stats"))
            case {"remove": remove}:
                path = unquote(remove["path"])
                self.files.pop(path, None)
                self.tombstones.append((remove.get("deletionTimestamp") or 0, path))
            case {"txn": txn}:
                self.transactions[txn["appId"]] = txn["version"]
            case {"metaData": metadata}:
                self.definition = dict(metadata)
                self.schema_text = metadata["schemaString"]
                self.partition_by = tuple(metadata["partitionColumns"])
                self.properties = dict(metadata["configuration"])
            case {"protocol": protocol}:
                if protocol["minReaderVersion"] > 1 or protocol["minWriterVersion"] > 2:
                    raise TableError(
                        f"The Delta table at {self.path} uses features that this version does not write: {protocol}.",
                        hint="write to a new table name, or recreate the table without them",
                    )
            case {"commitInfo": {"userMetadata": str(text)}} if text.startswith("{"):
                self.user_metadata = json.loads(text)
            case _:
                pass

    def _load_checkpoint(self, folder: Path, version: int) -> None:
        tombstones: list[tuple[int, str]] = []
        for part in _checkpoint_files(folder, version):
            names = set(pq.read_schema(part).names)
            columns = [c for c in ("add", "remove", "txn", "metaData", "protocol") if c in names]
            for action in pq.read_table(part, columns=columns).to_pylist():
                kind = next((c for c in columns if action[c] is not None), None)
                match kind:
                    case "remove":
                        remove = action["remove"]
                        tombstones.append((remove.get("deletionTimestamp") or 0, unquote(remove["path"])))
                    case "metaData":
                        self._apply({"metaData": _definition(action["metaData"])})
                    case str():
                        self._apply({kind: action[kind]})
                    case None:
                        pass
        self.tombstones = deque(sorted(tombstones))
        self._actions_since_checkpoint = 0


def _definition(read: Mapping[str, Any]) -> dict[str, Any]:
    """`metaData` as in a commit; Parquet reads maps as lists of pairs, and what is not there as None."""
    known = {name: value for name, value in read.items() if value is not None}
    form = known["format"]
    return {
        **known,
        "format": {**form, "options": dict(form.get("options") or {})},
        "configuration": dict(known["configuration"]),
    }


def _has_checkpoint(path: Path) -> bool:
    return (path / layout.LOG_FOLDER / "_last_checkpoint").exists()


def _last_checkpoint(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / "_last_checkpoint").read_bytes())["version"])
    except FileNotFoundError:
        return None


def _checkpoint_files(folder: Path, version: int) -> Iterable[Path]:
    single = folder / f"{version:020d}.checkpoint.parquet"
    return [single] if single.exists() else sorted(folder.glob(f"{version:020d}.checkpoint.*.parquet"))
