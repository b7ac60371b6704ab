from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from enum import Enum
from itertools import islice

from deltaworks.testing.sample_data import census
from jobs.sample_data.kafka import HOUR, MINUTE
from jobs.sample_data.wordcount import Kind, records
from tests.unit.jobs.recomputing import murmur2


def test_a_thousand_lines_hold_every_kind_of_trouble() -> None:
    counted = census(records(1_000))

    assert [kind for kind, count in counted.items() if count == 0] == []


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(records(2_000, seed=1)) == list(records(2_000, seed=1))
    assert list(records(2_000, seed=1)) != list(records(2_000, seed=2))


def test_more_lines_continue_fewer() -> None:
    few, many = list(records(1_000)), records(3_000)

    assert list(islice(many, len(few))) == few


def test_the_number_of_lines_is_exact() -> None:
    assert len(list(records(1_234))) == 1_234


def test_a_few_words_are_most_of_the_text() -> None:
    words = Counter(word for r in records(2_000) if r.kind is Kind.REGULAR for word in (r.value or b"").split())

    assert sum(count for _, count in words.most_common(10)) > 0.4 * words.total()


def test_lines_are_in_many_scripts() -> None:
    text = b"".join(r.value or b"" for r in records(1_000) if r.kind is Kind.REGULAR).decode()

    scripts = {unicodedata.name(sign, "?").split()[0] for sign in text if sign.isalpha()}
    assert {"LATIN", "GREEK", "CYRILLIC", "HEBREW", "ARABIC", "DEVANAGARI", "THAI", "CJK", "HANGUL"} <= scripts


def test_late_lines_come_after_younger_ones_of_their_partition() -> None:
    newest: defaultdict[int, int] = defaultdict(int)
    behind: dict[Enum, list[int]] = {}
    for record in records(20_000):
        if record.key is not None:
            partition = (murmur2(record.key) & 0x7FFFFFFF) % 4
            behind.setdefault(record.kind, []).append(newest[partition] - record.timestamp_ms)
            newest[partition] = max(newest[partition], record.timestamp_ms)

    within, beyond = behind[Kind.WITHIN_GRACE], behind[Kind.BEYOND_GRACE]
    assert sum(0 < ms < 10 * MINUTE for ms in within) > 0.9 * len(within)
    assert all(ms > HOUR + 10 * MINUTE for ms in beyond)
