"""A pipeline in a home of its own, stopped after its batches, with what Spark would have left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deltaworks.control import checkpoint_folders, fence
from deltaworks.control.checkpoint import stored_plan
from deltaworks.object_path import ObjectPath
from deltaworks.runtime.state.recovery import encode_header, local_path
from deltaworks.settings import Settings
from deltaworks.spark.checkpoint_files import LoggedOffsets
from tests.hosts.in_process import InProcessStream


@dataclass
class Stopping:
    """The stream of one pipeline; its state is that of the last batch."""

    stream: InProcessStream

    def stop(self) -> None:
        """Leaves what Spark leaves."""
        stream, checkpoint = self.stream, self.stream.paths.current
        in_store = isinstance(checkpoint.root, ObjectPath) and not checkpoint.spark.exists()
        generation = fence.read(stream.paths.fence)
        spark = checkpoint_folders.following(checkpoint.root, generation) if in_store else checkpoint.spark
        for folder in ("offsets", "commits"):
            (spark / folder).mkdir(parents=True, exist_ok=True)
        (spark / "metadata").write_text('{"id":"a"}')
        for batch in range(stream.checkpoint.first_batch, stream.batch_id):
            number = str(batch - stream.checkpoint.first_batch)
            logged = LoggedOffsets({"batchTimestampMs": 0}, stream.intents.require(batch).end)
            (spark / "offsets" / number).write_bytes(logged.encode())
            (spark / "commits" / number).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (spark / "state").mkdir(exist_ok=True)
        if in_store:
            checkpoint_folders.complete(checkpoint.root, spark)

    def read(self, settings: Settings, name: str, checkpoint: Path, folder: Path, scratch: Path) -> None:
        """In the place of Spark, see `stored_state.read`."""
        for task, held in self.stream.states.items():
            if held.version is not None:
                files = local_path(folder, *task)
                files.mkdir(parents=True)
                (files / "header").write_bytes(encode_header(held.version))
                for segment_id, data in held.segments.items():
                    (files / str(segment_id)).write_bytes(data)

    def go_on(self) -> None:
        """As the checkpoint that runs now."""
        before, plan = self.stream, stored_plan(self.stream.paths.current.plan)
        assert plan is not None
        before.close()
        self.stream = InProcessStream(
            before.pipeline,
            before.settings,
            kafka=before.kafka,
            switched_to=plan,
            generation=max(1, fence.read(before.paths.fence)),
        )
