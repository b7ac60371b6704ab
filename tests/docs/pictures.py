"""The pictures of `docs/tables/query.md`, all but the first from the tables of its example.

`python -m tests.docs.pictures` draws them; `test_pages.py` compares the files with what is drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from html import escape
from pathlib import Path

from tests.docs.pages import DOCS, rows

FOLDER = DOCS / "tables" / "pictures"
_USER, _KEY = "u-000", "u-113"
_INK, _QUIET, _LINE, _FILL, _OPEN, _GONE = "#1f2933", "#616e7c", "#9aa5b1", "#d6e6f5", "#fdf3d8", "#f7dfdf"
_STROKE = "#2f6fa8"


class Drawing:
    """Shapes on white paper; coordinates are pixels from the top left corner."""

    def __init__(self, width: int, height: int, about: str) -> None:
        self._width, self._height = width, height
        self._parts = [f"<title>{escape(about)}</title>", f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        color: str = _INK,
        size: int = 13,
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}" font-size="{size}"{weight}>'
            f"{escape(text)}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, *, fill: str = _FILL, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{fill}" '
            f'stroke="{_STROKE}"{dash}/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, *, color: str = _LINE, width: float = 1) -> None:
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}" stroke-width="{width:g}"/>'
        )

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
            f'width="{self._width}" height="{self._height}" font-family="sans-serif" role="img">'
        )
        return "\n".join([head, *self._parts, "</svg>", ""])


def cut() -> str:
    """Which versions of three tables belong together; the numbers are made up."""
    drawing = Drawing(680, 236, "A cut names the versions of all tables as of one batch")
    lanes = {
        "order_counts": {39: 55, 40: 56, 41: 57},
        "users_changelog": {39: 12, 41: 13},
        "users (snapshot)": {39: 4, 41: 5},
    }
    left, step = 150, 130

    def x(batch: int) -> int:
        return left + (batch - 39) * step

    drawing.box(x(41) - 8, 34, step - 14, 164, fill="#eef7ee", dashed=True)
    drawing.text(x(41) + 50, 218, "the cut of batch 41", anchor="middle", bold=True)
    for batch in (39, 40, 41, 42):
        drawing.text(x(batch) + 50, 24, f"batch {batch}", anchor="middle", color=_QUIET)
    drawing.text(x(42) + 50, 202, "being committed", anchor="middle", color=_QUIET, size=12)
    for number, (table, made) in enumerate(lanes.items()):
        y = 46 + number * 52
        drawing.text(12, y + 21, table)
        ends = [*list(made)[1:], 42]
        for (batch, version), end in zip(made.items(), ends, strict=True):
            drawing.box(x(batch), y, (end - batch) * step - 30, 32)
            drawing.text(x(batch) + 50, y + 21, f"version {version}", anchor="middle")
    drawing.box(x(42), 46, 100, 32, fill=_OPEN)
    drawing.text(x(42) + 50, 67, "version 58", anchor="middle")
    for y in (98, 150):
        drawing.box(x(42), y, 100, 32, fill="#ffffff", dashed=True)
        drawing.text(x(42) + 50, y + 21, "not yet", anchor="middle", color=_QUIET)
    return drawing.svg()


def windows() -> str:
    """The windows of one user: what is final, and what may still change."""
    found = rows(
        f"SELECT window_start, window_end, orders, is_final FROM order_counts WHERE user_id = '{_USER}' ORDER BY 1"
    )
    drawing = Drawing(680, 216, f"The windows of {_USER} in order_counts")
    left, step, base = 40, 100, 150
    highest = max(orders for _, _, orders, _ in found)
    for number, (start, _, orders, is_final) in enumerate(found):
        x, height = left + number * step, 100 * orders / highest
        drawing.box(x + 8, base - height, step - 16, height, fill=_FILL if is_final else _OPEN, dashed=not is_final)
        drawing.text(x + step / 2, base - height - 6, str(orders), anchor="middle", bold=True)
        drawing.text(x, base + 18, _clock(start), anchor="middle", color=_QUIET, size=12)
        drawing.line(x, base, x, base + 5)
    end = left + len(found) * step
    drawing.line(left, base, end, base)
    drawing.line(end, base, end, base + 5)
    drawing.text(end, base + 18, _clock(found[-1][1]), anchor="middle", color=_QUIET, size=12)
    closed = sum(is_final for *_, is_final in found)
    drawing.text(left + closed * step / 2, base + 44, "is_final: these rows stay as they are", anchor="middle")
    drawing.text(left + (closed + 0.5) * step, base + 44, "open: may change", anchor="middle")
    return drawing.svg()


def one_key() -> str:
    """The updates of one key, and the row that the snapshot had after each batch."""
    found = rows(
        f"SELECT batch_id, op, country FROM users_changelog WHERE user_id = '{_KEY}' "
        "ORDER BY source_partition, source_offset"
    )
    ((last,),) = rows("SELECT max(batch_id) FROM users_changelog")
    drawing = Drawing(680, 176, f"{_KEY} in users_changelog and in users")
    left, step = 150, 62

    def x(batch: int) -> int:
        return left + batch * step

    for batch in range(last + 1):
        drawing.text(x(batch) + step / 2, 24, f"batch {batch}", anchor="middle", color=_QUIET, size=12)
    drawing.text(12, 66, "users_changelog")
    drawing.text(12, 81, "keeps every update", color=_QUIET, size=11)
    drawing.text(12, 136, "users")
    drawing.text(12, 151, "has the current row", color=_QUIET, size=11)
    ends = [batch for batch, *_ in found[1:]] + [last + 1]
    drawing.text(x(0) + (x(found[0][0]) - x(0)) / 2, 141, "no row", anchor="middle", color=_QUIET)
    for (batch, op, country), end in zip(found, ends, strict=True):
        gone = op == "delete"
        drawing.box(x(batch) + 3, 44, step - 6, 44, fill=_GONE if gone else _FILL)
        drawing.text(x(batch) + step / 2, 63, op, anchor="middle")
        drawing.text(x(batch) + step / 2, 79, country or "-", anchor="middle", bold=True)
        middle = (x(batch) + x(end)) / 2
        if gone:
            drawing.text(middle, 141, "no row", anchor="middle", color=_QUIET)
        else:
            drawing.box(x(batch) + 3, 118, (end - batch) * step - 6, 36)
            drawing.text(middle, 141, str(country), anchor="middle", bold=True)
    return drawing.svg()


PICTURES: dict[str, Callable[[], str]] = {"cut": cut, "windows": windows, "one-key": one_key}


def path(name: str) -> Path:
    return FOLDER / f"{name}.svg"


def _clock(time: datetime) -> str:
    return f"{time:%H:%M}"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        path(name).write_text(draw())


if __name__ == "__main__":
    main()
