"""How the state of tasks lasts from chunk to chunk, and what makes a task chunk done.

On one machine (`OnDisk`), a task's state is its local store, which each commit syncs. The order at the end is what a
cycle has changed, result, local stores. A task chunk that died before its first local store was written does everything
again; if all of them are written it answers from the result; a cycle that died in between first writes those that are
not.

A run that is shared (`InStore`) may have two attempts of a task chunk at once, in places that only the object store
connects. State is a changelog there (`recovery`), and a local store is a copy. No attempt changes what another one
reads: new segments get names of their own. The result, which says what the state is now, is what makes the task chunk
done. It is written once, so the first attempt counts, and all others answer from it. The host notes the state with the
chunk, and hands it to the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import msgspec

from deltaworks.errors import StateError
from deltaworks.faults import reach
from deltaworks.files import replace_file, side_by_side, write_new
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.lakehouse import layout, page_index
from deltaworks.runtime import messages
from deltaworks.runtime.replay.task_chunks import ChunkResult, RunPaths, TaskChunk, read_result
from deltaworks.runtime.state.local_store import (
    Changes,
    LocalStore,
    LocalTransaction,
    StateVersion,
    discard,
    stores_of,
)
from deltaworks.runtime.state.recovery import (
    NOTHING,
    StateHeader,
    append,
    decode_header,
    encode_header,
    local_path,
    open_store,
)
from deltaworks.runtime.task_loop import TaskId
from deltaworks.topology.plan import Plan

Process = Callable[[TaskChunk, Sequence[LocalTransaction]], tuple[ChunkResult, Sequence[Changes]]]
"""Runs a task chunk in transactions of its members' stores; returns its result, and what each member has changed."""
_NONCE = b"replay"
_log = logging.getLogger(__name__)


class OnDisk:
    """Durable local stores, for processes of one machine."""

    def __init__(self, paths: RunPaths, plan: Plan) -> None:
        self._paths, self._plan = paths, plan

    def keeps_changes(self, chunk: TaskChunk) -> bool:
        """Whether it asks what members have changed."""
        return len(chunk.members) > 1

    def run(self, chunk: TaskChunk, process: Process) -> ChunkResult:
        """Does a task chunk, or says what was done if it has been done already.

        Raises:
            StateError: the local stores are ahead of this chunk, or cannot be read.
        """
        version = StateVersion(chunk.commit_id + 1, _NONCE)
        result_path = self._paths.results(chunk.commit_id) / chunk.name
        changes_path = self._paths.changes(chunk.commit_id) / chunk.name
        with ExitStack() as opened:
            stores = [opened.enter_context(closing(self._local(task))) for task in chunk.members]
            transactions = [opened.enter_context(store.transaction()) for store in stores]
            reach("replay.opened")
            found = [transaction.version() for transaction in transactions]
            if any(each.number > version.number for each in found):
                raise StateError(f"the stores of task {chunk.name} are ahead of batch {chunk.commit_id}")
            if version in found:
                result = read_result(result_path)
                self._complete(transactions, changes_path, version)
                return result
            result, changes = process(chunk, transactions)
            if len(transactions) > 1:
                replace_file(changes_path, msgspec.msgpack.encode(changes))
            replace_file(result_path, msgspec.msgpack.encode(result))
            reach("replay.result_written")
            for transaction in transactions:
                transaction.commit(version)
                reach("replay.local_committed")
        return result

    def _complete(self, transactions: Sequence[LocalTransaction], changes_path: Path, version: StateVersion) -> None:
        """Completes a cycle that was interrupted: applies its changes to the stores that lack them."""
        if all(transaction.version() == version for transaction in transactions):
            return
        kept = msgspec.msgpack.decode(changes_path.read_bytes(), type=list[dict[str, StoreChanges]])
        for transaction, changes in zip(transactions, kept, strict=True):
            if transaction.version() != version:
                transaction.apply(changes)
                transaction.commit(version)
                reach("replay.local_committed")

    def _local(self, task: TaskId) -> LocalStore:
        return LocalStore(local_path(self._paths.state, *task), stores_of(self._plan.stages[task[0]]), durable=True)


