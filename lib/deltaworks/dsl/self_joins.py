"""A stream joined with itself: what it keeps for the right side, it has already kept for the left one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltaworks.topology.nodes import AnyNode, JoinWindow, Passthrough, StreamSelfJoin, StreamStreamJoin
from deltaworks.topology.stages import StoreSpec


def with_one_store(nodes: Sequence[AnyNode], stores: Iterable[StoreSpec]) -> tuple[list[AnyNode], list[StoreSpec]]:
    """The same topology; of every self-join the right side is gone, with its store.

    A left or outer join becomes an inner one: every record has itself as a partner. So it does in Kafka Streams, also
    where the window leaves a record's own time out.
    Source: `InternalStreamsBuilder#rewriteSingleStoreSelfJoin`.
    """
    by_name = {node.name: node for node in nodes}
    changed: dict[str, AnyNode | None] = {}
    gone: set[str] = set()
    for merge in nodes:
        sides = [by_name[parent] for parent in merge.parents] if isinstance(merge, Passthrough) else []
        match sides:
            case [StreamStreamJoin() as left, StreamStreamJoin() as right]:
                this, other = by_name[right.other], by_name[left.other]
                if left.parents == (this.name,) and this.parents == other.parents:
                    assert isinstance(this, JoinWindow)
                    changed |= {left.name: None, right.name: None, other.name: None}
                    changed[merge.name] = StreamSelfJoin(
                        name=merge.name,
                        parents=(this.name,),
                        windows=left.windows,
                        joiner=left.joiner,
                        store=this.store,
                        origin=left.origin,
                    )
                    gone |= {left.other_store, *filter(None, [left.waiting])}
            case _:
                pass
    kept = [changed.get(node.name, node) for node in nodes]
    return [node for node in kept if node is not None], [spec for spec in stores if spec.name not in gone]
