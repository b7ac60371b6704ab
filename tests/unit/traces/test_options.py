"""Where traces go, as `deltaworks.toml` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.traces import options as traces_options
from deltaworks.traces.options import TraceOptions, require_usable


def options(folder: Path, text: str, pipeline: str = "orders", **variables: str) -> TraceOptions | None:
    (folder / "deltaworks.toml").write_text(text)
    settings = Settings.from_environment({"DELTAWORKS_PROJECT": str(folder), **variables})
    return TraceOptions.of(settings, pipeline)


def test_there_are_none_unless_somebody_says_where_they_go(tmp_path: Path) -> None:
    assert options(tmp_path, "cores = 2") is None
    assert options(tmp_path, "[traces]\nsample_ratio = 0.5") is None
    everywhere = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert options(tmp_path, "cores = 2", **everywhere) is None, "that of Airflow's own traces says nothing of streams"


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    found = options(tmp_path, '[traces]\nendpoint = "http://collector:4318"')

    assert found == TraceOptions(
        endpoint="http://collector:4318/v1/traces", sample_ratio=1.0, headers={}, timeout_s=10, ca_file=None
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://tempo.example.com/otlp", "https://tempo.example.com/otlp/v1/traces"),
        ("https://tempo.example.com/otlp/v1/traces", "https://tempo.example.com/otlp/v1/traces"),
    ],
)
def test_the_address_may_be_that_of_all_signals(tmp_path: Path, said: str, meant: str) -> None:
    found = options(tmp_path, f'[traces]\nendpoint = "{said}"')
    assert found is not None and found.endpoint == meant


def test_a_pipeline_may_have_others_and_secrets_are_read_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://u:secret@collector.example.com")
    (tmp_path / "token").write_text("authorization=Bearer a=b, X-Scope-OrgID=7\n")
    text = """
[traces]
endpoint = { env = "OTEL_EXPORTER_OTLP_ENDPOINT" }
headers = { file = "token" }
ca_file = "certificates/ca.pem"
sample_ratio = 0.25
timeout_seconds = 3

