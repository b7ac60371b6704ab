"""A pipeline: a named topology and how it runs. One per file in `jobs/`."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Literal, TypeVar

from deltaworks.dsl import alerts as alerting
from deltaworks.dsl import failures
from deltaworks.dsl.builder import StreamsBuilder
from deltaworks.dsl.corrections import Corrections
from deltaworks.dsl.corrections import problems as problems_of_corrections
from deltaworks.dsl.graph import call_site, line_of
from deltaworks.dsl.mistakes import named, takes
from deltaworks.dsl.reprocess import Reprocess
from deltaworks.dsl.reprocess import problems as problems_of_reprocessing
from deltaworks.dsl.topology import Topology
from deltaworks.errors import Problem, TopologyError
from deltaworks.names import OWN_TABLE, PIPELINE, TOPIC
from deltaworks.serdes.schemas import Schemas
from deltaworks.topology.alerts import USUAL, Alerts
from deltaworks.topology.archives import Archives
from deltaworks.topology.checks import table_names
from deltaworks.topology.error_handlers import ErrorPolicy, Handling
from deltaworks.topology.nodes import AnyNode, Source
from deltaworks.topology.plan import Plan
from deltaworks.topology.records import Coordinates
from deltaworks.topology.registered import bound_plan
from deltaworks.topology.secrets import has_path
from deltaworks.topology.timestamps import Timestamps, problem_of


@dataclass(frozen=True)
class Topic:
    """A topic that the pipeline reads or writes, and how it is created if it does not exist."""

    name: str
    partitions: int = 4
    compacted: bool = False
    """Kafka keeps the last record of each key for ever, as a table topic needs."""
    replication: int | None = None
    """Number of replicas; None: the broker's default."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the topic, such as `{"retention.ms": "604800000"}`; None of them: the broker's defaults. A topic that
    exists is never changed: a start names what differs."""
    timestamps: Timestamps | None = None
    """How far ahead of the clock its records may be, and what happens to others; None: any, as in Kafka Streams."""
    secret: tuple[str, ...] = ()
    """What `deltaworks explain` hides in its records: `key`, `value` or a field, such as `value.card.number`. Where the
    type is your own, mark the field there: `Annotated[str, Secret()]`."""


@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """Where a pipeline puts the records that it sets aside, with their coordinates and the error.

    ```python
    Pipeline(..., on_error="continue", dead_letters=DeadLetters(topic="orders-dead-letters", table="dead_letters"))
    ```
    """

    topic: str | None = None
    """The topic for them; the coordinates and the error are in headers."""
    table: str | None = None
    """The Delta table for them."""
    keep_bytes: bool = False
    """They always have the key and value that were read. Kafka Streams drops both once a sink has taken a record that
    fails later; so does a pipeline without this setting."""


T = TypeVar("T")
_log = logging.getLogger(__name__)
_GONE = {
    "dead_letter_topic": "dead_letters=DeadLetters(topic={!r})",
    "dead_letter_table": "dead_letters=DeadLetters(table={!r})",
    "dead_letters_keep_bytes": "dead_letters=DeadLetters(keep_bytes={!r})",
}
"""Arguments of earlier versions -> what to write instead."""


def _telling_gone(made: type[T]) -> type[T]:
    """A class whose constructor refuses arguments of earlier versions with a hint."""
    init: Any = made.__init__

    @functools.wraps(init)
    def told(self: Any, **arguments: Any) -> None:
        for gone in _GONE.keys() & arguments.keys():
            hint = _GONE[gone].format(arguments[gone])
            raise TypeError(f"{made.__name__} has no argument '{gone}'.\n    at {call_site()}\n    Hint: {hint}")
        init(self, **arguments)

    made.__init__ = told  # type: ignore[method-assign]
    return made


@_telling_gone
@dataclass(frozen=True, kw_only=True, repr=False)
class Pipeline:
    """A topology with a name, and how it runs. `pipeline.plan()` shows its flowchart in a notebook.

    ```python
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("words", key=str, value=str).group_by_key().count(store="counts").to_delta("word_counts")

    pipeline = Pipeline(name="words", topology=topology)
    ```
    """

    name: str
    """Names the checkpoint, the transactions and the control topic; a rename is a new pipeline."""
    topology: Callable[[StreamsBuilder], None] | Callable[[], Topology]
    """Builds the topology with the builder that it gets, or takes nothing and returns a low-level `Topology`.
    `plan` calls it each time."""
    topics: tuple[Topic, ...] = ()
    """Topics about which something is special, such as the number of their partitions. The first start creates every
    topic that the topology reads or writes and that does not exist; one that is not listed is as `Topic(name)` says."""
    on_error: Literal["fail", "continue"] = "fail"
    """`continue` sets aside a record that does not decode, makes a function raise or has a result that does not encode.
    """
    deserialization_handler: Handling | None = None
    """Replaces `on_error` for records that do not decode: `fail`, `continue` or a function."""
    processing_handler: Handling | None = None
    """Replaces `on_error` for records on which a function raises."""
    production_handler: Handling | None = None
    """Replaces `on_error` for results that do not encode."""
    dead_letters: DeadLetters = DeadLetters()
    """Where records that are set aside go; without a topic or a table they are only counted."""
    set_aside: frozenset[Coordinates] = frozenset()
    """Records that become dead letters instead of being processed, whatever `on_error` says; every host adds those of
    `deltaworks set-aside`."""
    archive: bool = False
    """Keeps the records of the topics that it reads, as they were in Kafka, in Delta tables `<topic>_archive` (all that
    match a pattern in one table), for replays of what Kafka has removed since. Topics of global tables have none."""
    reprocess: Reprocess | None = None
    """When its newest days are processed again by itself, and what is published of the result; None: only when somebody
    asks for a replay."""
    corrections: Corrections | None = None
    """Who is told of the rows that a published replay changes; None: only the tables show it."""
    alerts: Alerts = USUAL
    """From when on its lag, a batch that does not end, dead letters and the growth of its state are incidents."""
    on_start: Callable[[], None] | None = None
    """Called in the driver of the stream at each start, after every check and before the first batch. If it raises, the
    stream does not start."""
    on_stop: Callable[[BaseException | None], None] | None = None
    """Called in the driver when the stream has ended, once for each `on_start` that has returned, with the error that
    ended it; None: it was stopped or has caught up. It is not called if the process is killed (SIGKILL, a loss of
    power), so nothing may depend on it. A batch that failed runs again at the next start."""
    trigger_interval: timedelta = timedelta(seconds=1)
    """Time from the start of one micro-batch to the start of the next."""
    max_trigger_interval: timedelta | None = None
    """How far `trigger_interval` may grow while the cores of the machine are overloaded, so that streams run fewer and
    larger batches instead of queueing; None: not at all. A stream with a backlog does not wait."""
    cores: int | None = None
    """The maximum number of cores for its tasks; None: all cores of the machine. A start with more than before spreads
    the state over them. If the first start of a checkpoint has one core, all stages run in one operator without a
    shuffle, which makes small batches cheaper by a third or more."""
    record_cache: bool = True
    """Tables forward only the last update per key and micro-batch; without it, every update."""
    explicit_names: Literal["stores", "all", "none"] = "stores"
    """Names that the topology must give; as in `StreamsBuilder`."""
    optimize: bool = False
    """Merges exchanges, keeps one store for a self-join; as in `StreamsBuilder`."""
    emit_interval: timedelta = timedelta(0)
    """Wall-clock pause between two checks for results that the end of a window releases; as in `StreamsBuilder`."""
    compatible_with_kafka: bool = False
    """With `EmitStrategy.ON_WINDOW_CLOSE`, windows that leave their store before they are forwarded are lost, as in
    Kafka Streams, and counted; by default, they are kept and forwarded. As in `StreamsBuilder`. A checkpoint keeps the
    mode that it began with: another one is refused."""
    idle_timeout: timedelta | None = None
    """After this long without a record, a task's stream time follows the wall clock, so that its last windows close.
    In Kafka Streams the last windows wait for the next record."""
    max_task_idle: timedelta | None = None
    """How long a task that reads several partitions waits for those that have no record at hand, so that a join sees
    the records of both sides in time order; None: it does not wait."""

    schemas: Schemas | None = None
    """Where the schemas of its records are; every host says so. None, as in a test: in the memory of the process."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """A run of the stream: `on_start` before it, `on_stop` after it; for hosts.

        If the run has failed, an error in `on_stop` is logged and does not replace the failure.
        """
        if self.on_start is not None:
            self.on_start()
        try:
            yield
        except BaseException as failure:
            self._stopped_by(failure)
            raise
        if self.on_stop is not None:
            self.on_stop(None)

    def _stopped_by(self, failure: BaseException) -> None:
        if self.on_stop is not None:
            try:
                self.on_stop(failure)
            except Exception:
                _log.exception("on_stop of pipeline '%s' failed after the stream had failed", self.name)

    def __repr__(self) -> str:
        name = getattr(self.topology, "__qualname__", repr(self.topology))
        code = getattr(self.topology, "__code__", None)
        where = f" at {line_of(code.co_filename, code.co_firstlineno)}" if code else ""
        rest = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if each.name not in ("name", "topology", "schemas") and getattr(self, each.name) != each.default
        ]
        return "; ".join([f"Pipeline '{self.name}', built by {name}{where}", *rest])

    @property
    def errors(self) -> ErrorPolicy:
        """The policy for records that fail."""
        return ErrorPolicy(
            deserialization=self.deserialization_handler or self.on_error,
            processing=self.processing_handler or self.on_error,
            production=self.production_handler or self.on_error,
            keep_bytes=self.dead_letters.keep_bytes,
            set_aside=self.set_aside,
            resends_of=self.name if self.dead_letters.table is not None else None,
        )

    def archives(self, plan: Plan) -> Archives:
        """The archives of the records that its plan reads."""
        return Archives.of(plan) if self.archive else Archives()

    def shards(self, cores: int) -> int:
        """The number of shards for its tasks on a machine with `cores` cores; each shard runs on one core."""
        return min(cores, self.cores or cores)

    def plan(self) -> Plan:
        """Builds the topology and checks it.

        Raises:
            TopologyError: lists every problem, of the topology and of the pipeline. Whatever the topology's function
                raises is one, with the author's line.
        """
        problems = list(self._mistyped())
        if problems:
            raise TopologyError(self.name, problems)
        cause = None
        try:
            plan = self._limited(self._build())
        except TopologyError as error:
            problems += error.problems
            cause = error.__cause__
        else:
            problems += self._check(plan)
            if not problems:
                return plan if self.schemas is None else bound_plan(plan, self.schemas)
        raise TopologyError(self.name, problems) from cause

    def _build(self) -> Plan:
        topology: Callable[..., Any] = self.topology
        if not inspect.signature(topology).parameters:
            with failures.reported(self.name):
                built = topology()
            if isinstance(built, Topology):
                return replace(built.build(), name=self.name)
            what = f"topology= is a function without parameters that returns {named(built)}."
            hint = "def topology(builder: StreamsBuilder) -> None: ..., or return a Topology, before its build()"
            raise TopologyError(self.name, [Problem(what, hint=hint)])
        builder = StreamsBuilder(
            self.name,
            record_cache=self.record_cache,
            explicit_names=self.explicit_names,
            optimize=self.optimize,
            emit_interval=self.emit_interval,
            compatible_with_kafka=self.compatible_with_kafka,
        )
        with failures.reported(self.name, builder._graph.problems):
            topology(builder)
        return builder.build()

    def _limited(self, plan: Plan) -> Plan:
        """The plan whose sources have the timestamp limits of their topics."""
        limits = [(topic.name, topic.timestamps) for topic in self.topics if topic.timestamps is not None]
        if not limits:
            return plan

        def limited(node: AnyNode) -> AnyNode:
            if not isinstance(node, Source) or node.exchange or node.whole:
                return node
            return replace(node, timestamps=tuple(each for each in limits if node.reads(each[0])))

        return plan.changed(limited)

    def _check_timestamps(self, plan: Plan) -> Iterator[Problem]:
        for topic in self.topics:
            if topic.timestamps is None:
                continue
            if (problem := problem_of(topic.timestamps)) is not None:
                hint = "Timestamps(max_ahead=timedelta(days=1), otherwise='dead_letter')"
                yield Problem(f"timestamps of topic '{topic.name}': {problem}", hint=hint)
            if not plan.reads(topic.name):
                yield Problem(
                    f"topic '{topic.name}' has timestamps=, but no stream or table reads it.",
                    hint="a global table takes any timestamp; leave it out for topics that are only written",
                )

    def _check_secrets(self, plan: Plan) -> Iterator[Problem]:
        """A name that is misspelled would hide nothing."""
        for topic in self.topics:
            sources = plan.sources_of(topic.name)
            for name in topic.secret:
                part, *path = name.split(".")
                types = [getattr(each, part).type for each in sources] if part in ("key", "value") else []
                if not any(has_path(kind, tuple(path)) for kind in types):
                    yield Problem(
                        f"topic '{topic.name}' has secret={name!r}, but no record read from it has such a part.",
                        hint="secret=('key', 'value.name') names the key and a field of the value",
                    )

    def _mistyped(self) -> Iterator[Problem]:
        topology: Any = self.topology
        topics: tuple[Any, ...] = self.topics
        dead_letters: Any = self.dead_letters
        if not callable(topology):
            yield Problem(
                f"topology= is {named(topology)}, not a function that builds one.",
                hint="def topology(builder: StreamsBuilder) -> None: ..., then topology=topology, without ()",
            )
        if not isinstance(dead_letters, DeadLetters):
            yield Problem(
                f"dead_letters= is {named(dead_letters)}, not DeadLetters.",
                hint=f"dead_letters=DeadLetters(topic='{self.name}-dead-letters', table='dead_letters')",
            )
        yield from alerting.problems(self.alerts)
        for hook, names in (("on_start", ""), ("on_stop", "error")):
            yield from _uncallable(hook, getattr(self, hook), names)
        for topic in topics:
            if not isinstance(topic, Topic):
                yield Problem(f"topics=(...) holds {named(topic)}, not a Topic.", hint=f"topics=(Topic({topic!r}),)")

    def _check(self, plan: Plan) -> Iterator[Problem]:
        if not PIPELINE.allows(self.name):
            yield Problem(f"'{self.name}' cannot be {PIPELINE.what}.", hint=f"use {PIPELINE.valid}")
        letters = self.dead_letters
        if letters.table is not None and not OWN_TABLE.allows(letters.table):
            yield Problem(f"'{letters.table}' cannot be {OWN_TABLE.what}.", hint=f"use {OWN_TABLE.valid}")
        if letters.topic is not None and not TOPIC.allows(letters.topic):
            yield Problem(f"'{letters.topic}' cannot be {TOPIC.what}.", hint=f"use {TOPIC.valid}")
        if letters.table in {name for sink in plan.tables for name in table_names(sink)}:
            yield Problem(
                f"the table of dead letters '{letters.table}' is also written by the topology; one writer per table.",
                hint="name another table for the dead letters",
            )
        written = {name: f"'{sink.name}'" for sink in plan.tables for name in table_names(sink)}
        if letters.table is not None:
            written[letters.table] = "dead_letters="
        yield from self.archives(plan).problems(written)
        if letters.topic in (*plan.source_topics, *plan.global_topics):
            yield Problem(
                f"the topic of dead letters '{letters.topic}' is read by the topology, so a bad record would return.",
                hint="name another topic for the dead letters",
            )
        yield from self._check_timestamps(plan)
        yield from self._check_secrets(plan)
        if self.reprocess is not None:
            yield from problems_of_reprocessing(self.reprocess, plan, letters.table)
        if self.corrections is not None:
            yield from problems_of_corrections(self.corrections, plan, letters.topic)
        for topic in self.topics:
            if topic.partitions < 1 or (topic.replication is not None and topic.replication < 1):
                yield Problem(
                    f"topic '{topic.name}' has partitions={topic.partitions} and replication={topic.replication}.",
                    hint="both are at least 1; replication=None is the broker's default",
                )
            config: Mapping[Any, Any] = topic.config
            for key, value in config.items():
                if not isinstance(key, str) or not isinstance(value, str):
                    yield Problem(
                        f"topic '{topic.name}': config has {key!r}: {value!r}, but settings of Kafka are text.",
                        hint=f"config={{{str(key)!r}: {str(value)!r}}}",
                    )
        names = [topic.name for topic in self.topics]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield Problem(f"topic '{name}' is declared twice.", hint="declare each topic once in topics=(...)")
        if self.trigger_interval < timedelta(0):
            yield Problem("trigger_interval is negative.", hint="timedelta(0) runs batches without a pause")
        if self.max_trigger_interval is not None and self.max_trigger_interval < timedelta(0):
            yield Problem("max_trigger_interval is negative.", hint="leave it out, so that the interval stays as it is")
        if self.cores is not None and self.cores < 1:
            yield Problem("cores is less than one.", hint="leave it out for as many as the machine has")
        if self.idle_timeout is not None and self.idle_timeout <= timedelta(0):
            yield Problem("idle_timeout is not positive.", hint="leave it out, so that only records move time")
        if self.max_task_idle is not None and self.max_task_idle < timedelta(0):
            yield Problem("max_task_idle is negative.", hint="leave it out, so that a task does not wait")


def _uncallable(hook: str, function: Any, names: str) -> Iterator[Problem]:
    if function is None or (callable(function) and takes(function, names)):
        return
    what = "a function with other parameters" if callable(function) else named(function)
    yield Problem(f"{hook}= is {what}; it is called with ({names}).", hint=f"def {hook}({names}) -> None: ...")
