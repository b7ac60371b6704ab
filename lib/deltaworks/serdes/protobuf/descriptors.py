"""Where the descriptor of a message comes from: a `.proto` file, a set of them, a generated class, a registry."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from deltaworks.errors import ConfigurationError
from deltaworks.serdes.protobuf.text import text_of
from deltaworks.serdes.schemas import Reference, WriterSchema

Source = str | bytes | Path

_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that Confluent's clients have, so that they are not registered."""


@dataclass(frozen=True)
class Descriptors:
    """Files of Protobuf, and a message in one of them."""

    files: tuple[bytes, ...]
    """Each as a `FileDescriptorProto`, behind those that it imports."""
    message: str
    """The full name of the message."""

    @cached_property
    def descriptor(self) -> Any:
        """The message's descriptor, in a pool of its own."""
        from google.protobuf.descriptor_pool import DescriptorPool

        pool = DescriptorPool()
        for each in self.files:
            pool.AddSerializedFile(each)
        try:
            return pool.FindMessageTypeByName(self.message)
        except KeyError:
            raise ValueError(f"there is no message '{self.message}', but {', '.join(messages(self.files))}") from None

    @cached_property
    def path(self) -> tuple[int, ...]:
        """Where the message is in its file."""
        path: list[int] = []
        found = self.descriptor
        while found is not None:
            among = found.containing_type.nested_types if found.containing_type else _messages_of(found.file)
            path.insert(0, next(number for number, each in enumerate(among) if each.full_name == found.full_name))
            found = found.containing_type
        return tuple(path)

    def as_set(self) -> bytes:
        """The files as one set of descriptors."""
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        return FileDescriptorSet(file=map(_file_proto, self.files)).SerializeToString()

    @cached_property
    def writer_schema(self) -> WriterSchema:
        """The file of the message as a registry has it, with those that it imports."""
        return _writer_schema(self.descriptor.file)


def descriptors(
    schema: Source, message: str | None, *, include: Sequence[Path] = (), imports: Mapping[str, Source] | None = None
) -> Descriptors:
    """The message of a schema.

    Args:
        schema: a `.proto` file or its text; a set of descriptors, as `protoc --descriptor_set_out --include_imports`
            writes it, or its file.
        message: the full name; None: the only message at the top of the schema.
        include: folders of imported files, beside that of the schema.
        imports: texts of imported files by their paths.

    Raises:
        ValueError: the schema is none, or has no such message.
        ConfigurationError: a `.proto` file needs a compiler, and it is not installed.
    """
    if isinstance(schema, bytes) or (isinstance(schema, Path) and schema.suffix != ".proto"):
        files = _of_set(schema if isinstance(schema, bytes) else schema.read_bytes())
    else:
        files = _compiled(schema, include, imports or {})
    made = Descriptors(files, _message_of(files, message))
    assert made.descriptor is not None
    return made


def of_class(kind: Any) -> Descriptors:
    """The message of a generated class."""
    return Descriptors(tuple(_with_imports(kind.DESCRIPTOR.file, {})), kind.DESCRIPTOR.full_name)


def of_writer(schema: WriterSchema, path: Sequence[int]) -> Descriptors:
    """The message that a record names by a schema of the registry and its place in it.

    Raises:
        ValueError: the schema has no such message.
    """
    from google.protobuf.descriptor_pb2 import DescriptorProto

    files = _of_registry(schema)
    proto, found = _file_proto(files[-1]), DescriptorProto()
    among, name = proto.message_type, proto.package
    for step in path:
        if not 0 <= step < len(among):
            raise ValueError(f"the schema has no message at {list(path)}")
        found = among[step]
        among, name = found.nested_type, f"{name}.{found.name}" if name else found.name
    return Descriptors(tuple(_complete(files)), name)


def by_name(schema: WriterSchema, message: str | None = None) -> Descriptors:
    """A message of a schema of the registry; None: the only one at its top.

    Raises:
        ValueError: there is no such message, or it is not clear which one is meant.
    """
    files = _of_registry(schema)
    return Descriptors(tuple(_complete(files)), _message_of(files, message))


def messages(files: Sequence[bytes]) -> list[str]:
    """The full names of all messages at the top of files."""
    protos = [_file_proto(each) for each in files]
    return [f"{each.package}.{m.name}" if each.package else m.name for each in protos for m in each.message_type]


def _of_registry(schema: WriterSchema) -> tuple[bytes, ...]:
    """The files of a schema of the registry, without those that every client has."""
    return (*_referenced(schema, {}), _of_text("its.proto", schema))


