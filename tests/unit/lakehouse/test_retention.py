"""Old versions: each hour, each day and each pin can be read by every reader; nothing else piles up."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks import faults
from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import checkpoints, compaction, cuts, layout, retention, versions
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.retention import Retention
from deltaworks.lakehouse.writes import NewFile
from deltaworks.settings import Settings
from tests.unit.lakehouse.lake import write_batch
from tests.unit.lakehouse.shop import KEEP, SHOP, START, Clock, Shop, simulate


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return simulate(monkeypatch)


@pytest.mark.slow
def test_hours_and_days_stay_and_nothing_else_piles_up(tmp_path: Path, time: Clock) -> None:
    """What there is depends on what is kept, not on how long the stream has run."""
    shop = Shop(tmp_path, time)
    logs, extra = [], []
    for day in range(1, 7):
        shop.run(START + timedelta(days=day), timedelta(minutes=41))
        for cut in shop.known():
            shop.check(cut)
        logs.append(len(list(tmp_path.glob("*/_delta_log/*"))))
        unneeded = _unneeded(shop)
        shop.run(time.now + timedelta(minutes=30), timedelta(minutes=12))
        extra.append(len(unneeded & _unneeded(shop)))

    times, now = [cut.at for cut in shop.known()], time.now
    for cut in shop.known():
        if cut.at < now - KEEP.versions - timedelta(hours=2):
            for name, number in cut.tables.items():
                file = tmp_path / name / layout.LOG_FOLDER / versions.checkpoint_name(number)
                assert not any("remove" in action for action in checkpoints.read([file])), "it would grow with commits"
    assert len([at for at in times if at >= now - KEEP.versions]) >= KEEP.versions // timedelta(minutes=41)
    hours = {f"{at:%d %H}" for at in times if now - KEEP.hours <= at < now - KEEP.versions}
    assert 0 <= len(hours) - (KEEP.hours - KEEP.versions) // timedelta(hours=1) <= 1
    days = [at.date() for at in times if at < now - KEEP.hours - timedelta(hours=1)]
    assert len(days) == len(set(days)) >= 2
    assert min(times) > now - KEEP.days - timedelta(days=1)
    assert max(logs[4:]) < 1.2 * logs[3], logs
    assert max(extra) == 0, extra


def _unneeded(shop: Shop) -> set[Path]:
    """Files of tables that no known version has."""
    needed = {
        shop.root / name / Path(uri.removeprefix("file://")).relative_to(shop.root / name)
        for cut in shop.known()
        for name, number in cut.tables.items()
        for uri in DeltaTable(shop.root / name, version=number).file_uris()
    }
    there = {path for path in shop.root.glob("[!_]*/**/*.parquet") if not _inner(shop.root, path)}
    return there - needed


def _inner(root: Path, path: Path) -> bool:
    return any(part.startswith("_") for part in path.relative_to(root).parts)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_start_at_any_time_keeps_what_is_kept(tmp_path: Path, time: Clock, seed: int) -> None:
    """Restarts, long stops, crashes at any point of housekeeping, changes of history that bring files back."""
    shop, choose = Shop(tmp_path, time), random.Random(seed)
    pinned: list[str] = []
    for step in range(16):
        shop.run(time.now + timedelta(hours=choose.randrange(1, 8)), timedelta(minutes=choose.randrange(20, 50)))
        match choose.randrange(5):
            case 0:
                shop.start()
            case 1:
                time.now += timedelta(hours=choose.randrange(60))
                shop.start()
            case 2:
                _crash(shop, choose)
            case 3 if shop.known():
                cut = choose.choice(shop.known())
                name = f"pin-{step}"
                try:
                    retention.pin(tmp_path, name, SHOP, cut.at, by="a test", retention=KEEP)
                    pinned.append(name)
                except ConfigurationError as error:
                    assert "are being deleted" in error.message
            case 4 if pinned:
                retention.unpin(tmp_path, pinned.pop(choose.randrange(len(pinned))), SHOP)
            case _:
                pass
        hours = {cut.at.replace(minute=0, second=0): cut for cut in shop.known()}
        for cut in [*hours.values(), *(pin.cut for pin in retention.pins(tmp_path, SHOP))]:
            shop.check(cut)


def _crash(shop: Shop, choose: random.Random) -> None:
    """Housekeeping ends somewhere."""
    point = choose.choice(["delta.checkpoint_written", "delta.before_merge"])
    faults.arm(lambda reached: _die() if reached.startswith(point) else None)
    try:
        for _ in range(8):
            shop.time.now += timedelta(minutes=30)
            batch_id, expected = len(shop.held), deepcopy(shop.expected)
            shop.committer.commit(batch_id, write_batch(shop.tables, batch_id, expected))
            shop.committer.settle()
            shop.expected, shop.held[batch_id] = expected, deepcopy(expected)
    except OSError:
        pass
    faults.arm(None)
    shop.start()
    committed = shop.committer.committed()
    batch_id = len(shop.held)
    if any(batch == batch_id for batch, _ in committed.values()):
        shop.batch()


def _die() -> None:
    raise OSError("no space left")


def test_a_pin_keeps_a_cut_until_it_is_taken_away(tmp_path: Path, time: Clock) -> None:
    shop = Shop(tmp_path, time)
    shop.run(START + timedelta(hours=1), timedelta(minutes=20))
    pin = retention.pin(
        tmp_path, "audit-q3", SHOP, START + timedelta(minutes=30), by="ann", reason="q3", retention=KEEP
    )
    assert (pin.cut.at, pin.by, pin.reason) == (START + timedelta(minutes=20), "ann", "q3")
    assert retention.pins(tmp_path, SHOP) == [pin]

    shop.run(START + timedelta(days=5), timedelta(minutes=50))
    assert pin.cut not in shop.known()
    shop.check(pin.cut)
    shop.start()
    shop.run(time.now + timedelta(hours=5), timedelta(minutes=50))
    shop.check(pin.cut)

    assert retention.unpin(tmp_path, "audit-q3", SHOP) == pin
    shop.run(time.now + timedelta(hours=2), timedelta(minutes=15))
    version = pin.cut.tables["counts"]
    with pytest.raises(ConfigurationError, match=f"cannot be read any more: version {version} is gone from its log"):
        cuts.readable(tmp_path, pin.cut, "counts")
    with pytest.raises(ConfigurationError, match="cannot be read any more: it was made anew since"):
        cuts.readable(tmp_path, msgspec.structs.replace(pin.cut, query="another"), "counts")
    with pytest.raises(ConfigurationError, match="cannot be read any more: it is not there any more"):
        cuts.readable(tmp_path / "elsewhere", pin.cut, "counts")


def test_what_cannot_be_pinned_is_said(tmp_path: Path, time: Clock) -> None:
    with pytest.raises(ConfigurationError, match="'shop' are not known"):
        retention.pin(tmp_path, "a", SHOP, by="ann")
    shop = Shop(tmp_path, time)
    shop.run(START + timedelta(hours=3), timedelta(minutes=10))
    retention.pin(tmp_path, "a", SHOP, by="ann")

    def refused(message: str, name: str, at: datetime | None = None) -> str | None:
        before = sorted(path.read_bytes() for path in tmp_path.glob("_cuts/shop/pins/*"))
        with pytest.raises(ConfigurationError, match=message) as raised:
            retention.pin(tmp_path, name, SHOP, at, by="ann", retention=KEEP)
        assert sorted(path.read_bytes() for path in tmp_path.glob("_cuts/shop/pins/*")) == before
        return raised.value.hint

    refused("There is a pin 'a' of 'shop' already, as of 2026-03-01 12:50:00 UTC", "a")
    assert "known since 2026-03-01 10:00:00" in str(refused("are not known", "b", START - timedelta(minutes=1)))
    assert refused("are being deleted", "b", START + timedelta(minutes=20)) == (
        "the last ones of an hour stay: 2026-03-01 10:50:00 UTC"
    )
    for name in ("", "../x", "2026", "a/b"):
        refused("cannot be the name of a pin", name)
    with pytest.raises(ConfigurationError, match="There is no pin 'b'") as raised:
        retention.unpin(tmp_path, "b", SHOP)
    assert raised.value.hint == "its pins: a"
    Path(DeltaTable(tmp_path / "counts").file_uris()[0].removeprefix("file://")).unlink()
    refused("Table 'counts' as of batch 17, .* cannot be read any more: 1 of its files are gone", "c")


def test_a_pin_that_cannot_be_read_keeps_everything(
    tmp_path: Path, time: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(tmp_path, time)
    shop.run(START + timedelta(hours=1), timedelta(minutes=10))
    (tmp_path / "_cuts/shop/pins").mkdir()
    (tmp_path / "_cuts/shop/pins/a.json").write_text('{"format": 1, "na')
    there = {path for path in tmp_path.glob("[!_]*/**/*") if path.is_file()}

    shop.run(START + timedelta(hours=12), timedelta(minutes=30))

    assert all(path.exists() for path in there if "/part-" in str(path) or path.suffix == ".json")
    assert any("stay for now: The pin" in message for message in caplog.messages)


def test_the_history_of_a_kept_version_says_where_it_is_from(tmp_path: Path, time: Clock) -> None:
    shop = Shop(tmp_path, time)
    write = write_batch(shop.tables, 0, shop.expected)
    shop.committer.commit(0, write, provenance={"generation": 4, "code": "c0de", "offsets": {"raw": {"0": [0, 9]}}})
    shop.committer.refresh_snapshots(force=True)
    first = shop.committer.publish_cut()
    assert first is not None
    shop.held[0] = shop.expected
    time.now += timedelta(hours=1)
    shop.run(START + timedelta(hours=9), timedelta(minutes=30))
    kept = first.tables["orders"]
    assert not (tmp_path / "orders" / layout.LOG_FOLDER / versions.file_name(kept + 1)).exists()

    version = versions.read(tmp_path / "orders" / layout.LOG_FOLDER, kept)

    assert version is not None
    assert json.loads(version.info["userMetadata"]) == {
        "pipeline": SHOP,
        "batchId": 0,
        "generation": 4,
        "code": "c0de",
        "offsets": {"raw": {"0": [0, 9]}},
    }


def test_files_that_come_back_after_a_version_without_them_stay(
    tmp_path: Path, time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback brings a file back: then its life is no interval of versions."""
    monkeypatch.setattr(compaction, "_FAN_IN", (1000, 1000, 1000))
    shop = Shop(tmp_path, time)
    shop.run(START + timedelta(hours=1), timedelta(minutes=20))
    orders = shop.committer.tables["orders"].log
    path = next(iter(orders.files))
    entry = orders.files[path]
    shop.committer.replace("orders", Commit(removed=[path], operation="DELETE"))
    shop.expected.orders = _rows_of(shop)
    shop.run(START + timedelta(hours=3), timedelta(minutes=20))
    new = NewFile(path, entry.size_bytes, entry.rows, entry.statistics or "")
    shop.committer.replace("orders", Commit(added=[new], operation="RESTORE"))
    shop.expected.orders = _rows_of(shop)
    shop.run(START + timedelta(hours=5), timedelta(minutes=20))
    shop.committer.replace("orders", Commit(removed=[path], operation="DELETE"))
    shop.expected.orders = _rows_of(shop)

    shop.run(START + timedelta(days=1), timedelta(minutes=31))

    hours = {cut.at.replace(minute=0, second=0): cut for cut in shop.known()}
    for cut in hours.values():
        shop.check(cut)


