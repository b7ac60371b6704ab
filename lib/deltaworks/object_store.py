"""Buckets of an object store that speaks S3, and `Files` in one: conditional requests in the place of links and locks.

A request whose answer is lost may have had its effect. So each conditional write has a token of its own in the metadata
of its object, and where an answer leaves a doubt, the object says who has written it: nothing is guessed.

Requests are repeated here. botocore would hide that there was an earlier one, which a refusal may come from.

Another kind of store (GCS, Azure Blob) needs a class like `S3Bucket`: conditional put, get, head, list, copy, delete.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import boto3
import botocore.config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    IncompleteReadError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)

from deltaworks import clock
from deltaworks.config import Reference
from deltaworks.errors import ConfigurationError, TransientError
from deltaworks.files import Stored, checked_name, is_hidden
from deltaworks.object_path import About, requests

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, CopySourceTypeDef, ObjectIdentifierTypeDef

T = TypeVar("T")
_TOKEN, _SHA256 = "deltaworks-token", "deltaworks-sha256"
_KINDS = {"write": "PUT", "read": "GET", "look at": "HEAD", "list": "LIST", "copy": "COPY", "delete": "DELETE"}
"""What a call does -> the kind of its requests, by which stores charge."""
_PATIENCE_S = 60.0
_CONNECT_S, _READ_S = 5, 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
_CONNECTIONS = 32
_PART_BYTES = 64 << 20
"""Larger objects are written in parts of this size."""
_KEYS_AT_ONCE = 1_000
"""So many may be deleted by one request."""
_HADOOP = "org.apache.hadoop.fs.s3a.S3AFileSystem"
"""Reaches addresses of Hadoop that begin with `s3:`."""
_HADOOP_BUFFERS = "${java.io.tmpdir}"
"""Each JVM has a folder of its own for what it is about to send."""
_ABSENT = frozenset({"NoSuchKey", "NotFound", "404"})
_TAKEN = frozenset({"PreconditionFailed", "412"})
_AGAIN = frozenset(
    {
        "ConditionalRequestConflict",  # another conditional write of the same key is under way
        "OperationAborted",
        "RequestTimeout",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)
_AGAIN_STATUS = frozenset({408, 409, 429})
_SETTINGS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    InvalidRegionError,
    NoRegionError,
)


class Keys(NamedTuple):
    """Credentials; None: there are none, so whoever needs them looks for them."""

    access_key: str | None
    secret_key: str | None
    token: str | None


@dataclass(frozen=True, kw_only=True)
class ObjectStoreAccess:
    """How an object store is reached. What is None comes from boto3's chain: environment, profile, instance role.

    It can be sent to other processes: secrets in it are references.
    """

    endpoint: str | None = None
    """Such as `http://127.0.0.1:8333`; None: AWS."""
    region: str | None = None
    access_key: str | Reference | None = field(default=None, repr=False)
    secret_key: str | Reference | None = field(default=None, repr=False)
    path_style: bool = False
    """Whether the bucket is in the path of a URL and not in the name of the host; most stores but AWS need it."""
    verify: bool | str = True
    """A file with the certificates of trusted authorities; True: the usual ones; False: none is asked for."""

    def bucket(self, name: str) -> S3Bucket:
        """A bucket, which threads may share and forks may not."""
        return S3Bucket(self, name)

    def client(self) -> S3Client:
        """A client, which threads may share and forks may not. It never repeats a request.

        Raises:
            ConfigurationError: a secret is not there.
        """
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=_text(self.access_key),
            aws_secret_access_key=_text(self.secret_key),
            verify=self.verify,
            config=botocore.config.Config(
                retries={"total_max_attempts": 1},
                connect_timeout=_CONNECT_S,
                read_timeout=_READ_S,
                max_pool_connections=_CONNECTIONS,
                s3={"addressing_style": "path" if self.path_style else "auto"},
                request_checksum_calculation="when_required",  # stores other than AWS may not know the newer ones
                response_checksum_validation="when_required",
            ),
        )

    def keys(self) -> Keys:
        """The credentials of now, for libraries that do not know boto3's chain."""
        if self.access_key is not None:
            return Keys(_text(self.access_key), _text(self.secret_key), None)
        found = boto3.session.Session().get_credentials()
        if found is None:
            return Keys(None, None, None)
        frozen = found.get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)


