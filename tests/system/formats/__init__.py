"""Formats under kills: Avro and older JSON in, Protobuf out, types that change (`make check-formats`)."""
