"""`to_search`, `to_jdbc` and `to_files`, of streams and of tables: their settings, checked at the call.

They have their own class because streams and tables share them; users find them on `KStream` and `KTable`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from deltaworks.dsl.graph import Graph, call_site
from deltaworks.dsl.mistakes import named
from deltaworks.dsl.point import Known, Point, Unknown
from deltaworks.dsl.tables import KeyColumns, ValueColumn, rows_of
from deltaworks.errors import TableError
from deltaworks.topology.external import DATE, FileFolder, Given, JdbcTable, OnPublish, SearchIndex
from deltaworks.topology.nodes import CustomSink, DeltaSink
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.table_columns import author_columns

Setting: TypeAlias = str | Mapping[str, str]
"""A text, or where it is: `{"env": "NAME"}`, `{"file": "/path"}`."""
Secret: TypeAlias = Mapping[str, str]
"""Where a secret is: `{"env": "NAME"}`, `{"file": "/path"}`."""

_REFERENCE = '{"env": "NAME"} or {"file": "/path"}'
_PASSWORD = re.compile(r"//[^/@\s]*:[^/@\s]*@")
_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPRESSIONS = {"parquet": ("snappy", "zstd", "gzip", "none"), "jsonl": ("none", "gzip")}
"""Format -> its compressions, the default first."""
_STORAGE = {"endpoint", "region", "access_key", "secret_key", "path_style", "ca_file"}


class ExternalSinks:
    """Sinks for systems without a connector."""

    if TYPE_CHECKING:
        at: Point

    def to_search(
        self,
        index: str,
        *,
        url: Setting | Sequence[Setting],
        username: Setting | None = None,
        password: Secret | None = None,
        api_key: Secret | None = None,
        ca_file: Setting | None = None,
        date_format: str = "%Y.%m.%d",
        key_field: str | None = None,
        timestamp_field: str | None = None,
        batch_documents: int = 1_000,
        batch_bytes: int = 5_000_000,
        timeout: timedelta = timedelta(seconds=30),
        patience: timedelta = timedelta(minutes=2),
        on_publish: OnPublish | None = None,
        name: str | None = None,
    ) -> None:
        """Keeps a document per key in an index of Elasticsearch or OpenSearch, exactly once.

        The document is the newest value; a value of None deletes it. The id is the key: a text as it is, another key as
        JSON. A document that the index refuses is a production error: with `on_error="continue"` it becomes a dead
        letter.

        Args:
            index: its name; `{date}` in it stands for the date of the record in UTC, of a window for that of its start.
                A key that comes on several dates has a document on each.
            url: of a server, such as `https://search.example.com:9200`, or of several.
            username: of the user who may write.
            password: where the user's password is: `{"env": "NAME"}` or `{"file": "/path"}`, followed where tasks run.
            api_key: where a key is, instead of user and password.
            ca_file: certificates of the authorities that are trusted; None: the usual ones.
            date_format: how the date is written.
            key_field: field of the document for the key; None: only its id has it.
            timestamp_field: field for the record's timestamp; None: it is left out.
            batch_documents: documents of a request at most.
            batch_bytes: bytes of a request at most; a larger document has a request of its own.
            timeout: of a request.
            patience: how long a batch is sent again while the servers do not take it; then it fails, and runs again.
            on_publish: what becomes of the index when a replay is published. `correct`: documents follow the rows of
                the Delta table that the same table is written to, with `to_delta`. `stale`: it is marked. None: the
                first, if that is possible.
            name: name of the sink; None: `search-<index>`. Two sinks of a topology need two names.

        Source: none; in Kafka Streams a connector reads the output topic.
        """
        where, operator, graph = call_site(), f"to_search({index!r})", self.at.graph
        if not isinstance(index, str) or not _INDEX.fullmatch(index.replace(DATE, "0")):
            hint = 'such as to_search("orders-{date}", ...): small letters, digits, ".", "_" and "-"'
            graph.refuse(f"{operator}: an index cannot have this name.", where, hint)
        if DATE in index and self._kind() is TableKind.CHANGELOG:
            hint = "leave {date} out, or to_stream().to_search(...), if a key may have a document on each of its dates"
            graph.refuse(
                f"{operator}: a row whose next update is of another date would leave its old document behind.",
                where,
                hint,
            )
        given = _Settings(graph, operator, where)
        urls = [url] if isinstance(url, str | Mapping) else list(url)
        if not urls:
            graph.refuse(f"{operator}: url= is empty.", where, 'url="https://search.example.com:9200"')
        if api_key is not None and (username is not None or password is not None):
            graph.report(f"{operator}: it has both a user and api_key=.", where, "give one of them")
        if (username is None) is not (password is None):
            graph.report(f"{operator}: username= and password= belong together.", where)
        for argument, number in (("batch_documents", batch_documents), ("batch_bytes", batch_bytes)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                graph.report(f"{operator}: {argument}= is {number!r}.", where, "a whole number above 0")
        sink = SearchIndex(
            index=index,
            date_format=date_format,
            urls=tuple(given.address("url", each, ("http://", "https://")) for each in urls),
            username=given.setting("username", username),
            password=given.secret("password", password),
            api_key=given.secret("api_key", api_key),
            ca_file=given.setting("ca_file", ca_file),
            key_field=key_field,
            timestamp_field=timestamp_field,
            batch_documents=batch_documents,
            batch_bytes=batch_bytes,
            timeout_s=given.seconds("timeout", timeout),
            patience_s=given.seconds("patience", patience),
            on_publish=given.on_publish(on_publish),
        )
        self._add(sink, name or f"search-{index}", where, needs_key=True)

    def to_jdbc(
        self,
        table: str,
        *,
        url: Setting,
        username: Setting | None = None,
        password: Secret | None = None,
        schema: str | None = None,
        key: KeyColumns = None,
        value: ValueColumn = None,
        timestamp_column: str | None = None,
        mode: Literal["upsert", "append"] = "upsert",
        create_table: bool = False,
        on_publish: OnPublish | None = None,
        name: str | None = None,
    ) -> None:
        """Keeps a row per key in a table of PostgreSQL, MariaDB or MySQL, or appends each record, exactly once.

        Columns are named and typed as those of `to_delta`; a windowed table has `window_start` and `window_end`, too.
        What was committed is in the table `deltaworks_sink_progress` beside it. A table that does not fit is refused.

        Args:
            table: its name.
            url: such as `postgresql://db.example.com:5432/shop`, `mariadb://...` or `mysql://...`, without a password.
            username: of the user who may write.
            password: where the user's password is: `{"env": "NAME"}` or `{"file": "/path"}`, followed where tasks run.
            schema: of the table; None: that of the user, in MySQL the database of the address.
            key: names of the key's columns, as in `to_delta`; they have to be the primary key or unique for `upsert`.
            value: name of the value's column, if the value has no fields.
            timestamp_column: column for the record's timestamp; None: it is left out.
            mode: `upsert`: the newest value of each key, and None deletes the row. `append`: a row per record.
            create_table: whether the table is made if it is not there.
            on_publish: what becomes of the table when a replay is published; as in `to_search`.
            name: name of the sink; None: `jdbc-<table>`. What is committed is known under it, so keep it.

        Source: none; in Kafka Streams a connector reads the output topic.
        """
        where, operator, graph = call_site(), f"to_jdbc({table!r})", self.at.graph
        if not isinstance(table, str) or not table:
            graph.refuse(f"to_jdbc needs the name of a table, but got {named(table)}.", where)
        if mode not in ("upsert", "append"):
            graph.refuse(f"{operator}: mode= is {mode!r}.", where, "'upsert' or 'append'")
        given = _Settings(graph, operator, where)
        rows = self._rows(table, key, value, operator, where)
        columns = author_columns(rows)
        taken = {column.name for column in (*columns.key, *columns.value)}
        if timestamp_column in taken:
            graph.refuse(f"{operator}: timestamp_column='{timestamp_column}' is a column already.", where)
        if (username is None) is not (password is None):
            graph.report(f"{operator}: username= and password= belong together.", where)
        sink = JdbcTable(
            table=table,
            schema=schema,
            url=given.address("url", url, ("postgresql://", "mysql://", "mariadb://")),
            username=given.setting("username", username),
            password=given.secret("password", password),
            mode=mode,
            create_table=create_table,
            timestamp_column=timestamp_column,
            rows=rows,
            on_publish=given.on_publish(on_publish),
        )
        self._add(sink, name or f"jdbc-{table}", where, needs_key=mode == "upsert", rows=rows)

    def to_files(
        self,
        url: Setting,
        *,
        name: str,
        format: Literal["parquet", "jsonl"] = "parquet",
        compression: Literal["none", "gzip", "snappy", "zstd"] | None = None,
        partition_by: str | Sequence[str] = (),
        key: KeyColumns = None,
        value: ValueColumn = None,
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes each record into files of a folder, one per task and micro-batch, exactly once.

        Columns are named and typed as those of `to_delta`, then `timestamp`. Files of a table have each update, with
        `op` (`upsert` or `delete`). A file is never changed.

        Args:
            url: of the folder: a path, `s3://bucket/folder`, or `webhdfs://user@host:9870/folder` (with fsspec).
            name: name of the sink. Files are named after it, so keep it when the topology changes.
            format: Parquet, or lines of JSON.
            compression: of Parquet `snappy`, `zstd`, `gzip` or `none`, of lines `none` or `gzip`; None: the first.
            partition_by: columns that become folders instead, `city=Utrecht/`.
            key: names of the key's columns, as in `to_delta`.
            value: name of the value's column, if the value has no fields.
            storage: how an object store is reached: `endpoint`, `region`, `access_key`, `secret_key` (both
                `{"env": "NAME"}` or `{"file": "/path"}`), `path_style`, `ca_file`; None: as `[s3]` of the project says.

        Source: none; in Kafka Streams a connector reads the output topic.
        """
        where, operator, graph = call_site(), f"to_files({name!r})", self.at.graph
        if format not in _COMPRESSIONS:
            graph.refuse(f"{operator}: format= is {format!r}.", where, "'parquet' or 'jsonl'")
        chosen: Any = compression or _COMPRESSIONS[format][0]
        if chosen not in _COMPRESSIONS[format]:
            hint = " or ".join(map(repr, _COMPRESSIONS[format]))
            graph.refuse(f"{operator}: compression= is {compression!r} for {format}.", where, hint)
        rows = self._rows(name, key, value, operator, where)
        columns = author_columns(rows)
        known = [column.name for column in (*columns.key, *columns.value)]
        partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        for column in partitions:
            if column not in known:
                graph.refuse(
                    f"{operator}: partition_by= has no column {column!r}.", where, f"one of {', '.join(known)}"
                )
        if len(set(partitions)) == len(known):
            graph.refuse(f"{operator}: partition_by= has every column, so nothing is left for the files.", where)
        given = _Settings(graph, operator, where)
        sink = FileFolder(
            url=given.address("url", url, ("/", "file:///", "s3://", "webhdfs://")),
            format=format,
            compression=chosen,
            partition_by=partitions,
            storage=given.storage(storage or {}),
            rows=rows,
        )
        self._add(sink, name, where, rows=rows)

    def _kind(self) -> TableKind:
        """What arrives."""
        raise NotImplementedError

    def _known_key(self) -> Known:
        """The type of the key, without its window."""
        raise NotImplementedError

    def _rows(self, table: str, key: KeyColumns, value: ValueColumn, operator: str, where: Origin) -> DeltaSink:
        rows = rows_of(
            self.at,
            table,
            self._kind(),
            key=key,
            value=value,
            known_key=self._known_key(),
            operator=operator,
            where=where,
        )
        if any(isinstance(kind, Unknown) for kind in (self._known_key(), self.at.value)):
            self.at.graph.refuse(f"{operator} needs the types of key and value for its columns.", where)
        try:
            author_columns(rows)
        except TableError as error:
            self.at.graph.refuse(error.message.replace(f"to_delta('{table}')", operator), where, error.hint)
        return rows

    def _add(
        self,
        sink: SearchIndex | JdbcTable | FileFolder,
        name: str,
        where: Origin,
        *,
        needs_key: bool = False,
        rows: DeltaSink | None = None,
    ) -> None:
        at = self.at
        at.graph.add(
            CustomSink(
                name=at.graph.name_of(name, "SINK-"),
                parents=(at.node,),
                sink=sink,
                in_replay=False,
                kind=self._kind(),
                needs_key=needs_key,
                rows=rows,
                origin=where,
            )
        )


