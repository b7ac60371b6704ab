"""Deletes a person's data from all that a pipeline has written: state, tables, records of publications, logs.

While no driver runs, in this order: the state, so that no later update brings a value back (`state`); each table, in
all of its versions (`rows`, `lakehouse.rewriting`); the documents that name files of tables; files of text (`texts`);
in an object store, uploads that nobody completes. What cannot be deleted here is listed. Each step leaves everything
consistent, so a command that was killed can be given again, and the stream can run in between.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from deltaworks import clock
from deltaworks.control import batches, erasures, fence, jobs, set_aside
from deltaworks.control.between_drivers import between_drivers
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.erasures import Erasure
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.erase import places, state, texts
from deltaworks.erase.rows import RowsOf
from deltaworks.errors import (
    ConfigurationError,
    ControlUnavailableError,
    DeltaworksError,
    TransientError,
)
from deltaworks.faults import reach
from deltaworks.kernel.call_outs import Answer, Place
from deltaworks.lakehouse import catalog, rewriting
from deltaworks.lakehouse.publish import ownership, publication
from deltaworks.lakehouse.rewriting import Successors, Unwanted
from deltaworks.lakehouse.schema import TableSchema, plan_schemas
from deltaworks.lakehouse.writes import NewFile
from deltaworks.object_path import ObjectPath
from deltaworks.replay import quiet
from deltaworks.runtime.call_outs.books import Books
from deltaworks.settings import Settings
from deltaworks.spark import handover
from deltaworks.topology.nodes import CallOut, Source
from deltaworks.topology.persons import Person

Report = Callable[[str], None]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline has of a person, without its state, which can only be read while the stream is stopped."""

    tables: dict[str, int]
    """Table -> rows that would go."""
    columns: dict[str, list[str]]
    """Table -> the columns that name the person."""
    older: dict[str, int]
    """Table -> rows in files of older versions, publications and the trash; a row counts in each file."""
    texts: int
    """Lines of logs, and texts in documents."""
    left: list[str]
    """Where the data would stay."""


@dataclass(frozen=True)
class _Table:
    name: str
    schema: TableSchema | None
    """None: a table of no pipeline, such as that of a batch job."""
    owner: str | None
    """The pipeline that writes it."""
    rows: RowsOf

    @property
    def unwanted(self) -> Unwanted:
        return Unwanted(self.rows, self.rows.text)


def find(settings: Settings, name: str, person: Person) -> Found:
    """Looks for a person's data; changes nothing, and the stream may run.

    Raises:
        ConfigurationError: there is no such pipeline, or it has not run here.
    """
    pipeline, paths = _opened(settings, name)
    mine, others = _tables(settings, pipeline, person)
    found = {table.name: rewriting.find(settings.tables / table.name, table.unwanted) for table in mine}
    return Found(
        tables={name: each.rows for name, each in found.items() if each.rows},
        older={name: each.older for name, each in found.items() if each.older},
        columns={table.name: sorted(+table.rows.columns) for table in mine if table.rows.columns.total()},
        texts=sum(texts.count(file, person) for file in places.texts_of(settings, paths)),
        left=[*_of_others(settings, others), *places.topics_of(pipeline)],
    )


