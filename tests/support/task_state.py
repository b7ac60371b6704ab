"""The part of Spark's state that belongs to one task, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltaworks.runtime.state.recovery import StateHeader


@dataclass
class TaskState:
    """`recovery.CheckpointState`: an attempt works on a copy, the checkpoint keeps it or not."""

    version: StateHeader | None = None
    segments: dict[int, bytes] = field(default_factory=dict)

    def header(self) -> StateHeader | None:
        return self.version

    def update(self, header: StateHeader) -> None:
        self.version = header

    def segment(self, segment_id: int) -> bytes:
        return self.segments[segment_id]

    def put_segment(self, segment_id: int, data: bytes) -> None:
        self.segments[segment_id] = data

    def remove_segment(self, segment_id: int) -> None:
        del self.segments[segment_id]
