"""What the clients of a pipeline need to be allowed on a Kafka with ACLs, and whether they are.

Every client of a pipeline is the same principal. The broker tells it what it may do with a topic; whether it may write
in transactions shows when it asks for a transactional id, which writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from deltaworks.config import Kafka
from deltaworks.errors import ConfigurationError, KafkaReadError, StackError
from deltaworks.kafka.admin import SILENT, TopicSpec, admin
from deltaworks.kafka.clients import make
from deltaworks.kafka.connection import close_quietly
from deltaworks.kafka.control_topic import control_topic

Operation = Literal["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS"]
Kind = Literal["topic", "group", "transactional id", "cluster"]
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
_CLUSTER = "kafka-cluster"
_GROUPS = "deltaworks-"
"""The beginning of the names of our groups. They have no members and no offsets; clients look for their coordinator."""
_EVERYTHING = "*"
_TIMEOUT_S = 30.0
_PROBE = "preflight"
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
_HINT = "have them added, such as with kafka-acls.sh --add; docs/how-to/configure.md lists what a pipeline needs"


@dataclass(frozen=True, kw_only=True)
class Permission:
    """Operations on a resource, or on all whose name begins so."""

    kind: Kind
    name: str
    operations: tuple[Operation, ...]
    prefixed: bool = False
    """Whether `name` is the beginning of names."""

    def __str__(self) -> str:
        return f"{', '.join(self.operations)} on {self.kind} '{self.name}{'*' if self.prefixed else ''}'"


def of_pipeline(pipeline: str, reads: Collection[str], writes: Collection[str]) -> list[Permission]:
    """What a pipeline needs.

    Args:
        pipeline: its name.
        reads: the topics that it reads.
        writes: those that it writes.
    """
    topics = [
        Permission(kind="topic", name=topic, operations=_of_topic(reads=topic in reads, writes=topic in writes))
        for topic in sorted({*reads, *writes})
    ]
    control: tuple[Operation, ...] = (*_of_topic(reads=True, writes=True), "CREATE", "ALTER")
    return [
        *topics,
        Permission(kind="topic", name=control_topic(pipeline), operations=control),
        *(_transactions(prefix) for prefix in _transactional_ids(pipeline)),
        _groups(),
    ]


def of_every_pipeline() -> list[Permission]:
    """What all pipelines, `deltaworks produce` and the fixtures of tests need, for a principal of their own."""
    topics: tuple[Operation, ...] = (*_of_topic(reads=True, writes=True), "CREATE", "ALTER", "DELETE")
    return [
        Permission(kind="topic", name=_EVERYTHING, operations=topics),
        Permission(kind="transactional id", name=_EVERYTHING, operations=("WRITE", "DESCRIBE")),
        _groups(),
        Permission(kind="cluster", name=_CLUSTER, operations=("DESCRIBE_CONFIGS",)),
    ]


def of_connect(group: str) -> list[Permission]:
    """What workers of Kafka Connect and their connectors need besides `of_every_pipeline`.

    Args:
        group: the group of the workers, with which the names of their sinks' groups begin.
    """
    operations: tuple[Operation, ...] = ("READ", "DESCRIBE", "DELETE")
    return [Permission(kind="group", name=group, operations=operations, prefixed=True)]


def missing(
    bootstrap: Kafka, client: AdminClient, needed: Sequence[Permission], new: Sequence[TopicSpec]
) -> list[Permission]:
    """What of this the cluster does not allow; empty: all is allowed, or the cluster has no ACLs.

    Args:
        bootstrap: the cluster.
        client: of `admin.admin`.
        needed: permissions of a pipeline.
        new: topics that do not exist, for us at least.

    Raises:
        KafkaReadError: the broker does not answer.
    """
    if _may_everything(client):
        return []
    by_name = {topic.name: topic for topic in new}
    topics = [each for each in needed if each.kind == "topic"]
    lacking = [
        *_of_existing(client, [each for each in topics if each.name not in by_name]),
        *_of_new(client, [each for each in topics if each.name in by_name], by_name),
    ]
    lacking += [each for each in needed if each.kind == "group" and not _may_describe_group(client, each.name)]
    ids = [each for each in needed if each.kind == "transactional id"]
    with ThreadPoolExecutor(len(ids) or 1) as pool:
        allowed = pool.map(lambda each: _may_write_transactions(bootstrap, each.name + _PROBE), ids)
        return [*lacking, *(each for each, may in zip(ids, allowed, strict=True) if not may)]


def require(bootstrap: Kafka, client: AdminClient, needed: Sequence[Permission], new: Sequence[TopicSpec]) -> None:
    """Raises `ConfigurationError` with everything that is not allowed; see `missing`."""
    if lacking := missing(bootstrap, client, needed, new):
        lines = "".join(f"\n  {each}" for each in lacking)
        raise ConfigurationError(f"Kafka at {bootstrap} does not allow our clients:{lines}", hint=_HINT)


def grant(bootstrap: Kafka, user: str, permissions: Iterable[Permission]) -> None:
    """Allows a user these operations; what is allowed already stays.

    Args:
        bootstrap: the cluster, as somebody reaches it who may alter its ACLs.
        user: the name without `User:`.
        permissions: what to allow.

    Raises:
        StackError: the cluster refuses that, or does not answer.
    """
    client = admin(bootstrap)
    bindings = [
        AclBinding(
            _TYPES[each.kind],
            each.name,
            ResourcePatternType.PREFIXED if each.prefixed else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for each in permissions
        for operation in each.operations
    ]
    try:
        for answer in client.create_acls(bindings, request_timeout=_TIMEOUT_S).values():
            answer.result(_TIMEOUT_S + 1)
    except (KafkaException, TimeoutError) as error:
        raise StackError(f"Kafka at {bootstrap} does not take the permissions of {user}: {error}.") from error


def _of_topic(*, reads: bool, writes: bool) -> tuple[Operation, ...]:
    own: tuple[Operation, ...] = (*(("READ",) if reads else ()), *(("WRITE",) if writes else ()))
    return (*own, "DESCRIBE", "DESCRIBE_CONFIGS")


def _transactional_ids(pipeline: str) -> tuple[str, str]:
    """Beginnings of the ids of its tasks (`transactional.application`) and of its lineage (`control/lineage.py`)."""
    return f"{pipeline}-", f"{control_topic(pipeline)}-"


def _transactions(prefix: str) -> Permission:
    return Permission(kind="transactional id", name=prefix, operations=("WRITE", "DESCRIBE"), prefixed=True)


def _groups() -> Permission:
    return Permission(kind="group", name=_GROUPS, operations=("DESCRIBE",), prefixed=True)


def _may_everything(client: AdminClient) -> bool:
    """Whether we may alter the cluster, as everybody may without ACLs."""
    try:
        cluster = client.describe_cluster(include_authorized_operations=True, request_timeout=_TIMEOUT_S).result()
    except KafkaException as error:
        raise _no_answer(error) from error
    allowed = {operation.name for operation in cluster.authorized_operations or ()}
    return {"ALTER", "CLUSTER_ACTION"} <= allowed


def _of_existing(client: AdminClient, needed: Sequence[Permission]) -> list[Permission]:
    if not needed:
        return []
    topics = TopicCollection([each.name for each in needed])
    answers = client.describe_topics(topics, include_authorized_operations=True, request_timeout=_TIMEOUT_S)
    lacking = []
    for each in needed:
        allowed: set[str] = set()
        try:
            allowed = {operation.name for operation in answers[each.name].result().authorized_operations or ()}
        except KafkaException as error:
            if error.args[0].code() not in _DENIED:
                raise _no_answer(error) from error
        # A topic that exists need not be created.
        if not_allowed := tuple(name for name in each.operations if name not in {*allowed, "CREATE"}):
            lacking.append(_only(each, not_allowed))
    return lacking


def _of_new(client: AdminClient, needed: Sequence[Permission], new: dict[str, TopicSpec]) -> list[Permission]:
    """Topics that may not be created; a topic that exists and is hidden from us is among them."""
    if not needed:
        return []
    specs = [new[each.name] for each in needed]
    wanted = [NewTopic(t.name, num_partitions=t.partitions, replication_factor=t.replication) for t in specs]
    answers = client.create_topics(wanted, validate_only=True, operation_timeout=_TIMEOUT_S)
    lacking = []
    for each in needed:
        try:
            answers[each.name].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code in _DENIED:
                lacking.append(_only(each, (*each.operations, "CREATE")))
            elif code == KafkaError.TOPIC_ALREADY_EXISTS:
                lacking.append(_only(each, each.operations))
    return lacking


def _may_describe_group(client: AdminClient, prefix: str) -> bool:
    group = prefix + _PROBE
    try:
        client.describe_consumer_groups([group], request_timeout=_TIMEOUT_S)[group].result()
    except KafkaException as error:
        return error.args[0].code() not in _DENIED
    return True


def _only(permission: Permission, operations: Iterable[Operation]) -> Permission:
    return Permission(
        kind=permission.kind,
        name=permission.name,
        operations=tuple(dict.fromkeys(operations)),
        prefixed=permission.prefixed,
    )


def _may_write_transactions(bootstrap: Kafka, transactional_id: str) -> bool:
    producer = make(Producer, bootstrap, {"transactional.id": transactional_id, "log_level": 0, "logger": SILENT})
    try:
        producer.init_transactions(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() in _DENIED:
            return False
        raise _no_answer(error) from error
    finally:
        with suppress(KafkaException):
            close_quietly(producer)
    return True


def _no_answer(error: KafkaException) -> KafkaReadError:
    return KafkaReadError(f"Kafka does not say what we may do: {error.args[0].str()}.")