def _message_of(files: Sequence[bytes], message: str | None) -> str:
    found = messages(files[-1:])
    if message is None and len(found) != 1:
        raise ValueError(f"message= says which one is meant of {', '.join(found) or 'none'}")
    return found[0] if message is None else message


def _referenced(schema: WriterSchema, known: dict[str, bytes]) -> list[bytes]:
    found = []
    for each in schema.references:
        if each.name not in known:
            known[each.name] = b""
            found += [*_referenced(each.schema, known), _of_text(each.name, each.schema)]
    return found


def _of_text(name: str, schema: WriterSchema) -> bytes:
    """A file of a registry: a descriptor in base64, or a `.proto` text."""
    from google.protobuf.message import DecodeError

    try:
        proto = _file_proto(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        imports: dict[str, Source] = dict(schema.referred)
        proto = _file_proto(_compiled(schema.text, (), imports)[-1])
    proto.name = name
    data: bytes = proto.SerializeToString()
    return data


def _complete(files: Sequence[bytes]) -> Iterator[bytes]:
    """With the files that every client has, in front."""
    known = {_file_proto(each).name for each in files}
    for each in files:
        for name in _file_proto(each).dependency:
            if name not in known:
                known.add(name)
                yield from _built_in(name)
    yield from files


def _built_in(name: str) -> Iterator[bytes]:
    import importlib

    from google.protobuf.descriptor_pool import Default

    try:
        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        found = Default().FindFileByName(name)
    except (ImportError, KeyError):
        raise ValueError(f"the schema imports '{name}', which nobody has") from None
    yield from _with_imports(found, {})


def _of_set(data: bytes) -> tuple[bytes, ...]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorSet.FromString(data)
    except DecodeError as error:
        raise ValueError(f"this is no set of descriptors: {error}") from error
    if not found.file:
        raise ValueError("this is an empty set of descriptors")
    return tuple(each.SerializeToString() for each in found.file)


def _compiled(schema: str | Path, include: Sequence[Path], imports: Mapping[str, Source]) -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, each in imports.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(each if isinstance(each, str) else Path(str(each)).read_text())
        if isinstance(schema, str):
            (folder / "schema.proto").write_text(schema)
            places, name = [folder, *include], "schema.proto"
        else:
            places, name = [schema.resolve().parent, folder, *include], schema.name
        return _of_set(_protoc(name, places, folder / "descriptors"))


def _protoc(name: str, places: Sequence[Path], out: Path) -> bytes:
    try:
        import google.type
        import grpc_tools
        from grpc_tools import _protoc_compiler, protoc
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"'{error.name}' is not installed, which compiles .proto files.",
            hint="pip install 'deltaworks[schemas]', or give a set of descriptors:"
            " protoc --include_imports --descriptor_set_out=order.binpb order.proto",
        ) from error
    own = [Path(grpc_tools.__path__[0]) / "_proto", *(Path(each).parents[1] for each in google.type.__path__)]
    folders = [*map(str, places), *map(str, own)]
    try:
        # It says what is wrong as an error, and protoc only on the standard error of the process.
        _protoc_compiler.get_protos(name.encode(), [each.encode() for each in folders])
    except _protoc_compiler.ProtocErrors as error:
        said = (f"{_text(each.filename)}:{each.line + 1}: {_text(each.message)}" for each in error.errors())
        raise ValueError(f"{name} is no schema of Protobuf: {'; '.join(said)}") from error
    options = [f"--proto_path={each}" for each in folders]
    if protoc.main(["protoc", *options, "--include_imports", f"--descriptor_set_out={out}", name]) != 0:
        raise ValueError(f"{name} is no schema of Protobuf; the standard error of the process says why")
    return out.read_bytes()


def _text(said: Any) -> str:
    return said.decode() if isinstance(said, bytes) else str(said)


def _file_proto(data: bytes) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto.FromString(data)


def _with_imports(file: Any, seen: dict[str, bytes]) -> Iterator[bytes]:
    for each in file.dependencies:
        if each.name not in seen:
            seen[each.name] = b""
            yield from _with_imports(each, seen)
    yield file.serialized_pb


def _messages_of(file: Any) -> list[Any]:
    """In the order of the file."""
    return [file.message_types_by_name[each.name] for each in _file_proto(file.serialized_pb).message_type]


def _writer_schema(file: Any) -> WriterSchema:
    references = tuple(
        Reference(each.name, _writer_schema(each)) for each in file.dependencies if not each.name.startswith(_BUILT_IN)
    )
    text = text_of(_file_proto(file.serialized_pb)) or base64.b64encode(file.serialized_pb).decode()
    return WriterSchema(text, "PROTOBUF", references)
