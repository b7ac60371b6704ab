"""A task that writes batches into files: it goes on behind the last batch that it has noted, as a stream does.

`python -m tests.integration.hdfs_writer URL NOTE BATCHES DIES`: `DIES` names a moment at which it ends itself by
SIGKILL: `before` or `after` the rename of a file, with the number of the batch, such as `before:7`; or `never`.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from deltaworks import Pipeline, SinkBatch, SinkRecord, SinkTask, StreamsBuilder
from deltaworks.topology.external import FileFolder
from deltaworks.topology.nodes import CustomSink

ROWS = 200


class Word(msgspec.Struct, frozen=True):
    word: str
    batch: int


def rows(batch: int) -> list[tuple[str, Word]]:
    """What a batch has, whenever it runs."""
    return [(f"k{batch}-{n}", Word(f"w{n}" * 20, batch)) for n in range(ROWS)]


def sink(url: str) -> FileFolder:
    """As a task gets it."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=Word).to_files(url, name="words")

    (node,) = [each for each in Pipeline(name="p", topology=topology).plan().nodes if isinstance(each, CustomSink)]
    found = pickle.loads(pickle.dumps(node.sink))
    assert isinstance(found, FileFolder)
    return found


def main() -> None:
    url, note, batches, dies = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4].partition(":")
    writer: Any = sink(url).open(SinkTask(pipeline="p", sink="words", task=0, checkpoint="c"))
    hdfs = writer._files._hdfs
    rename, number = hdfs.mv, 0

    def mv(source: str, target: str) -> None:
        if (dies[0], dies[2]) == ("before", str(number)):
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if (dies[0], dies[2]) == ("after", str(number)):
            os.kill(os.getpid(), signal.SIGKILL)

    hdfs.mv = mv
    for number in range(int(note.read_text()) + 1 if note.exists() else 0, batches):
        writer.write(SinkBatch(number, f"i{number}"), [SinkRecord(key, word, number, ()) for key, word in rows(number)])
        writer.prepare()
        writer.commit()
        note.with_suffix(".new").write_text(str(number))
        note.with_suffix(".new").replace(note)


if __name__ == "__main__":
    main()
