"""Places the boxes of a directed graph in columns, from left to right, so that few lines cross."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
Edge = tuple[str, str]
_SWEEPS = 8
_COLUMN_GAP, _ROW_GAP = 56.0, 18.0
_BEND = 10.0
"""Height of the place of a line that passes a column."""


@dataclass(frozen=True)
class Layout:
    """Where everything is, in pixels."""

    boxes: Mapping[str, Point]
    """Box -> its upper left corner."""
    lines: Mapping[Edge, tuple[Point, ...]]
    """Edge -> the points of its line, from box to box."""
    width: float
    height: float


def placed(sizes: Mapping[str, Point], edges: Sequence[Edge]) -> Layout:
    """Places boxes and lines.

    Args:
        sizes: box -> its width and height.
        edges: pairs of boxes; those that lead back, in a cycle, are drawn back.
    """
    if not sizes:
        return Layout({}, {}, 0.0, 0.0)
    onward = _onward(list(sizes), edges)
    column_of = _columns(list(sizes), onward)
    chains = {edge: _chain(edge, column_of) for edge in dict.fromkeys(onward)}
    columns = _ordered(column_of, chains)
    heights = {**{name: size[1] for name, size in sizes.items()}}
    ys = _heights(columns, chains, heights)
    xs, x = [], 0.0
    widths = [max((sizes[name][0] for name in column if name in sizes), default=0.0) for column in columns]
    for width in widths:
        xs.append(x)
        x += width + _COLUMN_GAP
    boxes = {name: (xs[column_of[name]], ys[name]) for name in sizes}

    def side(name: str, right: bool) -> Point:
        left, top = boxes[name]
        return left + (sizes[name][0] if right else 0.0), top + sizes[name][1] / 2

    lines: dict[Edge, tuple[Point, ...]] = {}
    for edge in dict.fromkeys(edges):
        turned = edge not in chains
        chain = chains.get(edge) or chains.get((edge[1], edge[0])) or [edge[0], edge[1]]
        bends = []
        for bend in chain[1:-1]:
            column = _column_of_bend(bend)
            y = ys[bend] + _BEND / 2
            bends += [(xs[column], y), (xs[column] + widths[column], y)]
        first, last = (edge[1], edge[0]) if turned else edge
        points = (side(first, True), *bends, side(last, False))
        lines[edge] = points[::-1] if turned else points
    return Layout(boxes, lines, x - _COLUMN_GAP, max(boxes[name][1] + sizes[name][1] for name in sizes))


def _onward(names: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    """The edges, those that close a cycle turned round."""
    children: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        children[source].append(target)
    state: dict[str, int] = {}
    found: list[Edge] = []

    def visit(name: str) -> None:
        state[name] = 1
        for child in children[name]:
            if child == name:
                continue
            if state.get(child) == 1:
                found.append((child, name))
                continue
            found.append((name, child))
            if child not in state:
                visit(child)
        state[name] = 2

    targets = {target for _, target in edges}
    for name in [*(name for name in names if name not in targets), *names]:
        if name not in state:
            visit(name)
    return found


def _columns(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The longest way to each box; what only begins is moved beside what it leads to."""
    parents: dict[str, list[str]] = {name: [] for name in names}
    children: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        parents[target].append(source)
        children[source].append(target)
    columns: dict[str, int] = {}

    def column(name: str) -> int:
        if name not in columns:
            columns[name] = 1 + max((column(parent) for parent in parents[name]), default=-1)
        return columns[name]

    for name in names:
        column(name)
    for name in names:
        if not parents[name] and children[name]:
            columns[name] = min(columns[child] for child in children[name]) - 1
    least = min(columns.values())
    return {name: number - least for name, number in columns.items()}


def _chain(edge: Edge, column_of: Mapping[str, int]) -> list[str]:
    """An edge with a place in each column that it passes."""
    source, target = edge
    passed = range(column_of[source] + 1, column_of[target])
    return [source, *(f"{source}\0{target}\0{column}" for column in passed), target]


def _column_of_bend(name: str) -> int:
    return int(name.rpartition("\0")[2])