class _Settings:
    """Settings of one call; what cannot be used is refused there, and no error has a value that may be a secret."""

    def __init__(self, graph: Graph, operator: str, where: Origin) -> None:
        self._graph, self._operator, self._where = graph, operator, where

    def setting(self, argument: str, given: Any) -> Given | None:
        """A text or a reference."""
        if given is None:
            return None
        what = f"{argument}= of {self._operator}"
        match given:
            case str() if given:
                return Given(what, text=given)
            case {"env": str(variable)} if len(given) == 1 and _VARIABLE.fullmatch(variable):
                return Given(what, env=variable)
            case {"file": str(file)} if len(given) == 1 and file.startswith("/"):
                return Given(what, file=file)
        self._graph.refuse(f"{what} is neither a text nor a reference.", self._where, f"a reference is {_REFERENCE}")

    def secret(self, argument: str, given: Any) -> Given | None:
        """A reference."""
        if isinstance(given, str):
            what = f"{argument}= of {self._operator} is a secret, and belongs into no topology."
            self._graph.refuse(what, self._where, f"say where it is: {_REFERENCE}")
        return self.setting(argument, given)

    def address(self, argument: str, given: Any, begins: tuple[str, ...]) -> Given:
        """An address without a password, or a reference to one."""
        found = self.setting(argument, given)
        what = f"{argument}= of {self._operator}"
        if found is None:
            self._graph.refuse(f"{what} is missing.", self._where, f"it begins with {' or '.join(begins)}")
        if found.text is not None and _PASSWORD.search(found.text):
            self._graph.refuse(f"{what} has a password in it.", self._where, "password= says where it is")
        if found.text is not None and not found.text.startswith(begins):
            self._graph.refuse(f"{what} is no address.", self._where, f"it begins with {' or '.join(begins)}")
        return found

    def seconds(self, argument: str, given: Any) -> float:
        """A duration above zero."""
        if not isinstance(given, timedelta) or given <= timedelta(0):
            what = f"{argument}= of {self._operator} is {given!r}."
            self._graph.refuse(what, self._where, "such as timedelta(seconds=30)")
        return given.total_seconds()

    def on_publish(self, given: Any) -> OnPublish | None:
        """What becomes of a sink when a replay is published; `topology/checks.py` says whether that is possible."""
        if given not in (None, "correct", "stale"):
            what = f"on_publish= of {self._operator} is {given!r}."
            self._graph.refuse(what, self._where, "'correct' or 'stale'; None: correct, if that is possible")
        found: OnPublish | None = given
        return found

    def storage(self, given: Mapping[str, Any]) -> dict[str, str | Given]:
        """How an object store is reached."""
        what = f"storage= of {self._operator}"
        if unknown := given.keys() - _STORAGE:
            known = ", ".join(sorted(_STORAGE))
            self._graph.refuse(
                f"{what} has {', '.join(sorted(map(str, unknown)))}.", self._where, f"it may have {known}"
            )
        found: dict[str, str | Given] = {}
        for name, value in given.items():
            if name == "path_style":
                found[name] = "true" if value is True or value == "true" else "false"
                continue
            read = self.secret if name == "secret_key" else self.setting
            each = read(f"storage[{name!r}]", value)
            assert each is not None
            found[name] = each if each.text is None else each.text
        return found
