"""Debian's packages against what apt has downloaded, without a network: apt and dpkg are scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import debian

APT = """#!/bin/sh
echo "$@" >>{asked}
for word in "$@"; do case "$word" in Dir::Cache=*) cache="${{word#Dir::Cache=}}";; esac; done
case "$*" in
  *\\ update) ;;
  *) for name in one_1_all two_2_all; do echo "$name" >"$cache/archives/$name.deb"; done ;;
esac
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/bin" && cp "$2" "$3/usr/bin/"
"""
BROKEN = "#!/bin/sh\necho 'E: The repository is not signed.' >&2\nexit 100\n"
Scripts = Callable[..., None]


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    return tmp_path / "asked"


@pytest.fixture
def scripts(tmp_path: Path, asked: Path) -> Scripts:
    def write(**programs: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, text in programs.items():
            (folder / name.replace("_", "-")).write_text(text.format(asked=asked) if text == APT else text)
            (folder / name.replace("_", "-")).chmod(0o755)

    write(apt_get=APT, dpkg=DPKG)
    return write


@pytest.fixture
def settings(tmp_path: Path, scripts: Scripts) -> Settings:
    found = Settings.from_environment({"HOME": str(tmp_path)}, cwd=tmp_path)
    return replace(found, cache=tmp_path / "cache", path=(tmp_path / "bin", Path("/usr/bin"), Path("/bin")))


def downloaded(settings: Settings) -> tuple[Path, ...]:
    return debian.ensure_packages(settings, "tool", ["one"], lambda _: None)


def test_what_apt_downloads_is_kept_with_its_sums_and_not_downloaded_again(settings: Settings, asked: Path) -> None:
    first, second = (downloaded(settings) for _ in range(2))

    assert first == second
    assert [deb.name for deb in first] == ["one_1_all.deb", "two_2_all.deb"]
    sums = (first[0].parent / "SHA256SUMS").read_text().splitlines()
    assert sums == [f"{hashlib.sha256(deb.read_bytes()).hexdigest()}  {deb.name}" for deb in first]
    lines = asked.read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["update", "one"]
    assert "--no-install-recommends" in lines[1] and "APT::Get::AllowUnauthenticated=0" in lines[1]
    assert [path.name for path in (settings.cache / "debian" / "tool").iterdir() if path.is_dir()] == ["debs"]


@pytest.mark.parametrize("spoil", [lambda deb: deb.write_text("evil"), lambda deb: deb.unlink()])
def test_a_package_that_is_not_what_apt_has_downloaded_is_refused(
    settings: Settings, spoil: Callable[[Path], None]
) -> None:
    one, _ = downloaded(settings)
    spoil(one)

    with pytest.raises(ConfigurationError, match=r"one_1_all.deb is not what apt has downloaded: SHA-256 .*, expected"):
        downloaded(settings)


def test_a_download_that_fails_says_why_and_leaves_nothing(settings: Settings, scripts: Scripts) -> None:
    scripts(apt_get=BROKEN)

    with pytest.raises(StackError, match=r"(?s)apt-get ended with 100.*not signed.*does `apt-get update` work\?"):
        downloaded(settings)

    assert not [path for path in (settings.cache / "debian" / "tool").iterdir() if path.is_dir()]


def test_what_is_unpacked_is_complete_or_not_there(settings: Settings, tmp_path: Path, scripts: Scripts) -> None:
    root = tmp_path / "home" / "programs"
    root.parent.mkdir()
    debian.unpack(settings, downloaded(settings), root)
    assert sorted(path.name for path in (root / "usr/bin").iterdir()) == ["one_1_all.deb", "two_2_all.deb"]

    (root / "usr/bin/own").touch()
    debian.unpack(settings, downloaded(settings), root)
    assert (root / "usr/bin/own").exists(), "the same packages are unpacked once"

    scripts(dpkg="#!/bin/sh\nexit 2\n")
    with pytest.raises(StackError, match="dpkg ended with 2"):
        debian.unpack(settings, downloaded(settings)[:1], root)
    assert [path.name for path in root.parent.iterdir()] == []
