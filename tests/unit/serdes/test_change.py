import pytest

from deltaworks import Json, Long
from deltaworks.serdes.change import Change, ChangeSerde


@pytest.mark.parametrize("is_latest", [True, False])
@pytest.mark.parametrize(("new", "old"), [(1, 2), (1, None), (None, 2), (0, 0)])
def test_both_values_and_whether_it_is_the_latest_come_back(new: int | None, old: int | None, is_latest: bool) -> None:
    serde = ChangeSerde(Long())

    assert serde.deserialize(serde.serialize(Change(new, old, is_latest))) == Change(new, old, is_latest)


def test_empty_bytes_are_a_value() -> None:
    serde = ChangeSerde(Json(str))

    assert serde.deserialize(serde.serialize(Change("", "x"))) == Change("", "x")
    assert serde.name == "change(json(str))"
