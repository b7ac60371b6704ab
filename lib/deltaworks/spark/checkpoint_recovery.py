"""Brings Spark's checkpoint into a state from which Spark starts: after a kill, a loss of power, or a move.

For the batch N after the last commit, Spark reads the last two entries of `offsets` and the last one of `commits`. It
loads version N of every partition's state (the last snapshot up to N, and the changelogs after it), and looks up each
operator's schema at the absolute path in its metadata. Spark renames files into place without a sync, and its rename
never replaces a file: a changelog, snapshot or metadata from an earlier attempt at a batch stays and is used. So this
module moves away everything that is torn, or later than the last batch that is whole everywhere. It deletes nothing:
files go to a trash folder.

The later batches run again from their intents (`control.intents`). A batch that was committed and has no intent cannot
run again, so the checkpoint is refused before anything is changed. The caller holds the lease; no JVM runs.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from deltaworks import clock
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import make_folder, replace_file, sync, sync_folder
from deltaworks.kafka.ranges import Offsets
from deltaworks.object_path import ObjectPath
from deltaworks.spark import checkpoint_files as layout
from deltaworks.spark.checkpoint_files import COMMITS, METADATA, OFFSETS, Crc, LoggedOffsets, StateFiles
from deltaworks.spark.checkpoint_sync import Mark, read_mark, relative, write_mark
from deltaworks.spark.source import CLOCK

NONE = -1
"""No batch is committed."""
_OTHER_CHECKSUM = "does not fit its file, which is whole"


@dataclass(frozen=True)
class Settled:
    """A checkpoint from which Spark starts; batches by Spark's own count."""

    committed: int | None
    """The last batch that is committed; None: Spark begins with the first one."""
    open: int | None
    """The batch after it, if Spark runs it with the offsets in its log; None: Spark asks for new ones."""
    was_committed: int | None
    """The last batch that was committed before, by file names; batches in between run again from their intents."""
    done: tuple[str, ...] = ()
    """What was found and done, a sentence each; empty: all was well."""


@dataclass
class Plan:
    """What to do; none of it has been done yet."""

    committed: int
    open: int | None
    from_scratch: bool = False
    """Everything is moved away, including folders: Spark begins with the first batch."""
    away: dict[Path, str] = field(default_factory=dict)
    """What to move to the trash, and why."""
    writes: dict[Path, bytes] = field(default_factory=dict)


def settle(
    checkpoint: Path,
    trash: Path,
    boot_id: str,
    *,
    mark: Path,
    offsets_of: Callable[[int], Offsets | None] = lambda batch: None,
) -> Settled:
    """Makes a checkpoint one from which Spark starts without an error; called just before the start.

    Args:
        checkpoint: Spark's folder; it need not exist.
        trash: folder beside it for what is moved away, with a subfolder per time.
        boot_id: of the machine, now; if the mark has another one, files that were not synced may be lost.
        mark: what `CheckpointSync` writes.
        offsets_of: the source offsets after a batch, according to its intent; None: there is no intent.

    Raises:
        IncompatibleCheckpointError: the checkpoint cannot be restored without a loss; nothing was changed.
    """
    checkpoint = checkpoint.absolute()
    marked = read_mark(mark)
    if not layout.everything(checkpoint):
        shutil.rmtree(checkpoint, ignore_errors=True)  # Spark refuses to begin with empty folders
        write_mark(mark, Mark(batch=None, boot_id=boot_id, files=[]))
        return Settled(None, None, None)
    lost_power = marked is not None and marked.boot_id != boot_id
    durable = frozenset(marked.files) if marked is not None and lost_power else None
    view = View(checkpoint, durable, offsets_of)
    last = view.last()
    plan = view.plan(last)
    view.require_intents(plan)
    _carry_out(view, plan, trash, mark, boot_id)
    return Settled(
        committed=None if plan.committed == NONE else plan.committed,
        open=plan.open,
        was_committed=None if last == NONE else last,
        done=_told(view, plan),
    )


def rewind(
    checkpoint: Path,
    batch: int,
    trash: Path,
    *,
    mark: Path,
    offsets_of: Callable[[int], Offsets | None] = lambda batch: None,
) -> None:
    """Takes a checkpoint back to the moment after a batch was committed and before the next one was planned.

    Args:
        checkpoint: see `settle`, also for the other arguments.
        batch: by Spark's count. The last committed batch only drops the open one; -1 drops everything.

    Raises:
        IncompatibleCheckpointError: the batch, or the state after it, does not exist; nothing was changed.
    """
    checkpoint = checkpoint.absolute()
    view = View(checkpoint, None, offsets_of)
    plan = view.plan(batch, keep_open=False)
    if plan.committed != batch:
        raise IncompatibleCheckpointError(
            "\n  ".join([f"the checkpoint {checkpoint} cannot go back to batch {batch}:", *view.problems[:5]]),
            hint=f"it goes back to batch {plan.committed}, or to the beginning (-1)",
        )
    _carry_out(view, plan, trash, mark, None)


