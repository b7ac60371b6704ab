"""`Files` on an object store that speaks S3: conditional requests in the place of links and locks.

A request whose answer is lost may have had its effect. So each write has a token of its own in the metadata of its
object, and where an answer leaves a doubt, the object says who has written it: nothing is guessed.

Requests are repeated here. botocore would hide that there was an earlier one, which a refusal may come from.

Another kind of store (GCS, Azure Blob) needs a class like `S3Files`, which makes five kinds of requests: a conditional
put, a get, a head, a list and a delete.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

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
from deltaworks.errors import ConfigurationError, TransientError
from deltaworks.files import Stored, checked_name, is_hidden

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")
_TOKEN, _SHA256 = "deltaworks-token", "deltaworks-sha256"
_PATIENCE_S = 60.0
_CONNECT_S, _READ_S = 5, 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
_CONNECTIONS = 32
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


@dataclass(frozen=True, kw_only=True)
class ObjectStoreAccess:
    """How an object store is reached. What is None comes from boto3's chain: environment, profile, instance role."""

    endpoint: str | None = None
    """Such as `http://127.0.0.1:8333`; None: AWS."""
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    path_style: bool = False
    """Whether the bucket is in the path of a URL and not in the name of the host; most stores but AWS need it."""
    verify: bool | str = True
    """A file with the certificates of trusted authorities; True: the usual ones; False: none is asked for."""

    def client(self) -> S3Client:
        """A client, which threads may share and forks may not. It never repeats a request."""
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
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


class S3Files:
    """`Files` below a prefix of a bucket.

    Args:
        client: from `ObjectStoreAccess.client`.
        bucket: name of a bucket that exists.
        prefix: of all names, such as `home/pipelines/orders`; empty: the whole bucket.
        patience_s: how long a call repeats requests that fail.
    """

    def __init__(self, client: S3Client, bucket: str, prefix: str = "", *, patience_s: float = _PATIENCE_S) -> None:
        self._client, self._bucket = client, bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._patience_s = patience_s

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Files`.

        Raises:
            TransientError: the store does not answer.
            ConfigurationError: it refuses us.
        """
        return self._write(name, data, IfNoneMatch="*")

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """See `Files`.

        Raises:
            TransientError: the store does not answer; or an answer was lost, and since then somebody else has replaced
                or deleted the file, so that nobody knows whether it had this content in between.
            ConfigurationError: it refuses us.
        """
        return self._write(name, data, IfMatch=version)

    def get(self, name: str) -> Stored | None:
        """See `Files`; raises like `put_if_absent`."""
        key = self._key(name)

        def read() -> Stored | None:
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if _code(error) in _ABSENT:
                    return None
                raise
            data = answer["Body"].read()
            if answer["Metadata"].get(_SHA256, wanted := _digest(data)) != wanted:
                raise IncompleteReadError(actual_bytes=len(data), expected_bytes=answer["ContentLength"])
            return Stored(data, answer["ETag"])

        return self._persist(read, f"read {name}")

    def names(self, prefix: str = "") -> list[str]:
        """See `Files`; raises like `put_if_absent`."""
        if "/" in prefix:
            checked_name(prefix.rpartition("/")[0], self)
        found: list[str] = []
        place: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        while True:
            page = self._persist(lambda: self._client.list_objects_v2(**place), f"list {prefix or 'all files'}")
            found += [each["Key"].removeprefix(self._prefix) for each in page.get("Contents", [])]
            if not page["IsTruncated"]:
                return sorted(name for name in found if not is_hidden(name))
            place["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, name: str) -> None:
        """See `Files`; raises like `put_if_absent`."""
        key = self._key(name)
        self._persist(lambda: self._client.delete_object(Bucket=self._bucket, Key=key), f"delete {name}")

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def _write(self, name: str, data: bytes, **condition: Any) -> bool:
        key, token = self._key(name), secrets.token_hex(16)
        metadata = {_TOKEN: token, _SHA256: _digest(data)}
        doubts = 0
        """Earlier requests whose effect is unknown."""

        def put() -> bool:
            nonlocal doubts
            doubts += 1  # until there is an answer
            try:
                self._client.put_object(Bucket=self._bucket, Key=key, Body=data, Metadata=metadata, **condition)
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

        return self._persist(put, f"write {name}")

    def _writer(self, key: str) -> str | None:
        """The token of who has written an object, empty if it is not one of ours; None: there is no object."""
        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if _code(error) in _ABSENT:
                return None
            raise
        return answer["Metadata"].get(_TOKEN, "")

    def _persist(self, request: Callable[[], T], what: str) -> T:
        """Repeats a request until it has an answer."""
        end, pause_s = clock.ticks_s() + self._patience_s, _FIRST_PAUSE_S
        while True:
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

    def _key(self, name: str) -> str:
        return self._prefix + checked_name(name, self)


class _UnknownError(Exception):
    """Nobody knows whether a write had its effect."""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


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
