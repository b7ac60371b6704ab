"""The commands `query` and `store stats`: the stores of a stream, as of the last committed batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaworks.cli import query_server
from deltaworks.cli.console import AsJson, err, out, print_json, print_table
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.cli.listings import Queried
    from deltaworks.queries import AsOf, KeyValues, Page, SessionValues, VersionedValues, WindowedValues

_LIMIT = 20
Pipeline = Annotated[str, typer.Argument(help="Name of the pipeline.")]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command(rich_help_panel="Pipelines")(query)
    group = typer.Typer(help="The stores of a stream.", no_args_is_help=True)
    group.command()(stats)
    query_server.add_to(group)
    app.add_typer(group, name="store", rich_help_panel="Pipelines")


def query(
    pipeline: Pipeline,
    store: Annotated[str, typer.Argument(help="Name of the store; `deltaworks store stats` lists them.")],
    key: Annotated[
        str | None, typer.Option(help="A key: text, a number, bytes in hexadecimal digits, or JSON.")
    ] = None,
    from_key: Annotated[str | None, typer.Option("--from", metavar="KEY", help="The first key of a range.")] = None,
    to_key: Annotated[str | None, typer.Option("--to", metavar="KEY", help="The last key of a range.")] = None,
    prefix: Annotated[str | None, typer.Option(help="What keys begin with.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Windows that start, sessions that end, at this time or later.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="The same, at this time or earlier.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Versioned stores: the version that was valid then.")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The last key first.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows to show.")] = _LIMIT,
    after: Annotated[str | None, typer.Option(metavar="PAGE", help="Go on after a page, as it has said.")] = None,
    min_batch: Annotated[int | None, typer.Option(help="Wait until this batch is committed.")] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait and to try.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Read a store of a stream, by key, range, prefix or time, as of the last committed batch.

    Exit code 1 if a key has no value; 69 if the store cannot be read now.
    """
    from deltaworks import queries
    from deltaworks.cli import listings

    settings = Settings.from_environment()
    page: dict[str, Any] = {"limit": limit, "after": after, "min_batch": min_batch}
    times = _Times(since, until, at)
    with queries.open(pipeline, settings, patience=timedelta(seconds=wait)) as stream:
        view: Any = stream.store(store)

        def key_of(text: str | None) -> Any:
            return None if text is None else view.key_of_text(text)

        keys = _Keys(key_of(key), key_of(from_key), key_of(to_key), key_of(prefix))
        kind = view.metadata().kind
        rows, as_of, rest = _ASKED[kind](view, keys, times, page, reverse)
    found = listings.Queried.of(pipeline, store, kind, rows, as_of, rest)
    if as_json:
        print_json(found)
    else:
        _show(found)
    if key is not None and not rows:
        raise typer.Exit(1)


