"""Checkpoints as Spark leaves them, made without it: two operators with two partitions each."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from pathlib import Path

from deltaworks.kafka.ranges import Offsets
from deltaworks.spark.checkpoint_files import crc_path

OPERATORS = PARTITIONS = 2
SNAPSHOT_EVERY = 3


def offsets_after(batch: int) -> Offsets:
    return {"in": {"0": 10 * (batch + 1)}, "!clock": {"0": 1000 + batch}}


def write(path: Path, content: bytes) -> None:
    """A file with its checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    sums = b"".join(zlib.crc32(content[at : at + 512]).to_bytes(4, "big") for at in range(0, len(content), 512))
    crc_path(path).write_bytes(b"crc\0" + (512).to_bytes(4, "big") + sums)


def make(root: Path, committed: int, *, begun: int | None = None) -> Path:
    """A checkpoint after some batches.

    Args:
        root: becomes Spark's folder.
        committed: the last batch that is committed; -1: none.
        begun: the last one that is planned and has written its state; None: the same.
    """
    write(root / "metadata", b'{"id":"ebbc0e2c-30f9-4cbc-8fdf-301b10be061a"}')
    for batch in range(committed + 1):
        add_commit(root, batch)
    for batch in range((committed if begun is None else begun) + 1):
        add_batch(root, batch)
    return root


def add_commit(root: Path, batch: int) -> None:
    write(root / "commits" / str(batch), b'v1\n{"nextBatchWatermarkMs":0}')


def add_batch(root: Path, batch: int, *, mark: str = "") -> None:
    """The plan of a batch, and the state after it."""
    settings = {"batchWatermarkMs": 0, "batchTimestampMs": 1000 + batch, "conf": {"partitions": "2"}}
    lines = ("v1", json.dumps(settings, separators=(",", ":")), json.dumps(offsets_after(batch)))
    write(root / "offsets" / str(batch), "\n".join(lines).encode())
    for number in range(OPERATORS):
        operator = root / "state" / str(number)
        if batch == 0:
            schema = operator / "_stateSchema" / "default" / "0_b8f0"
            write(schema, b"\0\2v3 and the schema")
            store = {"storeName": "default", "numPartitions": PARTITIONS, "stateSchemaFilePaths": [f"file:{schema}"]}
            content = {"operatorInfo": {"operatorId": number}, "stateStoreInfo": [store]}
            write(operator / "_metadata" / "v2" / "0", b"v2\n" + json.dumps(content, separators=(",", ":")).encode())
        for partition in range(PARTITIONS):
            add_state(operator / str(partition), batch + 1, mark)


def add_state(partition: Path, version: int, mark: str = "") -> None:
    write(partition / f"{version}.changelog", _blocks(f"version {version} {mark}".encode() * 40))
    if version % SNAPSHOT_EVERY == 1:
        sst = partition / "SSTs" / f"00000{version}-{mark}e0ca.sst"
        write(sst, f"sst {version}".encode() * 100)
        described = {"sstFiles": [{"dfsSstFileName": sst.name, "sizeBytes": sst.stat().st_size}]}
        with zipfile.ZipFile(partition / "new.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("OPTIONS", "options" * 50)
            archive.writestr("metadata", "v1\n" + json.dumps(described))
        write(partition / f"{version}.zip", (partition / "new.zip").read_bytes())
        (partition / "new.zip").unlink()


def partitions(root: Path) -> list[Path]:
    return [root / "state" / str(o) / str(p) for o in range(OPERATORS) for p in range(PARTITIONS)]


def contents(root: Path) -> dict[str, bytes]:
    """All files below, by name."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _blocks(plain: bytes) -> bytes:
    """An LZ4 stream of one block that is stored as it is."""
    header = struct.Struct("<8sBiiI")
    return header.pack(b"LZ4Block", 0x15, len(plain), len(plain), 7) + plain + header.pack(b"LZ4Block", 0x15, 0, 0, 0)
