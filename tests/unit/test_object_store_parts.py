"""Large objects are written in parts, and are there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from deltaworks import object_store
from deltaworks.errors import ConfigurationError, TransientError
from deltaworks.object_store import S3Bucket
from tests.support.object_stores import BUCKET, Fault, Faults, access, moto

PART = 5 << 20
"""The least that a store takes, but for the last part."""
LARGE = bytes(range(256)) * (2 * PART // 256) + b"end"


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with moto() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_PART_BYTES", PART)


@pytest.fixture
def faults(store: str) -> Iterator[Faults]:
    with Faults(store) as faults:
        yield faults


@pytest.fixture
def bucket(faults: Faults) -> S3Bucket:
    """Through the proxy."""
    return S3Bucket(access(faults.endpoint), BUCKET, patience_s=5)


@pytest.fixture
def direct(store: str) -> S3Bucket:
    """What others see."""
    return S3Bucket(access(), BUCKET, patience_s=5)


@pytest.fixture
def key(tmp_path: Path) -> str:
    return f"{tmp_path.name}/large"


def before(patch: pytest.MonkeyPatch, bucket: S3Bucket, method: str, do: Callable[[], object]) -> None:
    """Does something before the first request of a method of the client."""
    real, left = getattr(bucket._client, method), [do]

    def called(**request: Any) -> Any:
        if left:
            left.pop()()
        return real(**request)

    patch.setattr(bucket._client, method, called)


def begun(bucket: S3Bucket, key: str) -> list[Any]:
    """The uploads that have begun and not ended."""
    return bucket._client.list_multipart_uploads(Bucket=BUCKET, Prefix=key).get("Uploads", [])


def test_a_large_object_is_written_in_parts(bucket: S3Bucket, faults: Faults, direct: S3Bucket, key: str) -> None:
    bucket.put(key, LARGE)

    assert direct.read(key) == LARGE
    assert faults.requests == ["POST", "PUT", "PUT", "PUT", "POST"]


@pytest.mark.parametrize(
    ("size", "requests"),
    [(0, ["PUT"]), (PART - 1, ["PUT"]), (PART, ["POST", "PUT", "POST"]), (PART + 1, ["POST", "PUT", "PUT", "POST"])],
)
def test_a_file_is_uploaded_whole(
    bucket: S3Bucket, faults: Faults, direct: S3Bucket, key: str, tmp_path: Path, size: int, requests: list[str]
) -> None:
    (tmp_path / "file").write_bytes(LARGE[:size])

    bucket.upload(key, tmp_path / "file")

    assert direct.read(key) == LARGE[:size]
    assert faults.requests == requests


@pytest.mark.parametrize("fault", ["answer lost", "failed after all", "slow down", "refused"])
def test_an_object_is_complete_whatever_happens_to_the_answer(
    bucket: S3Bucket, faults: Faults, direct: S3Bucket, key: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, bucket, "complete_multipart_upload", lambda: faults.plan("POST", fault))

    bucket.put(key, LARGE)

    assert faults.requests.count("POST") == 3, "one was lost"
    assert direct.read(key) == LARGE
    assert begun(direct, key) == []


@pytest.mark.parametrize("fault", ["answer lost", "failed after all", "slow down", "refused"])
def test_a_part_counts_once_whatever_happens_to_its_answer(
    bucket: S3Bucket, faults: Faults, direct: S3Bucket, key: str, fault: Fault
) -> None:
    faults.plan("PUT", fault, fault)

    bucket.put(key, LARGE)

    assert faults.requests.count("PUT") == 5
    assert direct.read(key) == LARGE


def forgotten(patch: pytest.MonkeyPatch, bucket: S3Bucket, first: Callable[..., object]) -> None:
    """A completion is asked for, gets no answer, and then the store does not know the upload any more."""
    real, answers = bucket._client.complete_multipart_upload, [first]

    def complete(**request: Any) -> None:
        if answers:
            answers.pop()(real, **request)
            raise ConnectionClosedError(endpoint_url="planted")
        raise ClientError(
            {"Error": {"Code": "NoSuchUpload", "Message": "planted"}, "ResponseMetadata": {"HTTPStatusCode": 404}},  # type: ignore[typeddict-item]
            "CompleteMultipartUpload",
        )

    patch.setattr(bucket._client, "complete_multipart_upload", complete)


def test_an_upload_that_the_store_has_completed_and_forgotten_is_complete(
    bucket: S3Bucket, direct: S3Bucket, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten(monkeypatch, bucket, lambda real, **request: real(**request))

    bucket.put(key, LARGE)

    assert direct.read(key) == LARGE


def test_an_upload_that_ended_otherwise_is_not_taken_for_what_is_there(
    bucket: S3Bucket, direct: S3Bucket, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule of the bucket has ended it, and what lies there is of an earlier upload."""
    direct.put(key, b"earlier")
    forgotten(monkeypatch, bucket, lambda real, **request: None)

    with pytest.raises(ConfigurationError, match=f"write {key}: NoSuchUpload"):
        bucket.put(key, LARGE)

    assert direct.read(key) == b"earlier"
    assert begun(direct, key) == []


def test_nobody_sees_a_part(bucket: S3Bucket, direct: S3Bucket, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def look() -> None:
        seen.extend([direct.read(key), direct.about(key), [*direct.keys(key)]])

    before(monkeypatch, bucket, "complete_multipart_upload", look)

    bucket.put(key, LARGE)

    assert seen == [None, None, []]
    assert direct.read(key) == LARGE


def test_an_upload_that_fails_leaves_nothing(
    bucket: S3Bucket, direct: S3Bucket, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        assert len(begun(direct, key)) == 1
        raise OSError("planted")

    before(monkeypatch, bucket, "complete_multipart_upload", fail)

    with pytest.raises(OSError, match="planted"):
        bucket.put(key, LARGE)

    assert direct.about(key) is None
    assert begun(direct, key) == []


def test_an_upload_whose_parts_are_not_taken_leaves_what_was_there(
    bucket: S3Bucket, faults: Faults, direct: S3Bucket, key: str
) -> None:
    direct.put(key, b"earlier")
    bucket._patience_s = 0.2
    many: list[Fault] = ["slow down"] * 50
    faults.plan("PUT", *many)

    with pytest.raises(TransientError, match=f"write {key} has failed for 0 s, at last with SlowDown"):
        bucket.put(key, LARGE)

    assert direct.read(key) == b"earlier"
    assert begun(direct, key) == []