def erase(
    settings: Settings, name: str, person: Person, *, by: str, reason: str = "", report: Report = lambda _: None
) -> Erasure:
    """Deletes a person's data; a running stream is stopped for it, and started again.

    Args:
        settings: where the pipeline runs.
        name: name of the pipeline.
        person: whose data.
        by: who asks for it.
        reason: why, for the record.
        report: called with lines of progress.

    Raises:
        ConfigurationError: there is no such pipeline, or it has not run here.
        ConflictError: a replay, a publication or a batch is not finished. Nothing has changed.
        IncompatibleCheckpointError: the code in jobs/ has another topology than the stream. Nothing has changed.
        TransientError: the disk is full or the object store does not answer, for instance; the same command completes
            it.
        FencedError: a newer generation runs, perhaps on another machine; the same command completes it.
    """
    pipeline, paths = _opened(settings, name)
    _require_quiet(settings, paths, name)
    done: list[Erasure] = []

    def act(generation: int, _: Callable[[], None]) -> None:
        with Lease(paths.lease, name, generation):
            fence.advance(paths.fence, generation, name)
            _require_quiet(settings, paths, name)
            begun = erasures.begin(paths, person, name, by=by, reason=reason)
            try:
                mine, others = _tables(settings, pipeline, person)
                done.append(_Erasing(settings, pipeline, paths, person, begun, report, generation, mine, others).run())
            except OSError as error:
                raise TransientError(
                    f"The data could not be deleted everywhere: {error}.",
                    hint="everything is consistent, and some of it is deleted; free the disk, then give the same "
                    "command again",
                ) from error
            except DeltaworksError:
                if not state.is_begun(paths, begun.id):
                    erasures.withdraw(paths, begun)
                raise

    between_drivers(settings, name, act, lambda: True, by=by, report=report)
    return done[0]


def _opened(settings: Settings, name: str) -> tuple[Pipeline, PipelinePaths]:
    paths = PipelinePaths.of(settings, name)
    pipeline = set_aside.applied(paths, jobs.load(settings, name))
    if stored_plan(paths.current.plan) is None:
        raise ConfigurationError(
            f"Pipeline {name!r} has not run here, so it has nobody's data.", hint=f"looked in {paths.root}"
        )
    return pipeline, paths


def _require_quiet(settings: Settings, paths: PipelinePaths, name: str) -> None:
    """Raises `ConflictError` if something is not finished that holds rows, or names files."""
    quiet.require(settings, paths, name, command="erase", replays=" and hold the data, too", rows=", and hold rows")