class S3Bucket:
    """The requests to a bucket, see `object_path.Bucket`; each is repeated until it is answered.

    Args:
        access: how it is reached.
        name: name of a bucket that exists.
        patience_s: how long a call repeats requests that fail.
    """

    def __init__(
        self, access: ObjectStoreAccess, name: str, *, patience_s: float = _PATIENCE_S, client: S3Client | None = None
    ) -> None:
        self.access, self.name = access, name
        self._client, self._patience_s = client or access.client(), patience_s

    def __str__(self) -> str:
        return f"s3://{self.name}/"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes a client of its own."""
        return type(self), (self.access, self.name)

    def put(self, key: str, data: bytes) -> None:
        if len(data) > _PART_BYTES:
            self._put_parts(key, (data[at : at + _PART_BYTES] for at in range(0, len(data), _PART_BYTES)))
        else:
            about = {_SHA256: _digest(data)}
            self._ask(
                lambda: self._client.put_object(Bucket=self.name, Key=key, Body=data, Metadata=about), "write", key
            )

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self.write(key, data, IfNoneMatch="*")

    def write(self, key: str, data: bytes, **condition: Any) -> bool:
        """Writes an object if a condition holds, `IfNoneMatch` or `IfMatch`; returns whether it has.

        Raises:
            TransientError: the store does not answer; or an answer was lost, and since then somebody else has replaced
                or deleted the object, so that nobody knows whether it had this content in between.
            ConfigurationError: it refuses us.
        """
        token = secrets.token_hex(16)
        metadata = {_TOKEN: token, _SHA256: _digest(data)}
        doubts = 0
        """Earlier requests whose effect is unknown."""

        def put() -> bool:
            nonlocal doubts
            doubts += 1  # until there is an answer
            try:
                self._client.put_object(Bucket=self.name, Key=key, Body=data, Metadata=metadata, **condition)
            except ClientError as error:
                if _code(error) not in _TAKEN | _ABSENT:
                    raise
                doubts -= 1  # this one had none
                writer = self._writer(key)
                if writer == token:
                    return True
                if "IfNoneMatch" in condition and writer is None:
                    raise  # deleted in between: once more
                if "IfMatch" in condition and doubts:
                    raise _UnknownError from error
                return False
            return True

        return self._ask(put, "write", key)

    def upload(self, key: str, file: Path) -> None:
        with file.open("rb") as source:
            first = source.read(_PART_BYTES)
            if len(first) < _PART_BYTES:
                self.put(key, first)
            else:
                self._put_parts(key, itertools.chain([first], iter(partial(source.read, _PART_BYTES), b"")))

    def read(self, key: str) -> bytes | None:
        found = self.get(key)
        return None if found is None else found.data

    def get(self, key: str) -> Stored | None:
        """Content and version of an object; None: there is none."""

        def read() -> Stored | None:
            answer = _unless_absent(partial(self._client.get_object, Bucket=self.name, Key=key))
            if answer is None:
                return None
            data = answer["Body"].read()
            if answer["Metadata"].get(_SHA256, wanted := _digest(data)) != wanted:
                raise IncompleteReadError(actual_bytes=len(data), expected_bytes=answer["ContentLength"])
            return Stored(data, answer["ETag"])

        return self._ask(read, "read", key)

    def read_part(self, key: str, start: int, size: int) -> bytes | None:
        wanted = f"bytes={start}-{start + size - 1}"
        get = partial(self._client.get_object, Bucket=self.name, Key=key, Range=wanted)

        def read() -> bytes | None:
            try:
                answer = _unless_absent(get)
            except ClientError as error:
                if _code(error) == "InvalidRange":
                    return b""
                raise
            if answer is None:
                return None
            data: bytes = answer["Body"].read()
            if len(data) != answer["ContentLength"]:
                raise IncompleteReadError(actual_bytes=len(data), expected_bytes=answer["ContentLength"])
            return data

        return self._ask(read, "read", key)

    def about(self, key: str) -> About | None:
        look = partial(self._client.head_object, Bucket=self.name, Key=key)
        found = self._ask(partial(_unless_absent, look), "look at", key)
        return None if found is None else About(found["ContentLength"], found["LastModified"].timestamp())

    def children(self, prefix: str) -> tuple[list[str], list[str]]:
        folders: list[str] = []
        objects: list[str] = []
        for page in self._pages(prefix, Delimiter="/"):
            folders += [each["Prefix"].removeprefix(prefix).rstrip("/") for each in page.get("CommonPrefixes", [])]
            objects += [each["Key"].removeprefix(prefix) for each in page.get("Contents", [])]
        return sorted(folders), sorted(name for name in objects if name)

    def keys(self, prefix: str) -> Iterator[tuple[str, About]]:
        for page in self._pages(prefix):
            for each in page.get("Contents", []):
                yield each["Key"], About(each["Size"], each["LastModified"].timestamp())

    def copy(self, key: str, to: str) -> bool:
        source: CopySourceTypeDef = {"Bucket": self.name, "Key": key}
        copy = partial(self._client.copy_object, Bucket=self.name, Key=to, CopySource=source)
        return self._ask(partial(_unless_absent, copy), "copy", key) is not None

    def delete(self, keys: Iterable[str]) -> None:
        all_keys = list(keys)
        for at in range(0, len(all_keys), _KEYS_AT_ONCE):
            some = all_keys[at : at + _KEYS_AT_ONCE]
            if len(some) == 1:
                self._ask(partial(self._client.delete_object, Bucket=self.name, Key=some[0]), "delete", some[0])
            else:
                self._ask(partial(self._delete_all, some), "delete", f"{some[0]} and {len(some) - 1} others")

    def end_uploads(self, prefix: str) -> int:
        place: dict[str, Any] = {"Bucket": self.name, "Prefix": prefix}
        found = list[Any]()
        while True:
            page = self._ask(partial(self._client.list_multipart_uploads, **place), "list", f"uploads to {prefix}")
            found += page.get("Uploads", [])
            if not page.get("IsTruncated"):
                break
            place |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
        for each in found:
            self._ask(partial(self._end_upload, each["Key"], each["UploadId"]), "delete", each["Key"])
        return len(found)

    def keeps_versions(self) -> bool:
        told = self._ask(lambda: self._client.get_bucket_versioning(Bucket=self.name), "look at", "the versioning")
        return told.get("Status") in ("Enabled", "Suspended")

    def files(self, prefix: str) -> S3Files:
        return S3Files(self, prefix)

    def options(self) -> dict[str, str]:
        access, found = self.access, {"AWS_CONDITIONAL_PUT": "etag"}
        keys = access.keys()
        named = {
            "AWS_ENDPOINT_URL": access.endpoint,
            "AWS_REGION": access.region or self._client.meta.region_name,
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token,
        }
        if access.endpoint is not None and access.endpoint.startswith("http://"):
            found["AWS_ALLOW_HTTP"] = "true"
        if not access.path_style:
            found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(access.endpoint is None).lower()
        return found | {name: value for name, value in named.items() if value}

    def arrow(self) -> dict[str, Any]:
        access, keys = self.access, self.access.keys()
        scheme, _, host = (access.endpoint or "").rpartition("://")
        certificates = {"tls_ca_file_path": access.verify} if isinstance(access.verify, str) else {}
        return {
            "access_key": keys.access_key,
            "secret_key": keys.secret_key,
            "session_token": keys.token,
            "region": access.region or self._client.meta.region_name,
            "endpoint_override": host or None,
            "scheme": scheme or "https",
            "force_virtual_addressing": not access.path_style and access.endpoint is None,
            **certificates,
        }

    def hadoop(self) -> dict[str, str]:
        access, keys = self.access, self.access.keys()
        named = {
            "endpoint": access.endpoint,
            "endpoint.region": access.region or self._client.meta.region_name,
            "path.style.access": str(access.path_style).lower(),
            "connection.ssl.enabled": str(not (access.endpoint or "").startswith("http://")).lower(),
            "access.key": keys.access_key,
            "secret.key": keys.secret_key,
            "session.token": keys.token,
        }
        own = {f"fs.s3a.bucket.{self.name}.{name}": value for name, value in named.items() if value}
        return {"fs.s3.impl": _HADOOP, "fs.s3a.buffer.dir": _HADOOP_BUFFERS, **own}

    def _put_parts(self, key: str, parts: Iterable[bytes]) -> None:
        """Writes a large object; until all of it is there, nobody sees any of it."""
        place: Any = {"Bucket": self.name, "Key": key}
        upload = self._ask(lambda: self._client.create_multipart_upload(**place)["UploadId"], "write", key)
        try:
            written: list[CompletedPartTypeDef] = []
            for number, data in enumerate(parts, 1):
                part = partial(self._client.upload_part, **place, UploadId=upload, PartNumber=number, Body=data)
                written.append({"PartNumber": number, "ETag": self._ask(part, "write", key)["ETag"]})
            whole: Any = {"Parts": written}
            complete = partial(self._client.complete_multipart_upload, **place, UploadId=upload, MultipartUpload=whole)

            def completed() -> None:
                try:
                    complete()
                except ClientError as error:
                    if _code(error) != "NoSuchUpload":  # an earlier request has completed it, whose answer was lost
                        raise
                    found = self._client.head_object(**place)
                    if found["ETag"].strip('"').partition("-")[2] != str(len(written)):
                        raise

            self._ask(completed, "write", key)
        except BaseException:
            with suppress(ClientError, BotoCoreError):
                self._client.abort_multipart_upload(**place, UploadId=upload)
            raise

    def _end_upload(self, key: str, upload: str) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload)
        except ClientError as error:
            if _code(error) != "NoSuchUpload":
                raise

    def _pages(self, prefix: str, **more: Any) -> Iterator[Any]:
        place: dict[str, Any] = {"Bucket": self.name, "Prefix": prefix, **more}
        while True:
            page = self._ask(lambda: self._client.list_objects_v2(**place), "list", prefix or "all objects")
            yield page
            if not page["IsTruncated"]:
                return
            place["ContinuationToken"] = page["NextContinuationToken"]

    def _delete_all(self, keys: Sequence[str]) -> None:
        wanted: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in keys]
        answer = self._client.delete_objects(Bucket=self.name, Delete={"Objects": wanted, "Quiet": True})
        for failed in answer.get("Errors", []):
            status = 403 if failed.get("Code") == "AccessDenied" else 500
            told: Any = {"Error": failed, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(told, "DeleteObjects")

    def _writer(self, key: str) -> str | None:
        """The token of who has written an object, empty if it is not one of ours; None: there is no object."""
        requests["HEAD"] += 1
        answer = _unless_absent(partial(self._client.head_object, Bucket=self.name, Key=key))
        return None if answer is None else answer["Metadata"].get(_TOKEN, "")

    def _ask(self, request: Callable[[], T], verb: str, key: str) -> T:
        """Repeats a request until it has an answer."""
        end, pause_s = clock.ticks_s() + self._patience_s, _FIRST_PAUSE_S
        what = f"{verb} {key}"
        while True:
            requests[_KINDS[verb]] += 1
            try:
                return request()
            except _UnknownError:
                raise TransientError(
                    f"{self} gave no answer to an attempt to {what}, and others have changed it since: whether it was "
                    "written in between is unknown.",
                    hint="read it again, and decide by what is there",
                ) from None
            except (ClientError, BotoCoreError) as error:
                if not _may_pass(error):
                    raise self._refused(error, what) from error
                if clock.ticks_s() >= end:
                    raise TransientError(
                        f"{self} does not answer: {what} has failed for {self._patience_s:.0f} s, at last with "
                        f"{_said(error)}."
                    ) from error
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _refused(self, error: Exception, what: str) -> ConfigurationError:
        hint = "endpoint, region and bucket; the credentials of boto3's chain, or those of [s3]; what their user may do"
        return ConfigurationError(f"{self} does not let us {what}: {_said(error)}.", hint=hint)


def require_conditions(files: S3Files) -> None:
    """Tries whether a store obeys the conditions that exactly-once depends on; leaves nothing behind.

    Raises:
        ConfigurationError: it does not, or refuses us.
        TransientError: it does not answer.
    """
    name = f"probe/{secrets.token_hex(8)}"
    if not files.put_if_absent(name, b"first"):
        raise _unconditional(files, "says that an object of a random new name exists")
    try:
        stored = files.get(name)
        if stored is None or stored.data != b"first":
            raise _unconditional(files, "does not show an object that it has just taken")
        if files.put_if_absent(name, b"second"):
            raise _unconditional(files, "writes over an object although If-None-Match forbids it")
        if not files.replace(name, b"third", stored.version):
            raise _unconditional(files, "refuses a replacement of what was read")
        if files.replace(name, b"fourth", stored.version):
            raise _unconditional(files, "replaces an object although If-Match forbids it")
        if name not in files.names("probe/"):
            raise _unconditional(files, "does not list an object that it has just taken")
    finally:
        files.delete(name)


def _unconditional(files: S3Files, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"{files} {what}, so two drivers could commit the same batch there.",
        hint="AWS, SeaweedFS, MinIO and Ceph of today obey; is it a store or a proxy that ignores conditions?",
    )


class S3Files:
    """`Files` below a prefix of a bucket.

    Args:
        bucket: the bucket.
        prefix: of all names, such as `home/pipelines/orders`; empty: the whole bucket.
    """

    def __init__(self, bucket: S3Bucket, prefix: str = "") -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Files`; raises like `S3Bucket.write`."""
        return self._bucket.put_if_absent(self._key(name), data)

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """See `Files`; raises like `S3Bucket.write`."""
        return self._bucket.write(self._key(name), data, IfMatch=version)

    def get(self, name: str) -> Stored | None:
        """See `Files`; raises like `S3Bucket.write`."""
        return self._bucket.get(self._key(name))

    def names(self, prefix: str = "") -> list[str]:
        """See `Files`; raises like `S3Bucket.write`."""
        if "/" in prefix:
            checked_name(prefix.rpartition("/")[0], self)
        found = (key.removeprefix(self._prefix) for key, _ in self._bucket.keys(self._prefix + prefix))
        return sorted(name for name in found if not is_hidden(name))

    def delete(self, name: str) -> None:
        """See `Files`; raises like `S3Bucket.write`."""
        self._bucket.delete([self._key(name)])

    def __str__(self) -> str:
        return f"{self._bucket}{self._prefix}"

    def _key(self, name: str) -> str:
        return self._prefix + checked_name(name, self)


class _UnknownError(Exception):
    """Nobody knows whether a write had its effect."""


def _text(value: str | Reference | None) -> str | None:
    return value.read() if isinstance(value, Reference) else value


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _unless_absent(request: Callable[[], T]) -> T | None:
    """The answer to a request; None: there is no such object."""
    try:
        return request()
    except ClientError as error:
        if _code(error) in _ABSENT:
            return None
        raise


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ClientError):
        if _code(error) == "NoSuchBucket":
            return False
        again = _code(error) in _AGAIN | _TAKEN | _ABSENT
        return again or _status(error) >= 500 or _status(error) in _AGAIN_STATUS
    return not isinstance(error, _SETTINGS)


def _said(error: Exception) -> str:
    """An error in one line; botocore's never have a secret in them."""
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        return f"{told.get('Code') or _status(error)} ({' '.join(str(told.get('Message', '')).split())})"
    return " ".join(str(error).split()).rstrip(".")
