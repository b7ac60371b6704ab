"""What a checkpoint depends on, and the messages when that has changed.

Functions do not count: their code may be corrected while the state stays. Names of nodes do not count either, nor does
anything else that leaves no state behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltaworks.serdes.schema import breaking_changes, in_words, schema_of
from deltaworks.topology.nodes.processor_api import FixedKeyProcessorNode, ProcessorNode
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.stages import Stage, Stages

FORMAT = 3


@dataclass(frozen=True)
class Difference:
    """A change that a checkpoint cannot follow."""

    what: str
    hint: str
    """What to do if the change was not intended."""

    def __str__(self) -> str:
        return f"{self.what}\n    Hint: {self.hint}"


def of(plan: Stages) -> dict[str, Any]:
    """The fingerprint of a plan, as JSON."""
    all_stages = (*plan.stages, *plan.global_stages)
    # A user's processor that writes to an operator's store does not make it another store.
    nodes = sorted(
        (node for stage in all_stages for node in stage.nodes),
        key=lambda node: not isinstance(node, ProcessorNode | FixedKeyProcessorNode),
    )
    fillers = {store: how for node in nodes for store, how in node.fills.items()}
    stores = [store for stage in all_stages for store in stage.stores]
    global_topics = {"global_topics": list(plan.global_topics)} if plan.global_stages else {}
    finals = {store.keeps_unforwarded for store in stores if store.emits_final}
    return {
        "format": FORMAT,
        "stages": [_stage(stage) for stage in plan.stages],
        "stores": {
            store.name: {
                "kind": store.layout,
                "key": store.key.name,
                "value": store.value.name,
                "key_schema": schema_of(store.key),
                "value_schema": schema_of(store.value),
                "migrated_from": None if store.migrate is None else schema_of(store.migrate[0]),
                "filled_by": fillers[store.name],
            }
            for store in sorted(stores, key=lambda store: store.name)
        },
        "tables": {table.table: table.kind.value for table in plan.tables},
        **global_topics,
        **({"compatible_with_kafka": False in finals} if finals else {}),
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The changes from one fingerprint to another, as sentences; empty if a checkpoint can continue."""
    if before.get("format") != after.get("format"):
        what = f"fingerprints have format {after.get('format')}, the checkpoint has {before.get('format')}"
        return (Difference(what, "run the version of deltaworks that wrote the checkpoint"),)
    return (
        *_stores(before["stores"], after["stores"]),
        *_tables(before["tables"], after["tables"]),
        *_stages(before["stages"], after["stages"]),
        *_global_topics(before.get("global_topics", []), after.get("global_topics", [])),
        *_mode(before.get("compatible_with_kafka"), after.get("compatible_with_kafka")),
    )


def _mode(before: bool | None, after: bool | None) -> Iterator[Difference]:
    """None: no store emits final results, so there is nothing to keep."""
    if before is not None and after is not None and before is not after:
        yield Difference(
            f"compatible_with_kafka was {before}, is {after}",
            f"keep compatible_with_kafka={before} for this checkpoint",
        )


def _stage(stage: Stage) -> dict[str, Any]:
    """Only the number of exchanges: their names, often generated, leave nothing behind."""
    return {
        "topics": [*stage.topics, *stage.patterns],
        "exchanges": len(stage.exchanges_in),
        "stores": [store.name for store in stage.stores],
    }


def _stores(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for store in sorted(before.keys() - after.keys()):
        yield Difference(
            f"store '{store}' ({before[store]['filled_by']}) is gone", f"keep store='{store}'; a rename is a new store"
        )
    for store in sorted(after.keys() - before.keys()):
        yield Difference(
            f"store '{store}' ({after[store]['filled_by']}) is new, and would be empty for records already processed",
            "start it with a new checkpoint, which reads the topics again",
        )
    for store in sorted(before.keys() & after.keys()):
        yield from _store(store, before[store], after[store])


def _store(store: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Compares the meaning of values in the same way as tasks do with their own state."""
    knows_schemas = "value_schema" in before
    for part in ("kind", "filled_by", *(() if knows_schemas else ("key", "value"))):
        if (old := before[part]) != (new := after[part]):
            yield Difference(
                f"store '{store}': {part.replace('_', ' ')} was {old}, is {new}",
                "give the new state a new store name",
            )
    if not knows_schemas:
        return
    if before["key_schema"] != after["key_schema"]:
        yield Difference(
            f"store '{store}': key was {in_words(before['key_schema'])}, is {in_words(after['key_schema'])}, in other"
            " bytes or of another meaning",
            "give the new state a new store name",
        )
    readable = after["value_schema"]
    if before["value_schema"] != readable and after["migrated_from"] is not None:
        readable = after["migrated_from"]
    if reasons := breaking_changes(before["value_schema"], readable):
        yield Difference(
            f"store '{store}': values cannot be read any more: {'; '.join(reasons)}",
            f"say how they change, Materialized('{store}', migrate=(old_serde, old_to_new)), or give the new state a"
            " new store name",
        )


def _tables(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    for table in sorted(after.keys() - before.keys()):
        if after[table] == TableKind.CHANGELOG.value:
            yield Difference(
                f"table '{table}' is new, and would lack the rows that have not changed since",
                "start it with a new checkpoint, which reads the topics again",
            )
    for table in sorted(before.keys() & after.keys()):
        if before[table] != after[table]:
            yield Difference(
                f"table '{table}' was written as {before[table]}, is written as {after[table]}",
                "write the new rows to a table of another name",
            )


def _stages(before: list[Any], after: list[Any]) -> Iterator[Difference]:
    """Compares only what the stores do not say: where they live, and what feeds them."""
    if len(before) != len(after):
        yield Difference(
            f"the topology had {_count(len(before))}, has {_count(len(after))}",
            "a new repartition or join moves state to other tasks; start with a new checkpoint",
        )
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if old["topics"] != new["topics"]:
            yield Difference(
                f"stage {index} read the topics {_list(old['topics'])}, reads {_list(new['topics'])}",
                "read the same topics in a stage, or start with a new checkpoint",
            )
        if old["exchanges"] != new["exchanges"]:
            yield Difference(
                f"stage {index} had {old['exchanges']} repartitions before it, has {new['exchanges']}",
                "a new repartition moves state to other tasks; start with a new checkpoint",
            )
        if old["stores"] != new["stores"] and sorted(_all(before, "stores")) == sorted(_all(after, "stores")):
            yield Difference(
                f"stage {index} held the stores {_list(old['stores'])}, holds {_list(new['stores'])}",
                "restore the order of the sources, or start with a new checkpoint",
            )


def _global_topics(before: list[str], after: list[str]) -> Iterator[Difference]:
    if before != after:
        yield Difference(
            f"global tables were read from the topics {_list(before)}, are read from {_list(after)}",
            "read the same topics, or start with a new checkpoint",
        )


def _all(stages: list[Any], part: str) -> list[str]:
    return [name for stage in stages for name in stage[part]]


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _count(stages: int) -> str:
    return "1 stage" if stages == 1 else f"{stages} stages"
