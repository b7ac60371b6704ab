"""A person is erased from the orders pipeline whose tables and state are in an object store; the command is killed.

Afterwards no object has the person in any form, what is left is what it was, and the stream goes on as if the person
were new.
"""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from deltaworks.control import erasures
from deltaworks.control.paths import PipelinePaths
from deltaworks.lakehouse import cuts, reading, retention
from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from tests.system.analysts import recomputed
from tests.system.analysts.erased import _ends, names, seen
from tests.system.analysts.readers import Place, Row, arrow
from tests.system.analysts.recomputed import Recomputed
from tests.system.kills.store_under_kills import stored
from tests.system.kills.stream_under_kills import StreamUnderKills, copied
from tests.system.replays.project import Project
from tests.system.sample_data import flowing

POINTS = ("erase.made", "rewriting.between:order_counts", "rewriting.log_made:users_changelog", "erase.done:rows")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_object_has_the_person_and_the_stream_goes_on_with_all_others(
    orders_settings: Settings, tmp_path: Path
) -> None:
    with stored(orders_settings, everything=True) as store:
        settings, orders = store.settings, StreamUnderKills(store.settings, tmp_path)
        _more(settings, orders, 1_500)
        assert _command(settings, "tables", "pin", "audit", "orders") == 0
        _more(settings, orders, 2_500)
        known = [retention.pinned(settings.tables, "audit")["orders"], cuts.required(settings.tables, "orders")]
        before, person = seen(settings, known), _customer(settings)
        expected = {at: Counter({row: n for row, n in rows.items() if not names(row, person)})
                    for at, rows in before.items()}  # fmt: skip
        assert before != expected and len(_holding(settings, person)) > 8

        for number, point in enumerate(POINTS):
            assert _command(settings, *_erase(person), faults=_killing(tmp_path / str(number), point)) < 0, point
            for at, rows in seen(settings, known).items():
                assert expected[at] <= rows <= before[at], (point, at)
        assert _command(settings, *_erase(person)) == 0

        assert _holding(settings, person) == []
        assert seen(settings, known) == expected
        (record,) = erasures.erasures(PipelinePaths.of(settings, "orders"))
        assert record.done_ms is not None and not [place for place in record.left if place.startswith("object ")]

        _more(settings, orders, 4_000)
        _compare(settings, person, copied(PipelinePaths.of(settings, "orders").batches, tmp_path / "batches"))


def _more(settings: Settings, orders: StreamUnderKills, records: int) -> None:
    """So many records are in the topic, and read."""
    with flowing(settings, 1e6, records=records, continued=True) as writing:
        writing.join()
    orders.catch_up()


def _erase(person: str) -> tuple[str, ...]:
    return "erase", "orders", "--key", person, "--yes", "--reason", "asked for"


def _killing(folder: Path, point: str) -> Path:
    (folder / "inject").mkdir(parents=True)
    (folder / "inject" / point).write_text("kill")
    return folder


def _command(settings: Settings, *arguments: str, faults: Path | None = None) -> int:
    """Runs a command of deltaworks; returns its exit code, below 0 if it was killed."""
    answer = Project(settings).deltaworks(*arguments, faults=faults)
    if answer.code > 0:
        print(answer.text)
    return answer.code


def _customer(settings: Settings) -> str:
    """A user with rows in most tables."""
    rows = reading.dataset(settings.tables / "order_counts").to_table(columns=["user_id"]).to_pylist()
    ((name, _),) = Counter(row["user_id"] for row in rows).most_common(1)
    return str(name)


def _holding(settings: Settings, person: str) -> list[str]:
    """Objects of the bucket that name the person in any form."""
    tables = settings.tables
    assert isinstance(tables, ObjectPath)
    bucket = ObjectPath(f"s3://{tables.bucket}")
    found = ((path, path.read_bytes()) for path, _ in bucket.files())
    return [str(path) for path, data in found if names(str(path) + _text(path, data), person)]


def _text(path: Path, data: bytes) -> str:
    plain = data.decode("utf-8", "surrogateescape")
    return plain + str(pq.ParquetFile(BytesIO(data)).read().to_pylist()) if path.suffix == ".parquet" else plain


def _compare(settings: Settings, person: str, batches: Path) -> None:
    """What readers find, with the recomputation of all records, and for their rows without their earlier ones."""
    wanted, end = recomputed.wanted(), _ends(person, PipelinePaths.of(settings, "orders"))
    opened = arrow(Place(settings, "orders"), wanted, None)
    full, forgotten = (Recomputed(settings, wanted, batches) for _ in range(2))
    forgotten.blank(lambda topic, partition, offset, record: offset < end.get(topic, {}).get(str(partition), 0)
                    and names(str(record), person))  # fmt: skip
    theirs, others = forgotten.at(opened.batches[0]), full.at(opened.batches[0])
    for table, rows in opened.read().items():
        right = Counter({row: n for row, n in others[table].items() if not _is_of(row, person)})
        right += Counter({row: n for row, n in theirs[table].items() if _is_of(row, person)})
        assert not (rows - right) + (right - rows), table


def _is_of(row: Row, person: str) -> bool:
    """Whether a row names the person; bytes are in hexadecimal digits."""
    return names(str(row), person) or person.encode().hex().upper() in str(row)
