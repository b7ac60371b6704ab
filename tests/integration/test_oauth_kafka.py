"""A Kafka that takes tokens (SASL/OAUTHBEARER): clients get theirs from an OpenID Connect server."""

from __future__ import annotations

import base64
import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from deltaworks import clock
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.stack import kafka
from deltaworks.stack.components import read_components
from deltaworks.stack.ports import free_ports
from jobs.recomputed.orders import recomputation
from tests.support.processes import running
from tests.support.projects import Project
from tests.support.secrecy import files_below, holding

ROOT = Path(__file__).parents[2]
AUDIENCE, CLIENT, SECRET = "kafka", "shop", "s3cret-of-the-client"
NAMES = {
    "here": "listener.name.oauth.oauthbearer.sasl",
    "classes": "org.apache.kafka.common.security.oauthbearer",
    "audience": AUDIENCE,
}
OAUTH = """
listeners=PLAINTEXT://127.0.0.1:$port,OAUTH://127.0.0.1:{port},CONTROLLER://127.0.0.1:$controller_port
advertised.listeners=PLAINTEXT://127.0.0.1:$port,OAUTH://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OAUTH:SASL_PLAINTEXT
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
{here}.jaas.config={classes}.OAuthBearerLoginModule required;
{here}.server.callback.handler.class={classes}.OAuthBearerValidatorCallbackHandler
{here}.oauthbearer.jwks.endpoint.url={keys}
{here}.oauthbearer.expected.audience={audience}
"""
PROJECT = """
home = "home"
bootstrap = "127.0.0.1:{port}"

[kafka]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "OAUTHBEARER"
"sasl.oauthbearer.method" = "oidc"
"sasl.oauthbearer.client.id" = "{client}"
"sasl.oauthbearer.client.secret" = {{ file = "secret" }}
"sasl.oauthbearer.token.endpoint.url" = "{tokens}"
"""


@dataclass
class Provider:
    """An OpenID Connect server: it gives tokens to whoever has the secret."""

    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))
    given: int = 0

    def keys(self) -> str:
        """The public key, as brokers fetch it."""
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return json.dumps({"keys": [{**public, "kid": "1", "alg": "RS256", "use": "sig"}]})

    def token(self) -> str:
        now = int(clock.wall_s())
        claims = {"sub": CLIENT, "aud": AUDIENCE, "iat": now, "exp": now + 300, "iss": "tests", "scope": "kafka"}
        self.given += 1
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "1"})

    def serve(self, port: int) -> ThreadingHTTPServer:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                known = _secret_of(self.headers.get("Authorization"), body) == SECRET
                answer = {"access_token": provider.token(), "token_type": "Bearer", "expires_in": 300}
                self._answer(200 if known else 401, answer if known else {"error": "invalid_client"})

            def do_GET(self) -> None:
                self._answer(200, json.loads(provider.keys()))

            def _answer(self, status: int, content: dict[str, Any]) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_: object) -> None:
                pass

        return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def _secret_of(authorization: str | None, body: dict[str, list[str]]) -> str | None:
    if authorization is not None and authorization.startswith("Basic "):
        return base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")[2]
    return next(iter(body.get("client_secret", [])), None)


@dataclass(frozen=True)
class Cluster:
    port: int
    tokens: str
    provider: Provider

    def project(self, folder: Path, secret: str = SECRET) -> Project:
        settings = PROJECT.format(port=self.port, client=CLIENT, tokens=self.tokens)
        return Project.make(folder, settings, "secret", secret)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("oauth")
    (port, server_port), provider = free_ports(2), Provider()
    address = f"http://127.0.0.1:{server_port}"
    settings = own_settings(folder / "broker-home")
    shutil.copytree(settings.infra, folder / "infra")
    added = OAUTH.format(port=port, keys=f"{address}/keys", **NAMES)
    (folder / "infra" / "kafka" / "oauth.properties").write_text(added)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={address}/keys"
    settings = replace(settings, infra=folder / "infra", broker_options=(*settings.broker_options, allowed))
    settings.temporary.mkdir(parents=True)

    server = provider.serve(server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    broker = replace(kafka.only_broker(settings), properties=("server.properties", "oauth.properties"))
    components = read_components(settings.infra)
    kafka.prepare(settings, components, broker, lambda _: None)
    command = kafka.command(settings, components, broker)
    try:
        with running(command, environment=dict(os.environ), log=folder / "broker.log"):
            deadline = clock.ticks_s() + 60
            while not kafka.is_ready(broker):
                assert clock.ticks_s() < deadline, (folder / "broker.log").read_text()[-4_000:]
            yield Cluster(port, f"{address}/token", provider)
    finally:
        server.shutdown()
        server.server_close()


def test_orders_runs_exactly_with_tokens(cluster: Cluster, tmp_path: Path) -> None:
    project = cluster.project(tmp_path / "project")

    produced = project.deltaworks("produce", "orders", "--records", "300")
    ran = project.deltaworks("run", "orders", "--until-caught-up")

    assert (produced[0], ran[0]) == (0, 0), produced[1] + ran[1]
    assert cluster.provider.given > 2
    settings = project.settings
    compared = recomputation.check(settings.cluster, settings.tables, settings.pipeline("orders") / "batches")
    assert {each.name: each.differences for each in compared if not each.equal} == {}
    written = [file for file in files_below(project.folder) if file.name != "secret"]
    assert holding(written, SECRET) == []


def test_a_client_without_a_token_is_told_before_anything_changes(cluster: Cluster, tmp_path: Path) -> None:
    project = cluster.project(tmp_path / "project", secret="another-secret")

    code, said = project.deltaworks("run", "orders", "--until-caught-up")

    assert code in (69, 78), said
    assert "another-secret" not in said
    assert project.is_untouched()
