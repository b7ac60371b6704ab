"""The order of a `java.util.TreeSet` whose elements change their rank while it is filled.

Kafka Streams keeps the neighbours of a node in one, by weight, and weights grow while neighbours are added. The shape
of the tree then decides the place of a new one, so an equal description needs the same red-black tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class _Entry:
    name: str
    parent: _Entry | None
    children: list[_Entry | None] = field(default_factory=lambda: [None, None])
    """The entries before and after this one."""
    red: bool = True

    @property
    def side(self) -> int:
        """The side on which it hangs below its parent."""
        return int(self.parent is not None and self.parent.children[1] is self)


class TreeSet:
    """Names, ordered by their ranks at the time they were added.

    Args:
        rank: the current rank of a name.
    """

    def __init__(self, rank: Callable[[str], tuple[int, str]]) -> None:
        self._rank = rank
        self._root: _Entry | None = None

    def add(self, name: str) -> None:
        """Adds a name, unless the way to its place meets the same name."""
        parent, entry, side = None, self._root, 0
        while entry is not None:
            if entry.name == name:
                return
            parent, side = entry, int(self._rank(name) > self._rank(entry.name))
            entry = entry.children[side]
        entry = _Entry(name, parent)
        if parent is None:
            self._root = entry
        else:
            parent.children[side] = entry
        self._balance(entry)

    def __iter__(self) -> Iterator[str]:
        return self._walk(self._root)

    def _walk(self, entry: _Entry | None) -> Iterator[str]:
        if entry is not None:
            yield from self._walk(entry.children[0])
            yield entry.name
            yield from self._walk(entry.children[1])

    def _balance(self, entry: _Entry) -> None:
        while (parent := entry.parent) is not None and parent.red and (above := parent.parent) is not None:
            side = parent.side
            uncle = above.children[1 - side]
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red, entry = True, above
                continue
            if entry.side != side:
                self._rotate(parent, side)
                entry, parent = parent, entry
            parent.red, above.red = False, True
            self._rotate(above, 1 - side)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, entry: _Entry, side: int) -> None:
        """Moves an entry down to one side; its child on the other side takes its place."""
        child, parent = entry.children[1 - side], entry.parent
        assert child is not None
        if parent is None:
            self._root = child
        else:
            parent.children[entry.side] = child
        inner = child.children[side]
        entry.children[1 - side], child.children[side] = inner, entry
        if inner is not None:
            inner.parent = entry
        child.parent, entry.parent = parent, child