def stats(
    pipeline: Pipeline,
    store: Annotated[str | None, typer.Argument(help="Name of a store; default: all that can be read.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how large the stores of a stream are: entries, bytes, the oldest and the newest time."""
    from deltaworks import queries
    from deltaworks.cli import listings

    with queries.open(pipeline, Settings.from_environment()) as stream:
        names = [store] if store is not None else [each.store for each in stream.all_metadata()]
        found = [(view.metadata(), view.stats()) for view in map(stream.store, names)]
    document = listings.Stores.of(pipeline, found)
    if as_json:
        return print_json(document)
    print_table(
        f"Stores of {pipeline}",
        ("store", "kind", "key", "value", "tasks", "entries", "bytes", "oldest", "newest", "batch"),
        (
            (
                *(each.store, each.kind, each.key, each.value, each.tasks or "whole"),
                *(each.entries, each.size_bytes, each.oldest, each.newest, each.batch),
            )
            for each in document.stores
        ),
        right=("tasks", "entries", "bytes", "batch"),
    )


class _Keys:
    def __init__(self, key: Any, first: Any, last: Any, prefix: Any) -> None:
        self.key, self.first, self.last, self.prefix = key, first, last, prefix
        given = [key is not None, first is not None or last is not None, prefix is not None]
        if sum(given) > 1:
            raise ConfigurationError("--key, --from and --to, and --prefix exclude each other.", hint="give one")

    def only_one(self, what: str) -> Any:
        """The key, where nothing else can be asked for."""
        if self.key is None:
            raise ConfigurationError(f"{what} is asked by key.", hint="--key KEY")
        return self.key

    def no_prefix(self, what: str) -> None:
        if self.prefix is not None:
            raise ConfigurationError(f"{what} has no prefixes.", hint="--from and --to, or --key")


class _Times:
    def __init__(self, since: str | None, until: str | None, at: str | None) -> None:
        self.since_ms, self.until_ms, self.at_ms = map(_ms, (since, until, at))

    def refuse(self, *, span: bool, at: bool, what: str) -> None:
        if (span and (self.since_ms, self.until_ms) != (None, None)) or (at and self.at_ms is not None):
            given = "--since and --until are" if span and self.at_ms is None else "--at is"
            raise ConfigurationError(f"{given} not for {what}.", hint="leave it out")


def _ms(text: str | None) -> int | None:
    from deltaworks.lakehouse import catalog

    return None if text is None else int(catalog.time_of(text).timestamp() * 1000)


_Paging = dict[str, Any]
"""The options of a page."""
_Rows = tuple[list[dict[str, Any]], "AsOf", str | None]


def _of_keys(view: KeyValues[Any, Any], keys: _Keys, times: _Times, page: _Paging, reverse: bool) -> _Rows:
    times.refuse(span=True, at=True, what="a key-value store")
    if keys.key is not None:
        found = view.get(keys.key, min_batch=page["min_batch"])
        row = {"key": keys.key, "value": found.value, "timestamp_ms": found.timestamp_ms}
        return ([] if found.value is None else [row]), found.as_of, None
    if keys.prefix is not None:
        return _paged(view.prefix(keys.prefix, reverse=reverse, **page))
    return _paged(view.range(keys.first, keys.last, reverse=reverse, **page))


def _of_spans(
    view: WindowedValues[Any, Any] | SessionValues[Any, Any], keys: _Keys, times: _Times, page: _Paging, reverse: bool
) -> _Rows:
    what = f"a {view.metadata().kind} store"
    _forward(reverse, what)
    times.refuse(span=False, at=True, what=what)
    keys.no_prefix(what.capitalize())
    span = _span(times)
    if keys.key is not None:
        return _paged(view.fetch(keys.key, *span, **page))
    return _paged(view.fetch_all(*span, from_key=keys.first, to_key=keys.last, **page))


def _of_versions(view: VersionedValues[Any, Any], keys: _Keys, times: _Times, page: _Paging, reverse: bool) -> _Rows:
    _forward(reverse, "a versioned store")
    times.refuse(span=True, at=False, what="a versioned store")
    key = keys.only_one("A versioned store")
    found = view.get(key, times.at_ms, min_batch=page["min_batch"])
    row = {"key": key, "value": found.value, "valid_from_ms": found.valid_from_ms}
    return ([] if found.value is None else [row]), found.as_of, None


_ASKED: dict[str, Callable[..., _Rows]] = {
    "key-value": _of_keys,
    "window": _of_spans,
    "session": _of_spans,
    "versioned": _of_versions,
}
"""Kind of a store -> how it is asked."""


def _forward(reverse: bool, what: str) -> None:
    if reverse:
        raise ConfigurationError(f"--reverse is not for {what}.", hint="leave it out")


def _span(times: _Times) -> tuple[int, int]:
    from deltaworks.queries.windows import FOR_EVER_MS

    return times.since_ms or 0, FOR_EVER_MS if times.until_ms is None else times.until_ms


def _paged(page: Page[Any]) -> _Rows:
    return [{name: getattr(row, name) for name in row.__struct_fields__} for row in page.rows], page.as_of, page.next


def _show(found: Queried) -> None:
    columns = list(found.rows[0]) if found.rows else ["key", "value"]
    print_table(
        f"{found.store} of {found.pipeline}, as of batch {found.batch}, {found.at:%Y-%m-%d %H:%M:%S} UTC",
        columns,
        ([row[column] for column in columns] for row in found.rows),
        right=[column for column in columns if column.endswith("_ms")],
    )
    if not found.rows:
        out.print("nothing")
    if found.next is not None:
        err.print(f"more: --after {found.next}", markup=False)
