"""Functions of the cases (SPEC section 5), by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from deltaworks import Windowed
from tests.conformance.values import equal, greater, is_number, long_text, text, wrapped

Reference = list[Any]
"""`[name, argument, ...]`"""
Predicate = Callable[[Any, Any], bool]
Mapper = Callable[[Any, Any], Any]


def predicate(reference: Reference) -> Predicate:
    match reference:
        case ["always"]:
            return lambda k, v: True
        case ["never"]:
            return lambda k, v: False
        case ["value_is_null"]:
            return lambda k, v: v is None
        case ["value_not_null"]:
            return lambda k, v: v is not None
        case ["key_is_null"]:
            return lambda k, v: k is None
        case ["value_gt", n]:
            return lambda k, v: v is not None and greater(v, n)
        case ["value_lt", n]:
            return lambda k, v: v is not None and greater(n, v)
        case ["value_eq", x]:
            return lambda k, v: v is not None and equal(v, x)
        case ["value_even"]:
            return lambda k, v: v is not None and _number(v) % 2 == 0
        case ["value_contains", s]:
            return lambda k, v: v is not None and s in text(v)
        case ["key_eq", s]:
            return lambda k, v: k is not None and text(k) == s
        case ["key_starts_with", s]:
            return lambda k, v: k is not None and text(k).startswith(s)
        case ["field_gt", f, n]:
            return lambda k, v: _field(v, f) is not None and greater(_field(v, f), n)
        case ["field_eq", f, x]:
            return lambda k, v: _field(v, f) is not None and equal(_field(v, f), x)
        case ["fail_on", x]:
            return lambda k, v: _unless(v, x, True)
        case _:
            raise ValueError(f"unknown predicate {reference}")


def mapper(reference: Reference) -> Mapper:
    """A mapper `(key, value) -> value`."""
    match reference:
        case ["null_to", x]:
            return lambda k, v: x if v is None else v
        case ["text_or_null"]:
            return lambda k, v: text(v)
        case ["key_colon_value"]:
            return lambda k, v: f"{text(k)}:{text(v)}"
        case ["chain", *references]:
            mappers = [mapper(each) for each in references]

            def chain(k: Any, v: Any) -> Any:
                for each in mappers:
                    v = each(k, v)
                return v

            return chain
        case _:
            one = _value_mapper(reference)
            return lambda k, v: None if v is None else one(v)


def _value_mapper(reference: Reference) -> Callable[[Any], Any]:
    match reference:
        case ["identity"]:
            return lambda v: v
        case ["const", x]:
            return lambda v: x
        case ["to_null"]:
            return lambda v: None
        case ["upper"]:
            return lambda v: text(v).upper()
        case ["append", s]:
            return lambda v: text(v) + s
        case ["prepend", s]:
            return lambda v: s + text(v)
        case ["first_char"]:
            return lambda v: text(v)[:1]
        case ["length"]:
            return lambda v: len(text(v))
        case ["to_text"]:
            return text
        case ["to_long"]:
            return lambda v: long_text(v) if isinstance(v, str) else int(_number(v))
        case ["add", n]:
            return lambda v: wrapped(_number(v) + n)
        case ["mul", n]:
            return lambda v: wrapped(_number(v) * n)
        case ["mod", n]:
            return lambda v: _number(v) % n
        case ["field", f]:
            return lambda v: _field(v, f)
        case ["wrap", f]:
            return lambda v: {f: v}
        case ["null_if", x]:
            return lambda v: None if equal(v, x) else v
        case ["fail_on", x]:
            return lambda v: _unless(v, x, v)
        case _:
            raise ValueError(f"unknown mapper {reference}")


def key_selector(reference: Reference) -> Mapper:
    match reference:
        case ["key"]:
            return lambda k, v: k
        case ["null"]:
            return lambda k, v: None
        case ["const", s]:
            return lambda k, v: s
        case ["value_as_key"]:
            return lambda k, v: None if v is None else text(v)
        case ["first_char_of_value"]:
            return lambda k, v: None if v is None or text(v) == "" else text(v)[0]
        case ["first_char_of_key"]:
            return lambda k, v: None if k is None or text(k) == "" else text(k)[0]
        case ["field", f]:
            return lambda k, v: None if _field(v, f) is None else text(_field(v, f))
        case ["value_mod", n]:
            return lambda k, v: None if v is None else text(_number(v) % n)
        case ["key_append", s]:
            return lambda k, v: text(k) + s
        case ["key_text"]:
            return lambda k, v: None if k is None else text(k)
        case ["unwindow"]:
            return lambda k, v: k.key if isinstance(k, Windowed) else k
        case ["window_start"]:
            return lambda k, v: text(k.start_ms)
        case _:
            raise ValueError(f"unknown key selector {reference}")


def flat_mapper(reference: Reference) -> Callable[[Any], Iterable[Any]]:
    match reference:
        case ["repeat", n]:
            return lambda v: [v] * n
        case ["words"]:
            return lambda v: [] if v is None else _words(v)
        case ["chars"]:
            return lambda v: [] if v is None else list(text(v))
        case ["items"]:
            return lambda v: v if isinstance(v, list) else []
        case ["none"]:
            return lambda v: []
        case _:
            raise ValueError(f"unknown flat mapper {reference}")


def pair_flat_mapper(reference: Reference) -> Callable[[Any, Any], Iterable[tuple[Any, Any]]]:
    match reference:
        case ["words_as_keys"]:
            return lambda k, v: [] if v is None else [(word, v) for word in _words(v)]
        case ["both_ways"]:
            return lambda k, v: [(k, v), (_text_or_none(v), _text_or_none(k))]
        case ["none"]:
            return lambda k, v: []
        case _:
            raise ValueError(f"unknown pair flat mapper {reference}")


def joiner(reference: Reference) -> Callable[[Any, Any, Any], Any]:
    """A joiner `(key, left, right) -> value`."""
    match reference:
        case ["concat_lr"]:
            return lambda k, left, right: f"{text(left)}+{text(right)}"
        case ["concat_klr"]:
            return lambda k, left, right: f"{text(k)}:{text(left)}+{text(right)}"
        case ["left"]:
            return lambda k, left, right: left
        case ["right"]:
            return lambda k, left, right: right
        case ["sum"]:
            return lambda k, left, right: _sum(left, right)
        case ["pair"]:
            return lambda k, left, right: {"l": left, "r": right}
        case ["null_if_equal"]:
            return lambda k, left, right: None if equal(left, right) else f"{text(left)}+{text(right)}"
        case ["fail_on_right", x]:
            return lambda k, left, right: _unless(right, x, f"{text(left)}+{text(right)}")
        case _:
            raise ValueError(f"unknown joiner {reference}")


def aggregator(reference: Reference) -> Callable[[Any, Any, Any], Any]:
    """An aggregator `(key, value, aggregate) -> aggregate`; also serves as reducer and session merger."""
    match reference:
        case ["concat", s]:
            return lambda k, v, a: text(v) if a in (None, "") else text(a) + s + text(v)
        case ["append_text", s]:
            return lambda k, v, a: ("" if a is None else text(a)) + s + text(v)
        case ["concat_keyed"]:
            return lambda k, v, a: f"{'' if a is None else text(a)}{text(k)}={text(v)};"
        case ["sum"]:
            return lambda k, v, a: _sum(a, v)
        case ["subtract"]:
            return lambda k, v, a: wrapped((0 if a is None else _number(a)) - (0 if v is None else _number(v)))
        case ["increment", n]:
            return lambda k, v, a: wrapped((0 if a is None else _number(a)) + n)
        case ["max"]:
            return lambda k, v, a: v if a is None or (v is not None and greater(v, a)) else a
        case ["min"]:
            return lambda k, v, a: v if a is None or (v is not None and greater(a, v)) else a
        case ["last"]:
            return lambda k, v, a: v
        case ["first"]:
            return lambda k, v, a: v if a is None else a
        case ["null"]:
            return lambda k, v, a: None
        case ["sum_null_above", n]:
            return lambda k, v, a: None if _sum(a, v) > n else _sum(a, v)
        case ["append_list"]:
            return lambda k, v, a: [*(a or []), v]
        case ["remove_list"]:
            return lambda k, v, a: _without_first(a or [], v)
        case ["concat_list"]:
            return lambda k, v, a: [*(a or []), *(v or [])]
        case ["fail_on", x]:
            return lambda k, v, a: _sum(a, _unless(v, x, v))
        case _:
            raise ValueError(f"unknown aggregator {reference}")


def timestamp_extractor(reference: Reference) -> Callable[[Any, int], int]:
    """An extractor `(record, partition_time_ms) -> timestamp_ms`."""
    match reference:
        case ["value_field", f]:
            return lambda record, _: _time(_field(record.value, f), -1)
        case ["value_field_or_partition_time", f]:
            return lambda record, partition_time_ms: _time(_field(record.value, f), partition_time_ms)
        case _:
            raise ValueError(f"unknown timestamp extractor {reference}")


def topic_extractor(reference: Reference) -> Callable[[Any, Any, Any], str]:
    """An extractor `(key, value, context) -> topic`."""
    match reference:
        case ["prefix_and_key", p]:
            return lambda k, v, _: f"{p}{text(k)}"
        case ["prefix_and_field", p, f]:
            return lambda k, v, _: f"{p}{text(_field(v, f))}"
        case ["source_topic_suffix", s]:
            return lambda k, v, context: f"{context.topic}{s}"
        case _:
            raise ValueError(f"unknown topic extractor {reference}")


def _time(value: Any, otherwise_ms: int) -> int:
    return otherwise_ms if value is None else int(_number(value))


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _number(value: Any) -> Any:
    if not is_number(value):
        raise TypeError(f"not a number: {text(value)}")
    return value


def _sum(left: Any, right: Any) -> Any:
    if left is None and right is None:
        return 0
    return wrapped(sum(_number(each) for each in (left, right) if each is not None))


def _words(value: Any) -> list[str]:
    return [word for word in text(value).split(" ") if word]


def _text_or_none(value: Any) -> str | None:
    return None if value is None else text(value)


def _without_first(items: list[Any], item: Any) -> list[Any]:
    at = next((at for at, other in enumerate(items) if equal(other, item)), len(items))
    return items[:at] + items[at + 1 :]


def _unless(value: Any, forbidden: Any, result: Any) -> Any:
    if value is not None and equal(value, forbidden):
        raise RuntimeError(f"failed on {text(value)}")
    return result