class InStore:
    """A changelog per task in an object store; local stores are copies."""

    def __init__(self, paths: RunPaths, plan: Plan) -> None:
        self._paths, self._plan = paths, plan

    def keeps_changes(self, chunk: TaskChunk) -> bool:
        """See `OnDisk`."""
        return True

    def run(self, chunk: TaskChunk, process: Process) -> ChunkResult:
        """Does a task chunk, or says what was done if it has been done already.

        Raises:
            StateError: a local store cannot be written, even after it was made anew.
            TransientError: the object store does not answer.
        """
        place = self._paths.results(chunk.commit_id) / chunk.name
        with suppress(FileNotFoundError):
            return read_result(place)
        self._hear(chunk)
        try:
            return self._attempt(chunk, process, place)
        except StateError as error:  # or an attempt that was given up still holds the store
            _log.warning("%s It is thrown away and filled again.", error.message)
        for task in chunk.members:
            discard(local_path(self._paths.state, *task))
        return self._attempt(chunk, process, place)

    def _attempt(self, chunk: TaskChunk, process: Process, place: Path) -> ChunkResult:
        with ExitStack() as opened:
            states = [
                KeptState(self._paths.kept(task), task, data)
                for task, data in zip(chunk.members, chunk.states, strict=True)
            ]
            stores = [opened.enter_context(closing(self._copy(state))) for state in states]
            transactions = [opened.enter_context(store.transaction()) for store in stores]
            for transaction, state in zip(transactions, states, strict=True):
                transaction.require(state.header().version)
            reach("replay.opened")
            result, changes = process(chunk, transactions)
            version = StateVersion(chunk.commit_id + 1, layout.nonce().encode())
            with side_by_side():
                for state, change in zip(states, changes, strict=True):
                    append(state, state.header(), version, change)
            result = msgspec.structs.replace(
                result,
                states=tuple((state.task, state.encoded()) for state in states),
                replaced=tuple(file for state in states for file in state.replaced),
            )
            try:
                write_new(place, msgspec.msgpack.encode(result))
            except FileExistsError:
                return read_result(place)
            reach("replay.result_written")
            for transaction in transactions:
                transaction.commit(version)
                reach("replay.local_committed")
        return result

    def _hear(self, chunk: TaskChunk) -> None:
        """Puts what the host tells of tables where tasks look for it."""
        for told in chunk.told:
            for table, files in messages.unpacked(told).items():
                page_index.keep(self._paths.tables / table, files)

    def _copy(self, state: KeptState) -> LocalStore:
        """The local store of a task, at the state that the chunk begins with."""
        path, stores = local_path(self._paths.state, *state.task), stores_of(self._plan.stages[state.task[0]])
        local = LocalStore.copy(path, stores)
        try:
            open_store(local, state)
        except BaseException:
            local.close()
            raise
        return local


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """The state of a task."""

    header: bytes
    """The result of `recovery.encode_header`."""
    files: dict[int, str]
    """Segment -> the name of its file in the folder of the task."""


class KeptState:
    """`recovery.CheckpointState` of one task in an object store; what it replaces stays until the host removes it."""

    def __init__(self, folder: Path, task: TaskId, data: bytes) -> None:
        """
        Args:
            folder: of the task.
            task: which one.
            data: the result of `encoded`; empty: a task that has never run.
        """
        kept = msgspec.msgpack.decode(data, type=Kept) if data else Kept(encode_header(NOTHING), {})
        self.task, self.replaced = task, list[str]()
        self._folder, self._files, self._nonce = folder, dict(kept.files), layout.nonce()
        self._header = decode_header(kept.header, f"the state of task {task} of this replay")
        self._new: dict[int, bytes] = {}

    def header(self) -> StateHeader:
        return self._header

    def segment(self, segment_id: int) -> bytes:
        if segment_id in self._new:
            return self._new[segment_id]
        return (self._folder / self._files[segment_id]).read_bytes()

    def update(self, header: StateHeader) -> None:
        self._header = header
        for segment_id, data in self._new.items():
            write_new(self._folder / self._files[segment_id], data)
        self._new.clear()

    def put_segment(self, segment_id: int, data: bytes) -> None:
        self._files[segment_id], self._new[segment_id] = f"{segment_id}-{self._nonce}", data

    def remove_segment(self, segment_id: int) -> None:
        name = self._files.pop(segment_id)
        if self._new.pop(segment_id, None) is None:
            self.replaced.append(str(self._folder / name))

    def encoded(self) -> bytes:
        """What to make it of again."""
        return msgspec.msgpack.encode(Kept(encode_header(self._header), self._files))


def keeping(paths: RunPaths, plan: Plan) -> OnDisk | InStore:
    """How the state of a run lasts."""
    return InStore(paths, plan) if paths.is_shared else OnDisk(paths, plan)


def bring(paths: RunPaths, plan: Plan, states: Mapping[TaskId, bytes]) -> None:
    """Makes durable local stores, as `OnDisk` has them, of the state of a shared run.

    Args:
        paths: of the run.
        plan: has the stores.
        states: of the tasks that have run.
    """
    for task, data in states.items():
        path, stores = local_path(paths.state, *task), stores_of(plan.stages[task[0]])
        discard(path)
        with closing(LocalStore(path, stores, durable=True)) as local:
            open_store(local, KeptState(paths.kept(task), task, data))