@dataclass(frozen=True)
class _Erasing:
    """One call of `erase`, while nothing else runs."""

    settings: Settings
    pipeline: Pipeline
    paths: PipelinePaths
    person: Person
    begun: Erasure
    report: Report
    generation: int
    """Of the drivers, and higher than that of all before."""
    tables: list[_Table]
    """Those of the pipeline, and of nobody."""
    others: list[_Table]
    """Those of other pipelines."""

    def run(self) -> Erasure:
        taken = dict(self.begun.taken)
        left: list[str] = []
        for step in (self._state, self._answers, self._rows, self._documents, self._texts):
            self._require_admitted()
            for place, count in step():
                if count:
                    taken[place] = taken.get(place, 0) + count
                    erasures.save(self.paths, msgspec.structs.replace(self.begun, taken=taken))
            reach(f"erase.done:{step.__name__.strip('_')}")
        self._registry()
        left += self._end_uploads(taken)
        left += _of_others(self.settings, self.others)
        left += places.remaining(self.settings, self.paths, self.person)
        left += places.beyond_reach(self.settings, self.paths)
        left += places.topics_of(self.pipeline)
        done = msgspec.structs.replace(
            self.begun,
            taken=taken,
            left=left,
            offsets=handover.offsets_after(self.paths, batches.last_number(self.paths.batches)),
            done_ms=clock.wall_ms(),
        )
        erasures.save(self.paths, done)
        return done

    def _state(self) -> Iterator[tuple[str, int]]:
        self.report("the state")
        erased = state.erase(
            self.settings, self.pipeline, self.paths, self.person, self.begun.id, admitted=self._require_admitted
        )
        if not any(place.startswith("store ") for place in self.begun.taken):  # else it counts again what is done
            yield from ((f"store {name}", count) for name, count in erased.entries.items())

    def _answers(self) -> Iterator[tuple[str, int]]:
        """What other systems have said about the person; a replay leaves out the records that asked."""
        nodes = self.pipeline.plan().nodes
        answers = {node.name: node.answer for node in nodes if isinstance(node, CallOut)}
        keys = {topic: node.key for node in nodes if isinstance(node, Source) for topic in node.topics}

        def is_theirs(place: Place, answer: Answer) -> bool:
            person = self.person
            return (
                person.in_raw(answer.about, keys.get(place.topic), is_key=True)
                or person.in_raw(answer.data, answers.get(place.operator))
                or person.in_raw(answer.key, None)
                or (answer.failure is not None and person.in_text(answer.failure))
            )

        if answers:
            self.report("answers of other systems")
        for count in Books(self.paths.answers).erase(is_theirs):
            yield "answers of other systems", count

    def _rows(self) -> Iterator[tuple[str, int]]:
        metadata = {"erasure": self.begun.id, "requestedBy": self.begun.requested_by}
        for table in self.tables:
            self.report(f"the table {table.name}")
            path = self.settings.tables / table.name
            taken = rewriting.take(
                path, table.schema, table.unwanted, self.begun.id, metadata, generation=self.generation
            )
            yield f"table {table.name}", taken.rows
            yield f"table {table.name}, older files", taken.older

    def _documents(self) -> Iterator[tuple[str, int]]:
        """Records that name files; and what publications and replays have left that were killed."""
        mine = {table.name: table for table in self.tables}
        known: dict[str, Successors] = {}

        def named(name: str, file: NewFile) -> NewFile:
            if name not in known:
                table = mine.get(name) or _Table(name, None, None, RowsOf(self.person))
                known[name] = Successors(self.settings.tables / name, table.schema, table.unwanted, self.begun.id)
            return known[name].of(file)

        publication.sweep(self.paths.publications)  # nothing is under way, so all rows that nobody waits for
        publication.rewrite(self.paths.publications, named)
        ownership.rewrite(self.paths.handovers, named)
        for rest in self.paths.replays.glob("*/"):
            shutil.rmtree(rest)
        yield from ()

    def _texts(self) -> Iterator[tuple[str, int]]:
        self.report("logs and documents")
        for file in places.texts_of(self.settings, self.paths):
            yield places.shown(self.settings, file), texts.erase(file, self.person)

    def _end_uploads(self, taken: dict[str, int]) -> Iterator[str]:
        """Ends uploads of a process that was killed meanwhile; yields where it is not allowed to look for any."""
        for folder in (self.paths.lasting, *(self.settings.tables / table.name for table in self.tables)):
            if isinstance(folder, ObjectPath):
                what = f"unfinished uploads to {folder}"
                try:
                    if ended := folder.store.end_uploads(f"{folder.key}/"):
                        taken[what] = taken.get(what, 0) + ended
                except ConfigurationError as error:
                    yield f"{what}: {error.message}"

    def _require_admitted(self) -> None:
        """Raises `FencedError` if a driver was admitted since, which may be on another machine."""
        fence.check(self.paths.fence, self.generation, self.pipeline.name)

    def _registry(self) -> None:
        try:
            Registry.of(self.settings).erase_texts(self.person.in_text, texts.ERASED)
        except ControlUnavailableError as error:
            self.report(f"the registry was not searched: {error.message}")


def _tables(settings: Settings, pipeline: Pipeline, person: Person) -> tuple[list[_Table], list[_Table]]:
    """The tables that are the pipeline's or nobody's; and those of other pipelines."""
    plan = pipeline.plan()
    schemas = {
        schema.name: schema
        for schema in plan_schemas(plan.tables, pipeline.dead_letters.table, pipeline.archives(plan).tables)
    }
    mine: list[_Table] = []
    others: list[_Table] = []
    for name in catalog.table_names(settings.tables):
        owner = catalog.log_of(settings.tables, name).pipeline
        of = mine if owner in (None, pipeline.name) else others
        of.append(_Table(name, schemas.get(name), owner, RowsOf(person, schemas.get(name), plan.serdes_of)))
    return mine, others


def _of_others(settings: Settings, tables: list[_Table]) -> list[str]:
    found = []
    for table in tables:
        held = rewriting.find(settings.tables / table.name, table.unwanted)
        if held.files:
            found.append(f"table {table.name} of {table.owner}: {held.rows} rows; deltaworks erase {table.owner}")
    return found
