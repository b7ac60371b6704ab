"""The bootstrap installs what the lock names, by hash; without a package index: wheels come from a folder."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BACKEND = """
import base64, hashlib, os, zipfile

def build_editable(folder, settings=None, metadata=None):
    name = "deltaworks-0.1.0-py3-none-any.whl"
    files = {
        "deltaworks-0.1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: deltaworks\\nVersion: 0.1.0\\n",
        "deltaworks-0.1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = "deltaworks-0.1.0.dist-info/RECORD"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(record, "".join(path + ",,\\n" for path in (*files, record)))
    return name

build_wheel = build_editable
"""
PYTHON = """#!/bin/sh
case "$*" in
    *process_time_ns*) echo {cpu_us} ;;
    *ensurepip*) exit {without_ensurepip} ;;
    --version) echo {name} >>{log} ;;
    *) exec {real} "$@" ;;
esac
"""
UV = '#!/bin/sh\necho called "$@" >&2\n'


class Clone:
    """A clone with a lock of its own, whose packages are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wheels = folder / "clone", folder / "wheels"
        (self.folder / "infra").mkdir(parents=True)
        self.wheels.mkdir()
        shutil.copy(ROOT / "infra/bootstrap", self.folder / "infra/bootstrap")
        (self.folder / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["backend==1.0"]\nbuild-backend = "backend"\n'
            '[project]\nname = "deltaworks"\nversion = "0.1.0"\n'
        )
        (self.folder / "infra/build-constraints.txt").write_text("")
        (self.folder / "uv.toml").write_text("no-index = true\n")
        java = folder / "java/bin/java"
        java.parent.mkdir(parents=True)
        java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"'\n")
        java.chmod(0o755)
        self._pythons: list[str] = []
        self.path = os.pathsep.join((str(self._programs(folder / "bin")), "/usr/bin", "/bin"))
        self.environment = {
            "HOME": str(folder),
            "PYTHON": sys.executable,
            "JAVA_HOME": str(folder / "java"),
            "UV_CACHE_DIR": str(folder / "cache"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
        }

    def _programs(self, folder: Path) -> Path:
        folder.mkdir()
        (folder / "uv").symlink_to(Path(sys.executable).parent / "uv")
        return folder

    def add(self, name: str, files: dict[str, str]) -> str:
        """Makes a wheel of version 1.0, and gives its entry in a lock."""
        wheel = self.wheels / f"{name}-1.0-py3-none-any.whl"
        info = f"{name}-1.0.dist-info"
        content = files | {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in content.items():
                entry = zipfile.ZipInfo(path)
                entry.external_attr = 0o100755 << 16
                archive.writestr(entry, text)
            archive.writestr(f"{info}/RECORD", "".join(map(_record, content.items())) + f"{info}/RECORD,,\n")
        return f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"

    def add_sources(self, name: str, builds_with: str) -> str:
        """Likewise with sources that have to be built first."""
        archive = self.wheels / f"{name}-1.0.tar.gz"
        content = {
            "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            "pyproject.toml": f'[build-system]\nrequires = ["{builds_with}"]\nbuild-backend = "{builds_with}"\n',
        }
        with tarfile.open(archive, "w:gz") as sources:
            for path, text in content.items():
                entry = tarfile.TarInfo(f"{name}-1.0/{path}")
                entry.size = len(text)
                sources.addfile(entry, io.BytesIO(text.encode()))
        return f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}\n"

    def add_python(self, name: str, cpu_us: int, *, without_ensurepip: bool = False) -> Path:
        """Puts a Python on the path, after others that were added. All are said to be faster than the machine's own."""
        program = self.folder.parent / name / "python3.11"
        program.parent.mkdir()
        real, log = sys.executable, self.folder.parent / "chosen"
        program.write_text(
            PYTHON.format(name=name, cpu_us=cpu_us, without_ensurepip=int(without_ensurepip), real=real, log=log)
        )
        program.chmod(0o755)
        self._pythons.append(str(program.parent))
        self.environment.pop("PYTHON", None)
        return program

    @property
    def chosen(self) -> list[str]:
        """The Python of which the environment was made."""
        return (self.folder.parent / "chosen").read_text().split()

    def run(self, lock: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "constraints.txt").write_text(lock)
        return subprocess.run(
            ["bash", "infra/bootstrap"],
            cwd=self.folder,
            env={**self.environment, "PATH": os.pathsep.join((*self._pythons, self.path))},
            capture_output=True,
            text=True,
        )


def _record(entry: tuple[str, str]) -> str:
    path, text = entry
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(text.encode())}\n"