def expire(trash: Path, before_s: float) -> None:
    """Deletes what was moved away before a time (seconds since 1970)."""
    for folder in trash.glob("*"):
        if folder.stat().st_mtime < before_s:
            shutil.rmtree(folder)


class View:
    """What a checkpoint has, and what can be made of it; changes nothing."""

    def __init__(
        self, checkpoint: Path, durable: frozenset[str] | None, offsets_of: Callable[[int], Offsets | None]
    ) -> None:
        self.checkpoint = checkpoint
        self.durable = durable
        self.problems: list[str] = []
        """Why later batches than the chosen one are given up."""
        self._offsets_of = offsets_of
        self._sizes: dict[Path, int] | None = None
        """The files in an object store, with their sizes in bytes."""
        if isinstance(checkpoint, ObjectPath):
            self._sizes = {path: about.st_size for path, about in checkpoint.files()}
        self._state = StateFiles(checkpoint, durable, self._sizes)

    def last(self) -> int:
        """The last committed batch, judged by names alone."""
        if self._sizes is None:
            return max(layout.numbered(self.checkpoint / COMMITS), default=NONE)
        logged = (path.name for path in self._sizes if path.parent == self.checkpoint / COMMITS)
        return max((int(name) for name in logged if name.isdecimal()), default=NONE)

    def plan(self, at_most: int, *, keep_open: bool = True) -> Plan:
        """The steps that lead to the last batch, up to `at_most`, that is whole everywhere."""
        for batch in range(at_most, NONE, -1):
            if (plan := self._try(batch, keep_open=keep_open)) is not None:
                return plan
        begun = self._offsets(0)
        if keep_open and begun == b"" and self._exists(self.checkpoint / OFFSETS / "0"):
            return self._completed(Plan(NONE, 0))
        away = dict.fromkeys(layout.everything(self.checkpoint), "Spark starts over")
        return Plan(NONE, None, from_scratch=True, away=away)

    def needed(self, plan: Plan) -> list[Path]:
        """The files that Spark reads to go on after the plan; what the plan writes is not among them."""
        batches = {plan.committed - 1, plan.committed, plan.open}
        found = []
        for name in self._names():
            path = self.checkpoint / name
            batch = layout.batch_of(name)
            logged = name.startswith((f"{OFFSETS}/", f"{COMMITS}/"))
            of_state = batch is not None and not logged
            if path not in plan.away and not of_state and "/SSTs/" not in name and (batch is None or batch in batches):
                found.append(path)
        version = plan.committed + 1
        for operator in self._state.operators():
            if (metadata := self._state.metadata_of(operator, plan.committed)) is None:
                if plan.committed == NONE:
                    continue
                raise FileNotFoundError(operator / "_metadata")
            found.append(operator / "_metadata" / "v2" / str(metadata[0]))
            for partition in map(operator.joinpath, map(str, range(metadata[1].partitions))):
                snapshot = self._state.snapshot_of(partition, version)
                if isinstance(snapshot, str):
                    raise FileNotFoundError(snapshot)
                found += [partition / f"{snapshot}.zip", *layout.ssts_of(partition / f"{snapshot}.zip")]
                found += [partition / f"{each}.changelog" for each in range(snapshot + 1, version + 1)]
        return found

    def require_intents(self, plan: Plan) -> None:
        """Raises if a committed batch is not in the plan and cannot run again as it was."""
        missing = [
            batch
            for batch in range(plan.committed + 1, self.last() + 1)
            if batch != plan.open and self._offsets_of(batch) is None
        ]
        if missing:
            raise IncompatibleCheckpointError(
                "\n  ".join(
                    [
                        f"Spark's checkpoint {self.checkpoint} is damaged, and what is whole ends with "
                        + (f"batch {plan.committed}; " if plan.committed != NONE else "no batch at all; ")
                        + f"what batch {missing[0]} did is not known, so it cannot run again:",
                        *self.problems[:5],
                    ]
                ),
                hint="nothing was changed; bring a copy of the pipeline's whole folder back, or start over with a new "
                f"checkpoint: move {self.checkpoint.parent} away, and the pipeline begins at its start offsets",
            )

    def _try(self, batch: int, *, keep_open: bool) -> Plan | None:
        commit = self.checkpoint / COMMITS / str(batch)
        if not self._exists(commit) or not layout.is_commit(commit):
            self.problems.append(f"{commit} is {'torn' if commit.exists() else 'missing'}")
            return None
        opened = batch + 1 if keep_open and self._is_open(batch + 1) else None
        plan = Plan(batch, opened)
        for needed in (batch,) if opened is not None or batch == 0 else (batch, batch - 1):
            path, found = self.checkpoint / OFFSETS / str(needed), self._offsets(needed)
            if found is None:
                self.problems.append(f"{path} is {'torn' if path.exists() else 'missing'}, and there is no intent")
                return None
            if found:
                plan.writes[path] = found
        if problems := self._state.problems(batch + 1):
            self.problems += problems
            return None
        return self._completed(plan)

    def _is_open(self, batch: int) -> bool:
        path = self.checkpoint / OFFSETS / str(batch)
        found = layout.read_offsets(path) if self._exists(path) else None
        if found is None:
            return False
        return layout.crc_of(path) is not Crc.DIFFERS or self._offsets_of(batch) in (None, found.offsets)

    def _offsets(self, batch: int) -> bytes | None:
        """The content to write into an entry of `offsets`; empty: it needs no change; None: unknown."""
        path = self.checkpoint / OFFSETS / str(batch)
        if self._exists(path) and self._is_open(batch):
            return b""
        intended, like = self._offsets_of(batch), self._entry_like(batch)
        if intended is None or like is None:
            return None
        at = intended.get(CLOCK, {}).get("0")
        return LoggedOffsets(like.settings | ({} if at is None else {"batchTimestampMs": at}), intended).encode()

    def _entry_like(self, batch: int) -> LoggedOffsets | None:
        """The nearest entry that is whole: Spark's settings stay the same."""
        folder = self.checkpoint / OFFSETS
        for number in sorted(layout.numbered(folder), key=lambda each: (each > batch, abs(each - batch))):
            if self._exists(folder / str(number)) and (found := layout.read_offsets(folder / str(number))) is not None:
                return found
        return None

    def _completed(self, plan: Plan) -> Plan:
        """Adds everything that would break Spark, or that it must not see."""
        for name in self._names():
            last = plan.open if plan.open is not None and name.startswith(f"{OFFSETS}/") else plan.committed
            if (batch := layout.batch_of(name)) is not None and batch > last:
                plan.away[self.checkpoint / name] = "is of a later batch"
        query = self.checkpoint / METADATA
        if query.exists() and not layout.is_query(query):
            plan.away[query] = "is torn"
        if query in plan.away or not self._exists(query):
            plan.writes[query] = b'{"id":"%s"}' % str(uuid.uuid4()).encode()  # nobody relies on Spark's own id
        self._completed_state(plan)
        for path in layout.everything(self.checkpoint):
            if layout.is_temporary(path):
                plan.away[path] = "was left by a process that was killed"
            elif layout.is_crc(path):
                continue
            elif not self._exists(path):
                plan.away.setdefault(path, "may not have reached the disk before the power was lost")
        self._completed_checksums(plan)
        return plan

    def _completed_state(self, plan: Plan) -> None:
        for operator in self._state.operators():
            found = self._state.metadata_of(operator, plan.committed)
            folder = operator / "_metadata" / "v2"
            for number in layout.numbered(folder):
                path, entry = folder / str(number), layout.read_operator(folder / str(number))
                if number > plan.committed:
                    continue
                if found is not None and number > found[0]:
                    plan.away[path] = "is torn; the one before says the same"
                elif entry is not None and (moved := entry.at(operator)) != entry:
                    plan.writes[path] = moved.encode()
            for partition in range(found[1].partitions if found is not None else 0):
                self._completed_partition(plan, operator / str(partition))

    def _completed_partition(self, plan: Plan, partition: Path) -> None:
        version = plan.committed + 1
        chosen = self._state.snapshot_of(partition, version)
        for snapshot in layout.numbered(partition, ".zip"):
            path = partition / f"{snapshot}.zip"
            later = isinstance(chosen, int) and chosen < snapshot <= version
            if later or (snapshot < version and not layout.is_snapshot(path)):
                plan.away[path] = "is torn; an earlier snapshot and the changelogs after it hold the same"

    def _completed_checksums(self, plan: Plan) -> None:
        """Moves away checksums whose file is moved or missing, and those that differ from a file that is whole.

        State that differs from its checksum is whole only if it is known to be durable; else it was given up before.
        """
        for crc in filter(layout.is_crc, layout.everything(self.checkpoint)):
            path = layout.owner_of_crc(crc)
            if crc in plan.away:
                continue
            if path in plan.away or path in plan.writes or not path.exists():
                plan.away[crc] = "belongs to a file that is not there any more"
            elif self.durable is None and path.suffix in (".changelog", ".sst"):
                continue  # and all of it would be a lot to read
            elif layout.crc_of(path) is Crc.DIFFERS:
                plan.away[crc] = _OTHER_CHECKSUM

    def _names(self) -> list[str]:
        """All files except checksums and temporary ones, relative to the checkpoint."""
        if self._sizes is None:
            return [name for name, _ in layout.scan(self.checkpoint)]
        return [relative(self.checkpoint, path) for path in self._sizes if not path.name.startswith(".")]

    def _exists(self, path: Path) -> bool:
        if self._sizes is not None:
            return path in self._sizes
        return path.is_file() and (self.durable is None or relative(self.checkpoint, path) in self.durable)


