"""One intent per batch, whoever plans; each follows the one before; none is misread."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from deltaworks.control.intents import FORMAT, KEEP, Intent, Intents, token
from deltaworks.errors import IncompatibleCheckpointError, IntentError
from deltaworks.files import Files, LocalFiles, Stored
from deltaworks.kafka.ranges import Range


class Counted:
    """Files that count what they are asked."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.calls: Counter[str] = Counter()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.calls["put"] += 1
        return self._files.put_if_absent(name, data)

    def replace(self, name: str, data: bytes, version: str) -> bool:
        self.calls["replace"] += 1
        return self._files.replace(name, data, version)

    def get(self, name: str) -> Stored | None:
        self.calls["get"] += 1
        return self._files.get(name)

    def names(self, prefix: str = "") -> list[str]:
        self.calls["names"] += 1
        return self._files.names(prefix)

    def delete(self, name: str) -> None:
        self.calls["delete"] += 1
        self._files.delete(name)


def intent(batch: int, previous: str = "", *, clock_ms: int = 1000, until: int | None = None) -> Intent:
    stop = 10 * (batch + 1) if until is None else until
    return Intent(
        batch=batch,
        lineage="l1",
        query="q1",
        generation=1,
        code="c1",
        clock_ms=clock_ms,
        tick=False,
        ranges=[Range("in", 0, 10 * batch, stop)],
        end={"in": {"0": stop}},
        previous=previous,
    )


def chained(intents: Intents, count: int, first: int = 0) -> list[Intent]:
    found, previous = [], ""
    for batch in range(first, first + count):
        found.append(intents.put(intent(batch, previous)))
        previous = found[-1].digest
    return found


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "intents")


@pytest.fixture
def intents(files: LocalFiles) -> Intents:
    return Intents(files)


def test_there_is_none_at_first(intents: Intents) -> None:
    assert intents.get(0) is None and intents.last() is None and intents.batches() == []
    assert list(intents.chain(-1)) == []


def test_the_first_one_stays(files: LocalFiles, intents: Intents) -> None:
    first = intents.put(intent(0))
    assert Intents(files).put(intent(0, until=7)) == first
    assert Intents(files).get(0) == first == intents.get(0)


def test_of_two_planners_both_get_the_same(files: LocalFiles) -> None:
    planners = [Intents(files) for _ in range(8)]
    for batch in range(20):
        with ThreadPoolExecutor(len(planners)) as pool:
            found = list(pool.map(lambda n, b=batch: planners[n].put(intent(b, until=n)), range(len(planners))))
        assert len({each.digest for each in found}) == 1 and found[0] == Intents(files).get(batch)


def test_another_content_has_another_digest() -> None:
    same = intent(3, "p")
    changed = [msgspec.structs.replace(same, **{field: value}) for field, value in {
        "batch": 4, "lineage": "l2", "query": "q2", "generation": 2, "code": "c2", "clock_ms": 1, "tick": True,
        "ranges": [Range("in", 0, 30, 41)], "end": {"in": {"0": 41}}, "previous": "x", "limit": 2,
            "topics": {"in": "id"},
    }.items()]  # fmt: skip
    assert len({each.digest for each in (same, *changed)}) == len(changed) + 1
    assert intent(3, "p").digest == same.digest


def test_a_token_is_positive_and_fits_where_numbers_are_kept() -> None:
    tokens = {token(intent(batch).digest) for batch in range(1000)}
    assert len(tokens) == 1000 and all(0 <= each < 1 << 62 for each in tokens)
    assert token("f" * 64) == (1 << 62) - 1 and token("0" * 64) == 0


def test_what_was_stored_is_what_is_read(files: LocalFiles, intents: Intents) -> None:
    stored = intents.put(msgspec.structs.replace(intent(5, "p"), tick=True, limit=4))
    found = Intents(files).get(5)
    assert found == stored and found is not None and found.digest == stored.digest


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[]", b"\0" * 200, b'{"format":1}', b'{"format":1,"batch":"x"}']
)
def test_a_torn_one_is_refused(files: LocalFiles, intents: Intents, content: bytes) -> None:
    files.put_if_absent("000000000002.json", content)
    with pytest.raises(IntentError, match=r"000000000002\.json cannot be read(?s:.*)Hint: .*restore a copy"):
        intents.get(2)
    with pytest.raises(IntentError):
        intents.put(intent(2))


