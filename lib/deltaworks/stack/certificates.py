"""A certificate authority of one's own, for a cluster on this machine."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deltaworks import clock
from deltaworks.files import replace_file

VALID = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class Authority:
    """Signs certificates, which it writes as PEM files into its folder."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, name: str) -> Authority:
        """A new one; `<name>.pem` is its certificate, `<name>.key` its key."""
        made = cls(folder, name, ec.generate_private_key(ec.SECP256R1()))
        made._write(f"{name}.key", _pem(made.key))
        made._write(f"{name}.pem", made._signed(name, made.key, (), VALID, ca=True))
        return made

    @classmethod
    def read(cls, folder: Path, name: str) -> Authority:
        """One that was made before."""
        key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(folder, name, key)

    def issue(
        self, name: str, *, hosts: Sequence[str] = (), valid: datetime.timedelta = VALID, together: bool = False
    ) -> None:
        """Writes a certificate, `<name>.pem`, and its key, `<name>.key`.

        Args:
            name: its common name.
            hosts: addresses of a server.
            valid: for how long from now; negative: it expired that long ago.
            together: the file of the certificate has the key, too.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(name, key, hosts, valid, ca=False)
        self._write(f"{name}.key", _pem(key))
        self._write(f"{name}.pem", _pem(key) + certificate if together else certificate)

    def _write(self, name: str, content: bytes) -> None:
        replace_file(self.folder / name, content, mode=0o600)

    def _signed(
        self, name: str, key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], valid: datetime.timedelta, *, ca: bool
    ) -> bytes:
        end = clock.utc_now() + valid
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host)) for host in hosts])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(end, clock.utc_now()) - datetime.timedelta(hours=1))
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if hosts:
            certificate = certificate.add_extension(addresses, critical=False)
        return certificate.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
