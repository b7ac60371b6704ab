"""Mutations of what is written to Kafka: markers, lineage, records that are refused, clients that hang."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutation import Hole, Mutation, Patch, Stall, nothing

_BROKER = "tests/integration/test_transactional.py"
_SINK = "tests/unit/kafka/test_transactional.py"
_POISON = "tests/hosts/test_poison_output.py::test_what_a_topic_does_not_take_is_a_dead_letter_that_fits"
_LINEAGE = "tests/unit/control/test_lineage.py"


def _marker_not_read(patch: Patch) -> None:
    from deltaworks.kafka.transactional import TransactionalSink

    patch(TransactionalSink, "_read_marker", nothing)


def _marker_outside_the_transaction(patch: Patch) -> None:
    from confluent_kafka import Producer

    from deltaworks.kafka.control_topic import Marker, encode
    from deltaworks.kafka.transactional import TransactionalSink

    producers: list[Producer] = []

    def write_alone(self: Any) -> None:
        if not producers:
            producers.append(Producer({"bootstrap.servers": self._bootstrap, "log_level": 0}))
        place, marker = self._place, Marker(batch=self._batch_id, intent=self._intent)
        producers[0].produce(place.topic, encode(marker), place.key, place.partition)
        producers[0].flush(10)

    patch(TransactionalSink, "_mark", write_alone)


def _intent_not_compared(patch: Patch) -> None:
    from deltaworks.kafka import transactional

    def is_committed(marker: Any, batch_id: int, *args: object) -> bool:
        return marker is not None and marker.batch >= batch_id

    patch(transactional, "is_committed", is_committed)


def _lineage_not_compared(patch: Patch) -> None:
    from deltaworks.control import lineage

    original = lineage.claim

    def claim(*args: Any, take_over: bool = False, **options: Any) -> Any:
        return original(*args, take_over=True, **options)

    patch(lineage, "claim", claim)


def _later_claim_not_noticed(patch: Patch) -> None:
    from deltaworks.control.lineage import Watch

    patch(Watch, "check", nothing)


def _markers_expire(patch: Patch) -> None:
    from deltaworks.kafka import control_topic

    patch(control_topic, "_CONFIG", {"cleanup.policy": "delete", "retention.ms": "604800000"})


def _refusals_tried_later(patch: Patch) -> None:
    from deltaworks.kafka import transactional

    patch(transactional, "_REFUSED", ())


def _size_not_asked(patch: Patch) -> None:
    from deltaworks.runtime import kafka_sink

    patch(kafka_sink, "record_size", lambda *record: 0)


def _unknown_topic_not_noticed(patch: Patch) -> None:
    from deltaworks.errors import ProductionError
    from deltaworks.runtime.kafka_sink import KafkaSink

    original = KafkaSink.limit

    def limit(self: KafkaSink, topic: str) -> int:
        try:
            return original(self, topic)
        except ProductionError:
            return 1 << 20

    patch(KafkaSink, "limit", limit)


def _dead_letters_whole(patch: Patch) -> None:
    from deltaworks.runtime import collector

    patch(collector, "shortened", lambda key, value, headers, limit: (key, value, headers))


def _age_not_looked_at(patch: Patch) -> None:
    from deltaworks.kafka.transactional import TransactionalSink

    patch(TransactionalSink, "_look_at_the_clock", nothing)
    patch(TransactionalSink, "_too_long", nothing)


def _no_patience(patch: Patch) -> None:
    from deltaworks.kafka import connection, transactional

    for module in (connection, transactional):
        patch(module, "in_time", lambda action, timeout_s: action())


MUTATIONS: dict[str, Mutation] = {
    "transaction marker not read": Mutation(
        Hole.TAKEN_BACK,
        _marker_not_read,
        (f"{_BROKER}::test_a_batch_that_runs_again_is_recognised_by_the_same_sink_and_by_a_new_one",),
    ),
    "marker outside the transaction": Mutation(
        Hole.TAKEN_BACK,
        _marker_outside_the_transaction,
        (f"{_BROKER}::test_a_failure_before_the_commit_writes_nothing[kafka.before_commit-another]",),
    ),
    "intent of a marker not compared": Mutation(
        Hole.TAKEN_BACK, _intent_not_compared, (f"{_SINK}::test_a_marker_decides_by_batch_and_intent",)
    ),
    "lineage not compared": Mutation(
        Hole.TWO_HOMES, _lineage_not_compared, (f"{_LINEAGE}::test_a_second_lineage_is_refused_unless_it_takes_over",)
    ),
    "a later start not noticed": Mutation(
        Hole.TWO_HOMES, _later_claim_not_noticed, (f"{_LINEAGE}::test_a_later_start_fences_the_earlier_one",)
    ),
    "markers put where they expire": Mutation(
        Hole.TWO_HOMES, _markers_expire, ("tests/unit/kafka/test_control_topic.py::test_markers_do_not_expire",)
    ),
    "a refused record tried later": Mutation(
        Stall.POISON_OUTPUT,
        _refusals_tried_later,
        (f"{_SINK}::test_what_the_broker_would_refuse_again_is_no_reason_to_try_later",),
    ),
    "size of records not compared with the topic": Mutation(Stall.POISON_OUTPUT, _size_not_asked, (_POISON,)),
    "an unknown topic not noticed": Mutation(Stall.POISON_OUTPUT, _unknown_topic_not_noticed, (_POISON,)),
    "dead letters never shortened": Mutation(Stall.POISON_OUTPUT, _dead_letters_whole, (_POISON,)),
    "age of a transaction not looked at": Mutation(
        Stall.LONG_TRANSACTION,
        _age_not_looked_at,
        (
            f"{_SINK}::test_whoever_is_about_to_be_too_late_is_warned_once",
            f"{_SINK}::test_a_transaction_that_the_broker_has_ended_says_that_the_batch_was_too_long",
        ),
    ),
    "a client that hangs waited for": Mutation(
        Stall.HANGING_CLIENT,
        _no_patience,
        ("tests/unit/kafka/test_connection.py::test_a_client_that_hangs_is_left_to_itself",),
    ),
}
