"""What `make audit` makes of the answers of an index."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from deltaworks.errors import ConfigurationError, TransientError
from tooling.python_lock import Package
from tooling.vulnerabilities import ACCEPTED, audit, base_url, main, read_accepted

ROOT = Path(__file__).parents[3]
PACKAGES = (Package("jinja2", "3.1.5", ()), Package("six", "1.17.0", ()))
ADVISORY = {"id": "GHSA-1", "aliases": ["CVE-2025-1"], "fixed_in": ["3.1.6"], "withdrawn": None}


def index(**known: object) -> httpx.Client:
    """One that knows these packages."""

    def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path.split("/")[2]
        return httpx.Response(200, json={"vulnerabilities": known[name]}) if name in known else httpx.Response(404)

    return httpx.Client(base_url="https://index.test/pypi", transport=httpx.MockTransport(answer))


def test_a_vulnerability_is_open_and_says_what_fixes_it() -> None:
    found = audit(PACKAGES, {}, index(jinja2=[ADVISORY], six=[]))

    assert [str(v) for v in found.open] == ["jinja2 3.1.5: GHSA-1 (CVE-2025-1), fixed in 3.1.6"]
    assert (found.accepted, found.unneeded) == ((), ())


@pytest.mark.parametrize("name", ["GHSA-1", "CVE-2025-1"])
def test_one_that_was_accepted_for_its_package_is_not_open(name: str) -> None:
    accepted = {name: {"package": "jinja2", "reason": "templates are ours"}}

    found = audit(PACKAGES, accepted, index(jinja2=[ADVISORY], six=[]))

    assert (len(found.open), len(found.accepted)) == (0, 1)


def test_one_that_was_accepted_for_another_package_is_open() -> None:
    accepted = {"GHSA-1": {"package": "six", "reason": "none"}, "GHSA-0": {"package": "six", "reason": "old"}}

    found = audit(PACKAGES, accepted, index(jinja2=[ADVISORY], six=[]))

    assert len(found.open) == 1
    assert found.unneeded == ("GHSA-0",)


def test_an_advisory_that_was_withdrawn_is_none() -> None:
    assert audit(PACKAGES, {}, index(jinja2=[ADVISORY | {"withdrawn": "2026-01-01"}], six=[])).open == ()


def test_an_index_that_says_nothing_is_no_pass() -> None:
    with pytest.raises(TransientError, match=r"says nothing about six 1.17.0 \(status 404\)") as error:
        audit(PACKAGES, {}, index(jinja2=[]))

    assert "JSON API" in str(error.value.hint)


def test_an_index_that_does_not_answer_is_no_pass() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route")

    with pytest.raises(TransientError, match="does not answer about jinja2"):
        audit(PACKAGES[:1], {}, httpx.Client(base_url="https://index.test", transport=httpx.MockTransport(fail)))


@pytest.mark.parametrize(("advisories", "code"), [([ADVISORY], 1), ([], 0)])
def test_the_exit_code_says_whether_something_is_open(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    advisories: list[object],
    code: int,
) -> None:
    (tmp_path / "infra").mkdir()
    for lock in ("build", "seaweedfs", "go"):
        (tmp_path / f"infra/{lock}-constraints.txt").write_text("")
    (tmp_path / "constraints.txt").write_text("jinja2==3.1.5\n")
    (tmp_path / ACCEPTED).write_text("")
    client = index(jinja2=advisories)
    monkeypatch.setattr(httpx, "Client", lambda **_: client)

    assert main(tmp_path) == code
    assert f"1 packages, {len(advisories)} open vulnerabilities, 0 accepted" in capsys.readouterr().out


def test_the_api_is_that_of_the_index_that_packages_come_from() -> None:
    assert base_url({"UV_DEFAULT_INDEX": "https://index.test/simple/"}) == "https://index.test/pypi"
    assert base_url({"PIP_INDEX_URL": "https://index.test/root/simple"}) == "https://index.test/root/pypi"
    assert base_url({}).endswith("/pypi")


def test_what_is_accepted_has_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "accepted.toml"
    file.write_text('["GHSA-1"]\npackage = "jinja2"\n')

    with pytest.raises(ConfigurationError, match="GHSA-1 has no package or no reason"):
        read_accepted(file)
    read_accepted(ROOT / ACCEPTED)
