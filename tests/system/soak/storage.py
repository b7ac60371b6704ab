"""Faults of what is kept: power, full disks, checkpoints and homes that move, local stores."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

from deltaworks.control.paths import PipelinePaths
from tests.system.soak import broker
from tests.system.soak.processes import at_work, chosen
from tests.system.soak.record import Fault
from tests.system.soak.soak import NAMES, ROUND_S, Soak

_FULL_S = 40.0


def lose_power(soak: Soak, rng: random.Random) -> str | None:
    """All processes of all streams end at once, and a random part of what was not synced is gone; another boot."""
    moment = rng.uniform(0.0, ROUND_S)
    if not at_work(soak, chosen(soak, rng)):
        return None
    time.sleep(moment)
    with soak.stopped(politely=False):
        lost = soak.disk.lose_power(rng)
        soak.reboot()
    for example in lost.examples:
        soak.record.note("lost by power", what=example)
    return f"{lost.entries} entries, bytes of {lost.files} files" if lost.entries or lost.files else None


def fill_disk(soak: Soak, rng: random.Random) -> str | None:
    """No room in the home for some seconds after the first write that failed."""
    seconds, before = rng.uniform(3.0, 12.0), soak.disk.refusals
    soak.disk.full.touch()
    try:
        soak.until(lambda: soak.disk.refusals > before, _FULL_S, "a write fails")
        time.sleep(seconds)
    finally:
        soak.disk.full.unlink()
    failed = soak.disk.refusals - before
    return f"{failed} writes failed in {seconds:.0f} s" if failed else None


def fill_broker_disk(soak: Soak, rng: random.Random) -> str | None:
    """The broker has no room for some seconds; it may end and is started again."""
    disk, seconds, found = soak.broker_disk, rng.uniform(1.0, 5.0), broker.process(soak.stack)
    before = disk.refusals
    if found is None:
        return None
    disk.full.touch()
    try:
        soak.until(lambda: disk.refusals > before, _FULL_S, "a write of the broker fails")
        time.sleep(seconds)
    finally:
        disk.full.unlink()
    failed = disk.refusals - before
    soak.until(lambda: broker.process(soak.stack) is not None, 180.0, "the broker is back")
    return f"{failed} writes failed" if failed else None


def restore_checkpoint(soak: Soak, rng: random.Random) -> str | None:
    """Spark's checkpoint is that of some batches ago; the newest one lies beside it, should it be asked for."""
    stream, seconds = chosen(soak, rng), rng.uniform(4.0, 10.0)
    with soak.stopped(stream.name):
        checkpoint = PipelinePaths.of(soak.settings, stream.name).current.spark
        copy, newest = _copies(soak, stream.name)
        for folder in (copy, newest):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(checkpoint, copy)
    if not at_work(soak, stream):
        return None
    time.sleep(seconds)
    with soak.stopped(stream.name):
        shutil.move(checkpoint, newest)
        shutil.move(copy, checkpoint)
        (newest.parent / "of").write_text(stream.name)
    return f"{stream.name}, {seconds:.0f} s old"


def bring_checkpoint_back(soak: Soak, fault: Fault) -> str:
    """The newest one, as a refusal asks for it."""
    name = fault.what.partition(",")[0]
    _, newest = _copies(soak, name)
    checkpoint = PipelinePaths.of(soak.settings, name).current.spark
    shutil.rmtree(checkpoint)
    shutil.move(newest, checkpoint)
    return "brought the newest checkpoint back"


def _copies(soak: Soak, name: str) -> tuple[Path, Path]:
    folder = soak.work / "copies" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "copy", folder / "newest"


def move_home(soak: Soak, rng: random.Random) -> str | None:
    """All streams go on in another folder."""
    with soak.stopped():
        new = soak.move_home()
    return new.name


def lose_local_stores(soak: Soak, rng: random.Random) -> str | None:
    """The disk of the executors is gone after a crash."""
    stream = chosen(soak, rng)
    with soak.stopped(stream.name, politely=False):
        local = PipelinePaths.of(soak.settings, stream.name).current.local
        if not local.is_dir():
            return None
        shutil.rmtree(local)
    return stream.name


def corrupt_local_stores(soak: Soak, rng: random.Random) -> str | None:
    """Some pages are garbage, a file is shorter, after a crash of the machine."""
    name, spoilt = rng.choice(NAMES), 0
    with soak.stopped(name, politely=False):
        soak.reboot()
        for file in sorted(PipelinePaths.of(soak.settings, name).current.local.rglob("*")):
            size = file.stat().st_size if file.is_file() else 0
            if size < 8192 or rng.random() < 0.3:
                continue
            spoilt += 1
            with file.open("r+b") as content:
                if rng.random() < 0.3:
                    content.truncate(rng.randrange(size))
                    continue
                for _ in range(3):
                    content.seek(rng.randrange(size // 4096) * 4096)
                    content.write(rng.randbytes(4096))
    return f"{name}, {spoilt} files" if spoilt else None
