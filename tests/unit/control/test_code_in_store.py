"""Archives of the code in an object store: another machine finds them there, and none that is damaged."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import clock
from deltaworks.config import Reference
from deltaworks.control import code, retention
from deltaworks.control.code import Code
from deltaworks.control.intents import Intent, Intents
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import files_in
from deltaworks.object_path import ObjectPath, take_requests
from deltaworks.settings import Settings
from tests.support import object_stores

JOB = b"print('a job')\n"


@pytest.fixture
def settings(tmp_path: Path, in_store: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home whose streams are in a store, with a small package and one job."""
    project, package = tmp_path / "project", tmp_path / "package"
    (project / "jobs" / "sample_data").mkdir(parents=True)
    (project / "jobs" / "p.py").write_bytes(JOB)
    (project / "jobs" / "sample_data" / "p.bin").write_bytes(bytes(range(256)))
    package.mkdir()
    (package / "__init__.py").write_bytes(b"")

    def sources(settings: Settings) -> dict[str, Path]:
        folders = {"deltaworks": package, "jobs": settings.jobs}
        return dict(sorted(item for name, folder in folders.items() for item in code._files(folder, name)))

    monkeypatch.setattr(code, "sources", sources)
    endpoint = object_stores.access().endpoint
    assert endpoint is not None
    s3: dict[str, str | Reference] = {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key": "tests",
        "secret_key": "tests",
        "path_style": "true",
    }
    found = Settings.from_environment({"DELTAWORKS_PROJECT": str(project)})
    values = replace(found.values, tables={("s3", ""): s3})
    return replace(found, storage_address=str(in_store), values=values)


@pytest.fixture
def elsewhere(settings: Settings, tmp_path: Path) -> Settings:
    """The home of another machine."""
    return replace(settings, home=tmp_path / "elsewhere", project=tmp_path / "none")


def stored(settings: Settings, digest: str) -> Path:
    found = code.stored(settings, digest)
    assert isinstance(found, ObjectPath)
    return found


def contents(found: Code) -> dict[str, bytes]:
    files = (path for path in found.path.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(found.path).as_posix(): path.read_bytes() for path in files}


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(clock, "wall_s", lambda: time.time() + seconds)


def archived(settings: Settings, text: str) -> Code:
    (settings.project / "jobs" / "p.py").write_bytes(JOB + text.encode())
    return code.archive(settings)


def test_an_archive_is_found_in_another_home(settings: Settings, elsewhere: Settings) -> None:
    made = code.archive(settings)

    found = code.find(elsewhere, made.digest)

    assert found == Code(made.digest, elsewhere.home / "code" / made.digest)
    assert contents(found) == contents(made)
    assert contents(found).keys() == {"manifest.json", "deltaworks/__init__.py", "jobs/p.py", "jobs/sample_data/p.bin"}
    assert code.other_versions(found) == code.other_versions(made) == []
    assert not os.access(found.path / "jobs" / "p.py", os.W_OK) or os.getuid() == 0
    assert not [path for path in elsewhere.archives.iterdir() if path.name.startswith(".")]
    take_requests()
    assert code.find(elsewhere, made.digest) == found
    assert take_requests() == {}, "it is here now"


def test_without_a_store_nothing_is_found_in_another_home(settings: Settings, elsewhere: Settings) -> None:
    alone, other = replace(settings, storage_address=None), replace(elsewhere, storage_address=None)
    made = code.archive(alone)

    assert code.stored(alone, made.digest) is None
    with pytest.raises(IncompatibleCheckpointError, match="is gone"):
        code.find(other, made.digest)
    with pytest.raises(IncompatibleCheckpointError, match="is gone"):
        code.find(elsewhere, made.digest)


def test_an_archive_that_was_changed_here_is_fetched_again(settings: Settings) -> None:
    made = code.archive(settings)
    job = made.path / "jobs" / "p.py"
    job.chmod(0o644)
    job.write_bytes(b"changed")

    assert code.find(settings, made.digest) == made
    assert job.read_bytes() == JOB


