"""The OpenAPI document of the server, made of the table of questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from deltaworks.queries import StoreMetadata
from deltaworks.query_server.parameters import Parameter
from deltaworks.query_server.routes import MAX_KEYS, QUESTIONS

PIPELINES = "/pipelines"
STORES = f"{PIPELINES}/{{pipeline}}/stores"
STORE = f"{STORES}/{{store}}"
STORE_CHANGES = f"{STORE}/changes"
CHANGES = f"{STORE_CHANGES}/{{key:path}}"
_LISTS: dict[str, tuple[str, Any]] = {
    PIPELINES: ("The pipelines of which the token may read something.", list[str]),
    STORES: ("The stores that the token may read.", list[StoreMetadata]),
}
_FOLLOWED = {
    CHANGES: "The value of a key, and each new one; of a key with windows or sessions, what each batch changes in "
    "them: server-sent events.",
    STORE_CHANGES: "What each batch changes in a store: server-sent events.",
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
    types = [answer for _, answer in _LISTS.values()] + [question.answer for question in QUESTIONS]
    schemas, components = msgspec.json.schema_components([*types, Trouble], ref_template="#/components/schemas/{name}")
    answers, paths = iter(schemas), {}
    for path, (about, _) in _LISTS.items():
        paths[path] = {"get": _operation(path, about, (), _json(next(answers)), schemas[-1])}
    for question in QUESTIONS:
        path = f"{STORE}{question.path}"
        operation = _operation(path, question.about, question.parameters, _json(next(answers)), schemas[-1])
        if question.takes_keys:
            operation["requestBody"] = {"required": True, "content": _json({"type": "array", "maxItems": MAX_KEYS})}
        paths[_plain(path)] = {"post" if question.takes_keys else "get": operation}
    for path, about in _FOLLOWED.items():
        paths[_plain(path)] = {"get": _operation(path, about, (), {"text/event-stream": {}}, schemas[-1])}
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


def _operation(
    path: str, about: str, parameters: Sequence[Parameter], content: dict[str, Any], trouble: dict[str, Any]
) -> dict[str, Any]:
    names = [name for name in ("pipeline", "store", "key") if f"{{{name}" in path]
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    return {
        "summary": about,
        "parameters": [*in_path, *map(_described, parameters)],
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **{code: {"description": why, "content": _json(trouble)} for code, why in _FAILURES.items()},
        },
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _described(parameter: Parameter) -> dict[str, Any]:
    schema = dict(_TYPES.get(parameter.type, {"type": "integer", "minimum": parameter.least}))
    if parameter.most is not None:
        schema["maximum"] = parameter.most
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema}


def _plain(path: str) -> str:
    return path.replace(":path", "")
