"""Programs in locked packages; what installs them is replaced."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import wheels
from deltaworks.stack.wheels import ensure_program

INSTALLER = """
import pathlib, sys
place = pathlib.Path(__file__)
options = sys.argv[1:]
with place.with_name("asked").open("a") as asked:
    asked.write(" ".join(options) + "\\n")
folder, lock = (pathlib.Path(options[options.index(name) + 1]) for name in ("--target", "-r"))
if "refused" in lock.read_text():
    sys.exit("the hash does not match")
(folder / "bin").mkdir(parents=True)
(folder / "bin" / "tool").write_text(lock.read_text())
(folder / "bin" / "tool").chmod(0o600 if "useless" in lock.read_text() else 0o700)
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    installer = tmp_path / "installer.py"
    installer.write_text(INSTALLER)
    monkeypatch.setattr(wheels, "_installer", lambda _: [sys.executable, str(installer)])
    (tmp_path / "x-constraints.txt").write_text("x-bin==1 --hash=sha256:aa\n")
    return replace(Settings.from_environment({}, cwd=tmp_path), infra=tmp_path, cache=tmp_path / "cache")


def asked(settings: Settings) -> list[str]:
    file = settings.infra / "asked"
    return file.read_text().splitlines() if file.exists() else []


def test_a_program_is_downloaded_once_by_the_hashes_of_its_lock(settings: Settings) -> None:
    told: list[str] = []

    found = ensure_program(settings, "x", "bin/tool", told.append)

    assert found.read_text() == "x-bin==1 --hash=sha256:aa\n"
    assert found == ensure_program(settings, "x", "bin/tool", told.append)
    assert told == ["x: downloading x-bin==1"]
    (options,) = asked(settings)
    assert options.startswith("--quiet --no-deps --require-hashes --only-binary :all: --target ")


def test_another_version_is_kept_beside_the_first(settings: Settings) -> None:
    first = ensure_program(settings, "x", "bin/tool")
    (settings.infra / "x-constraints.txt").write_text("x-bin==2 --hash=sha256:bb\n")

    second = ensure_program(settings, "x", "bin/tool")

    assert [each.read_text().split()[0] for each in (first, second)] == ["x-bin==1", "x-bin==2"]


@pytest.mark.parametrize(
    ("lock", "error"),
    [("refused==1", r"cannot be installed[^$]*the hash does not match"), ("useless==1", "has no program bin/tool")],
)
def test_what_is_refused_or_has_no_program_is_not_kept(settings: Settings, lock: str, error: str) -> None:
    (settings.infra / "x-constraints.txt").write_text(f"{lock}\n")

    for _ in range(2):
        with pytest.raises(StackError, match=error):
            ensure_program(settings, "x", "bin/tool")

    assert len(asked(settings)) == 2
    assert [path.name for path in (settings.cache / "x").iterdir()] == [".lock"]


def test_pip_installs_or_else_a_uv_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(Settings.from_environment({}, cwd=tmp_path), path=(tmp_path / "none", tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "other" / "python"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert wheels._installer(settings)[:4] == [sys.executable, "-m", "pip", "install"]

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="neither pip nor uv"):
        wheels._installer(settings)

    (tmp_path / "uv").touch(mode=0o755)
    assert wheels._installer(settings) == [str(tmp_path / "uv"), "pip", "install", "--python", sys.executable]
