"""Sample data for `jobs/wordcount.py`: seeded lines of text in many scripts, as untidy as a real topic.

Time advances about fifteen seconds per line. Every fifth line is the next `Kind` of trouble, so a thousand lines
contain several of each. The record timestamp is the event time; records are yielded in the order in which they reach
Kafka, which differs.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate, cycle, islice

from deltaworks.testing.sample_data import SampleRecord
from jobs.sample_data.kafka import MINUTE, SECOND, Outbox

MAIN_TOPIC = "wordcount-lines"
START_MS = int(datetime(2026, 3, 1, 22, 30, tzinfo=UTC).timestamp() * 1000)

TEXT = (
    "the of and to in a is that it was for on with as be at by this had not "
    "river lantern window Ætherwing naïve coöperate don't o'clock 1984 ½ Straße ΟΔΟΣ İstanbul "
    "été où garçon l'été größer mañana łódź привет мир שלום مرحبا नमस्ते दुनिया สวัสดี 東京 大阪へ 안녕 ǅ"
)
WORDS = tuple(TEXT.split())
SIGNS = (", ", "; ", " - ", " ... ", "! ", " / ", "\t", "\u00a0", "\u3000")


class Kind(Enum):
    """What a line is an example of; the value is its line in the census."""

    REGULAR = "lines, regular"
    EMPTY = "lines, empty"
    BLANK = "lines, of white space only"
    SIGNS_ONLY = "lines, of signs and emoji only"
    UPPER_CASE = "lines, in upper case"
    DECOMPOSED = "lines, accents as signs of their own"
    APOSTROPHES = "lines, apostrophes and quotes of all sorts"
    EMOJI = "lines, words around emoji"
    CONTROL = "lines, with control characters"
    LONG_WORD = "lines, a word of a thousand letters"
    LONG_LINE = "lines, of 300 words"
    ONE_WORD = "lines, the same word again and again"
    NEW_WORD = "lines, a word never seen before"
    DUPLICATE = "lines, delivered twice"
    WITHIN_GRACE = "lines, out of order within grace"
    BEYOND_GRACE = "lines, late beyond every grace"
    NULL_KEY = "lines, key null"
    NULL_VALUE = "lines, value null"
    BINARY_KEY = "lines, key arbitrary bytes"
    NOT_UTF8 = "lines, arbitrary bytes"
    LATIN_1 = "lines, in another encoding"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """The first `count` lines that arrive."""
    return islice(_Scribe(random.Random(seed)).deliveries(), count)


_TROUBLES = tuple(kind for kind in Kind if kind is not Kind.REGULAR)


class _Scribe:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._outbox = Outbox()
        self._shares = list(accumulate(1 / (rank + 1) for rank in range(len(WORDS))))
        """A few words are most of every text: some tasks get far more than others."""

    def deliveries(self) -> Iterator[SampleRecord]:
        for trouble in cycle(_TROUBLES):
            for _ in range(4):
                self._now += 1 + int(self._random.expovariate(1 / (15 * SECOND)))
                self._send(self._sentence())
            self._make(trouble)
            yield from self._outbox.due(self._now)

    def _sentence(self, length: int | None = None) -> str:
        words = self._random.choices(WORDS, cum_weights=self._shares, k=length or self._random.randrange(1, 12))
        return "".join(word + (self._random.choice(SIGNS) if self._random.random() < 0.2 else " ") for word in words)

    def _make(self, trouble: Kind) -> None:
        line = self._sentence()
        match trouble:
            case Kind.EMPTY:
                self._send("", trouble)
            case Kind.BLANK:
                self._send(" \t\u00a0\u2003 ", trouble)
            case Kind.SIGNS_ONLY:
                self._send("... !? 👍🏽 — '' ' «»", trouble)
            case Kind.UPPER_CASE:
                self._send(line.upper(), trouble)
            case Kind.DECOMPOSED:
                self._send(unicodedata.normalize("NFD", line + "été GARÇON 안녕"), trouble)
            case Kind.APOSTROPHES:
                self._send(f"'{line}' don\u2019t DON'T 'tis rock'n'roll dogs' x''y ''", trouble)
            case Kind.EMOJI:
                self._send(f"🎉{line.strip()}🎉naïve👩‍👩‍👧mir☕", trouble)
            case Kind.CONTROL:
                self._send(f"the\x00river\x1b[0m\r\n{line}\x7f\ufeffend\u200bend", trouble)
            case Kind.LONG_WORD:
                self._send("ab" * 500 + self._random.choice("xyz"), trouble)
            case Kind.LONG_LINE:
                self._send(self._sentence(300), trouble)
            case Kind.ONE_WORD:
                self._send("echo " * self._random.randrange(2, 40), trouble)
            case Kind.NEW_WORD:
                self._send(f"word{self._outbox.sent}", trouble)
            case Kind.DUPLICATE:
                twin = self._send(line)
                self._deliver(twin.key, twin.value, trouble, delay_ms=3 * SECOND)
            case Kind.WITHIN_GRACE:
                self._send(line, trouble, delay_ms=self._random.randrange(MINUTE, 8 * MINUTE))
            case Kind.BEYOND_GRACE:
                self._send(line, trouble, delay_ms=self._random.randrange(80 * MINUTE, 95 * MINUTE))
            case Kind.NULL_KEY:
                self._deliver(None, line.encode(), trouble)
            case Kind.NULL_VALUE:
                self._deliver(self._book(), None, trouble)
            case Kind.BINARY_KEY:
                self._deliver(b"\xff\x00" + self._random.randbytes(4), line.encode(), trouble)
            case Kind.NOT_UTF8:
                self._deliver(self._book(), b"\xff" + self._random.randbytes(20), trouble)
            case Kind.LATIN_1:
                self._deliver(self._book(), "été à la garçonnière".encode("latin-1"), trouble)
            case Kind.REGULAR:
                raise AssertionError(f"{trouble} is not a trouble in turn")

    def _book(self) -> bytes:
        return f"book-{self._random.randrange(20)}".encode()

    def _send(self, line: str, kind: Kind = Kind.REGULAR, *, delay_ms: int | None = None) -> SampleRecord:
        delay_ms = self._random.randrange(3 * SECOND) if delay_ms is None else delay_ms
        return self._deliver(self._book(), line.encode(), kind, delay_ms)

    def _deliver(self, key: bytes | None, value: bytes | None, kind: Kind, delay_ms: int = 0) -> SampleRecord:
        return self._outbox.send(MAIN_TOPIC, key, value, self._now, kind, arrives_ms=self._now + delay_ms)
