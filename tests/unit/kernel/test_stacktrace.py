"""A stack trace that is kept says what Python says."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from deltaworks.kernel import stacktrace as kept
from deltaworks.kernel.stacktrace import stacktrace


def plain() -> NoReturn:
    raise ValueError("bad")


def within_an_expression() -> Any:
    row = {"a": {"b": None}}
    return row["a"]["b"]["c"] + 1  # type: ignore[index]


def with_cause() -> NoReturn:
    try:
        plain()
    except ValueError as error:
        raise KeyError("other") from error


def while_another() -> NoReturn:
    try:
        within_an_expression()
    except TypeError:
        plain()
    raise AssertionError


def without_context() -> NoReturn:
    try:
        plain()
    except ValueError:
        raise KeyError("other") from None


def with_notes() -> NoReturn:
    error = ValueError("two\nlines")
    error.add_note('a note that names a File "x.py"')
    raise error


def syntax() -> NoReturn:
    compile("a = = 1", "rules.txt", "exec")
    raise AssertionError


def without_source() -> Any:
    return eval(compile("1 / 0", "<rule>", "eval"))


def recursive(depth: int = 0) -> int:
    return recursive(depth + 1)


def three_deep(depth: int = 2) -> int:
    return three_deep(depth - 1) if depth else 1 // 0


def group() -> NoReturn:
    raise ExceptionGroup("many", [ValueError(1), KeyError(2)])


def group_as_cause() -> NoReturn:
    try:
        group()
    except ExceptionGroup as error:
        raise ValueError from error


def in_a_cycle() -> NoReturn:
    first, second = ValueError(1), ValueError(2)
    first.__context__, second.__context__ = second, first
    raise first


def long_chain() -> NoReturn:
    error: Exception = ValueError("first")
    for number in range(50):
        later = ValueError(number)
        later.__cause__, error = error, later
    raise error


def over_lines() -> Any:
    return sum(
        int(each)
        for each in ("1", "2", "three")
    )  # fmt: skip


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def unprintable() -> NoReturn:
    raise Unprintable


SHAPES: list[Callable[[], Any]] = [
    plain, within_an_expression, with_cause, while_another, without_context, with_notes, syntax, without_source,
    recursive, three_deep, group, group_as_cause, in_a_cycle, long_chain, over_lines, unprintable,
]  # fmt: skip


def raised(fail: Callable[[], Any]) -> BaseException:
    try:
        fail()
    except BaseException as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("fail", SHAPES, ids=lambda fail: fail.__name__)
def test_it_is_what_python_prints_the_first_time_and_later(fail: Callable[[], Any]) -> None:
    kept._frames.clear()
    for _ in range(2):
        error = raised(fail)
        assert stacktrace(error) == kept._imported("".join(traceback.format_exception(error)))


def test_equal_code_of_two_files_is_told_apart(tmp_path: Any) -> None:
    source = "def fail():\n    raise ValueError\n"
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(source)
        space: dict[str, Any] = {}
        exec(compile(source, str(tmp_path / name), "exec"), space)
        assert f'{name}", line 2, in fail' in stacktrace(raised(space["fail"]))


def test_two_places_in_one_line_are_told_apart() -> None:
    def fail(first: str, second: str) -> tuple[int, int]:
        return int(first), int(second)

    texts = [stacktrace(raised(lambda args=args: fail(*args))) for args in (("a", "2"), ("1", "b"))]  # type: ignore[misc]
    assert len({re.sub("literal.*", "", text) for text in texts}) == 2


def test_a_frame_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stacktrace(raised(with_cause))
    monkeypatch.setattr(traceback, "format_tb", lambda *_: pytest.fail("looked up again"))
    stacktrace(raised(with_cause))


def test_not_every_frame_ever_seen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_KEPT", 8)
    for number in range(50):
        stacktrace(raised(lambda number=number: eval(compile(f"{number} / 0", "<rule>", "eval"))))  # type: ignore[misc]
    assert len(kept._frames) <= 8
