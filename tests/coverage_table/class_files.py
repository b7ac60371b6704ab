"""Reads what a Java class offers from its class file: no JVM, no javap.

Only what a list of methods needs: names, access flags, the deprecated mark and nesting.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

PUBLIC = 0x0001
PROTECTED = 0x0004
_BRIDGE = 0x0040
_SYNTHETIC = 0x1000

_MAGIC = 0xCAFEBABE
_TEXT, _CLASS = 1, 7
_TAKE_TWO_PLACES = (5, 6)
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of a constant after its tag."""


@dataclass(frozen=True)
class Overload:
    """One method with one signature."""

    name: str
    """`new` for a constructor."""
    access: int
    deprecated: bool


@dataclass(frozen=True)
class JavaClass:
    """A class, an interface or an enum."""

    name: str
    """With slashes; `$` before a nested class."""
    access: int
    """Of a nested class: what its outer class says of it."""
    deprecated: bool
    methods: tuple[Overload, ...]
    """Without those that the compiler made."""


def read_class(data: bytes) -> JavaClass:
    """Reads one `.class` file.

    Raises:
        ValueError: it is none.
    """
    reader = _Reader(data)
    magic, _minor, _major = reader.take(">IHH")
    if magic != _MAGIC:
        raise ValueError("not a class file")
    constants = _constants(reader)
    access, this, _super = reader.take(">HHH")
    name = constants.class_name(this)
    reader.bytes(2 * reader.u2())  # interfaces
    for _ in range(reader.u2()):  # fields
        reader.take(">HHH")
        _attributes(reader, constants)
    methods = []
    for _ in range(reader.u2()):
        flags, method_name, _descriptor = reader.take(">HHH")
        attributes = _attributes(reader, constants)
        methods.append(Overload(constants.texts[method_name], flags, "Deprecated" in attributes))
    attributes = _attributes(reader, constants)
    return JavaClass(
        name,
        _nested_access(attributes.get("InnerClasses"), name, constants, access),
        "Deprecated" in attributes,
        tuple(_shown(method) for method in methods if _is_written(method)),
    )


def _is_written(method: Overload) -> bool:
    return method.name != "<clinit>" and not method.access & (_SYNTHETIC | _BRIDGE)


def _shown(method: Overload) -> Overload:
    return Overload("new", method.access, method.deprecated) if method.name == "<init>" else method


class _Reader:
    """Big-endian numbers and bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def u2(self) -> int:
        return self.take(">H")[0]

    def bytes(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]


@dataclass(frozen=True)
class _Constants:
    """The constant pool, by index."""

    texts: dict[int, str]
    classes: dict[int, int]

    def class_name(self, index: int) -> str:
        return self.texts[self.classes[index]]


def _constants(reader: _Reader) -> _Constants:
    texts: dict[int, str] = {}
    classes: dict[int, int] = {}
    size, index = reader.u2(), 1
    while index < size:
        (tag,) = reader.take(">B")
        if tag == _TEXT:
            texts[index] = reader.bytes(reader.u2()).decode(errors="replace")
        elif tag == _CLASS:
            classes[index] = reader.u2()
        else:
            reader.bytes(_SIZES[tag])
        index += 2 if tag in _TAKE_TWO_PLACES else 1
    return _Constants(texts, classes)


def _attributes(reader: _Reader, constants: _Constants) -> dict[str, bytes]:
    found = {}
    for _ in range(reader.u2()):
        name, size = reader.take(">HI")
        found[constants.texts[name]] = reader.bytes(size)
    return found


def _nested_access(inner_classes: bytes | None, name: str, constants: _Constants, access: int) -> int:
    """A file's own flags do not say `protected` or `private`."""
    if inner_classes is not None:
        entries = _Reader(inner_classes)
        for _ in range(entries.u2()):
            inner, _outer, _name, flags = entries.take(">HHHH")
            if constants.class_name(inner) == name:
                return flags
    return access
