"""A join of what does not go together is refused in the author's line, and the hint is a call that runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deltaworks import JoinWindows, Materialized, StreamsBuilder, TopologyError

FILE = str(Path(__file__)).removeprefix(f"{Path.cwd()}/")
NEAR = JoinWindows(difference=timedelta(seconds=1), grace=timedelta(0))
SECOND = timedelta(seconds=1)
IN_WINDOWS = "other, joiner, JoinWindows(difference=timedelta(minutes=5), grace=timedelta(0))"
BY_KEY = "other, joiner, selector=lambda key, value: key"


def joiner(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def keyed(key: str, left: str | None, right: str | None) -> str:
    return f"{key}:{left}+{right}"


def selector(key: str, value: str) -> str:
    return value


class Town:
    """Streams, tables and a global table; without types, so that mypy lets the mistakes pass."""

    def __init__(self) -> None:
        self.builder: Any = StreamsBuilder(explicit_names="none")
        self.orders, self.shipments = (
            self.builder.stream(topic, key=str, value=str) for topic in ("orders", "shipped")
        )
        self.users, self.cities = (self.builder.table(topic, key=str, value=str) for topic in ("users", "cities"))
        self.places: Any = self.builder.global_table("places", key=str, value=str)


def run(town: Town, hint: str, on: Any, other: Any, function: Any) -> None:
    """Builds the hint's call."""
    names = {"JoinWindows": JoinWindows, "timedelta": timedelta, "selector": selector}
    result = eval(f"handle.{hint}", {"handle": on, "other": other, "joiner": function} | names)
    (result.to_stream() if hasattr(result, "to_stream") else result).to("out")
    town.builder.build()


Call = Callable[[Any, Any], Any]


@pytest.mark.parametrize(
    ("kind", "call", "what", "hint"),
    [
        ("users", lambda on, other: on.join(other, joiner, NEAR),
            "join with a KTable takes no argument windows, but got a JoinWindows.", "join(other, joiner)"),
        ("users", lambda on, other: on.left_join(other, joiner, selector=selector),
            "left_join with a KTable takes no argument selector, but got a function.",
            "select_key(selector).left_join(other, joiner)"),
        ("users", lambda on, other: on.join_with_key(other, keyed, store="j"),
            "join_with_key with a KTable takes no argument store, but got 'j'.", "join_with_key(other, joiner)"),
        ("users", lambda on, other: on.outer_join(other, joiner),
            "outer_join joins a stream with another stream only, but got a KTable.", "left_join(other, joiner)"),
        ("users", lambda on, other: on.outer_join(other, joiner, NEAR),
            "outer_join joins a stream with another stream only, but got a KTable.", "left_join(other, joiner)"),
        ("shipments", lambda on, other: on.join(other, joiner),
            "join with a KStream needs the argument windows.", f"join({IN_WINDOWS})"),
        ("shipments", lambda on, other: on.outer_join_with_key(other, keyed),
            "outer_join_with_key with a KStream needs the argument windows.", f"outer_join_with_key({IN_WINDOWS})"),
        ("shipments", lambda on, other: on.left_join(other, joiner, SECOND),
            "left_join needs JoinWindows, but got a timedelta.", f"left_join({IN_WINDOWS})"),
        ("shipments", lambda on, other: on.join(other, joiner, selector=selector),
            "join with a KStream takes no argument selector, but got a function.",
            f"select_key(selector).join({IN_WINDOWS})"),
        ("shipments", lambda on, other: on.join(other, joiner, NEAR, grace=SECOND),
            "join with a KStream takes no argument grace, but got a timedelta.", f"join({IN_WINDOWS})"),
        ("places", lambda on, other: on.join(other, joiner),
            "join with a GlobalKTable needs the argument selector.", f"join({BY_KEY})"),
        ("places", lambda on, other: on.left_join(other, selector, joiner),
            "left_join takes the joiner second, and the selector as a keyword.", f"left_join({BY_KEY})"),
        ("places", lambda on, other: on.join_with_key(other, selector, keyed),
            "join_with_key takes the joiner second, and the selector as a keyword.", f"join_with_key({BY_KEY})"),
        ("places", lambda on, other: on.join(other, joiner, NEAR, selector=selector),
            "join with a GlobalKTable takes no argument windows, but got a JoinWindows.", f"join({BY_KEY})"),
        ("places", lambda on, other: on.left_join(other, joiner, selector=selector, grace=SECOND),
            "left_join with a GlobalKTable takes no argument grace, but got a timedelta.", f"left_join({BY_KEY})"),
        ("places", lambda on, other: on.outer_join(other, joiner, selector=selector),
            "outer_join joins a stream with another stream only, but got a GlobalKTable.", f"left_join({BY_KEY})"),
    ],
)  # fmt: skip
def test_a_wrong_join_of_a_stream_is_one_error_with_a_call_that_runs(
    kind: str, call: Call, what: str, hint: str
) -> None:
    town = Town()

    problem = refused(lambda: call(town.orders, getattr(town, kind)))

    assert (problem.what, problem.hint) == (what, hint)
    assert problem.where == f"{FILE}:{call.__code__.co_firstlineno}"
    right = Town()
    run(right, hint, right.orders, getattr(right, kind), keyed if "_with_key" in hint else joiner)


