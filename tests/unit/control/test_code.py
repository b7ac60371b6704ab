"""Archives of the code: what is in them, when they are rebuilt, which of them may go."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control import code, retention
from deltaworks.control.code import Code
from deltaworks.control.intents import Intent, Intents
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import LocalFiles
from deltaworks.settings import Settings

JOB = 'from deltaworks import Pipeline\npipeline = Pipeline(name="p", topology=lambda builder: None)\n'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A project with one job, and things beside it that no archive should have."""
    project = tmp_path / "project"
    (project / "jobs" / "sample_data").mkdir(parents=True)
    (project / "jobs" / "__pycache__").mkdir()
    (project / "jobs" / "p.py").write_text(JOB)
    (project / "jobs" / "sample_data" / "p.sql").write_text("SELECT 1")
    (project / "jobs" / ".hidden").write_text("secret")
    (project / "jobs" / "__pycache__" / "p.pyc").write_bytes(b"compiled")
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(project)})


def edit(settings: Settings, text: str) -> None:
    (settings.project / "jobs" / "p.py").write_text(JOB + text)


def test_an_archive_holds_the_package_what_it_needs_and_the_jobs_but_nothing_hidden(settings: Settings) -> None:
    found = code.archive(settings)

    assert found.path == settings.home / "code" / found.digest
    for name in ("deltaworks/settings.py", "deltaworks/_infra/components.toml", "jobs/p.py", "jobs/sample_data/p.sql"):
        assert (found.path / name).is_file(), name
    assert not [path for path in found.path.rglob("*") if path.name.startswith(".")]


def test_an_archive_is_compiled_and_who_runs_from_it_writes_nothing_there(settings: Settings) -> None:
    found = code.archive(settings)
    sources = list(found.path.rglob("*.py"))
    before = sorted(found.path.rglob("*"))
    for source in sources:
        compiled = Path(importlib.util.cache_from_source(str(source)))
        flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
        assert flags == 0b11, "compared with the content of its source"
    assert len(list(found.path.rglob("*.pyc"))) == len(sources)

    environment = settings.with_code(found.path).driver_environment() | {"PATH": os.environ["PATH"]}
    for compiled in found.path.rglob("*.pyc"):
        compiled.unlink()
    done = subprocess.run(
        [sys.executable, "-c", "import deltaworks.settings; print(deltaworks.settings.__file__)"],
        env=environment, cwd=settings.project, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(done.stdout.strip()) == found.path / "deltaworks" / "settings.py"
    assert sorted(found.path.rglob("*")) == [path for path in before if path.suffix != ".pyc"]


def test_the_same_code_is_not_written_twice_and_other_code_gets_another_archive(settings: Settings) -> None:
    first = code.archive(settings)
    inode = first.path.stat().st_ino

    assert code.archive(settings) == first and first.path.stat().st_ino == inode

    edit(settings, "# changed\n")
    second = code.archive(settings)
    assert second.digest != first.digest and first.path.is_dir()
    assert code.digest(settings) == second.digest


def test_a_name_counts_as_much_as_a_content(settings: Settings) -> None:
    before = code.archive(settings)
    (settings.project / "jobs" / "sample_data" / "p.sql").rename(settings.project / "jobs" / "sample_data" / "q.sql")

    assert code.archive(settings).digest != before.digest


@pytest.mark.parametrize("harm", ["changed", "torn", "removed", "added", "manifest torn", "manifest gone"])
def test_an_archive_that_is_not_what_its_name_says_is_noticed_and_recreated(settings: Settings, harm: str) -> None:
    found = code.archive(settings)
    job, manifest = found.path / "jobs" / "p.py", found.path / "manifest.json"
    job.chmod(0o644)
    match harm:
        case "changed":
            job.write_text(JOB.replace("None", "True"))
        case "torn":
            job.write_text(JOB[:20])
        case "removed":
            job.unlink()
        case "added":
            (found.path / "jobs" / "q.py").write_text(JOB)
        case "manifest torn":
            manifest.write_bytes(manifest.read_bytes()[:100])
        case "manifest gone":
            manifest.unlink()

    with pytest.raises(IncompatibleCheckpointError, match=r"was changed.*\n.*deltaworks deploy"):
        code.find(settings, found.digest)
    assert code.archive(settings) == found
    assert code.find(settings, found.digest) == found
    assert job.read_text() == JOB


def test_an_archive_that_is_gone_says_what_to_do(settings: Settings) -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"is gone.*\n.*deltaworks deploy"):
        code.find(settings, "0" * 24)


def test_what_a_run_has_compiled_does_not_matter(settings: Settings) -> None:
    found = code.archive(settings)
    (found.path / "jobs" / "__pycache__" / "p.pyc").write_bytes(b"compiled")

    assert code.find(settings, found.digest) == found


