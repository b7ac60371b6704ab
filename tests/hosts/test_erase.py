"""`deltaworks erase` of a stopped stream: all goes, a refusal changes nothing, and what was cut off is completed.

In a home, with the tables in an object store, and with all that lasts there.

`tests/system/analysts/erased.py` does it to a stream that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deltaworks.cli.app import app
from deltaworks.config import Reference
from deltaworks.control import batches, erasures, fence, jobs
from deltaworks.erase import checkpoint, erasing, state
from deltaworks.errors import (
    ConfigurationError,
    ConflictError,
    FencedError,
    IncompatibleCheckpointError,
    TransientError,
)
from deltaworks.files import local_side, make_folder
from deltaworks.lakehouse import cuts, retention
from deltaworks.lakehouse.publish import sink_changes
from deltaworks.lakehouse.publish.sink_changes import KeptSinks, TableRows
from deltaworks.object_path import ObjectPath
from deltaworks.object_store import S3Bucket
from deltaworks.replay import runs
from deltaworks.settings import Settings
from deltaworks.topology.persons import Person
from tests.hosts.test_erasing import ENTRIES, OTHER, PERSON, THEIRS, Visiting, failing_at
from tests.spark.pipelines import counting, visiting
from tests.support import object_stores

NOBODY = "postgresql://127.0.0.1:1/nobody"
KILLS = (
    "erase.made", "erase.switched", "erase.deleted", "erase.done:state", "rewriting.files_written:pages",
    "rewriting.committed:visit_counts", "rewriting.between:visit_counts", "rewriting.log_made:visitors",
    "rewriting.exchanged:visit_counts", "erase.done:rows", "erase.done:documents", "erase.done:texts",
)  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A server of S3."""
    with object_stores.seaweed() as endpoint:
        yield endpoint


@pytest.fixture(params=["home", "tables in a store", "everything in a store"])
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Visiting]:
    settings = replace(Settings.from_environment({}), home=tmp_path / "home")
    if request.param != "home":
        place = f"s3://{object_stores.BUCKET}/{tmp_path.name}"
        values = replace(settings.values, tables={("s3", ""): reached(request.getfixturevalue("store"))})
        storage = place if request.param == "everything in a store" else None
        settings = replace(settings, values=values, tables_address=f"{place}/tables", storage_address=storage)
    made = Visiting.begun(settings.home, settings)
    made.stream.committer.refresh_snapshots(force=True)
    made.stream.committer.settled(made.stream.batch_id - 1)
    made.stream.committer.publish_cut()
    monkeypatch.setattr(jobs, "load", lambda settings, name: visiting)
    monkeypatch.setattr(state, "erase", partial(state.erase, read=lambda *arguments: made.read(*arguments)))
    first = made.stream.committer
    yield made
    made.stream.close()
    for committer in {first, made.stream.committer}:
        committer.close()


def reached(endpoint: str) -> dict[str, str | Reference]:
    """What `[s3]` says of the store."""
    keys = {"access_key": "tests", "secret_key": "tests"}
    return {"endpoint": endpoint, "region": "us-east-1", "path_style": "true", **keys}


def settings_of(stopped: Visiting) -> Settings:
    return replace(stopped.stream.settings, control_url=NOBODY)


def erase(stopped: Visiting, key: str = THEIRS) -> erasures.Erasure:
    return erasing.erase(settings_of(stopped), "visiting", Person.of(key), by="ada", reason="asked")


def files_with(stopped: Visiting, key: str) -> list[str]:
    """Files of the home and objects of its store that have a key in any form."""
    return sorted(str(path) for path, data in _bytes(stopped).items() if key in str(path) or key in _text(path, data))


def _text(path: Path, data: bytes) -> str:
    plain = data.decode("utf-8", "replace")
    return plain + str(pq.ParquetFile(BytesIO(data)).read().to_pydict()) if path.suffix == ".parquet" else plain


def _bytes(stopped: Visiting) -> dict[Path, bytes]:
    """All files of the home, and all objects of its store."""
    home, tables = stopped.home, stopped.stream.settings.tables
    found = [path for path in home.rglob("*") if path.is_file()]
    if isinstance(tables, ObjectPath):
        found += [path for path, _ in tables.parent.files()]
    return {path: path.read_bytes() for path in found}


def log(stopped: Visiting) -> Path:
    file = stopped.home / "logs" / "visiting.log"
    file.parent.mkdir()
    file.write_text(f"begun\nno page for {THEIRS}\n{OTHER} too\n")
    return file


def left_by_kills(stopped: Visiting) -> list[Path]:
    """Rows of publications that were killed before anything said that there are any, and before their record."""
    found = []
    for run in ("run-1", "run-2"):
        folder = sink_changes.KEEPING.folder_of(stopped.stream.paths.publications, run, "publish", 1)
        if run == "run-2":
            sink_changes.KEEPING.save(
                folder,
                KeptSinks(
                    run_id=run,
                    action="publish",
                    round=1,
                    tables={"visitors": TableRows(rows=1, columns=("key",), identity=("key",), as_of_batch=0)},
                    corrected={"search": "visitors"},
                    stale={},
                    made_ms=1,
                ),
            )
        rows = BytesIO()
        pq.write_table(pa.table({"a0": [THEIRS, OTHER]}), rows)
        make_folder(folder)
        (folder / "visitors.parquet").write_bytes(rows.getvalue())
        found.append(folder / "visitors.parquet")
    return found


