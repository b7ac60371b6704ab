"""Programs that are built from locked modules; the Go that builds them is replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import StackError
from deltaworks.settings import Settings
from deltaworks.stack import go
from deltaworks.stack.go import ensure_built

GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go{version} linux/amd64"; exit {code}; fi
echo "$@" >> "{asked}"
env > "{asked}.environment"
if grep -q wrong "$3/go.sum"; then echo "SECURITY ERROR: checksum mismatch"; exit 1; fi
while [ "$1" != -o ]; do shift; done
mkdir "$GOMODCACHE"
echo built > "$2"
"""
PACKAGE = "example.com/tools/cmd/tool"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/go.mod").write_text("module x\n\ngo 1.26.0\n")
    (tmp_path / "x/go.sum").write_text("a h1:right\n")
    monkeypatch.setattr(go, "ensure_program", lambda *_: installed(tmp_path / "package", "1.27.3"))
    found = Settings.from_environment({}, cwd=tmp_path)
    return replace(found, infra=tmp_path, cache=tmp_path / "cache", path=())


def installed(folder: Path, version: str, code: int = 0) -> Path:
    """A Go of a version, in a folder."""
    folder.mkdir(exist_ok=True)
    program = folder / "go"
    program.write_text(GO.format(version=version, code=code, asked=folder / "asked"))
    program.chmod(0o755)
    return program


def asked(folder: Path) -> list[str]:
    file = folder / "asked"
    return file.read_text().splitlines() if file.exists() else []


def built(settings: Settings, told: list[str] | None = None) -> Path:
    return ensure_built(settings, "x", PACKAGE, "1.2.3", ([] if told is None else told).append)


def test_a_program_is_built_once_from_its_lock(settings: Settings, tmp_path: Path) -> None:
    told: list[str] = []
    installed(tmp_path / "own", "1.26.8")
    settings = replace(settings, path=(tmp_path / "none", tmp_path / "own"))

    found = built(settings, told)

    assert found == built(settings, told)
    assert (found.name, found.read_text()) == ("tool", "built\n")
    assert told == [f"x: building 1.2.3 with {tmp_path}/own/go; this takes a minute or two"]
    (words,) = asked(tmp_path / "own")
    assert words.startswith(f"build -C {tmp_path}/x -mod=readonly ")
    assert "-trimpath" in words
    assert "main.version=1.2.3" in words
    assert words.endswith(f" {PACKAGE}")
    left = sorted(path.name for path in (tmp_path / "cache/x").iterdir())
    assert left == [".lock", found.parent.name], "what was downloaded and compiled besides is gone"


def test_nothing_of_the_environment_changes_what_is_built(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "go1.20", "GOWORK": "/a/go.work", "CGO_ENABLED": "1", "GOROOT": "/a"}
    for name, value in {**given, "GOPROXY": "https://proxy.example.com"}.items():
        monkeypatch.setenv(name, value)

    built(settings)

    seen = dict(line.split("=", 1) for line in (tmp_path / "package/asked.environment").read_text().splitlines())
    assert {name: seen.get(name) for name in given} == {
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
        "GOROOT": None,
    }
    assert seen["GOPROXY"] == "https://proxy.example.com"


@pytest.mark.parametrize(
    ("version", "code", "own"),
    [
        ("1.26.0", 0, True),
        ("1.26rc1", 0, True),
        ("1.100.1", 0, True),
        ("2.0", 0, True),
        ("1.25.9", 0, False),
        ("1.9", 0, False),
        ("?", 1, False),
    ],
)
def test_the_go_of_the_user_builds_if_it_is_recent_enough(
    settings: Settings, tmp_path: Path, version: str, code: int, own: bool
) -> None:
    installed(tmp_path / "own", version, code)

    built(replace(settings, path=(tmp_path / "own",)))

    assert [len(asked(tmp_path / name)) for name in ("own", "package")] == ([1, 0] if own else [0, 1])


def test_other_modules_give_another_program(settings: Settings, tmp_path: Path) -> None:
    first = built(settings)
    (tmp_path / "x/go.sum").write_text("a h1:other\n")

    assert built(settings) != first
    assert first.is_file()


def test_what_does_not_match_its_checksum_is_not_kept(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "x/go.sum").write_text("a h1:wrong\n")

    for _ in range(2):
        with pytest.raises(StackError, match=r"(?s)tool cannot be built.*checksum mismatch.*Hint: .*do not use it"):
            built(settings)

    assert len(asked(tmp_path / "package")) == 2
    assert [path.name for path in (tmp_path / "cache/x").iterdir()] == [".lock"]
