"""The command `accept`, which lets a stream go on without lost records; it never decides that by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks import listeners
from deltaworks.cli.console import out
from deltaworks.cli.pipelines import Name
from deltaworks.config import Cluster
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Collection

    from deltaworks.control.intents import Intent
    from deltaworks.dsl.pipeline import Pipeline
    from deltaworks.kafka.ranges import Offsets


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Pipelines")(accept)


def accept(
    name: Name,
    new_topic: Annotated[
        list[str] | None,
        typer.Option("--new-topic", help="This topic was deleted and recreated: read it from its beginning."),
    ] = None,
    lost_records: Annotated[
        bool, typer.Option("--lost-records", help="Give up records that retention removed before they were read.")
    ] = False,
) -> None:
    """Let a stopped stream go on after its topics lost records; its results will lack them.

    Nothing is read again; state and tables stay as they are. To have results of only what the topics hold now, start a
    new checkpoint. A replay cannot read records from before a topic was recreated.
    """
    from deltaworks.control import accepted, fence, jobs, set_aside
    from deltaworks.control.checkpoint import stored_plan
    from deltaworks.control.intents import Intents
    from deltaworks.control.lease import Lease
    from deltaworks.control.paths import PipelinePaths
    from deltaworks.files import files_in
    from deltaworks.kafka import admin

    settings = Settings.from_environment()
    if not new_topic and not lost_records:
        raise ConfigurationError("Accept what?", hint="--new-topic TOPIC, or --lost-records")
    listeners.require_own_kafka(settings)
    pipeline, paths = jobs.load(settings, name), PipelinePaths.of(settings, name)
    plan = pipeline.plan()
    with Lease(paths.lease, name, fence.read(paths.fence)):
        last = Intents(files_in(paths.current.intents)).last()
        kept = stored_plan(paths.current.plan)
        if kept is None or (last is None and kept.start is None):
            raise ConfigurationError(f"Pipeline {name!r} has read nothing yet.", hint=f"deltaworks deploy {name}")
        known = kept.topics if last is None else last.topics
        ids = admin.topic_ids(admin.admin(settings.cluster_of(name)), list(known))
        for topic in new_topic or ():
            if topic not in ids or not plan.uses(topic):
                raise ConfigurationError(
                    f"{name!r} reads no topic {topic!r}.",
                    hint=f"it reads {', '.join(sorted(known))}",
                )
            if ids[topic] == known.get(topic):
                raise ConfigurationError(
                    f"The topic {topic!r} was not recreated: it is still the one that {name!r} has read.",
                    hint=f"deltaworks run {name}, or deploy; see `deltaworks accept --help` for lost records",
                )
            _require_no_other_archive(settings, pipeline, topic, ids[topic])
        upto = (kept.start or {}) if last is None else _read(last)
        gone = _gone(settings.cluster_of(name), upto, known.keys() - set(new_topic or ())) if lost_records else {}
        set_aside.forget(paths, new_topic or ())
        accepted.add(paths.current.accepted, topics={topic: ids[topic] for topic in new_topic or ()}, begins=gone)
    for topic in new_topic or ():
        out.print(f"The stream will read {topic} from its beginning.")
    for topic, parts in gone.items():
        for partition, begin in parts.items():
            out.print(f"The stream will read {topic}-{partition} from offset {begin}; earlier records are given up.")
    if lost_records and not gone:
        out.print("No unread record is lost.")
    out.print(f"Now: deltaworks deploy {name}")


def _require_no_other_archive(settings: Settings, pipeline: Pipeline, topic: str, id: str) -> None:
    """Refuses an archive that would mix the records of two topics."""
    from deltaworks.lakehouse.archive_reader import ArchiveReader

    archives = pipeline.archives(pipeline.plan())
    if ArchiveReader(settings.tables, archives).is_of_another(topic, id):
        path = settings.tables / str(archives.table(topic))
        raise ConfigurationError(
            f"The archive at {path} holds records of the earlier topic {topic!r}; the new topic has other records at "
            "the same offsets.",
            hint=f"mv {path} {path}_before (it stays a readable table) and accept again: the stream starts a new "
            "archive",
        )


def _read(last: Intent) -> Offsets:
    """The offsets before which everything was certainly read."""
    read: Offsets = {topic: dict(parts) for topic, parts in last.end.items() if topic in last.topics}
    for each in last.ranges:  # the batch may be open still
        read[each.topic][str(each.partition)] = each.start
    return read


def _gone(cluster: Cluster, read: Offsets, topics: Collection[str]) -> Offsets:
    """The first offsets of partitions that now begin after what was read."""
    from deltaworks.kafka import admin

    begins = admin.begin_offsets(cluster, [topic for topic in read if topic in topics])
    gone: Offsets = {}
    for (topic, partition), begin in begins.items():
        if begin > read[topic].get(str(partition), 0):
            gone.setdefault(topic, {})[str(partition)] = begin
    return gone