def test_rows_that_killed_publications_have_left_go(stopped: Visiting) -> None:
    left = left_by_kills(stopped)
    assert {*map(str, left)} <= {*files_with(stopped, THEIRS)}

    erase(stopped)

    assert files_with(stopped, THEIRS) == [] and not any(each.exists() for each in left)


def test_nothing_of_a_person_is_left(stopped: Visiting) -> None:
    told = log(stopped)
    retention.pin(stopped.stream.settings.tables, "audit", "visiting", by="ada")
    assert len(files_with(stopped, THEIRS)) > 8

    done = erase(stopped)

    assert files_with(stopped, THEIRS) == [] and files_with(stopped, OTHER)
    assert {name: done.taken[f"store {name}"] for name in ENTRIES} == ENTRIES
    assert done.taken["table visitors"] == done.taken["table visit_counts"] == 1
    assert done.taken["file logs/visiting.log"] == 1 and f"\n{OTHER} too\n" in told.read_text()
    assert {"topic visits", "topic visitors", "topic named-visits"} <= set(done.left)
    assert not [place for place in done.left if place.startswith(("file ", "object ", "bucket "))]
    assert (done.requested_by, done.reason) == ("ada", "asked") and done.done_ms is not None
    assert erasures.erasures(stopped.stream.paths) == [done]
    for cut in (cuts.required(stopped.stream.settings.tables, "visiting"), *_pinned(stopped)):
        for table in cut.tables:
            assert cuts.opened(stopped.stream.settings.tables, cut, table) is not None
    stopped.go_on()
    stopped.visit({THEIRS: "again", OTHER: "again"})
    assert stopped.counts() == {THEIRS: 1, OTHER: 3}


def _pinned(stopped: Visiting) -> list[cuts.Cut]:
    return list(retention.pinned(stopped.stream.settings.tables, "audit").values())


def test_the_record_says_up_to_where_replays_leave_the_person_out(stopped: Visiting) -> None:
    told = erase(stopped).offsets or {}
    ends = {topic: {p: end for p, end in told[topic].items() if end} for topic in ("visits", "visitors")}
    read: dict[str, dict[str, int]] = {}
    for record in batches.read(stopped.stream.paths.batches):
        for topic, parts in record.offsets.items():
            read.setdefault(topic, {}).update({partition: stop for partition, (_, stop) in parts.items()})
    assert ends == read


def test_looking_changes_nothing(stopped: Visiting) -> None:
    log(stopped)
    before = _bytes(stopped)
    found = erasing.find(settings_of(stopped), "visiting", PERSON)
    assert _bytes(stopped) == before
    assert found.tables["visit_counts"] == 1 and found.columns["visit_counts"] == ["key"] and found.texts == 1
    assert found.columns["pages"] == ["key", "value"] and "topic visits" in found.left


def refused(stopped: Visiting, error: type[Exception], said: str) -> None:
    paths = stopped.stream.paths
    lock = paths.fence.with_name(f"{paths.fence.name}.lock")
    machine = local_side(paths.fence.parent) / "machine"
    kept = (paths.lease, paths.fence, lock, machine, paths.erasures / "salt")  # who asks takes the lease
    before = {path: data for path, data in _bytes(stopped).items() if path not in kept}
    with pytest.raises(error, match=said):
        erase(stopped)
    assert {path: data for path, data in _bytes(stopped).items() if path not in kept} == before


def test_a_pipeline_that_never_ran_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "load", lambda settings, name: visiting)
    settings = replace(Settings.from_environment({}), home=tmp_path, control_url=NOBODY)
    with pytest.raises(ConfigurationError, match="has not run here"):
        erasing.erase(settings, "visiting", PERSON, by="ada")
    assert not list(tmp_path.iterdir())


def test_other_code_is_refused(stopped: Visiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "load", lambda settings, name: replace(counting, name="visiting"))
    refused(stopped, IncompatibleCheckpointError, "another topology")


