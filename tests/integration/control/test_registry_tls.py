"""The registry in a PostgreSQL that takes encrypted connections only: Debian's, as the package's has no TLS."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import URL

from deltaworks import clock
from deltaworks.control import registry
from deltaworks.control.model import DeployOptions
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.certificates import Authority
from deltaworks.stack.ports import free_ports
from deltaworks.stack.postgres_server import server_user
from tests.support import debian
from tests.support.live_stack import reachable

PACKAGES = ("postgresql-15", "libpq5", "libldap-2.5-0", "libsasl2-2")
PASSWORD = "s3cret-of-the-registry%"
HBA = "hostssl all all 127.0.0.1/32 scram-sha-256\n"


@dataclass(frozen=True)
class Server:
    port: int
    folder: Path

    def url(self, *, mode: str = "verify-full", ca: str = "ca") -> str:
        """The URL as an administrator hands it out."""
        query = {"sslmode": mode, "sslrootcert": str(self.folder / f"{ca}.pem")}
        url = URL.create("postgresql+psycopg", "registry", PASSWORD, "127.0.0.1", self.port, "postgres", query)
        return url.render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    root, user, (port,) = debian.unpacked(PACKAGES), server_user(), free_ports(1)
    with tempfile.TemporaryDirectory(prefix="deltaworks-tls-") as name:
        folder = reachable(Path(name))
        if user is not None:  # who cannot enter our folders
            root = Path(shutil.copytree(root, folder / "root", symlinks=True))
        programs = root / "usr/lib/postgresql/15/bin"
        authority = Authority.make(folder, "ca")
        authority.issue("server", hosts=("127.0.0.1",))
        Authority.make(folder, "stranger")
        (folder / "ca.pem").chmod(0o644)
        (folder / "password").write_text(PASSWORD)
        for file in ("server.key", "server.pem", "password"):
            _give(folder / file, user)
        data = folder / "data"
        data.mkdir(mode=0o700)
        _give(data, user)
        environment = debian.environment(root)
        initdb = [*(str(programs / "initdb"), "-D", str(data), "-U", "registry", "-A", "scram-sha-256")]
        subprocess.run(
            [*initdb, f"--pwfile={folder / 'password'}"],
            env=environment,
            user=user,
            cwd="/",
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (data / "pg_hba.conf").write_text(HBA)
        files = {"ssl_cert_file": folder / "server.pem", "ssl_key_file": folder / "server.key"}
        options = {"ssl": "on", "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", **files}
        command = [str(programs / "postgres"), "-D", str(data)]
        command += [text for key, value in options.items() for text in ("-c", f"{key}={value}")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, user=user, cwd="/", stdout=log, stderr=log)
        found = Server(port, folder)
        try:
            _await(found, process)
            yield found
        finally:
            process.terminate()
            process.wait(30)


def _give(path: Path, user: str | None) -> None:
    if user is not None:
        os.chown(path, pwd.getpwnam(user).pw_uid, -1)


def _await(server: Server, process: subprocess.Popen[bytes]) -> None:
    end = clock.ticks_s() + 60
    while True:
        try:
            psycopg.connect(server.url().replace("+psycopg", ""), connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            assert clock.ticks_s() < end and process.poll() is None, (server.folder / "log").read_text()


def settings_of(server: Server, tmp_path: Path, **options: str) -> Settings:
    return replace(own_settings(tmp_path / "home"), control_url=server.url(**options))


def test_the_registry_speaks_tls_also_to_a_database_without_an_encoding(server: Server, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path)

    registry.migrate(settings)
    found = Registry.of(settings)
    found.allocate("orders", DeployOptions(), above=0, request_id=None, requested_by="me", log="", healing=False)

    assert [pipeline.name for pipeline in found.pipelines()] == ["orders"]
    with psycopg.connect(server.url().replace("+psycopg", "")) as connection:
        rows = connection.execute(
            "SELECT s.ssl, s.version FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) "
            "WHERE a.application_name LIKE 'deltaworks %'"
        ).fetchall()
    assert rows
    assert {ssl for ssl, _ in rows} == {True}
    registry.migrate(settings)  # a second time does nothing
    registry.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"mode": "disable"}, "no encryption"), ({"ca": "stranger"}, "certificate verify failed")],
    ids=["not encrypted", "another authority"],
)
def test_a_connection_that_is_not_safe_is_refused_without_showing_the_password(
    server: Server, tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    settings = settings_of(server, tmp_path, **wrong)

    with pytest.raises(ControlUnavailableError, match=message) as refused:
        Registry.of(settings).pipelines()

    assert "s3cret" not in str(refused.value)
    registry.close()
