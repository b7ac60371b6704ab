"""The object store of the stack, as a client sees it that knows nothing but `access.toml`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from botocore.exceptions import ClientError

from deltaworks import clock
from deltaworks.errors import StackError
from deltaworks.object_store import ObjectStoreAccess
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import ports, seaweedfs
from deltaworks.stack.components import read_components
from deltaworks.stack.lifecycle import Status, down, log_of, status, up
from tests.support.live_stack import listening
from tests.support.object_stores import with_free_ports

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "deltaworks"
NAME, CONTENT = "tables/orders/part-0", b"content" * 100_000
PATIENCE_S = 60


def settings_of(home: Path) -> Settings:
    """With ports that nobody has."""
    return with_free_ports(own_settings(home))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = settings_of(tmp_path_factory.mktemp("store") / "home")
    stack = up(settings, only=["s3"], tethered=True)
    assert stack.started == ["s3"]
    try:
        yield settings
    finally:
        assert down(settings) == ["s3"]


def access(settings: Settings) -> ObjectStoreAccess:
    """What the settings of a home say to whoever works there."""
    told = Settings.from_environment({"DELTAWORKS_HOME": str(settings.home)}, cwd=settings.home).values.table("s3")
    assert told.pop("path_style") == "true"
    return ObjectStoreAccess(**told, path_style=True)  # type: ignore[arg-type]  # only the keys may be references


def client(settings: Settings) -> S3Client:
    return access(settings).client()


def content(settings: Settings, name: str = NAME) -> bytes:
    return client(settings).get_object(Bucket=BUCKET, Key=name)["Body"].read()


def process(settings: Settings) -> Status:
    return next(entry for entry in status(settings) if entry.name == "s3")


def test_objects_are_written_and_read_with_the_keys_of_the_home(store: Settings) -> None:
    client(store).put_object(Bucket=BUCKET, Key=NAME, Body=CONTENT)

    assert content(store) == CONTENT
    assert [each["Name"] for each in client(store).list_buckets()["Buckets"]] == [BUCKET]


def test_a_condition_of_a_write_is_kept(store: Settings) -> None:
    """Commits to tables and leases depend on it."""
    client(store).put_object(Bucket=BUCKET, Key="once", Body=b"first", IfNoneMatch="*")

    with pytest.raises(ClientError, match="PreconditionFailed"):
        client(store).put_object(Bucket=BUCKET, Key="once", Body=b"second", IfNoneMatch="*")
    assert content(store, "once") == b"first"


def test_uploads_that_nobody_completes_can_be_ended(store: Settings) -> None:
    place: Any = {"Bucket": BUCKET, "Key": f"uploads/{NAME}"}
    upload = client(store).create_multipart_upload(**place)["UploadId"]
    client(store).upload_part(**place, UploadId=upload, PartNumber=1, Body=CONTENT)

    bucket = access(store).bucket(BUCKET)

    assert not bucket.keeps_versions()
    assert bucket.end_uploads("uploads/") == 1
    assert not client(store).list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_a_bucket_that_nobody_has_made_is_an_error(store: Settings) -> None:
    with pytest.raises(ClientError, match="NoSuchBucket"):
        client(store).put_object(Bucket="deltawroks", Key=NAME, Body=CONTENT)


@pytest.mark.parametrize(
    ("changed", "error"),
    [({"secret_key": "wrong"}, "SignatureDoesNotMatch"), ({"access_key": "wrong"}, "InvalidAccessKeyId")],
)
def test_other_keys_are_refused(store: Settings, changed: dict[str, str], error: str) -> None:
    other = replace(access(store), **changed).client()  # type: ignore[arg-type]

    for request in (
        lambda: other.put_object(Bucket=BUCKET, Key="foreign", Body=b""),
        lambda: other.get_object(Bucket=BUCKET, Key=NAME),
        lambda: other.list_objects_v2(Bucket=BUCKET),
        lambda: other.list_buckets(),
    ):
        with pytest.raises(ClientError, match=error):
            request()
    assert "foreign" not in [each["Key"] for each in client(store).list_objects_v2(Bucket=BUCKET).get("Contents", [])]


def test_it_listens_on_this_machine_only_and_nothing_shows_the_secret(store: Settings) -> None:
    pid, login = process(store).pid, seaweedfs.credentials(store)

    assert listening(pid) == {("127.0.0.1", port) for port in (store.s3_port, *seaweedfs.inner_ports(store).values())}
    assert not [word for word in psutil.Process(pid).cmdline() if login.password in word]
    assert login.password not in log_of(store, "s3").read_text()


def test_it_is_ready_for_the_keys_of_its_home_only(store: Settings, tmp_path: Path) -> None:
    software = read_components(store.infra).software["seaweedfs"]
    assert seaweedfs.answers(store, software)
    assert not seaweedfs.answers(replace(store, home=tmp_path), software)


def test_another_home_does_not_start_one_on_the_same_port(store: Settings, tmp_path: Path) -> None:
    other = replace(store, home=tmp_path / "other")

    with pytest.raises(
        StackError, match=rf"Port {store.s3_port}, where s3 should listen, is used by s3 of the project"
    ):
        up(other, only=["s3"], tethered=True)
    assert down(other) == []
    assert process(store).state == "ready"


def test_a_killed_server_comes_back_with_what_was_written(store: Settings) -> None:
    client(store).put_object(Bucket=BUCKET, Key=NAME, Body=CONTENT)
    killed = process(store)

    psutil.Process(killed.pid).kill()

    end = clock.ticks_s() + PATIENCE_S
    while (found := process(store)).state != "ready" or found.pid == killed.pid:
        assert clock.ticks_s() < end, found
        time.sleep(0.2)
    assert found.restarts == killed.restarts + 1
    assert content(store) == CONTENT


def test_down_leaves_nothing_that_runs_and_the_next_start_finds_the_objects(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home")
    up(settings, only=["s3"], tethered=True)
    client(settings).put_object(Bucket=BUCKET, Key=NAME, Body=CONTENT)
    sockets = seaweedfs._sockets(settings)
    pid = process(settings).pid
    assert all(socket.exists() for socket in sockets.values())

    assert down(settings) == ["s3"]

    assert not psutil.pid_exists(pid)
    assert all(map(ports.is_free, (settings.s3_port, *sockets)))
    assert [socket for socket in sockets.values() if socket.exists()] == []
    assert status(settings) == []

    up(settings, only=["s3"], tethered=True)
    assert content(settings) == CONTENT
    assert down(settings, delete_data=True) == ["s3"]
    assert not settings.home.exists()
