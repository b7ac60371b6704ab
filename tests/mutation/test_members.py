"""A member that is mutated does nothing, and is back afterwards."""

from __future__ import annotations

import enum
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pytest

from tests.coverage_table.counterparts import Counterpart
from tests.mutation.members import OutOfService, mutated


class Light(enum.Enum):
    RED = "red"
    GREEN = "green"


def shown(light: Light) -> str:
    return str(light.value)


@dataclass(frozen=True)
class Numbers:
    numbers: tuple[int, ...] = ()

    def plus(self, *numbers: int, times: int = 1) -> Numbers:
        return Numbers(self.numbers + numbers * times)

    def show(self) -> None:
        print(self.numbers)

    def total(self) -> int:
        return sum(self.numbers)


class MoreNumbers(Numbers):
    def total(self) -> int:
        return -1


class Counts(Protocol):
    def total(self) -> int: ...
    def show(self) -> None: ...


def without(owner: type, member: str | None, argument: str | None = None) -> AbstractContextManager[None]:
    return mutated(Counterpart("it", owner, member, argument))


def test_an_operator_returns_what_it_was_called_on() -> None:
    with without(Numbers, "plus"):
        assert Numbers((1,)).plus(2) == Numbers((1,))

    assert Numbers((1,)).plus(2) == Numbers((1, 2))


def test_what_has_no_result_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with without(Numbers, "show"):
        Numbers().show()

    assert capsys.readouterr().out == ""


def test_what_has_another_result_raises() -> None:
    with without(Numbers, "total"), pytest.raises(OutOfService):
        Numbers().total()


def test_an_argument_is_ignored() -> None:
    with without(Numbers, "plus", "times"):
        assert Numbers().plus(1, times=2) == Numbers((1,))


def test_a_field_cannot_be_read() -> None:
    with without(Numbers, "numbers"), pytest.raises(OutOfService):
        Numbers((1,)).total()

    assert Numbers((1,)).total() == 1


def test_an_object_cannot_be_made() -> None:
    with without(Numbers, None), pytest.raises(OutOfService):
        Numbers()

    assert Numbers() == Numbers(())


def test_a_constant_is_another_one() -> None:
    with without(Light, "RED"):
        assert shown(Light.RED) == "green"

    assert shown(Light.RED) == "red"


def test_what_derived_classes_override_is_out_of_service_too() -> None:
    with without(Numbers, "total"), pytest.raises(OutOfService):
        MoreNumbers().total()

    assert MoreNumbers().total() == -1


def test_of_a_protocol_what_implements_it_is_out_of_service() -> None:
    with without(Counts, "total"), pytest.raises(OutOfService):
        Numbers().total()