[pipelines.payments.traces]
sample_ratio = 1
"""
    found = options(tmp_path, text)
    assert found == TraceOptions(
        endpoint="https://u:secret@collector.example.com/v1/traces",
        sample_ratio=0.25,
        headers={"authorization": "Bearer a=b", "x-scope-orgid": "7"},
        timeout_s=3,
        ca_file=str(tmp_path / "certificates" / "ca.pem"),
    )
    assert found.host == "collector.example.com"
    assert "Bearer" not in repr(found)
    other = options(tmp_path, text, "payments")
    assert other is not None and (other.sample_ratio, other.timeout_s) == (1.0, 3)


def test_headers_are_percent_encoded_as_in_the_variable_of_opentelemetry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H", "Authorization=Basic%20a%3Db%2Cc+100%25, x%2Dorg = 7%,plain=a=b c")
    found = options(tmp_path, '[traces]\nendpoint = "http://h"\nheaders = { env = "H" }')

    assert found is not None
    assert found.headers == {"authorization": "Basic a=b,c+100%", "x-org": "7%", "plain": "a=b c"}


def test_a_driver_gets_the_variables_that_they_refer_to(tmp_path: Path) -> None:
    (tmp_path / "deltaworks.toml").write_text('[traces]\nendpoint = { env = "OTEL_EXPORTER_OTLP_ENDPOINT" }\n')
    address = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    settings = Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path), **address})

    assert settings.environment().items() >= address.items()


def test_tasks_of_other_machines_do_not_get_the_secret(tmp_path: Path) -> None:
    text = '[traces]\nendpoint = "http://collector:4318"\nheaders = { env = "NOT_SET" }\n'
    (tmp_path / "deltaworks.toml").write_text(text)
    settings = Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path)})

    assert settings.traces_of("orders").keys() == {"endpoint", "headers"}
    assert settings.without_references().traces_of("orders") == {}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('endpoint = "collector:4318"', "expected http:// or https:// and a host"),
        ('endpoint = "http://user:Bearer@collector"', "has a password"),
        ("endpoint = 4318", "expected http:// or https:// and a host"),
        ('headers = "authorization=Bearer secret"', "is a secret"),
        ("sample_ratio = 1.5", "is 1.5; expected a share from 0 to 1"),
        ("sample_ratio = true", "is True; expected a share from 0 to 1"),
        ('sample_ratio = "all"', "is 'all'; expected a share from 0 to 1"),
        ("sample_ratio = nan", "is nan; expected a share from 0 to 1"),
        ("timeout_seconds = 0", "is 0; expected seconds from 1 to 60"),
        ("timeout_seconds = true", "is True; expected seconds from 1 to 60"),
        ("ca_file = 1", "is 1; expected the path of a file"),
        ('ca_file = { env = "CA" }', "expected the path of a file"),
        ('protocol = "grpc"', "settings of \\[traces\\]: endpoint, headers, ca_file, sample_ratio, timeout_seconds"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as raised:
        options(
            tmp_path,
            f'[traces]\nendpoint = "http://127.0.0.1:4318"\n{line}'.replace(
                'endpoint = "http://127.0.0.1:4318"\nendpoint', "endpoint"
            ),
        )

    assert f"traces.{line.partition(' ')[0]} in {tmp_path / 'deltaworks.toml'}" in str(raised.value)
    assert "Bearer" not in str(raised.value)


@pytest.mark.parametrize(
    ("table", "variables", "problem"),
    [
        ('endpoint = { env = "THERE" }', {"THERE": "u:pass-word@nowhere"}, "is no http:// or https:// address"),
        ('endpoint = { env = "THERE" }', {}, "refers to the variable THERE, which is not set"),
        ('endpoint = "http://h"\nheaders = { env = "H" }', {"H": "pass-word"}, "has no headers in it"),
        *(
            ('endpoint = { env = "THERE" }', {"THERE": address}, problem)
            for address, problem in (
                ("http://", "it has no host"),
                ("http://somebody:pass-word@:4318", "it has no host"),
                ("http://somebody:pass-word", "its host or port cannot be read"),
                ("http://h:65536", "its host or port cannot be read"),
                ("http://h:0", "the port 0"),
                ("http://[::1", "its host or port cannot be read"),
                ("http://somebody:1/pass-word@h", "it has an @ behind its host"),
                ("http://somebody:1?pass-word@h", "it has an @ behind its host"),
                ("http://somebody:1#pass-word@h", "it has an @ behind its host"),
                ("http://somebody:pass-word\\@h", "backslashes"),
                ("http://somebody:pass-word @h", "blanks"),
                ("http://h/a\nb", "blanks"),
                ("http://somebody:p@pass-word@h", "percent-encoded"),
                ("http://h?token=pass-word", "a query or a fragment"),
                ("http://h/x#pass-word", "a query or a fragment"),
            )
        ),
        *(
            ('endpoint = "http://h"\nheaders = { env = "H" }', {"H": headers}, problem)
            for headers, problem in (
                ("x-org=1,authorization=Bearer pass-word\nx", "value of header 2 of .* has a line break"),
                ("authorization=Bearer pass-word\u00e4", "value of header 1 of .* character that headers do not"),
                ("authorization=Bearer pass-word\x7f.", "value of header 1 of .* character that headers do not"),
                ("authorization=Basic x,(pass-word)=", "name of header 2 of .* is none of HTTP"),
                ("authorization=Bearer pass-word%0D%0Ax: y", "value of header 1 of .* has a line break"),
                ("authorization=Bearer pass-word%E4", "value of header 1 of .* character that headers do not"),
                ("pass%20word=1", "name of header 1 of .* is none of HTTP"),
                ("pass word=1", "name of header 1 of .* is none of HTTP"),
                ("=pass-word", "name of header 1 of .* is none of HTTP"),
            )
        ),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, variables: dict[str, str], problem: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=problem) as raised:
        options(tmp_path, f"[traces]\n{table}")

    assert "pass-word" not in str(raised.value) and "somebody" not in str(raised.value)


def test_what_the_log_says_has_no_secret() -> None:
    options = TraceOptions(
        endpoint="https://me:pass%40word@h:4318/v1/traces",
        headers={"authorization": "Bearer to'ken\\", "x-org": "7", "x-empty": ""},
    )
    said = "code: 507, of me: pass%40word, pass@word, Bearer to'ken\\, " + repr("to'ken\\") + ", measured, org 7"

    assert "pass-word" not in options.hide(
        "Failed to parse: http://so:pass-word@proxy:x", "http://so:pass-word@proxy:x"
    )
    assert options.hide(said) == "code: 507, of ***: ***, ***, ***, " + '"***"' + ", measured, org ***"


def test_a_deployment_is_refused_if_its_driver_could_not_send_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def require(text: str, **variables: str) -> None:
        (tmp_path / "deltaworks.toml").write_text(text)
        require_usable(Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path), **variables}), "orders")

    there, not_there = '[traces]\nendpoint = "http://h"', '[traces]\nendpoint = { env = "NOWHERE" }'
    require(there)
    require("cores = 2")
    with pytest.raises(ConfigurationError, match="NOWHERE, which is not set"):
        require(not_there)
    require(not_there, DELTAWORKS_SUPERVISOR="elsewhere")
    require(there.replace("[traces]", "[pipelines.payments.traces]"))
    monkeypatch.setattr(traces_options, "_NEEDED", ("opentelemetry.nowhere.at_all",))
    require("cores = 2")
    with pytest.raises(ConfigurationError, match="is not installed, which \\[traces\\] of 'orders' needs") as raised:
        require(there)
    assert raised.value.hint == "pip install 'deltaworks[traces]'"


def test_what_a_driver_imports_is_what_a_deployment_looks_for() -> None:
    assert all(map(traces_options._is_there, traces_options._NEEDED))
    assert not traces_options._is_there("opentelemetry.nowhere.at_all")
