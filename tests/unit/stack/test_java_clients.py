"""What clients in Java are told of a cluster, from the settings of librdkafka."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from deltaworks.config import Cluster, Reference
from deltaworks.errors import ConfigurationError
from deltaworks.stack.java_clients import access, escaped

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def of(folder: Path, **settings: str | Reference) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return access(Cluster(bootstrap="kafka:9092", settings=named), keystore=folder / "kafka.pem")


def test_a_cluster_that_asks_for_nothing_needs_nothing(tmp_path: Path) -> None:
    assert of(tmp_path, compression_type="zstd", client_id="shop") == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["sasl_mechanism", "sasl_mechanisms"])
def test_a_password_is_in_the_configuration_of_the_login(tmp_path: Path, name: str) -> None:
    (tmp_path / "password").write_text('a"b\\c\n')
    password = Reference(origin="here", file=str(tmp_path / "password"))

    found = of(tmp_path, security_protocol="sasl_ssl", sasl_username="me", sasl_password=password, **{name: "PLAIN"})

    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="me" password="a\\"b\\\\c";',
    }
    assert of(tmp_path, sasl_mechanism="SCRAM-SHA-256")["sasl.jaas.config"].startswith(f"{SCRAM} required ")


def test_certificate_and_key_are_in_one_file_that_only_its_user_can_read(tmp_path: Path) -> None:
    (tmp_path / "me.pem").write_text("CERTIFICATE\n")
    (tmp_path / "me.key").write_text("KEY\n")

    found = of(
        tmp_path,
        ssl_ca_location="/ca.pem",
        ssl_certificate_location=str(tmp_path / "me.pem"),
        ssl_key_location=str(tmp_path / "me.key"),
    )

    keystore = tmp_path / "kafka.pem"
    assert found == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
    }
    assert keystore.read_text() == "KEY\nCERTIFICATE\n"
    assert stat.S_IMODE(keystore.stat().st_mode) == 0o600


def test_what_holds_a_certificate_itself_is_taken_as_it_is(tmp_path: Path) -> None:
    found = of(tmp_path, ssl_ca_pem="C\nA", ssl_certificate_pem="CERTIFICATE", ssl_key_pem="KEY")

    assert found["ssl.truststore.certificates"] == "C\nA"
    assert (tmp_path / "kafka.pem").read_text() == "KEY\nCERTIFICATE\n"


@pytest.mark.parametrize(("given", "expected"), [("none", ""), ("https", "https")])
def test_whether_certificates_name_the_host_is_said_in_javas_words(tmp_path: Path, given: str, expected: str) -> None:
    name = "ssl.endpoint.identification.algorithm"

    assert of(tmp_path, ssl_endpoint_identification_algorithm=given) == {name: expected}


def test_what_has_no_counterpart_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be told ssl\.key\.password, ssl\.keystore\.location of"):
        of(tmp_path, ssl_keystore_location="/me.p12", ssl_key_password="s3cret")
    with pytest.raises(ConfigurationError, match="how to log in with OAUTHBEARER"):
        of(tmp_path, sasl_mechanism="oauthbearer")
    with pytest.raises(ConfigurationError, match=r"ssl\.key\.location of \[kafka\] cannot be read"):
        of(tmp_path, ssl_certificate_pem="C", ssl_key_location=str(tmp_path / "missing"))
    assert not (tmp_path / "kafka.pem").exists()


def test_values_keep_their_lines_backslashes_and_first_spaces() -> None:
    assert escaped(" a\\b\nc") == "\\ a\\\\b\\nc"