def test_another_version_of_a_distribution_is_other_code(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    found = code.archive(settings)
    assert code.other_versions(found) == []
    versions = code._versions()
    monkeypatch.setattr(code, "_versions", lambda: {**versions, "pyspark": "9.9"})

    assert code.archive(settings).digest != found.digest
    assert code.other_versions(found) == [f"pyspark: was {versions['pyspark']}, is 9.9"]


def test_each_distribution_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extras repeat what they need: five times as many requirements as distributions."""
    asked = Counter[str]()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: asked.update([name]) or "1")

    assert code._versions() == dict.fromkeys(asked, "1")
    assert "pyspark" in asked and code._PACKAGE not in asked and set(asked.values()) == {1}


def test_a_process_that_runs_from_an_archive_sees_nothing_of_the_project(settings: Settings) -> None:
    found = code.archive(settings)
    edit(settings, "raise SystemExit('the project')\n")
    (settings.project / "deltaworks.py").write_text("raise SystemExit('the project')\n")
    mine = settings.with_code(found.path)
    script = """
import deltaworks
from deltaworks.control import code, jobs
from deltaworks.settings import Settings
settings = Settings.from_environment()
pipeline = jobs.load(settings, "p")
print(deltaworks.__file__, jobs.load_module(settings, "p").__file__, settings.infra, settings.home, settings.project)
print(code.archive(settings).digest, code.digest(settings))
"""

    said = subprocess.run(
        [sys.executable, "-c", script],
        env=mine.driver_environment(),
        cwd=settings.project,
        capture_output=True,
        text=True,
        check=True,
    )
    package, job, infra, home, project, *digests = said.stdout.split()
    assert (package, job) == (f"{found.path}/deltaworks/__init__.py", f"{found.path}/jobs/p.py")
    assert infra == f"{found.path}/deltaworks/_infra"
    assert (home, project) == (str(settings.home), str(settings.project))
    assert digests == [found.digest, found.digest]


def test_a_run_goes_on_from_an_archive_once_and_in_the_same_process(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "started.py").write_text(
        "import os, sys\n"
        "from deltaworks.control import code\n"
        "from deltaworks.settings import Settings\n"
        "print(os.getpid(), os.environ.get('DELTAWORKS_CODE', '-'), code.__file__, *sys.argv[1:], flush=True)\n"
        "code.run_from_archive(Settings.from_environment())\n"
    )
    environment = {
        **os.environ,
        **settings.process_environment(),
        "PYTHONPATH": f"{settings.python_path[0]}:{tmp_path}",
    }

    def started(**more: str) -> list[list[str]]:
        said = subprocess.run(
            [sys.executable, "-m", "started", "one", "two"],
            env={**environment, **more},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.split() for line in said.stdout.splitlines()]

    first, second = started()
    path = str(code.archive(settings).path)
    assert first[0] == second[0] and first[1] == "-" and second[1] == path
    assert second[2] == f"{path}/deltaworks/control/code.py" and second[3:] == ["one", "two"]

    assert len(started(DELTAWORKS_RUN_FROM="source")) == 1


def test_settings_with_code_survive_the_way_to_a_child(settings: Settings) -> None:
    mine = settings.with_code(settings.home / "code" / "abc")

    assert Settings.from_environment(mine.process_environment()) == mine
    assert mine.jobs == settings.home / "code" / "abc" / "jobs"
    assert settings.with_code(mine.code or Path()) == mine.with_code(mine.code or Path())


# ---- What may go


def archives(settings: Settings, count: int) -> list[Code]:
    found = []
    for number in range(count):
        edit(settings, f"# {number}\n")
        found.append(code.archive(settings))
    return found


def intent(digest: str) -> Intent:
    return Intent(batch=7, lineage="l", query="q", generation=1, code=digest, clock_ms=0, tick=False, ranges=[], end={},
                  previous="")  # fmt: skip


def test_archives_that_nobody_names_go_and_others_stay(settings: Settings) -> None:
    found = archives(settings, 8)
    paths = PipelinePaths.of(settings, "p")
    for generation, each in enumerate(found, start=1):
        retention.note(paths, generation, each.digest)
    Intents(LocalFiles(paths.current.intents)).put(intent(found[0].digest))  # the open batch is that old

    kept = retention.named(settings)
    assert kept == {each.digest for each in (found[0], *found[3:])}
    assert retention.expire(settings, kept, grace_s=0.0) == sorted(each.digest for each in found[1:3])
    assert sorted(path.name for path in settings.archives.iterdir()) == sorted(kept)
    assert retention.code_of(paths, 8) == found[7].digest and retention.code_of(paths, 1) is None


def test_an_archive_that_was_asked_for_a_moment_ago_stays(settings: Settings) -> None:
    old, new = archives(settings, 2)
    os.utime(old.path / "manifest.json", (1, 1))

    assert retention.expire(settings, ()) == [old.digest]
    assert new.path.is_dir()

    os.utime(new.path / "manifest.json", (1, 1))
    code.find(settings, new.digest)
    assert retention.expire(settings, ()) == []


def test_an_archive_that_a_process_runs_from_stays(settings: Settings) -> None:
    found = code.archive(settings)

    with code.held(replace(settings, code=found.path)):
        assert retention.expire(settings, (), grace_s=0.0) == []
    assert retention.expire(settings, (), grace_s=0.0) == [found.digest]


def test_what_a_crash_has_left_goes(settings: Settings) -> None:
    (settings.archives / "torn" / "jobs").mkdir(parents=True)
    (settings.archives / ".unfinished" / "jobs").mkdir(parents=True)
    os.utime(settings.archives / ".unfinished", (1, 1))

    assert retention.expire(settings, ()) == ["torn"]
    assert list(settings.archives.iterdir()) == []


def test_nothing_goes_while_it_is_not_known_what_is_needed(settings: Settings) -> None:
    found = code.archive(settings)
    os.utime(found.path / "manifest.json", (1, 1))
    intents = PipelinePaths.of(settings, "p").current.intents
    intents.mkdir(parents=True)
    (intents / "000000000007.json").write_bytes(b"{torn")

    retention.tidy(settings)

    assert found.path.is_dir()
