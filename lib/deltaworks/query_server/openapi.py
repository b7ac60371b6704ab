"""The OpenAPI document of the server, made of the table of questions."""

from __future__ import annotations

from typing import Any

import msgspec

from deltaworks.queries import StoreMetadata
from deltaworks.query_server.parameters import Parameter
from deltaworks.query_server.routes import MAX_KEYS, QUESTIONS, Question

PIPELINES = "/pipelines"
STORES = f"{PIPELINES}/{{pipeline}}/stores"
STORE = f"{STORES}/{{store}}"
STORE_CHANGES = f"{STORE}/changes"
CHANGES = f"{STORE_CHANGES}/{{key:path}}"
_FOLLOWED = {
    CHANGES: "The value of a key, and each new one: server-sent events.",
    STORE_CHANGES: "What each batch changes in a table: server-sent events.",
}
_TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "time": {"oneOf": [{"type": "integer", "format": "int64"}, {"type": "string", "format": "date-time"}]},
}


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request got no answer."""

    error: str
    hint: str | None
    """What to do."""


_FAILURES = {
    "400": "The request is wrong: a key of another type, an unknown parameter.",
    "401": "No token that the server knows.",
    "403": "The token may not read this store.",
    "404": "No such pipeline or store.",
    "409": "The stream cannot be read: it has never run, its tasks are on other machines, or it runs other code.",
    "429": "Too many requests of this client.",
    "503": "The store cannot be read now: ask again after Retry-After seconds.",
}


def document(version: str) -> dict[str, Any]:
    """The document.

    Args:
        version: of deltaworks.
    """
    questions = {
        PIPELINES: Question("", "The pipelines of which the token may read something.", (), list[str], (), print),
        STORES: Question("", "The stores that the token may read.", (), list[StoreMetadata], (), print),
        **{f"{STORE}{question.path}": question for question in QUESTIONS},
    }
    types = [question.answer for question in questions.values()]
    schemas, components = msgspec.json.schema_components([*types, Trouble], ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for (path, question), schema in zip(questions.items(), schemas, strict=False):
        content = {"application/json": {"schema": schema}}
        paths[_plain(path)] = {
            "post" if question.takes_keys else "get": _operation(path, question, content, schemas[-1])
        }
    for path, about in _FOLLOWED.items():
        events = Question("", about, (), None, (), print)
        paths[_plain(path)] = {"get": _operation(path, events, {"text/event-stream": {}}, schemas[-1])}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Stores of running streams", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(path: str, question: Question, content: dict[str, Any], trouble: dict[str, Any]) -> dict[str, Any]:
    names = [name for name in ("pipeline", "store", "key") if f"{{{name}" in path]
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    found: dict[str, Any] = {
        "summary": question.about,
        "parameters": [*in_path, *(_described(parameter) for parameter in question.parameters)],
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **{
                code: {"description": about, "content": {"application/json": {"schema": trouble}}}
                for code, about in _FAILURES.items()
            },
        },
    }
    if question.takes_keys:
        keys = {"type": "array", "maxItems": MAX_KEYS}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": keys}}}
    return found


def _described(parameter: Parameter) -> dict[str, Any]:
    schema = dict(_TYPES.get(parameter.type, {"type": "integer", "minimum": parameter.least}))
    if parameter.most is not None:
        schema["maximum"] = parameter.most
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema}


def _plain(path: str) -> str:
    return path.replace(":path", "")
