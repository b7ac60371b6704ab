"""The size of a record for a topic, and the treatment of a dead letter that is too large for its topic."""

from __future__ import annotations

from deltaworks.kernel.records import Headers

_OF_A_BATCH, _OF_A_RECORD, _OF_A_HEADER = 61, 40, 10
"""The maximum number of bytes that Kafka adds around them."""
_SAYS = "__deltaworks.shortened."


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The size that a topic must accept for a record alone in its batch; at most a few bytes too large."""
    size = _OF_A_BATCH + _OF_A_RECORD + len(key or b"") + len(value or b"")
    return size + sum(_OF_A_HEADER + 3 * len(name) + len(content or b"") for name, content in headers)


def shortened(
    key: bytes | None, value: bytes | None, headers: Headers, limit: int
) -> tuple[bytes | None, bytes | None, Headers]:
    """A dead letter that fits into its topic, and says how large key and value were (-1: None).

    A dead letter that fits is not cut. The value is cut first, then the key, then the content of the headers, then
    headers: the record's own before those that describe the error.
    """
    if record_size(key, value, headers) <= limit:
        return key, value, headers
    sizes = tuple(
        (_SAYS + name, str(-1 if data is None else len(data)).encode())
        for name, data in (("key", key), ("value", value))
    )
    headers += sizes
    if record_size(None, None, headers) > limit // 2:
        room = max(limit // 4 // len(headers), 8)
        headers = tuple((name, None if content is None else content[:room]) for name, content in headers)
    while headers and record_size(None, None, headers) > limit:
        headers = headers[1:]
    room = max(limit - record_size(None, None, headers), 0)
    if key is not None:
        key = key[: max(room - len(value or b""), room // 2)]
        room -= len(key)
    return key, None if value is None else value[:room], headers
