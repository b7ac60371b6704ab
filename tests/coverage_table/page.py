"""The page `docs/kafka-streams.md`, made of the list of methods, the mapping, the proofs and the extras."""

from __future__ import annotations

import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.coverage_table.mapping import Class, Part, Row, Status, read_mapping, rows
from tests.coverage_table.proofs import Proof, read_proofs

_ROOT = Path(__file__).parents[2]
FILE = _ROOT / "docs" / "kafka-streams.md"
README = _ROOT / "README.md"
_HEAD = Path(__file__).with_name("page_head.md")
_END = Path(__file__).with_name("page_end.md")
_EXTRAS = Path(__file__).with_name("extras.toml")
_STATUSES: tuple[Status, ...] = ("same", "different", "not offered")
_TO_WRITE_AND_TEST = 7
"""So many parts come first that are about topologies; the others are about running them."""
_NOTHING = "-"
_SPECIAL = {
    "__call__": "calling `{}`",
    "__eq__": "`==` of `{}`",
    "__hash__": "`hash()` of `{}`",
    "__repr__": "`repr()` of `{}`",
    "__str__": "`str()` of `{}`",
}


def text() -> str:
    """The whole page."""
    parts, proofs = read_mapping(), read_proofs()
    chapters = [_chapter(part, proofs) for part in parts]
    end = _END.read_text().format(counts=_wrapped(counts(parts)))
    return "\n".join([_HEAD.read_text(), *chapters, _extras(), end + _overview(parts)])


def counts(parts: list[Part]) -> str:
    """The page in two sentences."""
    topologies, running = rows(parts[:_TO_WRITE_AND_TEST]), rows(parts[_TO_WRITE_AND_TEST:])
    return (
        f"Of the {len(topologies)} methods for writing and testing topologies {_in_words(topologies)}. "
        f"Of the {len(running)} for configuring, running and querying an application {_in_words(running)}."
    )


def read_extras() -> dict[str, str]:
    """What is only here, a public name or a member of one, and what it is for."""
    return tomllib.loads(_EXTRAS.read_text())


def _in_words(of: Iterable[Row]) -> str:
    found = Counter(row.status for row in of)
    same, different, missing = (found[status] for status in _STATUSES)
    return f"{same} are the same, {different} differ on purpose, {missing} are not offered"


def _overview(parts: list[Part]) -> str:
    head = ["methods | same | different | not offered |", "---:|---:|---:|---:|"]
    chapters = [_counted(f"[{part.title}](#{_anchor(part.title)})", rows([part])) for part in parts]
    classes = [_counted(f"`{each.name}`", each.rows) for part in parts for each in part.classes]
    return "\n".join(
        [
            *(f"| Chapter | {head[0]}", f"|---|{head[1]}", *chapters, _counted("all", rows(parts)), ""),
            *("<details><summary>Class by class</summary>", ""),
            *(f"| Class | {head[0]}", f"|---|{head[1]}", *classes, "", "</details>", ""),
        ]
    )


def _counted(name: str, of: Iterable[Row]) -> str:
    found = Counter(row.status for row in of)
    return f"| {name} | {found.total()} | " + " | ".join(str(found[status]) for status in _STATUSES) + " |"


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def _chapter(part: Part, proofs: Mapping[str, Proof]) -> str:
    return "\n".join(
        [f"## {part.title}", "", _wrapped(part.about), "", *(_table(each, proofs) for each in part.classes)]
    )


def _table(each: Class, proofs: Mapping[str, Proof]) -> str:
    above = [f"### `{each.name}`", ""]
    if each.about:
        above += [_wrapped(each.about), ""]
    lines = [
        "| Kafka Streams | Here | Proof | Difference |",
        "|---|---|---|---|",
        *(_line(row, proofs) for row in each.rows),
        "",
    ]
    if len({row.words for row in each.rows}) == 1 and not any(row.ours for row in each.rows):
        summary = f"Not offered: {len(each.rows)} methods" if len(each.rows) > 1 else "Not offered: 1 method"
        lines = [
            _wrapped(each.rows[0].words),
            "",
            f"<details><summary>{summary}</summary>",
            "",
            *lines,
            "</details>",
            "",
        ]
    return "\n".join([*above, *lines])


def _wrapped(prose: str) -> str:
    """Paragraphs with lines of at most 100 characters."""
    paragraphs = (
        textwrap.wrap(part, 100, break_long_words=False, break_on_hyphens=False) for part in prose.split("\n\n")
    )
    return "\n\n".join("\n".join(lines) for lines in paragraphs).strip()


def _line(row: Row, proofs: Mapping[str, Proof]) -> str:
    method = row.method
    shown = f"`{method.name}`"
    if method.overloads > 1:
        shown += f" ({method.overloads})"
    if method.deprecated == method.overloads:
        shown += " *deprecated*"
    tests = dict.fromkeys(_linked(proofs[name]) for name in row.ours if name in proofs)
    words = row.words.replace("|", "\\|") if row.ours else f"*Not offered.* {row.words}"
    cells = shown, ", ".join(map(_called, row.ours)), ", ".join(tests), words
    return "| " + " | ".join(cell or _NOTHING for cell in cells) + " |"


def _called(ours: str) -> str:
    owner, _, member = ours.partition(".")
    if member in _SPECIAL:
        return _SPECIAL[member].format(owner)
    return f"`{ours.removeprefix('$ ')}`"


def _linked(proof: Proof) -> str:
    shown = proof.test if proof.is_recorded else proof.name
    return f"[{shown}](../{proof.file})" + (f" (not mutated: {proof.because})" if proof.because else "")


def _extras() -> str:
    lines = [f"| `{name}` | {purpose} |" for name, purpose in read_extras().items()]
    return "\n".join(["## Only here", "", "| deltaworks | What it is for |", "|---|---|", *lines]) + "\n"
