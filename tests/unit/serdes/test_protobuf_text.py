"""A compiler makes of the text of a descriptor an equal descriptor."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

from deltaworks.serdes.protobuf.descriptors import _compiled
from deltaworks.serdes.protobuf.text import text_of

PROTO3 = r"""
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import public "google/protobuf/empty.proto";
option java_package = "com.shop";
option java_multiple_files = true;
option optimize_for = SPEED;
option deprecated = true;
message Order {
  option deprecated = true;
  message First { string x = 1; }
  string order_id = 1 [deprecated = true];
  optional int32 rank = 2;
  State state = 5;
  map<string, Second> by_name = 7;
  message Second { map<int64, bytes> inner = 1; enum Deep { D = 0; } Deep deep = 2; }
  repeated Second lines = 6 [json_name = "all the \"lines\""];
  oneof payment { bytes token = 8; double cash = 9 [deprecated = true]; google.protobuf.Timestamp later = 15; }
  map<uint32, State> states = 13;
  google.protobuf.Timestamp at = 10;
  repeated sint64 unpacked = 14 [packed = false];
  fixed64 foo_bar_2 = 16 [jstype = JS_STRING];
  oneof other { Order itself = 17; }
  reserved 11, 20 to 30, 1000 to max;
  reserved "old", "older";
}
enum State {
  option allow_alias = true;
  NEW = 0;
  FRESH = 0 [deprecated = true];
  PAID = 3;
  NEGATIVE = -1;
  reserved 4, 6 to 8, 100 to max;
  reserved "GONE";
}
message Nothing {}
service Shop {
  option deprecated = true;
  rpc Get (Order) returns (stream Nothing) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Put (stream Order) returns (google.protobuf.Empty);
}
"""

PROTO2 = r"""
syntax = "proto2";
message Old {
  required string name = 1 [default = "a \"quoted\"\n text ü"];
  optional bytes data = 2 [default = "\000\377\""];
  optional int64 count = 3 [default = -5];
  optional double ratio = 4 [default = 1.5e300];
  optional float endless = 5 [default = -inf];
  optional double none = 6 [default = nan];
  optional bool yes = 7 [default = true];
  optional Kind kind = 8 [default = B];
  repeated int32 packed = 9 [packed = true];
  oneof one { string a = 10; string b = 11; }
  extensions 100 to 199, 500;
  enum Kind { A = 1; B = 2; }
}
"""


def file_of(text: str) -> Any:
    return descriptor_pb2.FileDescriptorProto.FromString(_compiled(text, (), {})[-1])


@pytest.mark.parametrize("text", [PROTO3, PROTO2, "message Order { optional string x = 1; }"])
def test_nothing_of_a_file_is_lost(text: str) -> None:
    file = file_of(text)

    written = text_of(file)

    assert written is not None
    assert file_of(written) == file
    assert text_of(file_of(written)) == written


@pytest.mark.parametrize("module", [timestamp_pb2, struct_pb2, empty_pb2, wrappers_pb2])
def test_files_that_others_wrote_are_the_same_again(module: Any) -> None:
    file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    written = text_of(file)

    assert written is not None
    # Under another package, as the compiler has its own copy of these files.
    moved = file_of(written.replace("google.protobuf", "moved.protobuf"))
    assert [each.name for each in moved.message_type] == [each.name for each in file.message_type]
    assert text_of(moved) == written.replace("google.protobuf", "moved.protobuf")


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto2"; message A { optional group G = 1 { optional int32 x = 1; } }',
        'syntax = "proto2"; message A { extensions 5; extend A { optional int32 x = 5; } }',
        'syntax = "proto2"; message A { extensions 5; } extend A { optional int32 x = 5; }',
        """syntax = "proto3"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { string mine = 50000; } message A { string x = 1 [(mine) = "y"]; }""",
        'edition = "2023"; message A { string x = 1; }',
    ],
)
def test_what_cannot_be_written_is_none_rather_than_another_schema(text: str) -> None:
    assert text_of(file_of(text)) is None


def test_an_option_that_is_declared_elsewhere_is_not_dropped() -> None:
    declared = """syntax = "proto2"; import "google/protobuf/descriptor.proto"; package o;
    extend google.protobuf.FieldOptions { optional string mine = 50000; }"""
    used = 'syntax = "proto3"; import "o.proto"; message A { string x = 1 [(o.mine) = "y"]; }'

    assert (
        text_of(descriptor_pb2.FileDescriptorProto.FromString(_compiled(used, (), {"o.proto": declared})[-1])) is None
    )