def _ordered(column_of: Mapping[str, int], chains: Mapping[Edge, Sequence[str]]) -> list[list[str]]:
    """The boxes and bends of each column, each beside its neighbours in the next ones."""
    columns: list[list[str]] = [[] for _ in range(max(column_of.values()) + 1)]
    for name, column in column_of.items():
        columns[column].append(name)
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for chain in chains.values():
        for bend in chain[1:-1]:
            columns[_column_of_bend(bend)].append(bend)
        for one, next_one in pairwise(chain):
            after.setdefault(one, []).append(next_one)
            before.setdefault(next_one, []).append(one)
    best, fewest = [list(column) for column in columns], _crossings(columns, after)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        neighbours = before if forward else after
        for number in range(1, len(columns)) if forward else range(len(columns) - 2, -1, -1):
            beside = columns[number - 1 if forward else number + 1]
            columns[number] = _beside(columns[number], beside, neighbours)
        if (crossings := _crossings(columns, after)) < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _beside(column: Sequence[str], beside: Sequence[str], neighbours: Mapping[str, Sequence[str]]) -> list[str]:
    """A column, sorted by the middle of each one's neighbours in the column beside it."""
    place = {name: float(index) for index, name in enumerate(beside)}
    middles = {}
    for index, name in enumerate(column):
        places = [place[other] for other in neighbours.get(name, ()) if other in place]
        middles[name] = sum(places) / len(places) if places else float(index)
    return sorted(column, key=middles.__getitem__)


def _crossings(columns: Sequence[Sequence[str]], after: Mapping[str, Sequence[str]]) -> int:
    count = 0
    for column, next_column in pairwise(columns):
        place = {name: index for index, name in enumerate(next_column)}
        ends = [place[other] for name in column for other in sorted(after.get(name, ()), key=lambda n: place.get(n, 0))]
        count += sum(1 for i, end in enumerate(ends) for other in ends[i + 1 :] if other < end)
    return count


def _heights(
    columns: Sequence[Sequence[str]], chains: Mapping[Edge, Sequence[str]], heights: Mapping[str, float]
) -> dict[str, float]:
    """The upper border of each box and bend: near the middle of its neighbours, none over another."""
    near: dict[str, list[str]] = {}
    for chain in chains.values():
        for one, next_one in pairwise(chain):
            near.setdefault(one, []).append(next_one)
            near.setdefault(next_one, []).append(one)
    ys: dict[str, float] = {}
    for column in columns:
        y = 0.0
        for name in column:
            ys[name] = y
            y += heights.get(name, _BEND) + _ROW_GAP
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wanted = []
            for name in column:
                height = heights.get(name, _BEND)
                middles = [ys[other] + heights.get(other, _BEND) / 2 for other in near.get(name, ())]
                wanted.append(sum(middles) / len(middles) - height / 2 if middles else ys[name])
            for name, y in zip(column, _apart(column, wanted, heights), strict=True):
                ys[name] = y
    least = min(ys.values())
    return {name: round(y - least, 1) for name, y in ys.items()}


def _apart(column: Sequence[str], wanted: Sequence[float], heights: Mapping[str, float]) -> list[float]:
    """The places nearest to those that are wanted, in the same order and with gaps."""
    groups: list[list[float]] = []
    """Of boxes that touch: where they begin, how high they are together, sum of wanted beginnings, how many."""
    for name, y in zip(column, wanted, strict=True):
        height = heights.get(name, _BEND) + _ROW_GAP
        groups.append([y, height, y, 1])
        while len(groups) > 1 and groups[-2][0] + groups[-2][1] > groups[-1][0]:
            later, earlier = groups.pop(), groups.pop()
            total = earlier[2] + later[2] - later[3] * earlier[1]
            count = earlier[3] + later[3]
            groups.append([total / count, earlier[1] + later[1], total, count])
    ys: list[float] = []
    boxes = iter(column)
    for begin, _, _, count in groups:
        y = begin
        for _ in range(int(count)):
            ys.append(y)
            y += heights.get(next(boxes), _BEND) + _ROW_GAP
    return ys
