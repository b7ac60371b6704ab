"""Documents of Elasticsearch and OpenSearch, through their bulk requests.

**Exactly once.** An index has no transactions, but takes a document only if its version is not lower than the one that
is there (`external_gte`). The version is the generation of the driver, then the number of the batch: both are the same
in every attempt of a batch by a driver, each later batch has a higher one, and each later start of the stream, with
whatever checkpoint and state, has a higher one than all before. So a batch may be written any number of times, and what
a worker still sends that was believed dead cannot replace anything newer.

**What it does not do.** Documents of a batch are visible one by one, from before the batch is committed. An index
forgets the version of a deleted document after `index.gc_deletes` (a minute): an older write that arrives later than
that brings the document back until its key's next update.
"""

from __future__ import annotations

import json
import logging
import random
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import urllib3

from deltaworks.clock import ticks_s
from deltaworks.errors import IntentError, ProductionError, SinkError
from deltaworks.sinks.documents import document, document_id, index_of
from deltaworks.sinks.given import needed, text
from deltaworks.topology.external import SearchIndex
from deltaworks.topology.sinks import RefusedRecord, SinkBatch, SinkRecord, SinkTask

_BATCH_BITS = 40
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_SHOWN = 300
_PASSES = frozenset({408, 429, 500, 502, 503, 504})
"""What a server answers that may take the request later."""
_OF_THE_DOCUMENT = frozenset(
    {
        "mapper_parsing_exception",
        "document_parsing_exception",
        "strict_dynamic_mapping_exception",
        "illegal_argument_exception",
        "parsing_exception",
    }
)
"""Errors of status 400 that are the document's own fault."""
_CURRENT = re.compile(r"current version \[(\d+)\]")
_log = logging.getLogger(__name__)


def version(task: SinkTask, batch: SinkBatch) -> int:
    """The version that a batch gives its documents; it grows with the stream, whatever happens to it."""
    return (task.generation << _BATCH_BITS) + batch.batch


@dataclass
class _Document:
    """What becomes of one document in a batch."""

    index: str
    id: str
    versions: list[tuple[SinkRecord[Any, Any], bytes | None]] = field(default_factory=list)
    """Its records, the newest last, with their JSON; None deletes it. One that is refused gives way to the one before.
    """

    def lines(self, number: int) -> bytes:
        """Of a bulk request."""
        body = self.versions[-1][1]
        place = {"_index": self.index, "_id": self.id, "version": number, "version_type": "external_gte"}
        action = json.dumps({"delete" if body is None else "index": place}).encode() + b"\n"
        return action if body is None else action + body + b"\n"


