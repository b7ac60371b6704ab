"""The fence: an older generation is refused, however late it comes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.control import fence
from deltaworks.errors import FencedError, LeaseError


@pytest.fixture(params=["on a disk", "in a store"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The fence of a pipeline, whose folder is not there yet."""
    root: Path = tmp_path if request.param == "on a disk" else request.getfixturevalue("in_store")
    return root / "orders" / "generation"


def test_nobody_has_run_yet(path: Path) -> None:
    assert fence.read(path) == 0
    fence.check(path, 1, "orders")
    with fence.held(path, 1, "orders"):
        pass


def test_a_newer_generation_shuts_out_the_older(path: Path) -> None:
    fence.advance(path, 1, "orders")
    fence.advance(path, 1, "orders")  # a restart of the same one
    fence.advance(path, 12, "orders")

    assert fence.read(path) == 12
    with pytest.raises(FencedError, match="generation 1 of pipeline 'orders' was replaced by generation 12"):
        fence.check(path, 1, "orders")
    with pytest.raises(FencedError), fence.held(path, 1, "orders"):
        pytest.fail("the block of an old generation must not run")
    with pytest.raises(FencedError):
        fence.advance(path, 11, "orders")
    assert fence.read(path) == 12
    fence.check(path, 12, "orders")
    with fence.held(path, 12, "orders"):
        pass


def test_nobody_gets_in_while_a_generation_writes(tmp_path: Path) -> None:
    path = tmp_path / "generation"
    fence.advance(path, 1, "orders")
    with fence.held(path, 1, "orders"), pytest.raises(LeaseError, match="A process holds"):
        fence.advance(path, 2, "orders", patience_s=0.05)
    fence.advance(path, 2, "orders")


def test_of_many_at_once_the_highest_wins(tmp_path: Path) -> None:
    path = tmp_path / "generation"
    code = (
        "import sys; from pathlib import Path; from deltaworks.control import fence\n"
        "from deltaworks.errors import FencedError\n"
        "try: fence.advance(Path(sys.argv[1]), int(sys.argv[2]), 'orders'); print('in')\n"
        "except FencedError: print('out')"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, path, str(n)], stdout=subprocess.PIPE, text=True)
        for n in (3, 1, 4, 2)
    ]
    answers = [process.communicate()[0].strip() for process in started]

    assert fence.read(path) == 4
    assert answers[2] == "in"