def wrong(entry: str) -> str:
    """The same with the hash of another file."""
    return entry.partition("sha256:")[0] + "sha256:" + "0" * 64 + "\n"


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_packages_and_the_build_backend_come_from_the_lock_and_nothing_is_fetched_besides(clone: Clone) -> None:
    lock = clone.add("backend", {"backend.py": BACKEND}) + clone.add("tool", {"tool.py": ""})

    done = clone.run(lock)

    assert done.returncode == 0, done.stderr
    installed = {path.name for path in clone.folder.glob(".venv/lib/*/site-packages/*.dist-info")}
    assert installed == {"backend-1.0.dist-info", "tool-1.0.dist-info", "deltaworks-0.1.0.dist-info"}


def test_a_file_that_is_not_the_one_that_was_locked_is_refused(clone: Clone) -> None:
    lock = clone.add("backend", {"backend.py": BACKEND}) + wrong(clone.add("tool", {"tool.py": ""}))

    done = clone.run(lock)

    assert done.returncode == 1
    assert "Hash mismatch for `tool==1.0`" in done.stderr
    assert "bootstrap: packages cannot be installed (see above).\n  Hint: if a hash does not match, " in done.stderr
    assert not list(clone.folder.glob(".venv/lib/*/site-packages/tool.py"))
    assert not (clone.folder / ".venv/.complete").exists()


def test_a_package_without_a_hash_is_refused(clone: Clone) -> None:
    clone.add("tool", {"tool.py": ""})

    done = clone.run("tool==1.0\n")

    assert done.returncode == 1
    assert "tool==1.0" in done.stderr and "--require-hashes" in done.stderr


def test_what_builds_a_package_that_comes_as_sources_is_not_fetched_without_a_hash(clone: Clone) -> None:
    entry = clone.add_sources("tool", builds_with="backend")
    clone.add("backend", {"backend.py": BACKEND})

    done = clone.run(entry)

    assert done.returncode == 1
    assert "Failed to build `tool==1.0`" in done.stderr and "backend" in done.stderr
    assert not list(clone.folder.glob(".venv/lib/*/site-packages/*.dist-info"))


def test_a_backend_that_is_not_in_the_lock_is_not_fetched(clone: Clone) -> None:
    clone.add("backend", {"backend.py": BACKEND})

    done = clone.run(clone.add("tool", {"tool.py": ""}))

    assert done.returncode == 1
    assert "bootstrap: deltaworks cannot be installed (see above)." in done.stderr


@pytest.mark.parametrize("is_right", [True, False])
def test_the_installer_itself_has_to_have_its_hash(clone: Clone, is_right: bool) -> None:
    clone.path = "/usr/bin:/bin"
    if shutil.which("uv", path=clone.path):
        pytest.skip("uv is installed for the whole machine here, so bootstrap takes that one")
    entry = clone.add("uv", {"uv-1.0.data/scripts/uv": UV})

    done = clone.run(entry if is_right else wrong(entry))

    assert "bootstrap: installing uv==1.0" in done.stderr
    if is_right:
        assert "called pip sync" in done.stderr
    else:
        assert done.returncode == 1
        assert "DO NOT MATCH THE HASHES" in done.stderr
        assert "bootstrap: uv cannot be installed (see above).\n  Hint: if a hash does not match, " in done.stderr
        assert not (clone.folder / ".bootstrap/tools/bin/uv").exists()


@pytest.mark.parametrize(
    ("second_us", "without_ensurepip", "chosen"),
    [(140, False, "second"), (160, False, "first"), (300, False, "first"), (140, True, "first")],
)
def test_a_python_that_is_clearly_faster_than_the_first_one_is_taken(
    clone: Clone, second_us: int, without_ensurepip: bool, chosen: str
) -> None:
    clone.add_python("first", 200)
    clone.add_python("second", second_us, without_ensurepip=without_ensurepip)
    clone.add_python("third", 190)

    clone.run("")

    assert clone.chosen == [chosen]


def test_the_python_that_somebody_has_chosen_is_taken(clone: Clone) -> None:
    slow = clone.add_python("first", 200)
    clone.add_python("second", 100)
    clone.environment["PYTHON"] = str(slow)

    clone.run("")

    assert clone.chosen == ["first"]
