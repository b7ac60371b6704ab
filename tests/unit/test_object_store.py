"""What `S3Files` does when answers are lost, late or wrong; what it does otherwise: `test_files_contract.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltaworks import object_store
from deltaworks.config import Reference
from deltaworks.errors import ConfigurationError, TransientError
from deltaworks.object_store import ObjectStoreAccess, S3Bucket, S3Files, require_conditions
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


def begin_upload(files: S3Files, name: str) -> str:
    """Of an object in parts, which nobody completes; returns its id."""
    place: Any = {"Bucket": BUCKET, "Key": files._key(name)}
    upload = files._bucket._client.create_multipart_upload(**place)["UploadId"]
    files._bucket._client.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"part")
    return upload


def uploads(files: S3Files) -> list[str]:
    found = files._bucket._client.list_multipart_uploads(Bucket=BUCKET, Prefix=files._prefix).get("Uploads", [])
    return [each["Key"].removeprefix(files._prefix) for each in found]


def test_uploads_below_a_prefix_are_ended_whatever_happens_to_answers(
    files: S3Files, direct: S3Files, faults: Faults
) -> None:
    for name in ("mine/a", "mine/b", "mine/b", "mineral/c"):
        begin_upload(direct, name)
    faults.plan("GET", "refused", "cut off")
    faults.plan("DELETE", "answer lost", "slow down")

    assert files._bucket.end_uploads(f"{files._prefix}mine/") == 3

    assert uploads(direct) == ["mineral/c"]
    assert files._bucket.end_uploads(f"{files._prefix}mine/") == 0


def test_uploads_come_in_pages(direct: S3Files, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        begin_upload(direct, f"large-{number}")
    whole = direct._bucket._client.list_multipart_uploads

    def one(KeyMarker: str = "", UploadIdMarker: str = "", **place: Any) -> Any:
        left = [each for each in whole(**place)["Uploads"] if each["Key"] > KeyMarker]
        more = {"NextKeyMarker": left[0]["Key"], "NextUploadIdMarker": left[0]["UploadId"]}
        return {"Uploads": left[:1], "IsTruncated": len(left) > 1, **more}

    with monkeypatch.context() as pages:
        pages.setattr(direct._bucket._client, "list_multipart_uploads", one)
        assert direct._bucket.end_uploads(direct._prefix) == 3
    assert uploads(direct) == []


def test_a_bucket_says_whether_it_keeps_versions(store: str) -> None:
    client, bucket = access().client(), access().bucket("versioned")
    client.create_bucket(Bucket="versioned")
    assert not bucket.keeps_versions()
    for status in ("Enabled", "Suspended"):
        client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": status})
        assert bucket.keeps_versions(), status


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


@pytest.fixture
def bucket(store: str) -> S3Bucket:
    return S3Bucket(access(), BUCKET, patience_s=5)


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """An empty place in the bucket."""
    return f"{tmp_path.as_posix().strip('/')}/"


def in_pages(patch: pytest.MonkeyPatch, bucket: S3Bucket, keys: int) -> None:
    """Lets the store answer with so few keys at once."""
    client = bucket._client
    whole = client.list_objects_v2
    patch.setattr(client, "list_objects_v2", lambda **place: whole(MaxKeys=keys, **place))


def test_children_are_folders_and_objects_of_all_pages(
    bucket: S3Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b", "a", "c/1", "c/2", "c/d/3", "e/4", "f", "g/"):
        bucket.put(prefix + name, b"")

    for page in (1, 2, 3, 1_000):
        with monkeypatch.context() as patch:
            in_pages(patch, bucket, page)
            assert bucket.children(prefix) == (["c", "e", "g"], ["a", "b", "f"])
            assert bucket.children(f"{prefix}c/") == (["d"], ["1", "2"])
    assert bucket.children(f"{prefix}g/") == ([], [])
    assert bucket.children(f"{prefix}none/") == ([], [])


def test_keys_have_size_and_time_and_are_in_order(
    bucket: S3Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, name in enumerate(("b/2", "b/10", "a", "é")):
        bucket.put(prefix + name, b"x" * size)
    in_pages(monkeypatch, bucket, 3)

    found = dict(bucket.keys(prefix))

    assert [key.removeprefix(prefix) for key in found] == ["a", "b/10", "b/2", "é"]
    assert [about.size_bytes for about in found.values()] == [2, 1, 0, 3]
    assert list(found.values()) == [bucket.about(key) for key in found]
    assert list(bucket.keys(f"{prefix}none")) == []


def test_a_copy_has_the_content_and_says_whether_there_was_any(bucket: S3Bucket, prefix: str) -> None:
    bucket.put(f"{prefix}é %2F+a", b"one")
    bucket.put(f"{prefix}b", b"two")

    assert bucket.copy(f"{prefix}é %2F+a", f"{prefix}b")
    assert not bucket.copy(f"{prefix}none", f"{prefix}c")

    assert bucket.read(f"{prefix}b") == b"one" == bucket.read(f"{prefix}é %2F+a")
    assert bucket.about(f"{prefix}c") is None


def test_many_keys_are_deleted_by_few_requests(
    faults: Faults, bucket: S3Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_KEYS_AT_ONCE", 4)
    keys = [f"{prefix}{n:02d}" for n in range(9)]
    for key in [*keys, f"{prefix}kept"]:
        bucket.put(key, b"")

    S3Bucket(access(faults.endpoint), BUCKET, patience_s=5).delete([*keys, f"{prefix}none"])

    assert [key for key, _ in bucket.keys(prefix)] == [f"{prefix}kept"]
    assert faults.requests == ["POST", "POST", "POST"]


class Stubborn:
    """A client whose store deletes all but one of the keys at first."""

    def __init__(self, client: Any, code: str) -> None:
        self._client, self._code, self.asked = client, code, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def delete_objects(self, **request: Any) -> Any:
        self.asked += 1
        if self.asked > 1:
            return self._client.delete_objects(**request)
        first, *others = request["Delete"]["Objects"]
        self._client.delete_objects(**request | {"Delete": {"Objects": others, "Quiet": True}})
        return {"Errors": [{"Key": first["Key"], "Code": self._code, "Message": "planted"}]}


def test_a_key_that_was_not_deleted_with_the_others_is_deleted_after_all(bucket: S3Bucket, prefix: str) -> None:
    keys = [f"{prefix}{n}" for n in range(3)]
    for key in keys:
        bucket.put(key, b"")
    client = Stubborn(bucket._client, "InternalError")

    S3Bucket(access(), BUCKET, patience_s=5, client=client).delete(keys)  # type: ignore[arg-type]

    assert list(bucket.keys(prefix)) == []
    assert client.asked == 2


def test_who_may_not_delete_some_of_many_keys_is_told_at_once(bucket: S3Bucket, prefix: str) -> None:
    client = Stubborn(bucket._client, "AccessDenied")
    hasty = S3Bucket(access(), BUCKET, patience_s=5, client=client)  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match=r"does not let us delete \S*/0 and 1 others: AccessDenied \(planted"):
        hasty.delete([f"{prefix}{n}" for n in range(2)])
    assert client.asked == 1


class Careless:
    """A client whose store ignores a condition."""

    def __init__(self, client: Any, condition: str) -> None:
        self._client, self._condition = client, condition

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_object(self, **request: Any) -> Any:
        request.pop(self._condition, None)
        return self._client.put_object(**request)


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("IfNoneMatch", "writes over an object although If-None-Match"),
        ("IfMatch", "replaces an object although If-Match"),
    ],
)
def test_a_store_that_ignores_a_condition_is_refused(bucket: S3Bucket, prefix: str, condition: str, told: str) -> None:
    client = Careless(bucket._client, condition)
    careless = S3Bucket(access(), BUCKET, client=client).files(prefix)  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match=f"(?s)s3://files/\\S* {told} .*two drivers could commit the same"):
        require_conditions(careless)

    assert list(bucket.keys(prefix)) == []


def test_a_store_that_obeys_is_tried_and_left_as_it_was(bucket: S3Bucket, prefix: str) -> None:
    bucket.put(f"{prefix}orders/a", b"")

    for _ in range(2):
        require_conditions(bucket.files(prefix))

    assert [key for key, _ in bucket.keys(prefix)] == [f"{prefix}orders/a"]


def test_secrets_are_in_no_repr() -> None:
    plain = ObjectStoreAccess(endpoint="http://a", access_key="my id", secret_key="s3cret")
    assert "s3cret" not in f"{plain!r}{plain}"
    assert "my id" not in repr(plain)
    assert "http://a" in repr(plain)


def test_a_secret_is_read_where_it_is_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    referring = ObjectStoreAccess(
        region="us-east-1", access_key="me", secret_key=Reference(origin="secret_key", env="TESTS_SECRET_OF_S3")
    )
    with pytest.raises(ConfigurationError, match="TESTS_SECRET_OF_S3"):
        referring.keys()
    monkeypatch.setenv("TESTS_SECRET_OF_S3", "s3cret")
    assert referring.keys() == ("me", "s3cret", None)