def test_an_unfinished_replay_is_refused(stopped: Visiting, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plan:
        run_id = "run-1"

    monkeypatch.setattr(runs, "unfinished", lambda settings, name: [Plan])
    refused(stopped, ConflictError, "run-1")


def test_a_full_disk_leaves_a_record_and_is_completed(stopped: Visiting, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("deltaworks.lakehouse.parquet.write", full)
        with pytest.raises(TransientError, match="No space left") as caught:
            erase(stopped)
    assert "same command again" in str(caught.value)
    begun = erasures.erasures(stopped.stream.paths)
    assert [each.done_ms for each in begun] == [None]

    done = erase(stopped)

    assert done.id == begun[0].id and done.done_ms is not None
    assert {name: done.taken[f"store {name}"] for name in ENTRIES} == ENTRIES, "counted once"
    assert files_with(stopped, THEIRS) == []


@pytest.mark.parametrize("stopped", ["everything in a store"], indirect=True)
@pytest.mark.parametrize("point", KILLS)
def test_who_is_killed_anywhere_calls_again_and_nothing_is_left_in_the_store(stopped: Visiting, point: str) -> None:
    with failing_at(point, 1):
        erase(stopped)

    done = erase(stopped)

    assert files_with(stopped, THEIRS) == [] and files_with(stopped, OTHER)
    assert [each.id for each in erasures.erasures(stopped.stream.paths)] == [done.id]
    stopped.go_on()
    stopped.visit({THEIRS: "again", OTHER: "again"})
    assert stopped.counts() == {THEIRS: 1, OTHER: 3}


@pytest.mark.parametrize("stopped", ["everything in a store"], indirect=True)
def test_who_was_replaced_meanwhile_changes_nothing_more(stopped: Visiting, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, made = stopped.stream.paths, checkpoint.make

    def made_late(*arguments: Any, **named: Any) -> None:
        made(*arguments, **named)
        fence.advance(paths.fence, fence.read(paths.fence) + 1, "visiting")

    with monkeypatch.context() as late:
        late.setattr(checkpoint, "make", made_late)
        with pytest.raises(FencedError, match="was replaced by generation"):
            erase(stopped)
    assert paths.switched == () and stopped.counts() == {THEIRS: 2, OTHER: 2}

    erase(stopped)
    assert files_with(stopped, THEIRS) == []


@pytest.mark.parametrize("stopped", ["everything in a store"], indirect=True)
def test_where_nobody_may_look_for_uploads_is_said(stopped: Visiting, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: S3Bucket, prefix: str) -> int:
        raise ConfigurationError("s3://files/ does not let us list uploads.")

    monkeypatch.setattr(S3Bucket, "end_uploads", refused)

    left = [place for place in erase(stopped).left if place.startswith("unfinished uploads to s3://")]

    assert len(left) > 2 and all("does not let us" in place for place in left)


@pytest.mark.parametrize("stopped", ["everything in a store"], indirect=True)
def test_uploads_that_nobody_completes_are_ended_and_what_is_beyond_reach_is_said(
    stopped: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = object_stores.access().client()
    folders = stopped.stream.settings.tables / "pages", stopped.stream.paths.lasting
    for folder in folders:
        assert isinstance(folder, ObjectPath)
        place: Any = {"Bucket": folder.bucket, "Key": f"{folder.key}/large"}
        upload = client.create_multipart_upload(**place)["UploadId"]
        client.upload_part(**place, UploadId=upload, PartNumber=1, Body=THEIRS.encode())
    monkeypatch.setattr(S3Bucket, "keeps_versions", lambda self: True)

    done = erase(stopped)

    assert not client.list_multipart_uploads(Bucket=object_stores.BUCKET).get("Uploads")
    assert {f"unfinished uploads to {folder}" for folder in folders} <= done.taken.keys()
    assert [place for place in done.left if place.startswith(f"bucket {object_stores.BUCKET}, which keeps earlier")]
    assert [place for place in done.left if place.startswith("other machines that have run visiting")]


def command(stopped: Visiting, monkeypatch: pytest.MonkeyPatch, *arguments: str, typed: str = "") -> Any:
    monkeypatch.setattr(Settings, "from_environment", classmethod(lambda cls, *_: settings_of(stopped)))
    return CliRunner().invoke(app, list(arguments), input=typed)


def test_the_commands_say_what_goes_what_went_and_what_stays(
    stopped: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = command(stopped, monkeypatch, "erase", "visiting", "--key", THEIRS, "--dry-run")
    assert looked.exit_code == 0 and "visit_counts" in looked.stdout and "topic visits" in looked.stdout

    asked = command(stopped, monkeypatch, "erase", "visiting", "--key", THEIRS)
    assert isinstance(asked.exception, ConfigurationError) and "--yes" in str(asked.exception)
    assert files_with(stopped, THEIRS)

    done = command(stopped, monkeypatch, "erase", "visiting", "--key", "-", "--yes", "--json", typed=f"{THEIRS}\n")
    assert done.exit_code == 0, done.output
    assert msgspec.json.decode(done.stdout)["taken"]["table visit_counts"] == 1
    assert files_with(stopped, THEIRS) == []

    listed = command(stopped, monkeypatch, "erasures", "--json")
    assert [each["pipeline"] for each in msgspec.json.decode(listed.stdout)["erasures"]] == ["visiting"]
    assert "done" in command(stopped, monkeypatch, "erasures").stdout
    if (settings := settings_of(stopped)).storage is not None:
        monkeypatch.setattr(stopped.stream, "settings", replace(settings, home=stopped.home.with_name("elsewhere")))
        assert "done" in command(stopped, monkeypatch, "erasures").stdout


def test_standard_input_without_a_key_is_refused(stopped: Visiting, monkeypatch: pytest.MonkeyPatch) -> None:
    given = command(stopped, monkeypatch, "erase", "visiting", "--key", "-", "--yes")
    assert isinstance(given.exception, ConfigurationError) and "has no key" in str(given.exception)
