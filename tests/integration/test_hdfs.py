"""Files of a sink in a real HDFS: each row once, whoever is killed."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from deltaworks import SinkBatch, SinkRecord, SinkTask
from deltaworks.errors import IntentError
from tests.integration.hdfs_writer import Word, rows, sink
from tests.support.hdfs import Hdfs, hdfs

BATCHES = 40
WAIT_S = 300.0


class Lake:
    """The folder, and who writes there."""

    def __init__(self, cluster: Hdfs, folder: Path) -> None:
        self.cluster, self.url, self.note = cluster, f"{cluster.url}/lake", folder / "note"
        self.log = folder / "log"

    def run(self, dies: str = "never") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.hdfs_writer", self.url, str(self.note), str(BATCHES), dies]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def done(self) -> int:
        return int(self.note.read_text()) if self.note.exists() else -1

    def until(self, batch: int, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + WAIT_S
        while self.done() < batch:
            assert process.poll() is None and time.monotonic() < end, self.log.read_text()[-3000:]
            time.sleep(0.02)

    def files(self) -> dict[str, bytes]:
        """All, with those that a kill has left behind."""
        webhdfs: Any = import_module("fsspec.implementations.webhdfs")
        found = webhdfs.WebHDFS(host="127.0.0.1", port=self.cluster.port, user="tests", skip_instance_cache=True)
        return {each.rpartition("/")[2]: found.cat_file(each) for each in found.ls("/lake", detail=False)}

    def rows(self) -> list[tuple[str, Word]]:
        """As readers see them: hidden files are skipped."""
        tables = [pq.read_table(io.BytesIO(data)) for name, data in self.files().items() if not name.startswith(".")]
        return sorted((row["key"], Word(row["word"], row["batch"])) for table in tables for row in table.to_pylist())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_files_in_hdfs_have_each_row_once_through_kills_of_writer_and_hdfs(tmp_path: Path) -> None:
    with hdfs() as cluster:
        lake = Lake(cluster, tmp_path)
        for moment in ("before:3", "after:7"):
            killed = lake.run(moment)
            assert killed.wait(WAIT_S) == -9, lake.log.read_text()[-3000:]
        assert lake.done() == 6
        hidden = [name for name in lake.files() if name.startswith(".")]
        assert len(hidden) == 1, "the one that was not renamed"

        sent = lake.run()
        lake.until(12, sent)
        sent.kill()
        sent.wait()

        sent = lake.run()
        lake.until(20, sent)
        cluster.kill()
        assert sent.wait(WAIT_S) == 1, "it fails, and its batch runs again"
        assert lake.done() < BATCHES - 1
        cluster.start()

        assert lake.run().wait(WAIT_S) == 0, lake.log.read_text()[-3000:]
        expected = sorted(each for batch in range(BATCHES) for each in rows(batch))
        assert lake.rows() == expected
        assert len([name for name in lake.files() if not name.startswith(".")]) == BATCHES

        before = lake.files()
        lake.note.write_text(str(BATCHES - 6))
        assert lake.run().wait(WAIT_S) == 0, lake.log.read_text()[-3000:]
        assert lake.files() == before, "batches that run again change nothing"

        other = sink(lake.url).open(SinkTask(pipeline="p", sink="words", task=0, checkpoint="c"))
        other.write(SinkBatch(0, "another"), [SinkRecord("k", Word("x", 0), 0, ())])
        other.prepare()
        with pytest.raises(IntentError, match="is there, with other rows"):
            other.commit()
        assert lake.files() == before