@pytest.mark.parametrize(
    ("call", "what", "hint"),
    [
        (lambda on, other: on.join(other, selector, joiner),
            "join takes the joiner second, and the foreign key as a keyword.",
            "join(other, joiner, foreign_key=lambda key, value: value)"),
        (lambda on, other: on.left_join(other, selector, joiner, store="joined"),
            "left_join takes the joiner second, and the foreign key as a keyword.",
            "left_join(other, joiner, foreign_key=lambda key, value: value)"),
        (lambda on, other: on.join(other, joiner, Materialized("joined")),
            "join of two tables takes (other, joiner), but also got a Materialized.",
            "join(other, joiner, store='...')"),
        (lambda on, other: on.left_join(other, joiner, NEAR),
            "left_join of two tables takes (other, joiner), but also got a JoinWindows.", "left_join(other, joiner)"),
    ],
)  # fmt: skip
def test_a_wrong_join_of_tables_is_one_error_with_a_call_that_runs(call: Call, what: str, hint: str) -> None:
    town = Town()

    problem = refused(lambda: call(town.users, town.cities))

    assert (problem.what, problem.hint) == (what, hint)
    assert problem.where == f"{FILE}:{call.__code__.co_firstlineno}"
    right = Town()
    run(right, hint.replace("...", "joined"), right.users, right.cities, joiner)


@pytest.mark.parametrize(("given", "said"), [("users", "'users'"), (None, "None"), (Town, "the class Town")])
def test_a_stream_is_joined_with_handles_only(given: Any, said: str) -> None:
    problem = refused(lambda: Town().orders.join(given, joiner))

    assert problem.what == f"join needs a KTable, KStream or GlobalKTable, but got {said}."
    assert problem.hint == "builder.table(...), builder.stream(...) and builder.global_table(...) make them"


@pytest.mark.parametrize("kind", ["shipments", "places"])
def test_a_table_is_joined_with_tables_only(kind: str) -> None:
    town = Town()

    problem = refused(lambda: town.users.join(getattr(town, kind), joiner))

    assert problem.what == f"join needs a KTable, but got a {type(getattr(town, kind)).__name__}."
    assert problem.hint is not None
    assert problem.hint.startswith(("stream.join(table, joiner)", "table.to_stream().join(global_table, joiner, sel"))


@pytest.mark.parametrize(
    ("handle", "old", "new"),
    [
        ("orders", "join_stream", "join(other, joiner, windows)"),
        ("orders", "left_join_stream", "left_join(other, joiner, windows)"),
        ("orders", "outer_join_stream", "outer_join(other, joiner, windows)"),
        ("orders", "join_stream_with_key", "join_with_key(other, joiner, windows)"),
        ("orders", "left_join_stream_with_key", "left_join_with_key(other, joiner, windows)"),
        ("orders", "outer_join_stream_with_key", "outer_join_with_key(other, joiner, windows)"),
        ("orders", "join_global", f"join({BY_KEY})"),
        ("orders", "left_join_global", f"left_join({BY_KEY})"),
        ("orders", "join_global_with_key", f"join_with_key({BY_KEY})"),
        ("orders", "left_join_global_with_key", f"left_join_with_key({BY_KEY})"),
        ("orders", "leftJoin", "left_join(...)"),
        ("users", "join_foreign_key", "join(other, joiner, foreign_key=lambda key, value: value)"),
        ("users", "left_join_foreign_key", "left_join(other, joiner, foreign_key=lambda key, value: value)"),
        ("users", "left_join_global", f"to_stream().left_join({BY_KEY})"),
        ("users", "join_stream", "to_stream().join(other, joiner, windows)"),
    ],
)
def test_a_name_that_says_what_is_joined_leads_to_the_join(handle: str, old: str, new: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(getattr(Town(), handle), old)

    assert str(error.value).partition("Hint: ")[2] == new


def refused(call: Callable[[], object]) -> Any:
    """The only problem of a call."""
    with pytest.raises(TopologyError) as error:
        call()
    (problem,) = error.value.problems
    return problem
