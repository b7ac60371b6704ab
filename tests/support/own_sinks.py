"""Sinks as an author writes them: files, written again without harm, and rows in PostgreSQL, in transactions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from deltaworks import SinkBatch, SinkRecord, SinkTask


@dataclass(frozen=True)
class FolderSink:
    """A file of JSON lines per task and batch; writing it again replaces it by the same."""

    folder: str

    def open(self, task: SinkTask) -> FolderWriter:
        return FolderWriter(Path(self.folder) / task.id)

    def lines(self) -> list[tuple[str, str]]:
        """Key and value of all records, by task and batch."""
        files = sorted(Path(self.folder).rglob("*.jsonl"), key=lambda file: (file.parent, int(file.stem)))
        return [(key, value) for file in files for key, value in map(json.loads, file.read_text().splitlines())]


class FolderWriter:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._temporary = folder, folder / f".{os.getpid()}"
        self._target = folder

    def committed(self) -> None:
        return None

    def write(self, batch: SinkBatch, records: Sequence[SinkRecord[str, str]]) -> None:
        self._target = self._folder / f"{batch.batch}.jsonl"
        with self._temporary.open("w") as file:
            file.writelines(json.dumps([record.key, record.value]) + "\n" for record in records)
            file.flush()
            os.fsync(file.fileno())

    def prepare(self) -> None:
        pass

    def commit(self) -> None:
        self._temporary.replace(self._target)

    def abort(self) -> None:
        self._temporary.unlink(missing_ok=True)

    def close(self) -> None:
        self.abort()


SCHEMA = """
CREATE TABLE IF NOT EXISTS totals (key text PRIMARY KEY, value text NOT NULL, times int NOT NULL);
CREATE TABLE IF NOT EXISTS sink_progress (id text PRIMARY KEY, batch bigint NOT NULL, intent text NOT NULL);
"""


@dataclass(frozen=True)
class PostgresSink:
    """The last value of each key, and how many there were: a batch that is written twice shows."""

    conninfo: str

    def open(self, task: SinkTask) -> PostgresWriter:
        return PostgresWriter(self.conninfo, task.id)


class PostgresWriter:
    """What it has committed is a row of the same transaction; its lock lets one writer of a task in at a time."""

    def __init__(self, conninfo: str, task: str) -> None:
        self._connection = psycopg.connect(conninfo, options="-c idle_in_transaction_session_timeout=30000")
        self._task = task

    def committed(self) -> SinkBatch | None:
        self._connection.execute(
            "INSERT INTO sink_progress VALUES (%s, -1, '') ON CONFLICT (id) DO NOTHING", [self._task]
        )
        found = self._connection.execute(
            "SELECT batch, intent FROM sink_progress WHERE id = %s FOR UPDATE", [self._task]
        ).fetchone()
        return None if found is None or found[0] < 0 else SinkBatch(*found)

    def write(self, batch: SinkBatch, records: Sequence[SinkRecord[str, str]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(
                """INSERT INTO totals VALUES (%s, %s, 1)
                   ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, times = totals.times + 1""",
                [(record.key, record.value) for record in records],
            )
            cursor.execute(
                "UPDATE sink_progress SET batch = %s, intent = %s WHERE id = %s",
                [batch.batch, batch.intent, self._task],
            )

    def prepare(self) -> None:
        self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def commit(self) -> None:
        self._connection.commit()

    def abort(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()