def _carry_out(view: View, plan: Plan, trash: Path, mark: Path, boot_id: str | None) -> None:
    """Carries out the plan so that it can start again from the beginning after a kill or a loss of power.

    Args:
        boot_id: None leaves it to the next start to decide what is durable.
    """
    marked = read_mark(mark)
    committed = None if plan.committed == NONE else plan.committed
    if marked is not None:
        gone = {relative(view.checkpoint, path) for path in plan.away}
        kept = [name for name in marked.files if name not in gone]
        batch = marked.batch if committed is None or marked.batch is None else min(marked.batch, committed)
        marked = Mark(batch=None if committed is None else batch, boot_id=marked.boot_id, files=kept)
        write_mark(mark, marked)
    folder = trash / datetime.fromtimestamp(clock.wall_s(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    if plan.from_scratch:
        make_folder(trash)
        view.checkpoint.rename(folder)
        sync_folder(view.checkpoint.parent)
        sync_folder(trash)
    else:
        _move(view.checkpoint, plan.away, folder)
    for path, content in plan.writes.items():
        make_folder(path.parent)
        replace_file(path, content)
    sync(plan.writes)
    if boot_id is None:
        return
    if view.durable is not None:
        written = {relative(view.checkpoint, path) for path in plan.writes}
        assert marked is not None
        write_mark(mark, Mark(batch=committed, boot_id=boot_id, files=sorted({*marked.files, *written})))
    elif marked is None:
        files = [path for path in layout.everything(view.checkpoint) if not layout.is_crc(path)]
        sync(files)
        names = [relative(view.checkpoint, path) for path in files]
        write_mark(mark, Mark(batch=committed, boot_id=boot_id, files=names))


def _move(checkpoint: Path, away: Iterable[Path], folder: Path) -> None:
    """Moves commits first, the last one first, so that the rest could at any time be left from an earlier batch."""
    touched: set[Path] = set()
    order = {COMMITS: 0, OFFSETS: 1}
    for path in sorted(away, key=lambda each: (order.get(each.parent.name, 2), -_number(each), each)):
        target = folder / path.relative_to(checkpoint)
        if target.parent not in touched:
            make_folder(target.parent)
        path.rename(target)
        touched |= {path.parent, target.parent}
    for each in touched:
        sync_folder(each)


def _number(path: Path) -> int:
    return int(path.name) if path.name.isdecimal() else NONE


def _told(view: View, plan: Plan) -> tuple[str, ...]:
    """A sentence for each kind of step that was done."""
    told = list(view.problems)
    if view.durable is not None:
        told.append(f"the machine was restarted since: what was not synced after batch {plan.committed} is not used")
    kinds: dict[str, list[Path]] = {}
    for path, why in plan.away.items():
        if not layout.is_crc(path) or why == _OTHER_CHECKSUM:
            kinds.setdefault(why, []).append(path)
    for why, paths in kinds.items():
        names = ", ".join(sorted(relative(view.checkpoint, path) for path in paths)[:5])
        told.append(f"{names}{' and others' if len(paths) > 5 else ''}: {why}: moved away")
    told += [f"{relative(view.checkpoint, path)}: rewritten" for path in list(plan.writes)[:5]]
    return tuple(told)
