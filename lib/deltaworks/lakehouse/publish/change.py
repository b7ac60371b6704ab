"""The one way in which several tables change together: publish, roll back, hand over, undo a handover.

A change is written down before its first commit, committed table by table, and completed after its last commit. It is
done again after an interruption: what it then has to commit is what no table shows yet, and the rest is found done. It
is undone in the same way. Callers check everything before they start, so a change that is refused leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import msgspec

from deltaworks.faults import reach
from deltaworks.lakehouse.writes import NewFile

R = TypeVar("R")


class TableChange(Protocol):
    """The part of a record that says what happens to one table."""

    @property
    def removed(self) -> tuple[NewFile, ...]: ...

    @property
    def added(self) -> tuple[NewFile, ...]: ...


C = TypeVar("C", bound=TableChange)


def renamed(change: C, named: Callable[[NewFile], NewFile]) -> C:
    """The part of a record with other files in it, after files of the table were rewritten."""
    removed, added = tuple(map(named, change.removed)), tuple(map(named, change.added))
    return msgspec.structs.replace(change, removed=removed, added=added)  # type: ignore[type-var]


def carry_out(
    act: str,
    *,
    write_down: Callable[[], R],
    pending: Iterable[str],
    commit: Callable[[R, str], None],
    complete: Callable[[R], R],
) -> R:
    """Changes several tables, as far as they are not changed yet.

    Args:
        act: its name, for the points of `deltaworks.faults`.
        write_down: makes the record of the change durable, unless it is.
        pending: the tables that do not show the change yet.
        commit: changes one of them, with a mark by which the change is recognised.
        complete: makes the record durable that says that all is done, unless it is.

    Returns:
        The completed record.
    """
    reach(f"{act}.before_record")
    record = write_down()
    reach(f"{act}.after_record")
    for index, name in enumerate(pending):
        if index:
            reach(f"{act}.between_tables")
        reach(f"{act}.before_commit:{name}")
        commit(record, name)
        reach(f"{act}.after_commit:{name}")
    reach(f"{act}.after_commits")
    return complete(record)
