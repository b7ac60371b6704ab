"""A system that is asked over HTTP, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from deltaworks import CallOutError, ConfigurationError, Http, SerializationError
from tests.support.http_system import HttpSystem, http_system


class Product(msgspec.Struct):
    title: str
    price: int


@dataclass
class Order:
    sku: str
    address: dict[str, str]


ORDER = Order("a/b ?", {"city": "Köln"})


@pytest.fixture
def server() -> Iterator[HttpSystem]:
    with http_system(lambda method, path, body: (200, b'{"title": "chair", "price": 5}')) as system:
        yield system


def test_fields_are_encoded_and_the_answer_has_its_type(server: HttpSystem) -> None:
    http = Http(url=server.url + "/p/{value.sku}/{value.address.city}?by={key}", answer=Product)

    assert http.ask("é&", ORDER, 5) == Product("chair", 5)
    assert server.asked == ["/p/a%2Fb%20%3F/K%C3%B6ln?by=%C3%A9%26"]
    assert http.question("é&", ORDER) == ["GET", server.asked[0].removeprefix("/"), None]


def test_posts_json_with_headers_that_are_made_for_each_call(server: HttpSystem) -> None:
    bodies = []

    def echo(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        bodies.append((method, json.loads(body)))
        return 200, b"hello"

    server.answer = echo
    tokens = iter(["one", "two"])
    http = Http(
        url=server.url + "/", answer=str, method="POST", body=lambda key, value: {"of": key, "value": value},
        headers=lambda: {"Authorization": next(tokens)},
    )  # fmt: skip

    assert [http.ask("k", 1, 5), http.ask("k", 2, 5)] == ["hello", "hello"]
    assert bodies == [("POST", {"of": "k", "value": 1}), ("POST", {"of": "k", "value": 2})]
    assert [each["Authorization"] for each in server.headers] == ["one", "two"]
    assert {each["Content-Type"] for each in server.headers} == {"application/json"}
    assert http.question("k", 1) != http.question("k", 2)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_system_is_to_be_asked_again(server: HttpSystem, status: int) -> None:
    server.answer = lambda *_: (status, b"secret")

    with pytest.raises(ConnectionError, match=f"GET 127.0.0.1 answers {status}$"):
        Http(url=server.url + "/?token=secret", answer=str).ask("k", "v", 5)


def test_a_refusal_is_final_and_who_is_unknown_has_no_answer(server: HttpSystem) -> None:
    http = Http(url=server.url + "/", answer=Product)

    server.answer = lambda *_: (403, b"no")
    with pytest.raises(CallOutError, match="answers 403"):
        http.ask("k", "v", 5)
    server.answer = lambda *_: (404, b"")
    assert http.ask("k", "v", 5) is None


@pytest.mark.parametrize("content", [b'{"title": 1}', b"oops", b""])
def test_an_answer_of_another_form_is_refused(server: HttpSystem, content: bytes) -> None:
    server.answer = lambda *_: (200, content)

    with pytest.raises(SerializationError):
        Http(url=server.url + "/", answer=Product).ask("k", "v", 5)


def test_an_answer_that_is_too_large_is_refused(server: HttpSystem) -> None:
    server.answer = lambda *_: (200, b"x" * 11)

    with pytest.raises(CallOutError, match="more than 10 bytes"):
        Http(url=server.url + "/", answer=str, max_bytes=10).ask("k", "v", 5)


def test_nobody_there_and_nobody_who_answers_in_time(server: HttpSystem) -> None:
    import threading

    over = threading.Event()

    def hang(*_: Any) -> tuple[int, bytes]:
        over.wait(10)
        return 200, b""

    server.answer = hang
    http = Http(url=server.url + "/", answer=str)
    with pytest.raises(OSError, match="timed out"):
        http.ask("k", "v", 0.05)
    over.set()
    server.stop()
    with pytest.raises(OSError, match="refused"):
        http.ask("k", "v", 5)


def test_a_field_that_is_not_there_is_an_error_of_the_record(server: HttpSystem) -> None:
    with pytest.raises(AttributeError):
        Http(url=server.url + "/{value.no}", answer=str).ask("k", ORDER, 5)
    with pytest.raises(CallOutError, match=r"\{key\} of the URL is None"):
        Http(url=server.url + "/{key}", answer=str).ask(None, ORDER, 5)
    assert server.asked == []


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        ({"url": "https://h/{sku}"}, "{sku} is neither key nor value"),
        ({"url": "https://h/{value.0}"}, "is neither key nor value"),
        ({"url": "ftp://h/"}, "is no URL of HTTP"),
        ({"url": "/path"}, "is no URL of HTTP"),
        ({"url": "https://{value.host}/"}, "must not choose the host"),
        ({"url": "https://h/", "body": lambda key, value: 1}, "with POST only"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigurationError, match=shown):
        Http(answer=str, **wrong)