class SearchWriter:
    """Writes the newest record of each key; see the module for what makes it exact.

    Args:
        sink: its settings.
        task: who writes.
        newer_stays: a document of a later start of the stream is no reason to stop.
    """

    def __init__(self, sink: SearchIndex, task: SinkTask, *, newer_stays: bool = False) -> None:
        self._sink, self._task, self._newer_stays = sink, task, newer_stays
        self._servers = _Servers(sink)

    def committed(self) -> SinkBatch | None:
        """None: writing a batch again does no harm."""
        return None

    def write(self, batch: SinkBatch, records: Sequence[SinkRecord[Any, Any]]) -> list[RefusedRecord[Any, Any]]:
        """Returns once each document is in its index, or refused.

        Raises:
            SinkError: the servers do not take the batch.
            IntentError: another stream, or a newer start of this one, writes these documents.
        """
        refused: list[RefusedRecord[Any, Any]] = []
        waiting = list(self._documents(records, refused))
        number, pause = version(self._task, batch), _FIRST_PAUSE_S
        deadline = ticks_s() + self._sink.patience_s
        while waiting:
            again: list[_Document] = []
            troubles: list[str] = []
            for part in self._parts(waiting, number):
                again += self._send(part, number, refused, troubles)
            waiting = again
            if troubles:
                if ticks_s() + pause > deadline:
                    raise SinkError(
                        f"The search servers have not taken {len(waiting)} documents for {self._sink.patience_s:g} s: "
                        f"{troubles[0]}",
                        hint="the batch runs again; see their own logs",
                    )
                _log.warning("%d documents are sent again in %.1f s: %s", len(waiting), pause, troubles[0])
                time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        return refused

    def prepare(self) -> None:
        """Nothing is left to do."""

    def commit(self) -> None:
        """Nothing is left to do."""

    def abort(self) -> None:
        """What is in the index stays; the batch runs again and writes the same."""

    def close(self) -> None:
        self._servers.close()

    def _documents(
        self, records: Sequence[SinkRecord[Any, Any]], refused: list[RefusedRecord[Any, Any]]
    ) -> Iterator[_Document]:
        found: dict[tuple[str, str], _Document] = {}
        for record in records:
            try:
                index, name = index_of(self._sink, record.key, record.timestamp_ms), document_id(record.key)
                body = None
                if record.value is not None:
                    body = document(self._sink, record.key, record.value, record.timestamp_ms)
            except ProductionError as error:
                refused.append(RefusedRecord(record, error.message))
                continue
            found.setdefault((index, name), _Document(index, name)).versions.append((record, body))
        yield from found.values()

    def _parts(self, documents: Sequence[_Document], number: int) -> Iterator[list[tuple[_Document, bytes]]]:
        """Documents for a request each, with their lines."""
        part: list[tuple[_Document, bytes]] = []
        size = 0
        for each in documents:
            lines = each.lines(number)
            if part and (len(part) >= self._sink.batch_documents or size + len(lines) > self._sink.batch_bytes):
                yield part
                part, size = [], 0
            part.append((each, lines))
            size += len(lines)
        if part:
            yield part

    def _send(
        self,
        part: list[tuple[_Document, bytes]],
        number: int,
        refused: list[RefusedRecord[Any, Any]],
        troubles: list[str],
    ) -> list[_Document]:
        """Sends a bulk request; returns what has to be sent again, and adds why, unless another record takes over."""
        status, answer = self._servers.bulk(b"".join(lines for _, lines in part))
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            if len(part) > 1:
                half = len(part) // 2
                return [
                    each for some in (part[:half], part[half:]) for each in self._send(some, number, refused, troubles)
                ]
            return _refuse(part[0][0], f"a document of {len(part[0][1]):,} bytes is too large for the server", refused)
        if status in _PASSES or status == 0:
            troubles.append(f"status {status}: {answer}" if status else str(answer))
            return [each for each, _ in part]
        if status != HTTPStatus.OK or not isinstance(answer, dict) or len(answer.get("items", ())) != len(part):
            hint = "username=, password= or api_key= of the sink" if status in (401, 403) else None
            raise SinkError(f"The search server answered a bulk request with status {status}: {answer}", hint=hint)
        again: list[_Document] = []
        for (each, _), item in zip(part, answer["items"], strict=True):
            again += self._settled(each, next(iter(item.values())), number, refused, troubles)
        return again

    def _settled(
        self,
        each: _Document,
        result: dict[str, Any],
        number: int,
        refused: list[RefusedRecord[Any, Any]],
        troubles: list[str],
    ) -> list[_Document]:
        """Reads the answer for one document; returns it if it has to be sent again."""
        status, is_delete = int(result.get("status", 0)), each.versions[-1][1] is None
        error = result.get("error") or {}
        kind, reason = (error.get("type", ""), error.get("reason", "")) if isinstance(error, dict) else ("", str(error))
        if 200 <= status < 300:
            return []
        if status == HTTPStatus.NOT_FOUND and is_delete:
            return []  # there is no such document, or no such index
        if status == HTTPStatus.CONFLICT:
            self._check_conflict(each, str(reason), number)
            return []
        if status in _PASSES:
            troubles.append(f"status {status} for a document of '{each.index}': {kind}: {reason}"[:_SHOWN])
            return [each]
        if status == HTTPStatus.BAD_REQUEST and kind in _OF_THE_DOCUMENT:
            caused = error.get("caused_by") or {}
            because = f" ({caused.get('reason')})" if caused.get("reason") else ""
            return _refuse(each, f"index '{each.index}' refuses a document: {kind}: {reason}{because}", refused)
        raise SinkError(
            f"Index '{each.index}' takes no documents: status {status}: {kind}: {reason}"[:_SHOWN],
            hint="create the index, or let the servers create it; the user of the sink needs its rights to write",
        )

    def _check_conflict(self, each: _Document, reason: str, number: int) -> None:
        """A newer document of this driver is fine: this process was believed dead. One of a later start is not."""
        if self._newer_stays:
            return
        found = _CURRENT.search(reason)
        if found is not None and int(found[1]) >> _BATCH_BITS > number >> _BATCH_BITS:
            raise IntentError(
                f"A document of index '{each.index}' has version {found[1]}, of generation "
                f"{int(found[1]) >> _BATCH_BITS}; this stream is generation {self._task.generation}.",
                hint="a newer start of the stream writes there, or another stream does, or one whose home is gone; "
                "write to another index, or delete the documents of the other stream",
            )


def _refuse(each: _Document, reason: str, refused: list[RefusedRecord[Any, Any]]) -> list[_Document]:
    """Refuses the newest record of a document; the one before takes its place."""
    record, _ = each.versions.pop()
    refused.append(RefusedRecord(record, reason))
    return [each] if each.versions else []


class _Servers:
    """The servers of a cluster; if one does not answer, the next request goes to another."""

    def __init__(self, sink: SearchIndex) -> None:
        self._urls = [needed(url).rstrip("/") for url in sink.urls]
        self._next = random.randrange(len(self._urls))
        headers = {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
        if (key := text(sink.api_key)) is not None:
            headers["Authorization"] = f"ApiKey {key}"
        elif (username := text(sink.username)) is not None:
            headers["Authorization"] = "Basic " + b64encode(f"{username}:{text(sink.password) or ''}".encode()).decode()
        self._pool = urllib3.PoolManager(
            headers=headers,
            ca_certs=text(sink.ca_file),
            timeout=urllib3.Timeout(sink.timeout_s),
            retries=False,
        )

    def bulk(self, body: bytes) -> tuple[int, Any]:
        """Sends a bulk request; returns status and JSON or text. Status 0: no server has answered."""
        url = self._urls[self._next]
        try:
            found = self._pool.request("POST", f"{url}/_bulk", body=body)
        except urllib3.exceptions.HTTPError as error:
            self._next = (self._next + 1) % len(self._urls)
            return 0, f"{url}: {type(error).__name__}: {error}"
        if found.status in _PASSES:
            self._next = (self._next + 1) % len(self._urls)
        try:
            answer = json.loads(found.data)
        except ValueError:
            answer = found.data.decode(errors="replace")
        return found.status, answer if found.status == HTTPStatus.OK else str(answer)[:_SHOWN]

    def close(self) -> None:
        self._pool.clear()
