"""Merges small files in tiers, so that a row is copied a bounded number of times.

Every batch of every task leaves a small file. Files of one partition are grouped by size; when a group is full, its
files become one file of the next group. Rows keep the order of their files, and files the order of their batches.

This module ignores four kinds of files. Pages and the ranges of snapshots are replaced anyway. A rollback takes the
files of publications away. Files of other writers do not say which batches their rows belong to.
"""

from __future__ import annotations

from collections import defaultdict

from deltaworks.lakehouse import layout

_TIERS_BYTES = (64 * 1024, 512 * 1024, 4 * 1024 * 1024)
"""A file below the first size belongs to tier 0, and so on; above the last it is never merged."""
_FAN_IN = (32, 8, 8)


class SmallFiles:
    """The small files of one table by partition and size; kept up to date commit by commit."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._places: dict[str, tuple[str, int]] = {}
        self._full: set[tuple[str, int]] = set()

    def add(self, path: str, size_bytes: int) -> None:
        """Adds a file of the table."""
        tier = sum(size_bytes >= limit for limit in _TIERS_BYTES)
        ours = layout.batch_of(path) is not None
        is_replaced = layout.is_page(path) or layout.is_range(path)
        if ours and tier < len(_TIERS_BYTES) and not is_replaced and not layout.is_retained(path):
            place = path.rpartition("/")[0], tier
            self._places[path] = place
            group = self._groups[place]
            group.add(path)
            if len(group) >= _FAN_IN[tier]:
                self._full.add(place)

    def remove(self, path: str) -> None:
        """Drops a file that is no longer part of the table."""
        if (place := self._places.pop(path, None)) is not None:
            group = self._groups[place]
            group.discard(path)
            if len(group) < _FAN_IN[place[1]]:
                self._full.discard(place)
            if not group:
                del self._groups[place]

    def full_group(self) -> list[str] | None:
        """Files to merge, in the order of their batches; None if no group is full."""
        place = min(self._full, default=None)
        return None if place is None else sorted(self._groups[place], key=_by_batch)


def _by_batch(path: str) -> tuple[int, str]:
    found = layout.batch_of(path)
    return (found[0] if found else -1), path
