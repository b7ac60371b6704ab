from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StoreChanges


def timed(key: bytes, time_ms: int) -> bytes:
    return key + time_ms.to_bytes(8, "big")


def test_scan_is_in_byte_order_and_excludes_the_stop() -> None:
    state = MemoryState()
    state.apply({"s": StoreChanges([(b"b", b"2"), (b"a", b"1"), (b"c", b"3"), (b"", b"0")])})

    assert list(state.reader("s").scan(b"a", b"c")) == [(b"a", b"1"), (b"b", b"2")]
    assert [key for key, _ in state.reader("s").scan(b"", None)] == [b"", b"a", b"b", b"c"]


def test_delete_of_what_is_not_there_is_nothing() -> None:
    state = MemoryState()
    state.apply({"s": StoreChanges([(b"a", b"1")])})
    state.apply({"s": StoreChanges([(b"a", None), (b"x", None)])})

    assert state.reader("s").get(b"a") is None
    assert state.contents() == {}


def test_expiry_comes_after_the_entries() -> None:
    state = MemoryState()
    state.apply({"s": StoreChanges([(timed(b"a", 5), b"1"), (timed(b"b", 9), b"2")])})
    state.apply({"s": StoreChanges([(timed(b"c", 6), b"3"), (timed(b"c", 10), b"4")], expire_before_ms=7)})

    assert [value for _, value in state.reader("s").scan(b"", None)] == [b"2", b"4"]


def test_scan_time_orders_by_time_then_key() -> None:
    state = MemoryState()
    state.apply({"s": StoreChanges([(timed(b"b", 5), b"b5"), (timed(b"a", 5), b"a5"), (timed(b"z", 1), b"z1")])})

    assert [value for _, value in state.reader("s").scan_time(0, None)] == [b"z1", b"a5", b"b5"]
    assert [value for _, value in state.reader("s").scan_time(1, 5)] == [b"z1"]
