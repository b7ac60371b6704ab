"""Whether values of one schema can be read with another of the same format, in words."""

from __future__ import annotations

import json

from deltaworks.serdes import json_schema
from deltaworks.serdes.avro import changes, nodes
from deltaworks.serdes.protobuf.described import described
from deltaworks.serdes.protobuf.described import incompatibilities as of_messages
from deltaworks.serdes.protobuf.descriptors import by_name
from deltaworks.serdes.schemas import WriterSchema


def incompatibilities(writer: WriterSchema, reader: WriterSchema, *, message: str | None = None) -> list[str]:
    """Why values of one schema cannot be read with another, a reason per field; empty if they can.

    Args:
        writer: of the values.
        reader: the schema that they are to be read with, such as `Avro(Order).writer_schema`.
        message: of Protobuf, the full name; None: the only message at the top.

    Raises:
        ValueError: one of them is no schema of its format, or has no such message.
    """
    if writer.kind != reader.kind:
        return [f"the value is written as {writer.kind}, and read as {reader.kind}"]
    match reader.kind:
        case "AVRO":
            return changes.incompatibilities(*(nodes.parsed(each.text, each.referred) for each in (writer, reader)))
        case "PROTOBUF":
            found = [by_name(each, message).descriptor for each in (writer, reader)]
            return of_messages(described(found[0]), described(found[1]))
        case "JSON":
            return json_schema.incompatibilities(json.loads(writer.text), json.loads(reader.text))
