"""What a kill, a loss of power, a copy or a move leave of Spark's checkpoint, and what becomes of it before a start."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.kafka.ranges import Offsets
from deltaworks.spark import checkpoint_files as layout
from deltaworks.spark.checkpoint_files import StateFiles, crc_path
from deltaworks.spark.checkpoint_recovery import Settled, expire, rewind, settle
from deltaworks.spark.checkpoint_sync import CheckpointSync, Mark, read_mark, write_mark
from tests.unit.spark import checkpoints

LAST = 8
Damage = Callable[[Path], object]


class Home:
    """A checkpoint after the batches 0 to `LAST`, with intents for all or for none."""

    def __init__(self, root: Path, committed: int = LAST, begun: int | None = None, *, intents: bool = True) -> None:
        self.checkpoint = checkpoints.make(root / "checkpoint", committed, begun=begun)
        self.trash = root / "trash"
        self.mark = root / "synced.json"
        self.intents = intents

    def settle(self, boot_id: str = "boot-1") -> Settled:
        return settle(self.checkpoint, self.trash, boot_id, mark=self.mark, offsets_of=self.offsets_of)

    def offsets_of(self, batch: int) -> Offsets | None:
        return checkpoints.offsets_after(batch) if self.intents else None

    def sync(self, boot_id: str = "boot-1") -> None:
        sync = CheckpointSync(self.checkpoint, self.mark, boot_id, failed=lambda error: pytest.fail(str(error)))
        sync.close()

    def moved(self) -> set[str]:
        """What is in the trash, without checksums."""
        found = (path.relative_to(self.trash) for path in self.trash.rglob("*") if path.is_file())
        return {"/".join(path.parts[1:]) for path in found if not path.name.endswith(".crc")}

    def require_readable(self, settled: Settled) -> None:
        """As Spark reads it: nothing that is later, nothing torn, no checksum that does not fit."""
        committed = -1 if settled.committed is None else settled.committed
        opened = committed if settled.open is None else settled.open
        assert max(layout.numbered(self.checkpoint / "offsets"), default=-1) == opened
        assert max(layout.numbered(self.checkpoint / "commits"), default=-1) == committed
        for batch in range(max(opened - 1, 0), opened + 1):
            entry = layout.read_offsets(self.checkpoint / "offsets" / str(batch))
            assert entry is not None and entry.offsets == checkpoints.offsets_after(batch)
        if committed >= 0:
            assert StateFiles(self.checkpoint).problems(committed + 1) == []
        for partition in checkpoints.partitions(self.checkpoint):
            assert max(layout.numbered(partition, ".changelog"), default=0) == committed + 1
            assert max(layout.numbered(partition, ".zip"), default=0) <= committed + 1
        assert layout.is_query(self.checkpoint / "metadata")
        for path in layout.everything(self.checkpoint):
            assert not layout.is_temporary(path)
            unneeded = path.suffix in (".changelog", ".sst")  # what is needed of them is in no problem
            assert unneeded or layout.is_crc(path) or layout.crc_of(path) is not layout.Crc.DIFFERS, path
        assert self.settle(read_mark(self.mark).boot_id).done == ()  # type: ignore[union-attr]  # and stays as it is


def emptied(*names: str) -> Damage:
    return lambda root: [(root / name).write_bytes(b"") for name in names]


def cut(*names: str) -> Damage:
    return lambda root: [
        (root / n).write_bytes((root / n).read_bytes()[: (root / n).stat().st_size // 2]) for n in names
    ]


def changed(name: str) -> Damage:
    return lambda root: (root / name).write_bytes((root / name).read_bytes().replace(b"version", b"Version", 1))


def without_crc(damage: Damage, *names: str) -> Damage:
    def act(root: Path) -> None:
        damage(root)
        for name in names:
            crc_path(root / name).unlink()

    return act


def removed(*names: str) -> Damage:
    def act(root: Path) -> None:
        for name in names:
            (root / name).unlink()
            crc_path(root / name).unlink()

    return act


def test_a_checkpoint_that_is_whole_stays_as_it_is(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = checkpoints.contents(home.checkpoint)
    settled = home.settle()
    assert settled == Settled(committed=LAST, open=None, was_committed=LAST)
    assert checkpoints.contents(home.checkpoint) == before and not home.trash.exists()


def test_a_pipeline_that_never_ran_has_a_mark_before_spark_writes_anything(tmp_path: Path) -> None:
    mark = tmp_path / "synced.json"
    settled = settle(tmp_path / "checkpoint", tmp_path / "trash", "boot-1", mark=mark)
    assert settled == Settled(None, None, None)
    assert read_mark(mark) == Mark(batch=None, boot_id="boot-1", files=[])


TORN = {
    "last commit empty": (emptied("commits/8"), 7, 8),
    "last commit cut": (cut("commits/8"), 7, 8),
    "last commit cut, no checksum": (without_crc(cut("commits/8"), "commits/8"), 7, 8),
    "last commit garbage": (lambda root: (root / "commits/8").write_bytes(b"\0" * 29), 7, 8),
    "last commit missing": (removed("commits/8"), 7, 8),
    "last three commits torn": (emptied("commits/8", "commits/7", "commits/6"), 5, 6),
    "committed offsets empty": (emptied("offsets/8"), 8, None),
    "committed offsets cut": (cut("offsets/8"), 8, None),
    "committed offsets missing": (removed("offsets/8"), 8, None),
    "offsets before the last missing": (removed("offsets/7"), 8, None),
    "offsets in the middle missing": (removed("offsets/3"), 8, None),
    "commit in the middle missing": (removed("commits/3"), 8, None),
    "all offsets but one torn": (emptied(*(f"offsets/{n}" for n in range(1, 9))), 8, None),
    "changelog empty": (emptied("state/1/0/9.changelog"), 7, 8),
    "changelog cut": (cut("state/1/0/9.changelog"), 7, 8),
    "changelog cut, no checksum": (without_crc(cut("state/1/0/9.changelog"), "state/1/0/9.changelog"), 7, 8),
    "changelog with another byte": (changed("state/1/0/9.changelog"), 7, 8),
    "changelog missing": (removed("state/0/1/9.changelog"), 7, 8),
    "changelog after the snapshot torn": (emptied("state/0/1/8.changelog"), 6, 7),
    "snapshot torn": (cut("state/0/0/7.zip"), 8, None),
    "snapshot empty, no checksum": (without_crc(emptied("state/0/0/7.zip"), "state/0/0/7.zip"), 8, None),
    "sst missing": (removed("state/0/0/SSTs/000007-e0ca.sst"), 8, None),
    "sst cut": (cut("state/0/0/SSTs/000007-e0ca.sst"), 8, None),
    "checksum of a commit empty": (emptied("commits/.8.crc"), 8, None),
    "checksum of offsets wrong": (lambda root: (root / "offsets/.8.crc").write_bytes(b"crc\0\0\0\2\0abcd"), 8, None),
    "checksum of a snapshot wrong": (lambda root: (root / "state/0/0/.7.zip.crc").write_bytes(b"x" * 20), 8, None),
    "checksums missing": (lambda root: [*map(os.unlink, root.rglob(".*.crc"))], 8, None),
    "query torn": (emptied("metadata"), 8, None),
    "temporary of metadata": (lambda root: (root / "state/0/_metadata/v2/.9.ab-c.tmp").write_bytes(b"v2"), 8, None),
    "temporary of a log": (lambda root: (root / "commits/.9.ab-c.tmp").write_bytes(b""), 8, None),
    "temporary of state": (lambda root: (root / "state/0/0/.9.changelog.ab.TID7.tmp").write_bytes(b""), 8, None),
    "its checksum": (lambda root: (root / "state/0/0/..9.changelog.ab.TID7.tmp.crc").write_bytes(b""), 8, None),
}


@pytest.mark.parametrize(("damage", "committed", "opened"), TORN.values(), ids=TORN)
def test_what_is_torn_is_moved_away_and_the_batches_after_what_is_whole_run_again(
    tmp_path: Path, damage: Damage, committed: int, opened: int | None
) -> None:
    home = Home(tmp_path)
    damage(home.checkpoint)
    settled = home.settle()
    assert (settled.committed, settled.open) == (committed, opened)
    home.require_readable(settled)


def test_nothing_is_deleted(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=8, begun=9)
    emptied("commits/8")(home.checkpoint)
    before = checkpoints.contents(home.checkpoint)
    home.settle()
    (folder,) = home.trash.iterdir()
    assert checkpoints.contents(home.checkpoint) | checkpoints.contents(folder) == before


def test_what_an_attempt_left_of_the_open_batch_is_moved_away(tmp_path: Path) -> None:
    """Spark takes a changelog or a snapshot that is there already for its own; the intent may be another one now."""
    home = Home(tmp_path, committed=5, begun=6)
    settled = home.settle()
    assert settled == Settled(committed=5, open=6, was_committed=5, done=settled.done)
    home.require_readable(settled)
    assert {"state/0/0/7.changelog", "state/1/1/7.zip"} <= home.moved() and "offsets/6" not in home.moved()


def test_the_first_batch_runs_again_with_empty_state(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=-1, begun=0)
    settled = home.settle()
    assert (settled.committed, settled.open) == (None, 0)
    home.require_readable(settled)


def test_torn_offsets_of_the_first_batch_make_spark_start_over(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=-1, begun=0)
    emptied("offsets/0")(home.checkpoint)
    settled = home.settle()
    assert (settled.committed, settled.open) == (None, None)
    assert layout.everything(home.checkpoint) == []


def test_torn_offsets_of_an_open_batch_are_moved_away(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=8, begun=9, intents=False)
    cut("offsets/9")(home.checkpoint)
    settled = home.settle()
    assert (settled.committed, settled.open) == (8, None)
    assert "offsets/9" in home.moved()


def test_offsets_rewritten_have_the_clock_of_the_intent_and_sparks_settings(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = (home.checkpoint / "offsets/8").read_bytes()
    emptied("offsets/8")(home.checkpoint)
    home.settle()
    assert (home.checkpoint / "offsets/8").read_bytes() == before


def test_offsets_with_a_wrong_checksum_are_compared_with_the_intent(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = home.checkpoint / "offsets/8"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"0": 90', b'"0": 99'))
    home.settle()
    assert path.read_bytes() == whole


REFUSED = {
    "committed offsets": emptied("offsets/8"),
    "changelogs of two batches": emptied("state/0/0/8.changelog", "state/0/0/9.changelog"),
    "all metadata": emptied("state/0/_metadata/v2/0"),
    "the schema": emptied("state/1/_stateSchema/default/0_b8f0"),
    "a partition": lambda root: shutil.rmtree(root / "state/1/0"),
}


@pytest.mark.parametrize("damage", REFUSED.values(), ids=REFUSED)
def test_without_intents_what_cannot_run_again_is_refused_and_nothing_changes(tmp_path: Path, damage: Damage) -> None:
    home = Home(tmp_path, intents=False)
    damage(home.checkpoint)
    before = checkpoints.contents(tmp_path)
    with pytest.raises(IncompatibleCheckpointError, match=r"cannot run again(?s:.*)bring a copy of the pipeline's"):
        home.settle()
    assert checkpoints.contents(tmp_path) == before


@pytest.mark.parametrize("damage", REFUSED.values(), ids=REFUSED)
def test_with_intents_all_of_it_runs_again(tmp_path: Path, damage: Damage) -> None:
    home = Home(tmp_path)
    damage(home.checkpoint)
    settled = home.settle()
    assert settled.was_committed == LAST
    if settled.committed is None:
        assert settled.open in (None, 0)
    else:
        home.require_readable(settled)


def test_a_batch_whose_commit_is_torn_needs_no_intent(tmp_path: Path) -> None:
    """Spark runs it again with the offsets in its log."""
    home = Home(tmp_path, intents=False)
    emptied("commits/8")(home.checkpoint)
    assert home.settle().open == 8


def test_after_a_loss_of_power_only_what_the_mark_names_is_used(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=5)
    home.settle()
    home.sync()
    for batch in (6, 7, 8):
        checkpoints.add_batch(home.checkpoint, batch)
        checkpoints.add_commit(home.checkpoint, batch)
    late = home.checkpoint / "state/0/0/5.zip"
    checkpoints.write(late, b"a snapshot of an earlier version, uploaded late, and torn")
    settled = home.settle("boot-2")
    assert (settled.committed, settled.open, settled.was_committed) == (5, None, 8)
    home.require_readable(settled)
    assert "state/0/0/5.zip" in home.moved() and "state/1/0/SSTs/000007-e0ca.sst" in home.moved()
    mark = read_mark(home.mark)
    assert mark is not None and (mark.batch, mark.boot_id) == (5, "boot-2")
    assert set(mark.files) == {name for name, _ in layout.scan(home.checkpoint)}


def test_checksums_are_not_synced_so_torn_ones_are_no_matter_after_a_loss_of_power(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.settle()
    home.sync()
    for path in home.checkpoint.rglob(".*.crc"):
        path.write_bytes(b"crc\0\0\0\2\0" if "changelog" in path.name else b"")
    settled = home.settle("boot-2")
    assert (settled.committed, settled.open) == (LAST, None)
    assert sum("does not fit its file" in line for line in settled.done) == 1  # however many there are
    home.require_readable(settled)


def test_power_lost_before_the_first_batch_was_synced_makes_spark_start_over(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=1)
    write_mark(home.mark, Mark(batch=None, boot_id="boot-1", files=[]))
    settled = home.settle("boot-2")
    assert (settled.committed, settled.open, settled.was_committed) == (None, None, 1)
    assert layout.everything(home.checkpoint) == [] and "metadata" in home.moved()


def test_power_lost_with_the_intents_gone_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=5, intents=False)
    home.settle()
    home.sync()
    checkpoints.add_batch(home.checkpoint, 6)
    checkpoints.add_commit(home.checkpoint, 6)
    before = checkpoints.contents(tmp_path)
    with pytest.raises(IncompatibleCheckpointError, match="what batch 6 did is not known"):
        home.settle("boot-2")
    assert checkpoints.contents(tmp_path) == before


def test_a_kill_without_a_loss_of_power_keeps_what_was_not_synced(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=5)
    home.settle()
    home.sync()
    checkpoints.add_batch(home.checkpoint, 6)
    checkpoints.add_commit(home.checkpoint, 6)
    assert home.settle("boot-1") == Settled(committed=6, open=None, was_committed=6)


@pytest.mark.parametrize("power", ["boot-1", "boot-2"])
def test_whoever_is_killed_while_settling_can_settle_again(
    tmp_path: Path, power: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home_at(root: Path) -> Home:
        home = Home(root, committed=5)
        home.settle()
        home.sync()
        for batch in (6, 7):
            checkpoints.add_batch(home.checkpoint, batch)
            checkpoints.add_commit(home.checkpoint, batch)
        emptied("state/0/0/8.changelog", "state/0/0/7.changelog", "offsets/6")(home.checkpoint)
        return home

    whole = home_at(tmp_path / "whole")
    expected = whole.settle(power)
    moves = len([path for path in whole.trash.rglob("*") if path.is_file()])
    rename, left = Path.rename, 0

    def dying(self: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return rename(self, target)

    for left in range(0, moves, 3):
        home = home_at(tmp_path / str(left))
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Path, "rename", dying)
            home.settle(power)
        settled = home.settle(power)
        assert (settled.committed, settled.open) == (expected.committed, expected.open)
        home.require_readable(settled)
        assert checkpoints.contents(home.checkpoint).keys() == checkpoints.contents(whole.checkpoint).keys()


def test_a_checkpoint_that_was_moved_points_to_its_own_schemas(tmp_path: Path) -> None:
    home = Home(tmp_path / "old")
    home.settle()
    shutil.move(tmp_path / "old", tmp_path / "new")
    moved = tmp_path / "new" / "checkpoint"
    settled = settle(moved, tmp_path / "new/trash", "boot-1", mark=tmp_path / "new/synced.json")
    assert settled.committed == LAST
    for operator in (moved / "state/0", moved / "state/1"):
        lines = (operator / "_metadata/v2/0").read_text().splitlines()
        schema = operator / "_stateSchema/default/0_b8f0"
        assert json.loads(lines[1])["stateStoreInfo"][0]["stateSchemaFilePaths"] == [f"file:{schema}"]
        assert not crc_path(operator / "_metadata/v2/0").exists()


def test_rewind_goes_back_to_any_batch_whose_state_is_there(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=8, begun=9)
    home.settle()
    home.sync()
    rewind(home.checkpoint, 6, home.trash, mark=home.mark)
    mark = read_mark(home.mark)
    assert mark is not None and mark.batch == 6
    settled = home.settle()
    assert settled == Settled(committed=6, open=None, was_committed=6)
    home.require_readable(settled)


def test_rewind_to_the_last_committed_batch_forgets_the_open_one(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=8, begun=9)
    rewind(home.checkpoint, 8, home.trash, mark=home.mark)
    assert {"offsets/9", "state/0/0/10.changelog"} <= home.moved()
    assert home.settle() == Settled(committed=8, open=None, was_committed=8)


def test_rewind_to_a_batch_that_is_gone_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for partition in checkpoints.partitions(home.checkpoint):
        for version in (1, 2, 3):
            (partition / f"{version}.changelog").unlink()
        (partition / "1.zip").unlink()
    before = checkpoints.contents(tmp_path)
    with pytest.raises(IncompatibleCheckpointError, match="cannot go back to batch 1"):
        rewind(home.checkpoint, 1, home.trash, mark=home.mark)
    assert checkpoints.contents(tmp_path) == before


def test_a_mark_of_another_format_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.mark.write_bytes(b'{"format":9,"and":"more"}')
    with pytest.raises(IncompatibleCheckpointError, match=r"has format 9; this deltaworks reads format 1"):
        home.settle()


def test_what_was_moved_away_long_ago_is_deleted(tmp_path: Path) -> None:
    home = Home(tmp_path, committed=8, begun=9)
    home.settle()
    (folder,) = home.trash.iterdir()
    expire(home.trash, folder.stat().st_mtime - 1)
    assert folder.exists()
    expire(home.trash, folder.stat().st_mtime + 1)
    assert not folder.exists()
