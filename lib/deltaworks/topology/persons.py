"""What counts as a person's: a key, found as whole words wherever text is.

`u-17` is found in `u-17`, in `u-17|DE` and in `user u-17 failed.`, but neither in `u-171` nor in `eu-17`: words are
letters, digits, and the signs that keys and addresses are made of. Numbers are compared in keys and in named fields
only, because the quantity 17 is nobody's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from deltaworks.errors import ConfigurationError
from deltaworks.serdes.base import Serde
from deltaworks.serdes.windowed import Windowed

_WORD = re.compile(r"[\w.@+-]+")


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A person as the record of their erasure knows them: a salted hash of their key, and what it looks like."""

    words: int
    """How many words the key has."""
    digest: bytes
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Person:
    """Whose data it is; made by `of`, or by `known` for any of several persons.

    Args:
        words: of the key; None if only hashes are known.
        fields: names of fields whose numbers are compared too.
        salt: of the hashes.
        hashed: number of words -> the hashes of keys with so many.
    """

    words: tuple[str, ...] | None
    fields: frozenset[str] = frozenset()
    salt: bytes = b""
    hashed: Mapping[int, frozenset[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, key: str, fields: Iterable[str] = ()) -> Person:
        """The person with a key.

        Args:
            key: such as `u-17`.
            fields: names of fields that hold the key as a number.

        Raises:
            ConfigurationError: the key has no letter and no digit.
        """
        words = _words(key)
        if not any(letter.isalnum() for letter in key):
            raise ConfigurationError(f"The key {key!r} has no letter and no digit.", hint="--key u-17")
        return cls(words, frozenset(fields))

    @classmethod
    def known(cls, salt: bytes, known: Iterable[Known]) -> Person:
        """Any of the persons of earlier erasures."""
        hashed: dict[int, frozenset[bytes]] = {}
        fields: set[str] = set()
        for each in known:
            hashed[each.words] = hashed.get(each.words, frozenset()) | {each.digest}
            fields.update(each.fields)
        return cls(None, frozenset(fields), salt, hashed)

    def hash(self, salt: bytes) -> Known:
        """What the record of an erasure keeps of the person.

        Args:
            salt: random bytes.
        """
        assert self.words is not None
        return Known(words=len(self.words), digest=_digest(salt, self.words), fields=tuple(sorted(self.fields)))

    def in_text(self, text: str) -> bool:
        """Whether a text has the key, as whole words."""
        if self.words is not None:
            if self.words[0] not in text:
                return False
            count = len(self.words)
            return any(found == self.words for found in _runs(_words(text), count))
        words = _words(text)
        return any(
            _digest(self.salt, found) in digests
            for count, digests in self.hashed.items()
            for found in _runs(words, count)
        )

    def in_bytes(self, data: bytes) -> bool:
        """Whether bytes of an unknown form have the key as text, as whole words."""
        return self.in_text(data.decode("utf-8", "replace"))

    def in_value(self, value: Any, *, is_key: bool = False) -> bool:
        """Whether an object has the key anywhere.

        Args:
            value: what a serde has decoded: text, a number, an object with fields, a list, a map, ...
            is_key: whether it is the key of a record, so that numbers count.
        """
        match value:
            case None | bool() | float():
                return False
            case str():
                return self.in_text(value)
            case int():
                return is_key and self.in_text(str(value))
            case bytes() | bytearray() | memoryview():
                return self.in_bytes(bytes(value))
            case uuid.UUID():
                return self.in_text(str(value))
            case Windowed():
                return self.in_value(value.key, is_key=is_key)
            case Mapping():
                return self._in_fields(value.items(), is_key)
            case list() | tuple() | set() | frozenset() if not hasattr(value, "_fields"):
                return any(self.in_value(each, is_key=is_key) for each in value)
            case _:
                fields = _fields(value)
                return self.in_text(repr(value)) if fields is None else self._in_fields(fields, is_key)

    def in_raw(self, data: bytes | None, serde: Serde[Any] | None, *, is_key: bool = False) -> bool:
        """Whether a serialized key or value has the key.

        Args:
            data: the bytes; None has nothing.
            serde: reads them; None, or one that cannot read them: they are searched as they are.
            is_key: as in `in_value`.
        """
        if data is None:
            return False
        if serde is not None:
            try:
                return self.in_value(serde.deserialize(data), is_key=is_key) or self._in_document(data)
            except Exception:  # dead letters hold what no serde reads
                pass
        return self.in_bytes(data)

    def _in_document(self, data: bytes) -> bool:
        """Also in fields that the type does not have: a JSON document may hold more than is read of it."""
        return data[:1] in b"{[" and self.in_value(msgspec.json.decode(data))

    def _in_fields(self, fields: Iterable[tuple[Any, Any]], is_key: bool) -> bool:
        return any(
            self.in_value(name) or self.in_value(value, is_key=is_key or name in self.fields) for name, value in fields
        )


def _fields(value: Any) -> list[tuple[str, Any]] | None:
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    return None


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip(".") for word in _WORD.findall(text))))


def _runs(words: tuple[str, ...], count: int) -> Iterable[tuple[str, ...]]:
    return (words[at : at + count] for at in range(len(words) - count + 1))


def _digest(salt: bytes, words: tuple[str, ...]) -> bytes:
    return hashlib.blake2b("\0".join(words).encode(), key=salt).digest()
