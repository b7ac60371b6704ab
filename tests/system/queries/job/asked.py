"""A pipeline whose stores follow from its records and the offsets up to which they were read, and from nothing else."""

from __future__ import annotations

from datetime import timedelta

from deltaworks import Pipeline, StreamsBuilder, TimeWindows

MINUTE = timedelta(minutes=1)


def asked(builder: StreamsBuilder) -> None:
    words = builder.stream("asked", key=str, value=str).group_by_key()
    words.count(store="asked-counts").to_delta("asked_counts", key="word", value="number")
    words.windowed_by(TimeWindows(size=MINUTE, grace=timedelta(days=30))).count(store="asked-minutes")
    builder.table("asked-users", key=str, value=str, store="asked-names")


pipeline = Pipeline(name="asked", topology=asked)
