"""A Kafka with passwords and certificates: `orders` runs on it, errors are clear, and secrets stay where they are."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deltaworks import clock, processes
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import kafka
from deltaworks.stack.components import read_components
from deltaworks.stack.ports import free_ports
from jobs.recomputed.orders import recomputation
from tests.support.processes import running

ROOT = Path(__file__).parents[2]
USER, PASSWORD = "shop", "s3cret-of-the-broker"
SECURED = """
listeners=PLAINTEXT://127.0.0.1:$port,SECURED://127.0.0.1:{port},CONTROLLER://127.0.0.1:$controller_port
advertised.listeners=PLAINTEXT://127.0.0.1:$port,SECURED://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL
listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secured.ssl.client.auth=required
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={folder}/broker.pem
listener.name.secured.ssl.truststore.type=PEM
listener.name.secured.ssl.truststore.location={folder}/ca.pem
"""
CLIENT = """
home = "home"
bootstrap = "127.0.0.1:{port}"

[kafka]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "{user}"
"sasl.password" = {{ file = "password" }}
"ssl.ca.location" = "{folder}/{ca}.pem"
"ssl.certificate.location" = "{folder}/client.pem"
"ssl.key.location" = "{folder}/client.key"
"""


class Authority:
    """Makes certificates, each in a file with its key before it, and writes its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._signed(self._name, self._key, ca=True)
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, ca=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = certificate.public_bytes(serialization.Encoding.PEM)
        (self._folder / f"{name}.key").write_bytes(secret)
        (self._folder / f"{name}.pem").write_bytes(secret + public if name == "broker" else public)

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.Certificate:
        now = clock.utc_now()
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(address, critical=False)
            .sign(self._key, hashes.SHA256())
        )


@dataclass(frozen=True)
class Secured:
    """A broker with a listener for everybody, which only the test uses, and a secured one."""

    port: int
    certificates: Path

    def project(self, folder: Path, *, password: str = PASSWORD, ca: str = "ca") -> Project:
        """A project whose clients use the secured listener."""
        folder.mkdir()
        shutil.copytree(ROOT / "jobs", folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "password").write_text(f"{password}\n")
        text = CLIENT.format(port=self.port, user=USER, folder=self.certificates, ca=ca)
        (folder / "deltaworks.toml").write_text(text)
        return Project(folder)


@dataclass(frozen=True)
class Project:
    folder: Path

    @property
    def settings(self) -> Settings:
        return Settings.from_environment(self.environment, cwd=self.folder)

    @property
    def environment(self) -> dict[str, str]:
        ours = ("DELTAWORKS_HOME", "DELTAWORKS_BOOTSTRAP", "DELTAWORKS_PROJECT")
        return {name: value for name, value in os.environ.items() if name not in ours}

    def deltaworks(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of a command; fails if a process shows the password to others meanwhile."""
        log = self.folder / "said.log"
        with running(
            [sys.executable, "-m", "deltaworks.cli", *arguments], environment=self.environment, log=log, cwd=self.folder
        ) as command:
            deadline = clock.ticks_s() + 240
            while command.poll() is None:
                assert clock.ticks_s() < deadline, log.read_text()
                for process in processes.family(psutil.Process(command.pid)):
                    with contextlib.suppress(psutil.Error):
                        assert PASSWORD not in " ".join((*process.cmdline(), *process.environ().values()))
        said = log.read_text()
        log.unlink()
        return command.returncode, said


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder, "ca")
    authority.issue("broker")
    authority.issue("client")
    Authority(folder, "stranger")

    (port,) = free_ports(1)
    settings = own_settings(folder / "broker-home")
    infra = folder / "infra"
    shutil.copytree(settings.infra, infra)
    template = infra / "kafka" / "server.properties"
    lines = SECURED.format(port=port, folder=folder).splitlines()
    names = {line.partition("=")[0] for line in lines}
    kept = [line for line in template.read_text().splitlines() if line.partition("=")[0] not in names]
    template.write_text("\n".join([*kept, *lines]) + "\n")
    settings = replace(settings, infra=infra)
    settings.temporary.mkdir(parents=True)

    components = read_components(infra)
    kafka.prepare(settings, components, lambda _: None)
    with running(kafka.command(settings, components), environment=dict(os.environ), log=folder / "broker.log"):
        deadline = clock.ticks_s() + 60
        while not kafka.is_ready(settings):
            assert clock.ticks_s() < deadline, (folder / "broker.log").read_text()[-2_000:]
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        asked = AdminClient({"bootstrap.servers": settings.bootstrap})
        user = UserScramCredentialUpsertion(USER, credentials, PASSWORD.encode())
        for answer in asked.alter_user_scram_credentials([user]).values():
            answer.result(30)
        yield Secured(port, folder)


def test_orders_runs_exactly_and_its_secret_is_found_nowhere(secured: Secured, tmp_path: Path) -> None:
    project = secured.project(tmp_path / "project")

    produced = project.deltaworks("produce", "orders", "--records", "600")
    ran = project.deltaworks("run", "orders", "--until-caught-up")

    assert (produced[0], ran[0]) == (0, 0), produced[1] + ran[1]
    settings = project.settings
    compared = recomputation.check(settings.cluster, settings.tables, settings.pipeline("orders") / "batches")
    assert {each.name: each.differences for each in compared if not each.equal} == {}
    assert sum(each.expected for each in compared) > 600
    written = [file for file in project.folder.rglob("*") if file.is_file() and file.name != "password"]
    assert len(written) > 100
    assert [str(file) for file in written if PASSWORD.encode() in file.read_bytes()] == []
    assert PASSWORD not in produced[1] + ran[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"password": "another"}, "refuses our clients: "),
        ({"ca": "stranger"}, "refuses our clients: "),
    ],
    ids=["password", "certificate"],
)
def test_who_is_not_let_in_is_told_before_anything_changes(
    secured: Secured, tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    project = secured.project(tmp_path / "project", **wrong)

    code, said = project.deltaworks("run", "orders", "--until-caught-up")

    assert code == 78, said
    assert f"Kafka at 127.0.0.1:{secured.port} {message}" in said
    assert "another" not in said
    assert not project.settings.pipeline("orders").joinpath("checkpoint").exists()
    assert not list(project.folder.glob("home/tables/*"))
