"""A batch id means what its intent says: what a table holds under it is skipped only if it is of the same intent."""

from __future__ import annotations

import json
from copy import deepcopy
from decimal import Decimal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaworks.errors import IntentError
from deltaworks.kernel.records import Coordinates
from deltaworks.lakehouse.log import Commit
from tests.unit.lakehouse.lake import Expected, User, check, open_tables, skipped, task_tables, write_batch

BATCHES = 6


def token(batch_id: int) -> int:
    return 1_000_000 + batch_id


def run(root: Path) -> Expected:
    committer, tables, expected = open_tables(root), task_tables(root), Expected()
    for batch_id in range(BATCHES):
        writes = write_batch(tables, batch_id, expected)
        committer.commit(batch_id, writes, intent=token(batch_id), digest=f"digest-{batch_id}")
    committer.refresh_snapshots(force=True)
    committer.close()
    return expected


def test_each_commit_of_a_batch_says_whose_intent_it_carries_out(tmp_path: Path) -> None:
    run(tmp_path)

    committed = open_tables(tmp_path).committed()

    assert committed.keys() == {"orders", "users_changelog", "counts", "dead_letters"}
    assert all(intent == token(batch_id) for batch_id, intent in committed.values())
    batch_id = committed["orders"][0]
    told = next(entry["userMetadata"] for entry in DeltaTable(tmp_path / "orders").history() if "userMetadata" in entry)
    assert json.loads(told) == {"pipeline": "shop", "batchId": batch_id, "intent": f"digest-{batch_id}"}


def test_tables_without_a_batch_and_batches_without_an_intent_are_told_as_such(tmp_path: Path) -> None:
    committer = open_tables(tmp_path)
    assert committer.committed() == {}

    committer.commit(0, write_batch(task_tables(tmp_path), 0, Expected()))

    assert set(committer.committed().values()) == {(0, None)}


def test_the_same_batch_of_the_same_intent_is_skipped(tmp_path: Path) -> None:
    expected = run(tmp_path)
    last = BATCHES - 1
    again = write_batch(task_tables(tmp_path), last, Expected())

    commits = open_tables(tmp_path).commit(last, again, intent=token(last))

    assert commits
    assert skipped(commits) == {write.table for write in again}
    check(tmp_path, expected)


@pytest.mark.parametrize("has_writes", [True, False])
def test_the_same_batch_of_another_intent_is_refused_before_anything_is_committed(
    tmp_path: Path, has_writes: bool
) -> None:
    """Tasks write no windows that they see are there: a table is asked though nobody has written to it."""
    expected = run(tmp_path)
    last = BATCHES - 1
    committer, tables = open_tables(tmp_path), task_tables(tmp_path)
    versions = {name: table.log.version for name, table in committer.tables.items()}
    writes = write_batch(tables, last, deepcopy(expected)) if has_writes else []

    with pytest.raises(IntentError, match=rf"holds batch {last} of pipeline 'shop' with intent {token(last)}") as told:
        committer.commit(last, writes, intent=7)

    assert "Hint: was an older copy of the checkpoint restored?" in str(told.value)
    assert {name: table.log.version for name, table in committer.tables.items()} == versions
    check(tmp_path, expected)


@pytest.mark.parametrize("intent", [None, 7])
def test_an_earlier_batch_than_the_table_holds_is_refused_unless_the_later_ones_are_known(
    tmp_path: Path, intent: int | None
) -> None:
    expected = run(tmp_path)
    committer, tables = open_tables(tmp_path), task_tables(tmp_path)
    writes = write_batch(tables, 2, deepcopy(expected))

    for known in (-1, BATCHES - 2):
        with pytest.raises(IntentError, match="the checkpoint was rewound"):
            committer.commit(2, writes, intent=intent, known=known)

    assert skipped(committer.commit(2, writes, intent=intent, known=BATCHES - 1)) == {write.table for write in writes}
    check(tmp_path, expected)


def test_a_batch_that_was_committed_to_some_tables_goes_on_with_the_others(tmp_path: Path) -> None:
    expected = run(tmp_path)
    before = deepcopy(expected)
    committer = open_tables(tmp_path)
    writes = write_batch(task_tables(tmp_path), BATCHES, expected)
    committer.commit(BATCHES, [write for write in writes if write.table == "orders"], intent=token(BATCHES))

    committer = open_tables(tmp_path)
    again = write_batch(task_tables(tmp_path), BATCHES, before)
    with pytest.raises(IntentError):
        committer.commit(BATCHES, again, intent=7)
    assert skipped(committer.commit(BATCHES, again, intent=token(BATCHES))) == {"orders"}

    committer.refresh_snapshots(force=True)
    check(tmp_path, expected)


def test_another_query_has_intents_of_its_own(tmp_path: Path) -> None:
    """As after a hand-over: the batches of the query before say nothing about those of the next one."""
    run(tmp_path)
    committer = open_tables(tmp_path)
    for table in committer.tables.values():
        table.log.commit(Commit(definition=table.log.owned_by("next")))

    again = open_tables(tmp_path, query="next", generation=2)

    assert again.committed() == {}
    tables = task_tables(tmp_path)[0]
    tables.begin(2)
    tables.rows("orders").add(("k", User("x", Decimal(1)), 0, Coordinates("raw", 0, 0)))
    assert not skipped(again.commit(2, tables.finish(), intent=7))
    assert again.committed() == {"orders": (2, 7)}