def packed(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return data.getvalue()


Harm = Callable[[dict[str, bytes]], bytes]
REFUSED: dict[str, Harm] = {
    "other manifest": lambda files: packed(
        files | {"manifest.json": files["manifest.json"].replace(b"p.bin", b"q.bin")}
    ),
    "no manifest": lambda files: packed({name: data for name, data in files.items() if name != "manifest.json"}),
    "torn manifest": lambda files: packed(files | {"manifest.json": files["manifest.json"][:50]}),
    "empty": lambda files: packed({}),
}
NOT_YET: dict[str, Harm] = {
    "other content": lambda files: packed(files | {"jobs/p.py": b"print('another job')\n"}),
    "a file is missing": lambda files: packed({name: data for name, data in files.items() if name != "jobs/p.py"}),
    "torn": lambda files: packed(files)[:200],
    "no zip": lambda files: b"<html>sign in</html>",
}


def refused(settings: Settings, elsewhere: Settings, harm: Harm) -> None:
    made = code.archive(settings)
    stored(settings, made.digest).write_bytes(harm(contents(made)))

    for _ in range(2):
        with pytest.raises(IncompatibleCheckpointError, match=r"is gone.*\n.*deltaworks deploy"):
            code.find(elsewhere, made.digest)
        assert not (elsewhere.archives / made.digest).exists()
    stored(settings, made.digest).write_bytes(packed(contents(made)))
    assert contents(code.find(elsewhere, made.digest)) == contents(made)


@pytest.mark.parametrize("harm", REFUSED.values(), ids=list(REFUSED))
def test_a_damaged_archive_is_no_archive(settings: Settings, elsewhere: Settings, harm: Harm) -> None:
    refused(settings, elsewhere, harm)


@pytest.mark.parametrize("harm", NOT_YET.values(), ids=list(NOT_YET))
def test_what_is_no_archive_at_all_is_refused_too(settings: Settings, elsewhere: Settings, harm: Harm) -> None:
    refused(settings, elsewhere, harm)


def test_an_archive_with_other_content_is_never_run(settings: Settings, elsewhere: Settings) -> None:
    made = code.archive(settings)
    stored(settings, made.digest).write_bytes(NOT_YET["other content"](contents(made)))

    for _ in range(2):
        with pytest.raises(IncompatibleCheckpointError):
            code.find(elsewhere, made.digest)
    stored(settings, made.digest).write_bytes(packed(contents(made)))
    assert contents(code.find(elsewhere, made.digest)) == contents(made)


def test_an_archive_is_stored_again_when_it_might_soon_be_removed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = code.archive(settings)
    take_requests()
    code.archive(settings)
    assert take_requests() == {"HEAD": 1}

    later(monkeypatch, code._PUT_AGAIN_S + 10)
    code.archive(settings)
    assert take_requests() == {"HEAD": 1, "PUT": 1}

    stored(settings, made.digest).unlink()
    later(monkeypatch, 0)
    code.archive(settings)
    assert stored(settings, made.digest).exists()
    assert code._PUT_AGAIN_S < retention.GRACE_S


def intent(digest: str) -> Intent:
    return Intent(batch=7, lineage="l", query="q", generation=1, code=digest, clock_ms=0, tick=False, ranges=[], end={},
                  previous="")  # fmt: skip


def test_stored_archives_that_nobody_names_go_when_they_are_old(
    settings: Settings, elsewhere: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [archived(settings, f"# {number}\n") for number in range(retention.GENERATIONS + 3)]
    paths = PipelinePaths.of(elsewhere, "p")
    for generation, each in enumerate(old, start=1):
        retention.note(paths, generation, each.digest)
    Intents(files_in(paths.current.intents)).put(intent(old[0].digest))  # the open batch is that old
    keep = retention.named(settings)
    assert keep == {each.digest for each in (old[0], *old[3:])} == retention.named(elsewhere)

    retention.expire(elsewhere, keep)
    assert {each.digest for each in old if stored(settings, each.digest).exists()} == {each.digest for each in old}

    later(monkeypatch, retention.GRACE_S + 10)
    retention.expire(elsewhere, keep)
    assert {each.digest for each in old if stored(settings, each.digest).exists()} == keep


def test_a_new_archive_stays_though_nobody_names_it_yet(settings: Settings, elsewhere: Settings) -> None:
    made = code.archive(settings)

    retention.tidy(elsewhere)

    assert contents(code.find(elsewhere, made.digest)) == contents(made)


def test_nothing_stored_goes_while_it_is_not_known_what_is_needed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = code.archive(settings)
    (PipelinePaths.of(settings, "p").current.intents / "000000000007.json").write_bytes(b"{torn")
    later(monkeypatch, retention.GRACE_S + 10)

    retention.tidy(settings)

    assert stored(settings, made.digest).exists()
