"""A dead letter always fits into its topic, and says how large it was."""

from __future__ import annotations

import pytest

from deltaworks.kernel.sizes import record_size, shortened

HEADERS = (("own", b"o" * 100), ("__streams.errors.message", b"m" * 300), ("__streams.errors.topic", None))


def test_what_fits_stays_as_it_is() -> None:
    assert shortened(b"k", b"v" * 1_000, HEADERS, 2_000) == (b"k", b"v" * 1_000, HEADERS)
    assert shortened(None, None, (), 200) == (None, None, ())


@pytest.mark.parametrize("limit", [150, 300, 1_000, 5_000, 1_048_588])
@pytest.mark.parametrize("key", [None, b"", b"k" * 50, b"k" * 9_000_000])
@pytest.mark.parametrize("value", [None, b"v" * 50, b"v" * 9_000_000])
@pytest.mark.parametrize("headers", [(), HEADERS, (("big", b"h" * 3_000_000), *HEADERS), (("n" * 3_000, b""),) * 100])
def test_it_always_fits(limit: int, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes]]) -> None:
    found = shortened(key, value, headers, limit)

    assert record_size(*found) <= limit
    assert (found[0] is None, found[1] is None) == (key is None, value is None)


def test_the_value_gives_way_first_and_the_original_sizes_are_said() -> None:
    key, value, headers = shortened(b"k" * 100, b"v" * 10_000, HEADERS, 5_000)

    assert key == b"k" * 100
    assert value is not None and 3_000 < len(value) < 5_000
    assert headers[:3] == HEADERS
    assert dict(headers[3:]) == {"__deltaworks.shortened.key": b"100", "__deltaworks.shortened.value": b"10000"}
