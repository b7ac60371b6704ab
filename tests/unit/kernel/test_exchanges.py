from deltaworks.kernel.exchanges import ExchangeOutput


def test_offsets_count_per_exchange_and_task_from_the_batch_id() -> None:
    output = ExchangeOutput(task=2, batch_id=3)
    output.add("h", 1, b"a", b"1", 10, ())
    output.add("h", 0, b"b", b"2", 11, ())
    output.add("h", 1, b"c", None, 12, ())

    batches = output.batches()

    first = 3 * 2**32
    assert list(batches) == [("h", 0), ("h", 1)]
    assert batches["h", 1].topic == "h"
    assert batches["h", 1].partition == 2
    assert batches["h", 1].offsets == [first, first + 1]
    assert batches["h", 1].keys == [b"a", b"c"]
    assert batches["h", 1].values == [b"1", None]
    assert batches["h", 1].timestamps_ms == [10, 12]
    assert batches["h", 0].offsets == [first]


def test_headers_are_left_out_until_a_record_has_one() -> None:
    output = ExchangeOutput(task=0, batch_id=0)
    output.add("h", 0, b"a", b"1", 1, ())
    assert output.batches()["h", 0].headers is None

    output.add("h", 0, b"a", b"2", 2, (("trace", b"x"),))
    output.add("h", 0, b"a", b"3", 3, ())

    assert output.batches()["h", 0].headers == [(), (("trace", b"x"),), ()]


def test_what_is_taken_in_parts_has_the_offsets_of_the_whole() -> None:
    output = ExchangeOutput(task=0, batch_id=1)
    output.add("h", 0, b"a", b"1", 10, ())
    first = output.take()
    output.add("h", 0, b"b", b"2", 20, ())

    second = output.take()

    assert first["h", 0].offsets == [1 << 32]
    assert second["h", 0].offsets == [(1 << 32) + 1]
    assert second["h", 0].keys == [b"b"]
    assert output.take() == {}
