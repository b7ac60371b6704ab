"""Asks that meet bids (stream-stream left join), parcels that meet depots (foreign-key join, a cycle of stages)."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from deltaworks import JoinWindows, Materialized, Pipeline, StreamsBuilder, Topic

PARTITIONS = 2
NEAR = JoinWindows(difference=timedelta(minutes=30), grace=timedelta(hours=2))


class Offer(msgspec.Struct, frozen=True):
    """An ask or a bid, keyed by article; `seq` counts all of its side."""

    seq: int


class Match(msgspec.Struct, frozen=True):
    """An ask, and the bid near it."""

    ask: int
    bid: int | None


class Parcel(msgspec.Struct, frozen=True):
    """Keyed by parcel; `seq` counts all of them."""

    seq: int
    depot: str


class Depot(msgspec.Struct, frozen=True):
    """Keyed by depot; `seq` counts all of them."""

    seq: int


class Placed(msgspec.Struct, frozen=True):
    """A parcel with the depot as it is now."""

    seq: int
    depot: str
    depot_seq: int | None


def match(ask: Offer, bid: Offer | None) -> Match:
    """The pair; without bid, when none can come any more."""
    return Match(ask.seq, None if bid is None else bid.seq)


def placed(parcel: Parcel, depot: Depot | None) -> Placed:
    """The parcel where it is."""
    return Placed(parcel.seq, parcel.depot, None if depot is None else depot.seq)


def topology(builder: StreamsBuilder) -> None:
    """Two halves that have nothing to do with each other."""
    asks = builder.stream("soak-asks", key=str, value=Offer, name="asks")
    bids = builder.stream("soak-bids", key=str, value=Offer, name="bids")
    matches = asks.left_join(bids, match, NEAR, store="soak-near", name="near")
    matches.to_delta("soak_matches")
    matches.to("soak-matched")

    rows = Materialized("soak-depots", caching=False)
    depots = builder.table("soak-depots", key=str, value=Depot, store=rows, name="depots")
    kept = Materialized("soak-parcels", caching=False)
    parcels = builder.table("soak-parcels", key=str, value=Parcel, store=kept, name="parcels")
    depots.to_delta("soak_depots")
    parcels.left_join(depots, placed, foreign_key=lambda _, parcel: parcel.depot, name="placed").to_delta("soak_placed")


pipeline = Pipeline(
    name="soak_matches",
    topology=topology,
    topics=(
        *(Topic(name, PARTITIONS) for name in ("soak-asks", "soak-bids", "soak-matched")),
        *(Topic(name, PARTITIONS, compacted=False) for name in ("soak-parcels", "soak-depots")),
    ),
    record_cache=False,
    trigger_interval=timedelta(seconds=3),  # leaves room for the starts of others
)
