"""Cuts of two committers in an object store: one that was replaced writes nothing over what its successor has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deltaworks.errors import ConflictError
from deltaworks.files import Files, Stored, files_in
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.cuts import Cut, CutWriter
from deltaworks.object_path import ObjectPath, connect
from tests.support import object_stores

PIPELINE = "shop"
START_MS = round(datetime(2026, 3, 1, 11, 30, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(autouse=True)
def half_a_minute_never_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of an hour is replaced with the first cut, and then when the writer is closed."""
    monkeypatch.setattr(cuts, "ticks_s", lambda: 1_000.0)


def cut(batch: int, query: str = "q") -> Cut:
    return Cut(pipeline=PIPELINE, query=query, batch_id=batch, at_ms=START_MS + batch, tables={"orders": batch})


def in_hour(root: Path) -> list[Cut]:
    return [*cuts._cuts_in(cuts.hour_file(root, cut(0)))]


def test_who_was_replaced_writes_nothing_over_the_cut_of_its_successor(in_store: ObjectPath) -> None:
    first = CutWriter(in_store, PIPELINE)
    first.write(cut(0))
    second = CutWriter(in_store, PIPELINE)
    second.write(cut(1))

    for batch in (1, 2):
        with pytest.raises(ConflictError, match=r"Another committer has written s3://\S*/_cuts/shop/latest.json"):
            first.write(cut(batch, "replaced"))

    assert cuts.latest(in_store, PIPELINE) == cut(1)
    second.write(cut(2))
    second.close()
    assert cuts.latest(in_store, PIPELINE) == cut(2)
    assert in_hour(in_store) == [cut(0), cut(1), cut(2)]


def test_of_two_that_begin_without_a_cut_the_second_writes_nothing(in_store: ObjectPath) -> None:
    first, second = CutWriter(in_store, PIPELINE), CutWriter(in_store, PIPELINE)
    first.write(cut(0))

    with pytest.raises(ConflictError):
        second.write(cut(0, "replaced"))

    first.write(cut(1))
    assert cuts.latest(in_store, PIPELINE) == cut(1)
    assert in_hour(in_store) == [cut(0)]


def test_who_was_replaced_before_its_first_cut_writes_nothing(in_store: ObjectPath) -> None:
    CutWriter(in_store, PIPELINE).write(cut(0))
    first, second = CutWriter(in_store, PIPELINE), CutWriter(in_store, PIPELINE)
    second.write(cut(1))

    with pytest.raises(ConflictError):
        first.write(cut(1, "replaced"))

    assert cuts.latest(in_store, PIPELINE) == cut(1)


def test_a_committer_goes_on_after_an_answer_was_lost(in_store: ObjectPath, tmp_path: Path) -> None:
    with object_stores.Faults(object_stores.access().endpoint or "") as proxy:
        place = connect(str(in_store), object_stores.access(proxy.endpoint), tmp_path / "proxied")
        writer = CutWriter(place, PIPELINE)
        for batch in range(3):
            proxy.plan("PUT", "answer lost")
            writer.write(cut(batch))

        assert cuts.latest(place, PIPELINE) == cut(2)


class Interrupted:
    """`Files` where somebody else does something just after the next replacement."""

    def __init__(self, files: Files, meanwhile: Callable[[], None]) -> None:
        self._files, self._meanwhile = files, [meanwhile]

    def replace(self, name: str, data: bytes, version: str) -> bool:
        done = self._files.replace(name, data, version)
        if self._meanwhile:
            self._meanwhile.pop()()
        return done

    def get(self, name: str) -> Stored | None:
        return self._files.get(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


@contextmanager
def interrupted(folder: Path, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Lets somebody do something between the next replacement of the latest cut and what its writer does then."""
    found = Interrupted(files_in(folder), meanwhile)
    with pytest.MonkeyPatch.context() as patch:

        def once(folder: Path) -> Files:
            patch.setattr(cuts, "files_in", files_in)
            return found

        patch.setattr(cuts, "files_in", once)
        yield


def test_who_is_replaced_just_after_its_cut_writes_no_other(in_store: ObjectPath) -> None:
    first = CutWriter(in_store, PIPELINE)
    first.write(cut(0))

    def successor() -> None:
        CutWriter(in_store, PIPELINE).write(cut(2))

    with interrupted(cuts.folder(in_store, PIPELINE), successor):
        first.write(cut(1))
    assert cuts.latest(in_store, PIPELINE) == cut(2)

    with pytest.raises(ConflictError):
        first.write(cut(2, "replaced"))


def test_who_was_replaced_takes_no_cut_of_its_successor_from_the_hour(in_store: ObjectPath) -> None:
    first = CutWriter(in_store, PIPELINE)
    first.write(cut(0))
    first.write(cut(1))
    second = CutWriter(in_store, PIPELINE)
    second.write(cut(2))
    second.close()
    assert cut(2) in in_hour(in_store)

    with pytest.raises(ConflictError):
        first.write(cut(2, "replaced"))
    first.close()

    assert cut(2) in in_hour(in_store)
