"""The page that `tables --markdown` prints: all tables of a project, each with its columns and what they mean.

A table that exists is described by itself, any other by the code of its pipeline or batch job, which only builds its
topology. So a page can be made where nothing runs, such as in CI. It names no time, size or folder: it changes when a
table changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deltaworks.batch import jobs as batch_jobs
from deltaworks.batch.definition import definition
from deltaworks.catalogue import quality_tables
from deltaworks.catalogue import table as catalog_table
from deltaworks.control import jobs
from deltaworks.lakehouse.described import Definition, Meaning, all_described
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.settings import Settings

_COMMAND = "deltaworks tables --markdown"
_HEAD = f"""\
<!-- Made by `{_COMMAND}`. Do not edit it: say it in the code, and make the page again. -->

# All tables
"""


@dataclass(frozen=True)
class Section:
    """Tables that belong together."""

    title: str
    tables: Sequence[Meaning]


def found(settings: Settings) -> list[Section]:
    """All tables of a project: of each pipeline, of batch jobs, of deltaworks itself, and of others.

    Raises:
        ConfigurationError: a file in `jobs/` fails.
        TopologyError: a topology cannot be built.
    """
    there: dict[str, Meaning] = {table.name: table for table in all_described(settings.tables)}
    of_code = {f"Pipeline `{name}`": _of_pipeline(settings, name) for name in jobs.names(settings)}
    of_code["Batch jobs"] = [definition(batch_jobs.load(settings, name)) for name in batch_jobs.names(settings)]
    of_code["Tables of deltaworks"] = [quality_tables.RESULTS, quality_tables.FAILURES, catalog_table.DEFINITION]
    sections = []
    for title, tables in of_code.items():
        sections.append(Section(title, [there.pop(table.name, table.meaning) for table in tables]))
    sections += _others(there)
    return [replace(section, tables=_by_name(section.tables)) for section in sections if section.tables]


def _of_pipeline(settings: Settings, name: str) -> list[Definition]:
    pipeline = jobs.load(settings, name)
    plan = pipeline.plan()
    archives = pipeline.archives(plan).tables
    return list(map(Definition.of, plan_schemas(plan.tables, pipeline.dead_letters.table, archives, pipeline=name)))


def _others(tables: Mapping[str, Meaning]) -> Iterator[Section]:
    """Tables that no code names: of former versions of the code, and of somebody else."""
    titles = {name: f"Pipeline `{table.pipeline}`, formerly" for name, table in tables.items() if table.pipeline}
    for title in sorted({titles.get(name, "Other tables") for name in tables}):
        yield Section(title, [table for name, table in tables.items() if titles.get(name, "Other tables") == title])


def _by_name(tables: Iterable[Meaning]) -> list[Meaning]:
    return sorted(tables, key=lambda table: table.name)


def page(sections: Sequence[Section]) -> str:
    """The page, in Markdown."""
    parts = [_HEAD, *_rows(("table", "one row is", "description"), _overview(sections))]
    for section in sections:
        parts.append(f"\n## {section.title}")
        for table in section.tables:
            parts += _described(table)
    return "\n".join(parts) + "\n"


def _overview(sections: Sequence[Section]) -> Iterator[tuple[str, ...]]:
    for section in sections:
        for table in section.tables:
            yield f"[`{table.name}`](#{table.name})", table.grain or "", table.description or ""


def _described(table: Meaning) -> Iterator[str]:
    yield f"\n### {table.name}\n"
    if table.description:
        yield f"{_text(table.description)}{'' if table.description.endswith(('.', '?', '!')) else '.'}\n"
    facts = {
        "One row is": table.grain,
        "Kind": table.kind,
        "Key": ", ".join(f"`{name}`" for name in table.key),
        "Which rows change": table.note,
        "As of when": table.as_of,
        "Partitions": ", ".join(f"`{name}`" for name in table.partitioned_by),
    }
    yield from (f"- {title}: {_text(text)}" for title, text in facts.items() if text)
    yield ""
    columns = ((f"`{each.name}`", f"`{each.type}`", each.meaning or "") for each in table.columns)
    yield from _rows(("column", "type", "meaning"), columns)
    yield f"\n```text\n{table.example}\n```"


def _rows(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield f"| {' | '.join(_text(cell).replace('|', chr(92) + '|') for cell in row)} |"


def _text(text: str) -> str:
    """In one line, without what Markdown would take for HTML outside code."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))