def _rows_of(shop: Shop) -> list[tuple[str, int]]:
    rows = DeltaTable(shop.root / "orders").to_pyarrow_table(columns=["key", "source_offset"]).to_pylist()
    return [(row["key"], row["source_offset"]) for row in rows]


def test_a_checkpoint_of_ours_is_read_by_delta_and_by_us(tmp_path: Path, time: Clock) -> None:
    shop = Shop(tmp_path, time)
    shop.run(START + timedelta(hours=2), timedelta(minutes=20))
    for name, table in shop.committer.tables.items():
        checkpoints.write(table.log.path, table.log.state())
        uris = set(DeltaTable(tmp_path / name).file_uris())
        for file in (table.log.path / layout.LOG_FOLDER).glob("*.json"):
            file.unlink()

        again = DeltaLog(table.log.path)
        again.load()

        theirs = DeltaTable(tmp_path / name)
        known = {name: value for name, value in table.log.definition.items() if value is not None}
        assert again.state() == replace(table.log.state(), definition=known)
        assert set(theirs.file_uris()) == uris
        assert theirs.metadata().configuration == table.log.properties
        assert theirs.metadata().partition_columns == list(table.log.partition_by)
        assert theirs.transaction_version(table.app_id) == table.log.transaction_version(table.app_id)
        theirs.create_checkpoint()  # delta-rs reads all of it


def test_settings_of_retention(tmp_path: Path) -> None:
    (tmp_path / "deltaworks.toml").write_text(
        '[retention]\nversions = "6 hours"\n[pipelines.shop.retention]\ndays = "1 day"\nversions = "90 minutes"\n'
    )
    settings = Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path)})

    assert Retention.of(settings.retention_of("other")) == Retention(versions=timedelta(hours=6))
    shop = Retention.of(settings.retention_of("shop"))
    assert shop == Retention(versions=timedelta(minutes=90), days=timedelta(days=1))
    assert shop.properties["delta.deletedFileRetentionDuration"] == "interval 7 days"
    assert Retention.only(timedelta(minutes=90)).properties["delta.logRetentionDuration"] == "interval 90 minutes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('weeks = "1"', "retention.weeks in .*deltaworks.toml is no setting"),
        ('days = "1 week"', "retention.days in .*deltaworks.toml is no duration: '1 week'"),
        ("days = 7", "is no duration: '7'"),
    ],
)
def test_wrong_settings_of_retention_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "deltaworks.toml").write_text(f"[retention]\n{text}\n")

    with pytest.raises(ConfigurationError, match=message):
        Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path)})
