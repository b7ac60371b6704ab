"""What `S3Files` does when answers are lost, late or wrong; what it does otherwise: `test_files_contract.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError, TransientError
from deltaworks.object_store import ObjectStoreAccess, S3Bucket, S3Files
from tests.support.object_stores import BUCKET, Fault, Faults, access, make, moto

LOST: list[Fault] = ["answer lost", "failed after all"]
NOTHING_DONE: list[Fault] = ["refused", "slow down", "conflict"]


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with moto() as endpoint:
        yield endpoint


@pytest.fixture
def faults(store: str) -> Iterator[Faults]:
    with Faults(store) as faults:
        yield faults


@pytest.fixture
def direct(store: str, tmp_path: Path) -> S3Files:
    """What others see."""
    return make(tmp_path)


@pytest.fixture
def files(faults: Faults, tmp_path: Path) -> S3Files:
    """Through the proxy."""
    return S3Files(S3Bucket(access(faults.endpoint), BUCKET, patience_s=5), tmp_path.as_posix())


def data(files: S3Files, name: str) -> bytes | None:
    stored = files.get(name)
    return None if stored is None else stored.data


def version(files: S3Files, name: str) -> str:
    stored = files.get(name)
    assert stored is not None
    return stored.version


@pytest.mark.parametrize("fault", [*LOST, *NOTHING_DONE])
def test_a_put_is_ours_whatever_happens_to_its_first_answer(
    files: S3Files, faults: Faults, direct: S3Files, fault: Fault
) -> None:
    faults.plan("PUT", fault)
    assert files.put_if_absent("a", b"one")
    assert data(direct, "a") == b"one"
    assert faults.requests.count("PUT") == 2

    faults.plan("PUT", fault, fault)
    assert not files.put_if_absent("a", b"one"), "of another call, even with this content"
    assert not files.put_if_absent("a", b"two")
    assert data(direct, "a") == b"one"


@pytest.mark.parametrize("fault", [*LOST, *NOTHING_DONE])
def test_a_replacement_is_ours_whatever_happens_to_its_first_answer(
    files: S3Files, faults: Faults, direct: S3Files, fault: Fault
) -> None:
    direct.put_if_absent("a", b"one")
    first = version(direct, "a")
    faults.plan("PUT", fault)
    assert files.replace("a", b"two", first)
    assert data(direct, "a") == b"two"
    assert not files.replace("a", b"three", first)


@pytest.mark.parametrize("fault", LOST)
def test_a_put_that_another_has_won_is_not_ours(files: S3Files, faults: Faults, direct: S3Files, fault: Fault) -> None:
    direct.put_if_absent("a", b"theirs")
    faults.plan("PUT", fault)
    assert not files.put_if_absent("a", b"ours")
    assert data(direct, "a") == b"theirs"


@pytest.mark.parametrize("fault", LOST)
def test_a_replacement_that_was_replaced_before_we_knew_of_it_is_unknown(
    files: S3Files, faults: Faults, direct: S3Files, fault: Fault
) -> None:
    direct.put_if_absent("a", b"one")
    first = version(direct, "a")
    faults.plan("PUT", fault)
    faults.between = lambda: direct.delete("a")
    with pytest.raises(TransientError, match=r"whether it was written in between is unknown"):
        files.replace("a", b"two", first)

    direct.put_if_absent("b", b"one")
    first = version(direct, "b")
    faults.plan("PUT", fault)
    faults.between = lambda: replace_again(direct, "b")
    with pytest.raises(TransientError, match=r"others have changed it since"):
        files.replace("b", b"two", first)
    assert data(direct, "b") == b"theirs"


def replace_again(files: S3Files, name: str) -> None:
    assert files.replace(name, b"theirs", version(files, name))


def test_a_refused_put_of_what_is_deleted_meanwhile_is_done(files: S3Files, faults: Faults, direct: S3Files) -> None:
    direct.put_if_absent("a", b"theirs")
    faults.plan("PUT", "failed after all")
    faults.between = lambda: direct.delete("a")
    assert files.put_if_absent("a", b"ours")
    assert data(direct, "a") == b"ours"


@pytest.mark.parametrize("fault", ["refused", "answer lost", "failed after all", "slow down", "cut off"])
def test_what_is_read_is_whole(files: S3Files, faults: Faults, direct: S3Files, fault: Fault) -> None:
    content = bytes(range(256)) * 1_000
    direct.put_if_absent("a/1", content)
    direct.put_if_absent("a/2", b"")
    faults.plan("GET", fault, fault)
    assert data(files, "a/1") == content
    faults.plan("GET", fault)
    assert files.names("a/") == ["a/1", "a/2"]
    assert faults.requests.count("GET") == 5


def test_content_that_was_changed_on_its_way_is_not_believed(direct: S3Files, tmp_path: Path) -> None:
    direct.put_if_absent("a", b"one")
    client, key = access().client(), f"{tmp_path.as_posix().strip('/')}/a"
    metadata = client.head_object(Bucket=BUCKET, Key=key)["Metadata"]
    client.put_object(Bucket=BUCKET, Key=key, Body=b"two", Metadata=metadata)
    hasty = S3Files(S3Bucket(access(), BUCKET, patience_s=0), tmp_path.as_posix())
    with pytest.raises(TransientError, match=r"read \S*/a has failed"):
        hasty.get("a")


@pytest.mark.parametrize("fault", [*LOST, *NOTHING_DONE])
def test_a_deletion_is_done_once_at_least(files: S3Files, faults: Faults, direct: S3Files, fault: Fault) -> None:
    direct.put_if_absent("a", b"one")
    faults.plan("DELETE", fault)
    files.delete("a")
    assert direct.get("a") is None


def test_names_come_in_pages(direct: S3Files, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"é {n:04d}" for n in range(25)]
    for name in names:
        direct.put_if_absent(name, b"")
    client = direct._bucket._client
    whole = client.list_objects_v2
    monkeypatch.setattr(client, "list_objects_v2", lambda **place: whole(MaxKeys=7, **place))
    assert direct.names() == names


def test_a_store_that_does_not_answer_is_told_with_what_was_tried(tmp_path: Path) -> None:
    files = S3Files(S3Bucket(access("http://127.0.0.1:9"), BUCKET, patience_s=0.2), "p")
    with pytest.raises(
        TransientError, match=r"s3://files/ does not answer: write p/a has failed for 0 s, at last with"
    ):
        files.put_if_absent("a", b"")


def test_who_is_not_let_in_is_told_at_once(store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"does not let us write a: NoSuchBucket"):
        S3Files(access().bucket("another")).put_if_absent("a", b"")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    without = ObjectStoreAccess(endpoint=store, region="us-east-1", path_style=True)
    with pytest.raises(ConfigurationError, match=r"(?s)does not let us read a: Unable to locate credentials.*\[s3\]"):
        S3Files(without.bucket(BUCKET)).get("a")
