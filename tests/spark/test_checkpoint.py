"""Real Spark goes on from a checkpoint that was torn, left by a kill, taken back after a loss of power, or moved."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from deltaworks.kafka.ranges import Offsets
from deltaworks.spark import checkpoint_files as layout
from deltaworks.spark.checkpoint_recovery import Settled, rewind, settle
from deltaworks.spark.checkpoint_sync import CheckpointSync, Mark, read_mark, write_mark
from tests.spark.checkpoint_query import PER_BATCH, Answer, Run, expected

LAST = 7
pytestmark = pytest.mark.timeout(600)


@dataclass
class Query:
    """The process with Spark, and a checkpoint after the batches 0 to `LAST` that tests copy."""

    process: subprocess.Popen[str]
    made: Path

    def run(self, checkpoint: Path, batches: int, plus: int = 0) -> dict[int, tuple[int, int]]:
        answer = self.ask(checkpoint, batches, plus)
        assert answer.error is None, answer.error
        return answer.sums

    def ask(self, checkpoint: Path, batches: int, plus: int = 0) -> Answer:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(Run(str(checkpoint), batches, plus)).decode() + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Answer:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return msgspec.json.decode(line.removeprefix("ANSWER "), type=Answer)
        raise AssertionError("Spark has died")


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    home = tmp_path_factory.mktemp("spark")
    command = [sys.executable, "-m", "tests.spark.checkpoint_query", str(home)]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        query = Query(process, home / "made" / "checkpoint")
        query.answer()
        for batches in (1, LAST + 1):
            query.run(query.made, batches)
        query.made.parent.rename(home / "kept")  # nothing may look where it was
        query.made = home / "kept" / "checkpoint"
        yield query
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Home:
    def __init__(self, query: Query, root: Path) -> None:
        self.query = query
        self.checkpoint = root / "checkpoint"
        shutil.copytree(query.made, self.checkpoint)
        self.trash = root / "trash"
        self.mark = root / "synced.json"

    def settle(self, boot_id: str = "boot-1") -> Settled:
        return settle(self.checkpoint, self.trash, boot_id, mark=self.mark, offsets_of=intended)

    def requires(self, first: int, batches: int) -> None:
        """Spark runs the batches from `first` on, with the state as of the batch before."""
        assert self.query.run(self.checkpoint, batches) == {n: expected(n) for n in range(first, batches)}


def intended(batch: int) -> Offsets:
    return {"numbers": {"0": PER_BATCH * (batch + 1)}}


@pytest.fixture
def home(query: Query, tmp_path: Path) -> Home:
    return Home(query, tmp_path)


def later(root: Path) -> None:
    """What must not be seen of later versions: garbage in the place of all of them."""
    for partition in root.glob("state/[0-9]/[0-9]"):
        for name in ("9.changelog", "9.zip", "10.changelog", "11.zip"):
            (partition / name).write_bytes(b"garbage")
    for operator in root.glob("state/[0-9]"):
        (operator / "_metadata/v2/8").write_bytes(b"v2\n{")
    (root / "commits" / ".8.crc").write_bytes(b"garbage")


def torn(*names: str) -> Callable[[Path], None]:
    def tear(root: Path) -> None:
        for name in names:
            (path,) = root.glob(name)
            path.write_bytes(path.read_bytes()[:20])

    return tear


DAMAGE = {
    "nothing, but moved": (lambda root: None, LAST + 1),
    "commit": (torn("commits/7"), LAST),
    "offsets": (torn("offsets/7", "offsets/6"), LAST + 1),
    "changelog": (torn("state/1/0/8.changelog"), LAST),
    "checksums": (torn("commits/.7.crc", "offsets/.7.crc", "state/0/0/.8.changelog.crc"), LAST + 1),
    "query": (torn("metadata"), LAST + 1),
    "metadata": (torn("state/0/_metadata/v2/1"), LAST + 1),
    "all that is later": (later, LAST + 1),
}


@pytest.mark.parametrize(("damage", "first"), DAMAGE.values(), ids=DAMAGE)
def test_spark_goes_on_after_the_last_batch_that_is_whole(
    home: Home, damage: Callable[[Path], None], first: int
) -> None:
    damage(home.checkpoint)
    home.settle()
    home.requires(first, LAST + 3)


def test_a_torn_snapshot_is_made_up_for_by_the_changelogs(home: Home) -> None:
    for partition in home.checkpoint.glob("state/[0-9]/[0-9]"):
        snapshots = layout.numbered(partition, ".zip")
        assert len(snapshots) > 1
        (partition / f"{snapshots[-1]}.zip").write_bytes(b"")
    home.settle()
    home.requires(LAST + 1, LAST + 3)


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "as Spark does"])
def test_a_batch_that_runs_again_with_another_intent_replaces_what_the_first_attempt_left(
    home: Home, settled: bool
) -> None:
    """Spark's rename does not replace, so it keeps the changelog of the first attempt, and the next start loads it."""
    home.settle()
    home.requires(LAST + 1, LAST + 2)
    for name in (f"commits/{LAST + 1}", f"commits/.{LAST + 1}.crc"):
        (home.checkpoint / name).unlink()
    if settled:
        home.settle()
    more = 1000 * PER_BATCH
    again = home.query.run(home.checkpoint, LAST + 2, plus=1000)
    assert again == {LAST + 1: (expected(LAST + 1)[0] + more,) * 2}
    after = home.query.run(home.checkpoint, LAST + 3)
    assert after == {LAST + 2: (expected(LAST + 2)[0] + (more if settled else 0),) * 2}


def test_after_a_loss_of_power_spark_goes_on_after_the_batch_that_was_synced(home: Home) -> None:
    rewind(home.checkpoint, 4, home.trash, mark=home.mark)
    home.settle()
    CheckpointSync(home.checkpoint, home.mark, "boot-1", failed=lambda error: pytest.fail(str(error))).close()
    home.requires(5, LAST + 2)
    mark = read_mark(home.mark)
    assert mark is not None and mark.batch == 4
    for path in layout.everything(home.checkpoint):
        if path.relative_to(home.checkpoint).as_posix() not in mark.files:
            path.write_bytes(b"")
    settled = home.settle("boot-2")
    assert (settled.committed, settled.open, settled.was_committed) == (4, None, LAST + 1)
    home.requires(5, LAST + 3)


def test_power_lost_before_anything_was_synced_makes_spark_begin_with_the_first_batch(home: Home) -> None:
    write_mark(home.mark, Mark(batch=None, boot_id="boot-1", files=[]))
    for path in layout.everything(home.checkpoint):
        path.write_bytes(b"")
    assert home.settle("boot-2").committed is None
    home.requires(0, 3)


def test_a_rewound_checkpoint_runs_the_batches_after_it_again(home: Home) -> None:
    rewind(home.checkpoint, 3, home.trash, mark=home.mark)
    home.settle()
    home.requires(4, LAST + 3)


def test_every_version_that_spark_wrote_is_whole(query: Query) -> None:
    state = layout.StateFiles(query.made)
    assert {version: state.problems(version) for version in range(1, LAST + 2)} == {n: [] for n in range(1, LAST + 2)}
