"""The records of the soak: late ones, out of order, malformed, deletes, the same again; by a seed, without end."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

START_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
_STEP_MS = 20_000
_DAY_MS = 86_400_000
_QUIET_MS = (-15 * 60_000, 5 * 60_000)
"""Around midnight: no session crosses it, so that days can be published."""
_ACCOUNTS, _ARTICLES, _PARCELS, _DEPOTS, _RATES = 60, 24, 40, 6, 5


@dataclass(frozen=True)
class Written:
    """A record as it goes to a topic."""

    topic: str
    key: bytes
    value: bytes | None
    timestamp_ms: int


class Sample:
    """Step by step; twenty seconds of the records' own time are one."""

    def __init__(self, seed: int) -> None:
        self.with_notes = True
        """Whether there is something for the topic that is recreated."""
        self._rng = random.Random(seed)
        self._seqs: Counter[str] = Counter()
        self._number = 0
        self._written: list[Written] = []

    @property
    def days(self) -> int:
        """Full days of the records' own time so far."""
        return self._number * _STEP_MS // _DAY_MS

    def step(self) -> list[Written]:
        """One entry, and now and then something for the other topics."""
        self._written = []
        self._step()
        return self._written

    def _step(self) -> None:
        rng, number = self._rng, self._number
        self._number += 1
        at_ms = START_MS + number * _STEP_MS + 7
        if number % 50 == 0:
            self._send("soak-rates", f"rate-{rng.randrange(_RATES)}", at_ms, version=self._next("rates"))
        self._entry(at_ms, rng)
        if number % 3 == 0:
            self._offers(at_ms, rng)
        if number % 4 == 0:
            self._parcels(at_ms, rng)
        if self.with_notes and number % 10 == 0:
            writer = f"writer-{rng.randrange(4)}"
            self._send("soak-notes", writer, at_ms, seq=self._next(f"note {writer}"))

    def _entry(self, at_ms: int, rng: random.Random) -> None:
        if rng.random() < 0.02:
            self._raw("soak-entries", b"nobody", f"malformed {self._next('malformed')}".encode(), at_ms)
            return
        account = f"account-{rng.randrange(_ACCOUNTS)}"
        late = rng.random() < 0.03
        behind_ms = 3 * 3_600_000 if late else rng.randrange(300_000) if rng.random() < 0.1 else 0
        at_ms = max(START_MS, at_ms - behind_ms)
        if (at_ms - _QUIET_MS[0]) % _DAY_MS < _QUIET_MS[1] - _QUIET_MS[0]:
            return
        content = {"amount": rng.randrange(1, 1_000), "group": f"group-{rng.randrange(12)}"}
        for _ in range(2 if rng.random() < 0.02 else 1):  # twice the same, with another number
            self._send(
                "soak-entries", account, at_ms, late=late, rate=f"rate-{rng.randrange(5)}", seq=self._next(account),
                **content,
            )  # fmt: skip

    def _offers(self, at_ms: int, rng: random.Random) -> None:
        article = f"article-{rng.randrange(_ARTICLES)}"
        self._send("soak-asks", article, at_ms, seq=self._next("asks"))
        if rng.random() < 0.6:
            near_ms = max(START_MS, at_ms + rng.randrange(-60_000, 60_000))
            self._send("soak-bids", article, near_ms, seq=self._next("bids"))

    def _parcels(self, at_ms: int, rng: random.Random) -> None:
        parcel, depot = f"parcel-{rng.randrange(_PARCELS)}", f"depot-{rng.randrange(_DEPOTS)}"
        if rng.random() < 0.05:
            self._raw("soak-parcels", parcel.encode(), None, at_ms)
        else:
            self._send("soak-parcels", parcel, at_ms, seq=self._next("parcels"), depot=depot)
        if rng.random() < 0.1:
            depot = f"depot-{rng.randrange(_DEPOTS)}"
            if rng.random() < 0.1:
                self._raw("soak-depots", depot.encode(), None, at_ms)
            else:
                self._send("soak-depots", depot, at_ms, seq=self._next("depots"))

    def _next(self, counter: str) -> int:
        self._seqs[counter] += 1
        return self._seqs[counter] - 1

    def _send(self, topic: str, key: str, at_ms: int, **content: Any) -> None:
        self._raw(topic, key.encode(), json.dumps(content).encode(), at_ms)

    def _raw(self, topic: str, key: bytes, value: bytes | None, at_ms: int) -> None:
        self._written.append(Written(topic, key, value, at_ms))
