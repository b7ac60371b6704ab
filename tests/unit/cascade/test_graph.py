"""The order of the jobs behind one of them, what changes for each, and cycles."""

from __future__ import annotations

from typing import Any

from deltaworks.cascade.graph import Cascade, Job, behind


def pipeline(name: str, **names: str) -> Job:
    return Job(kind="pipeline", name=name, **split(names))


def batch(name: str, reads: str, waits_for: str = "") -> Job:
    return Job(
        kind="batch job", name=name, **split({"reads_tables": reads, "writes_tables": name, "waits_for": waits_for})
    )


def split(names: dict[str, str]) -> dict[str, Any]:
    return {what: frozenset(text.split()) for what, text in names.items()}


def said(cascade: Cascade) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(each.job.name, each.tables, each.topics) for each in cascade.readers]


ORDERS = pipeline("orders", writes_tables="sales users", writes_topics="sold")


def test_readers_of_tables_that_change_are_behind_it_and_no_others() -> None:
    jobs = [ORDERS, batch("daily", "sales users"), batch("people", "users"), batch("clicks", "clicked")]
    assert said(behind(ORDERS, ["sales"], jobs)) == [("daily", ("sales",), ())]


def test_each_is_behind_those_that_it_reads_from() -> None:
    """a -> b -> d and a -> c -> d, given in another order."""
    jobs = [batch("d", "b c"), batch("a", "sales"), batch("c", "a"), ORDERS, batch("b", "a sales")]
    assert said(behind(ORDERS, ["sales"], jobs)) == [
        ("a", ("sales",), ()),
        ("c", ("a",), ()),
        ("b", ("a", "sales"), ()),
        ("d", ("b", "c"), ()),
    ]


def test_behind_a_topic_nothing_changes() -> None:
    jobs = [
        ORDERS,
        pipeline("shipping", reads_topics="sold", writes_tables="parcels", writes_topics="sent"),
        pipeline("mails", reads_topics="sent", writes_tables="mailed"),
        batch("late", "parcels sales"),
    ]
    assert said(behind(ORDERS, ["sales"], jobs)) == [
        ("shipping", (), ("sold",)),
        ("mails", (), ("sent",)),
        ("late", ("sales",), ()),
    ]


def test_whoever_reads_the_corrections_and_all_behind_are_corrected() -> None:
    orders = Job(
        kind="pipeline",
        name="orders",
        corrections="fixed",
        **split({"writes_tables": "sales", "writes_topics": "sold fixed"}),
    )
    jobs = [
        orders,
        pipeline("mails", reads_topics="sold", writes_tables="mailed"),
        pipeline("ledger", reads_topics="fixed sold", writes_tables="booked", writes_topics="posted"),
        pipeline("audit", reads_topics="posted"),
        batch("monthly", "booked"),
        batch("sent", "mailed"),
    ]
    found = behind(orders, ["sales"], jobs)
    assert {each.job.name for each in found.readers if each.corrected} == {"ledger", "audit", "monthly"}
    assert not any(each.tables for each in found.readers)


def test_a_cycle_is_told_and_ends() -> None:
    shipping = pipeline("shipping", reads_topics="sold", writes_topics="sent returned")
    returns = pipeline("returns", reads_topics="returned sent", writes_topics="bought")
    orders = pipeline("orders", reads_topics="bought", writes_tables="sales", writes_topics="sold")
    found = behind(orders, ["sales"], [orders, shipping, returns])
    assert [each.job.name for each in found.readers] == ["shipping", "returns"]
    assert [[job.name for job in cycle] for cycle in found.cycles] == [["orders", "shipping", "returns", "orders"]]


def test_a_job_that_reads_what_it_writes_is_a_cycle() -> None:
    loop = pipeline("loop", reads_topics="again", writes_topics="again")
    found = behind(loop, [], [loop])
    assert found.readers == ()
    assert [[job.name for job in cycle] for cycle in found.cycles] == [["loop", "loop"]]
