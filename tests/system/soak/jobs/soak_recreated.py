"""One topic that is deleted and recreated, and nothing else that would be missed."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from deltaworks import Pipeline, StreamsBuilder, Topic


class Note(msgspec.Struct, frozen=True):
    """Keyed by writer; `seq` counts those of the writer."""

    seq: int


def topology(builder: StreamsBuilder) -> None:
    """Rows and their number."""
    notes = builder.stream("soak-notes", key=str, value=Note, name="notes")
    notes.to_delta("soak_notes")
    notes.group_by_key().count(store="soak-note-counts").to_delta("soak_note_counts")


pipeline = Pipeline(
    name="soak_recreated",
    topology=topology,
    topics=(Topic("soak-notes", 1),),
    record_cache=False,
    trigger_interval=timedelta(seconds=3),  # leaves room for the starts of others
)
