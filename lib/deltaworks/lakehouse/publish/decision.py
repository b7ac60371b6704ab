"""Whether what a reprocessing would change may be published without asking anybody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from deltaworks.dsl.reprocess import ChangeLimit, Reprocess
from deltaworks.lakehouse.publish.comparison import Comparison, TableComparison


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a reprocessing that has passed the gate."""

    answer: Literal["nothing", "publish", "ask"]
    """`nothing`: production is equal already."""
    why: str
    """For people, without a period."""


def decide(policy: Reprocess, comparison: Comparison) -> Decision:
    """What a pipeline's policy says about the differences between a replay and production."""
    if comparison.equal:
        return Decision(answer="nothing", why="every row equals production")
    found = f"{comparison.differences:,} rows differ"
    if policy.publish == "ask":
        return Decision(answer="ask", why=f"{found}, and reprocess= asks about any difference")
    if policy.hand_over is not None and policy.hand_over.window is None:
        return Decision(answer="ask", why=f"{found}, and reprocess= has no window in which the stream may be switched")
    if over := list(_over(policy.limit or ChangeLimit(), comparison)):
        return Decision(answer="ask", why=f"{found}, and that is over the limit: {'; '.join(over)}")
    within = "there is no limit" if policy.limit is None else "that is within the limit"
    return Decision(answer="publish", why=f"{found}, and {within}")


def _over(limit: ChangeLimit, comparison: Comparison) -> Iterator[str]:
    """Each way in which the differences are over the limit."""
    if limit.rows is not None and comparison.differences > limit.rows:
        yield f"{comparison.differences:,} rows of at most {limit.rows:,}"
    for table in comparison.tables:
        different, before = table.rows.different, table.rows.production
        if limit.share is not None and different > limit.share * before:
            found = (
                f"{different / before:.3%} of at most {limit.share:.3%}" if before else "it has no rows in production"
            )
            yield f"{table.table}: {found}"
        yield from _sums_over(limit, table)


def _sums_over(limit: ChangeLimit, table: TableComparison) -> Iterator[str]:
    for name, share in limit.sums.items():
        of_table, _, column = name.partition(".")
        if of_table != table.table or table.equal:
            continue
        found = table.sums.get(column)
        if found is None or found.before is None or found.change is None:
            yield f"the sum of {name} cannot be compared"
        elif abs(found.change) > share * abs(found.before):
            moved = f"{found.change / abs(found.before):+.3%}" if found.before else f"{found.change:+g} from 0"
            yield f"the sum of {name} changes by {moved}, of at most {share:.3%}"