def test_another_format_is_refused_with_both(files: LocalFiles, intents: Intents) -> None:
    content = json.loads(msgspec.json.encode(intent(2))) | {"format": FORMAT + 1}
    files.put_if_absent("000000000002.json", json.dumps(content).encode())
    expected = rf"has format {FORMAT + 1}; this deltaworks reads format {FORMAT}(?s:.*)deploy the version that wrote it"
    with pytest.raises(IncompatibleCheckpointError, match=expected):
        intents.last()


def test_it_is_replaced_only_while_it_is_the_one_that_is_known(files: LocalFiles, intents: Intents) -> None:
    first, second = chained(intents, 2)
    cut = msgspec.structs.replace(second, end={"in": {"0": 15}}, ranges=[Range("in", 0, 10, 15)])
    other = msgspec.structs.replace(second, code="c2")
    intents.replace(second, cut)
    assert Intents(files).get(1) == cut and Intents(files).get(0) == first
    with pytest.raises(IntentError, match="intent of batch 1 was replaced by another process"):
        Intents(files).replace(second, other)
    assert intents.get(1) == cut
    with pytest.raises(IntentError):
        intents.replace(intent(7), intent(7, "x"))


def test_the_chain_has_all_that_follow(files: LocalFiles, intents: Intents) -> None:
    made = chained(intents, 5)
    assert list(Intents(files).chain(-1)) == made
    assert list(Intents(files).chain(2)) == made[3:]
    assert list(Intents(files).chain(4)) == []


def test_a_chain_may_begin_at_any_batch(files: LocalFiles) -> None:
    """A line goes on with the batch after the one before it; and old ones are forgotten."""
    made = chained(Intents(files), 3, first=40)
    assert list(Intents(files).chain(39)) == made


@pytest.mark.parametrize("gap", [0, 2])
def test_a_gap_is_refused(files: LocalFiles, intents: Intents, gap: int) -> None:
    chained(intents, 5)
    files.delete(f"{gap:012d}.json")
    with pytest.raises(IntentError, match=f"intent of batch {gap + 1} does not follow that of batch {gap}"):
        list(Intents(files).chain(-1))


def test_one_of_another_copy_is_refused(files: LocalFiles, intents: Intents) -> None:
    made = chained(intents, 3)
    files.delete("000000000001.json")
    intents.put(msgspec.structs.replace(made[1], clock_ms=9))
    with pytest.raises(IntentError, match=r"batch 2 does not follow(?s:.*)two copies of this home"):
        list(intents.chain(0))


def test_later_ones_are_removed_from_the_end(files: LocalFiles, intents: Intents) -> None:
    chained(intents, 5)
    chained_by_another = Intents(files).put(intent(5, "x"))
    intents.remove_after(2)
    assert intents.batches() == Intents(files).batches() == [0, 1, 2] and chained_by_another.batch == 5
    assert intents.put(intent(3, until=99)).end == {"in": {"0": 99}}


def test_old_ones_are_forgotten(files: LocalFiles) -> None:
    first = Intents(files)
    for batch in (0, 1, 2, KEEP, KEEP + 1, KEEP + 2):
        first.put(intent(batch))
    first.expire(KEEP + 2)
    assert first.batches() == Intents(files).batches() == [2, KEEP, KEEP + 1, KEEP + 2]


def test_a_batch_costs_no_listing(tmp_path: Path) -> None:
    files = Counted(LocalFiles(tmp_path))
    for batch in range(-KEEP, 10 - KEEP, 3):
        files.put_if_absent(f"{batch + KEEP:012d}.json", msgspec.json.encode(intent(batch + KEEP)))
    intents = Intents(files)
    assert intents.last() is not None
    files.calls.clear()
    for batch in range(KEEP, KEEP + 20):
        intents.put(intent(batch))
        intents.expire(batch)
        assert intents.last() == intents.get(batch)
    assert files.calls["names"] == 0
    assert files.calls == {"put": 20, "get": 40, "delete": 4}


def test_other_names_are_left_alone(files: LocalFiles, intents: Intents) -> None:
    for name in ("lease.json", "x/000000000001.json", "000000000001.json.old", "1.json"):
        files.put_if_absent(name, b"?")
    made = chained(intents, 1)
    assert Intents(files).batches() == [0] and list(Intents(files).chain(-1)) == made
    intents.remove_after(-1)
    assert len(files.names()) == 4


def test_what_has_none_is_refused_where_one_is_needed(intents: Intents) -> None:
    made = intents.put(intent(3))
    assert intents.require(3) == made
    with pytest.raises(IntentError, match="Batch 4 has no intent"):
        intents.require(4)
    intents.require_same(made, made.digest)
    with pytest.raises(IntentError, match="processed batch 3 with another intent"):
        intents.require_same(made, intent(3, "x").digest)
