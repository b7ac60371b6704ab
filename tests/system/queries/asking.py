"""Clients that ask a server all the time, and what its answers must have been."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from tests.system.queries.flow import KEYS, SIZE_MS, TOPIC, USERS
from tests.system.queries.history import ALL, Offsets, Records

_TIMEOUT_S = 30.0
_BASE = "/pipelines/asked/stores"
_MANY = 20
_SHARES = {"key": 250, "keys": 50, "page": 25, "windows": 75, "user": 100, "next": 1}
"""How often each kind of question is asked; `next` waits for a batch, and so as long as thousands of others take."""


@dataclass(frozen=True)
class Answer:
    """What was asked, and what was said as of which offsets."""

    kind: str
    keys: tuple[str, ...]
    batch: int
    topics: Mapping[str, Offsets]
    said: Any


@dataclass
class Asked:
    """What all clients have got."""

    answers: list[Answer] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Status of the answers that were none, or that nobody answered."""
    wrong: list[str] = field(default_factory=list)
    """What no answer may be, whatever the records are."""
    milliseconds: list[float] = field(default_factory=list)


class Client:
    """Asks one question after the other."""

    def __init__(self, port: int, rng: random.Random, asked: Asked) -> None:
        self._port, self._rng, self._asked = port, rng, asked
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        self._batch = -1

    def close(self) -> None:
        """Ends its connection."""
        self._connection.close()

    def ask(self) -> None:
        """One question, chosen by chance."""
        kind = self._rng.choices([*_SHARES], [*_SHARES.values()])[0]
        key = self._rng.choice(KEYS)
        keys: tuple[str, ...] = (key,)
        match kind:
            case "key" | "next":
                batch = {"min_batch": self._batch + 1} if kind == "next" else {}
                found = self._get(f"asked-counts/keys/{key}", batch)
                said = found and found["value"]
                if found is not None and kind == "next" and found["as_of"]["batch"] <= self._batch:
                    self._asked.wrong.append(f"batch {found['as_of']['batch']} after {self._batch} was waited for")
            case "keys":
                keys = tuple(self._rng.choices(KEYS, k=_MANY))
                found = self._get("asked-counts/keys", body=list(keys))
                said = found and [each and each["value"] for each in found["entries"]]
            case "page":
                found = self._get("asked-counts/entries", {"limit": 1000})
                keys, said = (), found and {row["key"]: row["value"] for row in found["rows"]}
            case "windows":
                found = self._get(f"asked-minutes/windows/{key}", {"limit": 1000})
                said = found and {str(row["start_ms"]): row["value"] for row in found["rows"]}
            case _:
                key = self._rng.choice(USERS)
                found = self._get(f"asked-names/keys/{key}")
                keys, said = (key,), found and found["value"]
        if found is None:
            return
        as_of = found["as_of"]
        if as_of["batch"] < self._batch:
            self._asked.wrong.append(f"batch {as_of['batch']} was told after {self._batch}")
        self._batch = as_of["batch"]
        told = "key" if kind == "next" else kind
        self._asked.answers.append(Answer(told, keys, as_of["batch"], topics_of(found), said))

    def _get(self, path: str, given: Mapping[str, Any] | None = None, body: Any = None) -> dict[str, Any] | None:
        """An answer; None: it was refused, or the server is away."""
        target = f"{_BASE}/{path}" + (f"?{urlencode(given)}" if given else "")
        begun = time.perf_counter()
        try:
            if body is None:
                self._connection.request("GET", target)
            else:
                self._connection.request("POST", target, json.dumps(body))
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._asked.refused["nobody"] += 1
            time.sleep(0.05)
            return None
        if answer.status == http.client.OK:
            self._asked.milliseconds.append((time.perf_counter() - begun) * 1000)
            found: dict[str, Any] = json.loads(text)
            return found
        self._asked.refused[str(answer.status)] += 1
        if answer.status != http.client.SERVICE_UNAVAILABLE:
            self._asked.wrong.append(f"{target}: {answer.status} {text.decode()}")
        elif answer.headers["Retry-After"] is None:
            self._asked.wrong.append(f"{target}: no Retry-After")
        return None


