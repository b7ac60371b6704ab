"""A loss of power in the middle of a commit, a checkpoint or the making of a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks import faults
from deltaworks.errors import TableError, TransientError
from deltaworks.lakehouse import checkpoints, layout, versions
from deltaworks.lakehouse.catalog import table
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.repair import plan
from deltaworks.lakehouse.retention import Retention
from tests.support import old_checkpoint
from tests.unit.lakehouse.lake import DEAD, QUERY, SINKS, Expected, check, open_tables, run, task_tables, write_batch

BATCHES = 6


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.arm(None)


def nothing(data: bytes) -> bytes:
    return b""


def after_the_transactions(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if b'"add"' not in line and b'"remove"' not in line)


def in_a_line(data: bytes) -> bytes:
    return data[: data.rindex(b'"add"') + 20]


def in_the_first_line(data: bytes) -> bytes:
    return data[:30]


CUTS = (nothing, after_the_transactions, in_a_line, in_the_first_line)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", ["orders", "counts", "users_changelog"])
def test_a_last_version_without_its_end_is_no_commit_and_its_batch_commits_again(
    tmp_path: Path, name: str, cut: Callable[[bytes], bytes]
) -> None:
    before, expected = one_more_batch(tmp_path)
    torn, number = cut_last(tmp_path / name, cut)
    named = files_on_disk(tmp_path / name)

    committer = open_tables(tmp_path)

    assert committer.committed_batch(name) != BATCHES
    assert [path.read_bytes() for path in trash(tmp_path / name, f"{number:020d}.json")] == [torn]
    assert files_on_disk(tmp_path / name) == named, "a file that the torn version names is gone"
    committer.commit(BATCHES, write_batch(task_tables(tmp_path), BATCHES, before))
    assert before.orders == expected.orders
    committer.refresh_snapshots(force=True)
    check(tmp_path, expected)


def test_a_last_version_without_its_end_is_no_commit_for_readers_either_and_they_leave_it(tmp_path: Path) -> None:
    one_more_batch(tmp_path)
    torn, number = cut_last(tmp_path / "orders", nothing)

    assert table(tmp_path, "orders").version == number - 1
    assert (tmp_path / "orders" / "_delta_log" / f"{number:020d}.json").read_bytes() == torn


def test_a_version_without_its_end_that_others_follow_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    run(tmp_path, BATCHES)[0].close()
    folder = tmp_path / "orders" / "_delta_log"
    victim = sorted(folder.glob("*.json"))[-2]
    victim.write_bytes(in_a_line(victim.read_bytes()))

    with pytest.raises(
        TableError, match=rf"Version {int(victim.stem)} of the Delta table at .*orders is not whole"
    ) as told:
        open_tables(tmp_path)

    assert "from a backup" in str(told.value)
    assert "--hand-over" in str(told.value)
    assert not (tmp_path / "orders" / layout.TRASH_FOLDER).exists()


def test_a_version_of_another_engine_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    run(tmp_path, BATCHES)[0].close()
    rows = DeltaTable(tmp_path / "orders").to_pyarrow_table()
    write_deltalake(tmp_path / "orders", rows, mode="append")
    cut_last(tmp_path / "orders", in_a_line)

    with pytest.raises(TableError, match="is not whole"):
        open_tables(tmp_path)


def test_a_commit_over_a_version_that_is_not_whole_does_not_wait_for_ever(tmp_path: Path) -> None:
    committer, expected = run(tmp_path, BATCHES)
    log = committer.tables["orders"].log
    (log.path / "_delta_log" / versions.file_name(log.version + 1)).write_bytes(b"")

    with pytest.raises(TransientError, match="is not whole"):
        committer.commit(BATCHES, write_batch(task_tables(tmp_path), BATCHES, deepcopy(expected)))

    again = open_tables(tmp_path)
    again.commit(BATCHES, write_batch(task_tables(tmp_path), BATCHES, expected))
    again.refresh_snapshots(force=True)
    check(tmp_path, expected)


@pytest.mark.parametrize("cut", [nothing, in_the_first_line, lambda data: data.splitlines()[0]])
def test_a_table_that_was_just_being_made_is_made_again(tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    open_tables(tmp_path)
    folder = tmp_path / "orders" / "_delta_log"
    for path in sorted(folder.glob("*.json"))[1:]:
        path.unlink()
    first = folder / versions.file_name(0)
    first.write_bytes(cut(first.read_bytes()))

    committer, expected = open_tables(tmp_path), Expected()
    committer.commit(0, write_batch(task_tables(tmp_path), 0, expected))
    committer.refresh_snapshots(force=True)

    check(tmp_path, expected)


def test_a_format_that_is_not_known_is_refused(tmp_path: Path) -> None:
    run(tmp_path, 2)[0].close()
    last = sorted((tmp_path / "orders" / "_delta_log").glob("*.json"))[-1]
    last.write_bytes(last.read_bytes().replace(b'"deltaworks":{"format":1', b'"deltaworks":{"format":2'))

    with pytest.raises(TableError, match="has a format that this deltaworks does not read"):
        open_tables(tmp_path)


def test_every_commit_says_how_many_actions_it_has_and_others_read_it(tmp_path: Path) -> None:
    run(tmp_path, 3)[0].close()
    for path in sorted((tmp_path / "counts" / "_delta_log").glob("*.json"))[1:]:
        lines = path.read_text().splitlines()
        assert json.loads(lines[0])["commitInfo"]["deltaworks"] == {"format": 1, "actions": len(lines)}

    delta = DeltaTable(tmp_path / "counts")
    assert delta.to_pyarrow_table().num_rows == table(tmp_path, "counts").rows
    assert delta.history(1)[0]["deltaworks"]["format"] == 1


def test_temporary_files_of_commits_disturb_nobody_and_go_at_the_next_start(tmp_path: Path) -> None:
    _, expected = run(tmp_path, 3)
    left = tmp_path / "orders" / "_delta_log" / f".{7:020d}.json.1234-0a1b2c3d"
    left.write_bytes(b"{")

    assert DeltaTable(tmp_path / "orders").to_pyarrow_table().num_rows == len(expected.orders)
    DeltaTable(tmp_path / "orders").create_checkpoint()
    open_tables(tmp_path).refresh_snapshots(force=True)

    assert not left.exists()
    check(tmp_path, expected)


TEARS: dict[str, Callable[[Path], None]] = {
    "the checkpoint is empty": lambda folder: fill(last_checkpoint(folder), b""),
    "the checkpoint is cut": lambda folder: fill(last_checkpoint(folder), last_checkpoint(folder).read_bytes()[:500]),
    "the checkpoint is gone": lambda folder: last_checkpoint(folder).unlink(),
    "its pages are zeros": lambda folder: zero(last_checkpoint(folder)),
    "the pointer is empty": lambda folder: fill(folder / "_last_checkpoint", b""),
    "the pointer is cut": lambda folder: fill(folder / "_last_checkpoint", b'{"vers'),
    "the pointer is gone": lambda folder: (folder / "_last_checkpoint").unlink(),
}


@pytest.mark.parametrize("tear", TEARS)
@pytest.mark.parametrize("beginning", ["an earlier checkpoint", "the log"])
def test_a_torn_checkpoint_is_replaced_by_what_was_before_it(tmp_path: Path, tear: str, beginning: str) -> None:
    committer, tables, expected = open_tables(tmp_path), task_tables(tmp_path), Expected()
    log = committer.tables["orders"].log
    for batch_id in range(BATCHES):
        committer.commit(batch_id, write_batch(tables, batch_id, expected))
        if batch_id == 2 and beginning == "an earlier checkpoint":
            checkpoints.write(log.path, log.state())
            for number in range(log.version + 1):
                (log.path / "_delta_log" / versions.file_name(number)).unlink()
    checkpoints.write(log.path, log.state())
    TEARS[tear](log.path / "_delta_log")

    again = open_tables(tmp_path)

    assert again.tables["orders"].log.files.keys() == log.files.keys()
    assert again.tables["orders"].log.transactions == log.transactions
    again.commit(BATCHES, write_batch(task_tables(tmp_path), BATCHES, expected))
    again.refresh_snapshots(force=True)


def test_a_torn_checkpoint_without_anything_before_it_is_an_error_and_nothing_is_recreated(tmp_path: Path) -> None:
    run(tmp_path, BATCHES)[0].close()
    log = DeltaLog(tmp_path / "orders")
    log.load()
    checkpoints.write(log.path, log.state())
    folder = log.path / "_delta_log"
    for path in folder.glob("*.json"):
        path.unlink()
    last_checkpoint(folder).write_bytes(b"")

    with pytest.raises(TableError, match=r"is damaged: the checkpoint of version .* cannot be read"):
        open_tables(tmp_path)


def test_log_files_are_kept_until_the_checkpoint_can_be_read(tmp_path: Path) -> None:
    options = TableOptions(retention=Retention.only(timedelta(0)))
    committer = TableCommitter(tmp_path, "shop", QUERY, SINKS, DEAD, options=options)
    committer.open(1)
    expected = Expected()
    for batch_id in range(BATCHES):
        committer.commit(batch_id, write_batch(task_tables(tmp_path), batch_id, expected))
    log = committer.tables["orders"].log
    folder = log.path / "_delta_log"
    before = sorted(folder.glob("*.json"))
    faults.arm(lambda point: fill(last_checkpoint(folder), b"") if point.startswith("delta.checkpoint_w") else None)

    with pytest.raises(Exception, match=r"[Pp]arquet"):
        checkpoints.write(log.path, log.state())

    assert sorted(folder.glob("*.json")) == before


def test_replacing_a_folder_of_the_log_by_that_of_another_time_is_noticed(tmp_path: Path) -> None:
    """The log says which files the table has after each of our commits, and so does a checkpoint."""
    run(tmp_path, BATCHES)[0].close()
    log = DeltaLog(tmp_path / "orders")
    log.load()
    victim = next(iter(log.files))
    checkpoints.write(log.path, log.state())
    folder = log.path / "_delta_log"
    remove = {"remove": {"path": victim, "dataChange": True, "deletionTimestamp": 1, "size": 1, "partitionValues": {}}}
    foreign = folder / versions.file_name(log.version + 1)
    foreign.write_text(
        json.dumps({"commitInfo": {"operation": "DELETE", "engineInfo": "x"}}) + "\n" + json.dumps(remove)
    )
    DeltaTable(log.path).create_checkpoint()
    foreign.unlink()

    with pytest.raises(TableError, match="other files than after our last commit"):
        open_tables(tmp_path)


def one_more_batch(root: Path) -> tuple[Expected, Expected]:
    """What was expected before the last batch and after it; every table gets rows from it."""
    committer, expected = run(root, BATCHES)
    before = deepcopy(expected)
    writes = write_batch(task_tables(root), BATCHES, expected)
    assert {write.table for write in writes} >= {"orders", "counts", "users_changelog"}
    committer.commit(BATCHES, writes)
    committer.close()
    return before, expected


def cut_last(path: Path, cut: Callable[[bytes], bytes]) -> tuple[bytes, int]:
    """Cuts the last version; returns what is left of it, and its number."""
    last = sorted((path / "_delta_log").glob("*.json"))[-1]
    torn = cut(last.read_bytes())
    last.write_bytes(torn)
    return torn, int(last.stem)


def trash(path: Path, name: str) -> list[Path]:
    return list((path / layout.TRASH_FOLDER).glob(f"*/_delta_log/{name}"))


def files_on_disk(path: Path) -> list[str]:
    """Names of the data files, wherever they are in the folder."""
    return sorted(file.name for file in path.rglob("*.parquet") if "_delta_log" not in file.parts)


def last_checkpoint(folder: Path) -> Path:
    return sorted(folder.glob("*.checkpoint.parquet"))[-1]


def zero(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :])


def fill(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def test_tables_from_before_commits_had_marks_are_read_and_continued(tmp_path: Path) -> None:
    """Their query may open them; what their next commit adds is the mark."""
    old_checkpoint.unpack(tmp_path)
    tables = sorted(path.parent for path in tmp_path.rglob("_delta_log"))
    assert tables
    for path in tables:
        log = DeltaLog(path)
        log.load()
        assert log.is_untold
        assert not plan(path.parent, path.name).is_needed
        log.require_ours(None)

        log.commit(Commit(transactions={"app": 1}))

        again = DeltaLog(path)
        again.load()
        assert again.is_as_left
        assert (
            again.files.keys() == log.files.keys() == {unquote(p) for p in DeltaTable(path).to_pyarrow_dataset().files}
        )
