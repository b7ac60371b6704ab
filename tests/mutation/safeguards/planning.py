"""Mutations of what a batch reads: topics, offsets, sizes, clock and timestamps."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutation import Hole, Mutation, Patch, Stall, nothing

_SOURCE = "tests/unit/spark/test_source.py"
_CONSUMER = "tests/unit/runtime/test_consumer.py"
_CLOCK = "tests/unit/test_clock.py"
_OVERSIZED = "tests/unit/runtime/batches/test_oversized.py"
_TIMESTAMPS = "tests/unit/kernel/test_timestamps.py"


def _topic_ids_not_compared(patch: Patch) -> None:
    from deltaworks.spark.source import KafkaRangesReader

    original = KafkaRangesReader._topic_ids

    def topic_ids(self: Any, before: Any) -> dict[str, str]:
        return original(self, None) | ({} if before is None else before.topics)

    patch(KafkaRangesReader, "_topic_ids", topic_ids)


def _partitions_not_counted(patch: Patch) -> None:
    from deltaworks.spark.source import KafkaRangesReader

    def topic_ids(self: Any, before: Any) -> dict[str, str]:
        return {} if before is None else dict(before.topics)

    patch(KafkaRangesReader, "_topic_ids", topic_ids)


def _bytes_not_limited(patch: Patch) -> None:
    from deltaworks.runtime.batches import limits

    def fits(self: limits.Limit, start: Any, end: Any) -> bool:
        return limits.count_records(start, end) <= self.records

    patch(limits.Limit, "fits", fits)


def _too_large_again(patch: Patch) -> None:
    from deltaworks.runtime.batches.oversized import OpenBatch

    patch(OpenBatch, "is_too_large", property(lambda self: False))


def _end_of_memory_not_told(patch: Patch) -> None:
    from deltaworks.runtime.batches import oversized

    patch(oversized, "told", nothing)


def _new_topics_from_0(patch: Patch) -> None:
    from deltaworks.spark.source import CLOCK, KafkaRangesReader

    def with_new(self: Any, start: Any, end: Any) -> Any:
        return {
            topic: {p: start.get(topic, {}).get(p, 0) for p in parts} for topic, parts in end.items()
        } | {CLOCK: start[CLOCK]}  # fmt: skip

    patch(KafkaRangesReader, "_with_new", with_new)


def _gone_records_skipped(patch: Patch) -> None:
    from deltaworks.runtime.consumer import RangeReader

    patch(RangeReader, "_ends", lambda self, message, wanted: True)


def _deleted_topic_waited_for(patch: Patch) -> None:
    from deltaworks.runtime import consumer

    patch(consumer.RangeReader, "_check_is_there", nothing)
    patch(consumer, "_STALL_S", 0.1)


def _archive_not_asked(patch: Patch) -> None:
    from deltaworks.runtime.history import LiveReader

    def kept(self: Any, ranges: Any, gone: Exception) -> Any:
        raise gone

    patch(LiveReader, "_kept", kept)


def _clock_goes_back(patch: Patch) -> None:
    from deltaworks import clock

    patch(clock.BatchClock, "now", lambda self: clock.wall_ms())


def _ages_by_the_wall_clock(patch: Patch) -> None:
    from deltaworks import clock

    patch(clock.Sign, "age_s", lambda self: clock.wall_s() - self.wall_s)


def _deleted_by_the_wall_clock(patch: Patch) -> None:
    from deltaworks import clock
    from deltaworks.lakehouse import housekeeping

    for module in (clock, housekeeping):
        patch(module, "cautious_ms", lambda: clock.wall_ms())


def _timestamps_not_limited(patch: Patch) -> None:
    from deltaworks.kernel.order import Partition

    patch(Partition, "_limited", lambda self, timestamps_ms: timestamps_ms)


MUTATIONS: dict[str, Mutation] = {
    "topic ids not compared": Mutation(
        Hole.TOPIC_RECREATED,
        _topic_ids_not_compared,
        (f"{_SOURCE}::test_a_recreated_topic_is_refused_though_it_holds_more",),
    ),
    "partitions of topics not counted": Mutation(
        Stall.PARTITIONS, _partitions_not_counted, (f"{_SOURCE}::test_a_topic_that_got_partitions_is_refused_at_once",)
    ),
    "bytes of a batch not limited": Mutation(
        Stall.OVERSIZED_BATCH,
        _bytes_not_limited,
        ("tests/unit/runtime/batches/test_limits.py::test_a_batch_holds_no_more_bytes_than_it_may",),
    ),
    "a batch without memory runs again as it was": Mutation(
        Stall.OVERSIZED_BATCH,
        _too_large_again,
        (
            f"{_OVERSIZED}::test_what_is_known_of_a_batch_that_failed[error3-True]",
            f"{_OVERSIZED}::test_a_batch_that_is_begun_again_and_again_is_taken_for_too_large",
        ),
    ),
    "the end of memory not told": Mutation(
        Stall.OVERSIZED_BATCH,
        _end_of_memory_not_told,
        (f"{_OVERSIZED}::test_what_is_known_of_a_batch_that_failed[error3-True]",),
    ),
    "new topics read from offset 0": Mutation(
        Stall.PATTERN_TOPIC,
        _new_topics_from_0,
        (f"{_SOURCE}::test_a_topic_that_appears_later_is_read_from_where_it_begins",),
    ),
    "records that are gone skipped": Mutation(
        Stall.RETENTION,
        _gone_records_skipped,
        (f"{_CONSUMER}::test_records_that_are_gone_are_no_reason_to_try_again",),
    ),
    "a deleted topic waited for": Mutation(
        Stall.RETENTION,
        _deleted_topic_waited_for,
        (f"{_CONSUMER}::test_a_topic_that_was_deleted_is_noticed_though_the_broker_says_nothing",),
    ),
    "the archive not asked": Mutation(
        Stall.RETENTION,
        _archive_not_asked,
        ("tests/unit/runtime/test_history.py::test_a_stream_reads_from_the_archive_what_retention_has_removed",),
    ),
    "the clock of batches goes back": Mutation(
        Stall.CLOCK_STEPS,
        _clock_goes_back,
        (f"{_CLOCK}::test_no_batch_is_before_the_last_one_and_time_never_stands_still",),
    ),
    "ages by the wall clock": Mutation(
        Stall.CLOCK_STEPS,
        _ages_by_the_wall_clock,
        (f"{_CLOCK}::test_a_sign_of_this_boot_ages_by_ticks_whatever_the_wall_clock_does",),
    ),
    "deleted by the wall clock": Mutation(
        Stall.CLOCK_STEPS,
        _deleted_by_the_wall_clock,
        (f"{_CLOCK}::test_a_clock_set_forward_makes_nothing_older_for_what_deletes_by_age",),
    ),
    "timestamps not limited": Mutation(
        Stall.FUTURE_TIMESTAMPS,
        _timestamps_not_limited,
        (
            f"{_TIMESTAMPS}::test_a_record_of_the_future_stops_the_stream_whatever_the_pipeline_says",
            f"{_TIMESTAMPS}::test_one_such_record_does_not_close_the_windows_of_the_others",
        ),
    ),
}