class Follower(ABC):
    """Follows something from the first event to the last one, over every death of the server."""

    def __init__(self, port: int, path: str, asked: Asked) -> None:
        self._port, self._path, self._asked = port, path, asked
        self._id: str | None = None
        self.events = 0

    def follow(self, enough: threading.Event) -> None:
        """Until it is enough."""
        while not enough.is_set():
            with suppress(OSError, http.client.HTTPException):
                self._listen(enough)
            time.sleep(0.05)

    def _listen(self, enough: threading.Event) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        headers = {} if self._id is None else {"Last-Event-ID": self._id}
        try:
            connection.request("GET", f"{_BASE}/{self._path}", headers=headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                answer.read()
                return
            event: dict[str, str] = {}
            while not enough.is_set() and (line := answer.readline()):
                name, _, text = line.decode().rstrip("\n").partition(": ")
                if name:
                    event[name] = text
                elif "data" in event:
                    if not self._tell(event.get("event", ""), json.loads(event["data"])):
                        return
                    self._id = event["id"]
                    self.events += 1
                    event = {}
                elif "id" in event:
                    if not self._tell_nothing(int(event["id"].partition(":")[0])):
                        return
                    self._id = event["id"]
                    event = {}
        finally:
            connection.close()

    @abstractmethod
    def _tell(self, kind: str, found: dict[str, Any]) -> bool:
        """Takes an event; False: it has to be told again."""

    def _tell_nothing(self, batch: int) -> bool:
        """Takes that a batch has changed nothing; False: it has to be told again."""
        return True

    @abstractmethod
    def differences(self, words: Records) -> list[str]:
        """What is wrong with all that it was told, when everything was told."""


class KeyFollower(Follower):
    """Follows a key."""

    def __init__(self, port: int, key: str, asked: Asked) -> None:
        super().__init__(port, f"asked-counts/changes/{key}", asked)
        self._key = key
        self._told: list[tuple[int, int | None]] = []

    def _tell(self, kind: str, found: dict[str, Any]) -> bool:
        batch, value = found["as_of"]["batch"], found["value"]
        self._told.append((batch, value))
        self._asked.answers.append(Answer("key", (self._key,), batch, topics_of(found), value))
        return True

    def differences(self, words: Records) -> list[str]:
        last = words.number(self._key, ALL) or None
        found = [
            f"{self._key} was told {later} of batch {next_batch} after {value} of batch {batch}"
            for (batch, value), (next_batch, later) in pairwise(self._told)
            if next_batch <= batch or later == value
        ]
        if not self._told or self._told[-1][1] != last:
            found.append(f"{self._key} was told {self._told[-1:]} at the end, not {last}")
        return found


class Copy(Follower):
    """Keeps a copy of some rows: reads them when it has to, and then takes the changes of each batch.

    Args:
        port: of the server.
        asked: gets the whole copy after each event.
        changes: what is followed.
        rows: where the same rows are read.
        place: the field by which rows differ.
        answer: kind and keys of the same question to `Client`.
    """

    def __init__(
        self, port: int, asked: Asked, *, changes: str, rows: str, place: str, answer: tuple[str, tuple[str, ...]]
    ) -> None:
        super().__init__(port, changes, asked)
        self._rows, self._place, self._answer = rows, place, answer
        self._copy: dict[str, int] = {}
        self._batch = -1
        """Which it is of."""
        self.gaps = 0

    def _tell(self, kind: str, found: dict[str, Any]) -> bool:
        batch = found["as_of"]["batch"]
        if kind == "gap" or self._batch < 0:
            self.gaps += 1
            return self._read(batch)
        if batch <= self._batch:  # it was read after this batch
            return True
        for row in found["rows"]:
            self._copy[str(row[self._place])] = row["value"]
        self._batch = batch
        self._asked.answers.append(Answer(*self._answer, batch, topics_of(found), dict(self._copy)))
        return True

    def _tell_nothing(self, batch: int) -> bool:
        return self._batch >= 0 or self._read(batch)

    def _read(self, batch: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", f"{_BASE}/{self._rows}?limit=1000&min_batch={batch}")
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            return False
        found = json.loads(text)
        self._copy = {str(row[self._place]): row["value"] for row in found["rows"]}
        self._batch = found["as_of"]["batch"]
        return True

    @abstractmethod
    def _expected(self, words: Records) -> Mapping[str, int]:
        """All rows, when everything was told."""

    def differences(self, words: Records) -> list[str]:
        expected = self._expected(words)
        wrong = [place for place in expected.keys() | self._copy.keys() if expected.get(place) != self._copy.get(place)]
        return [f"the copy of {self._rows} differs in {len(wrong)} rows: {wrong[:3]}"] if wrong else []


class StoreFollower(Copy):
    """Keeps a copy of a store."""

    def __init__(self, port: int, asked: Asked) -> None:
        super().__init__(
            port, asked, changes="asked-counts/changes", rows="asked-counts/entries", place="key", answer=("page", ())
        )

    def _expected(self, words: Records) -> Mapping[str, int]:
        return words.counts(ALL)


class WindowFollower(Copy):
    """Keeps a copy of the windows of a key."""

    def __init__(self, port: int, key: str, asked: Asked) -> None:
        super().__init__(
            port, asked,
            changes=f"asked-minutes/changes/{key}", rows=f"asked-minutes/windows/{key}", place="start_ms",
            answer=("windows", (key,)),
        )  # fmt: skip
        self._key = key

    def _expected(self, words: Records) -> Mapping[str, int]:
        return {str(start_ms): count for start_ms, count in words.windows(self._key, ALL, SIZE_MS).items()}


def topics_of(found: Mapping[str, Any]) -> dict[str, Offsets]:
    """The offsets of an answer."""
    return {topic: {int(part): end for part, end in ends.items()} for topic, ends in found["as_of"]["offsets"].items()}


@contextmanager
def asking(
    port: int, rng: random.Random, asked: Asked, followers: Sequence[Follower], clients: int = 3
) -> Iterator[None]:
    """Clients ask in the background until the end of the block; each does so as fast as it gets answers."""
    enough = threading.Event()

    def ask(seed: int) -> None:
        with closing(Client(port, random.Random(seed), asked)) as client:
            while not enough.is_set():
                client.ask()

    threads = [threading.Thread(target=ask, args=(rng.randrange(1 << 30),), daemon=True) for _ in range(clients)]
    threads += [threading.Thread(target=each.follow, args=(enough,), daemon=True) for each in followers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def differences(answers: list[Answer], words: Records, users: Records) -> Iterator[str]:
    """Answers that are not what the records say as of their offsets."""
    for answer in answers:
        ends = answer.topics.get(TOPIC, {})
        match answer.kind:
            case "key":
                expected: Any = words.number(answer.keys[0], ends) or None
            case "keys":
                expected = [words.number(key, ends) or None for key in answer.keys]
            case "page":
                expected = words.counts(ends)
            case "windows":
                counts = words.windows(answer.keys[0], ends, SIZE_MS)
                expected = {str(start): count for start, count in counts.items()}
            case _:
                expected = users.last(answer.keys[0], answer.topics.get("asked-users", {}))
        if expected != answer.said:
            yield f"{answer.kind} {answer.keys[:3]} as of batch {answer.batch}: {answer.said}, not {expected}"
