"""Names of files. They say by themselves which batch wrote them and, for pages, what they may hold.

```
<table>/_delta_log/                                          Delta's log: the only truth
<table>/_deltaworks/                                         what the driver tells tasks (`control`)
<table>/_retained/<time>-<round>-<run>/                      what a publication has removed, until nobody wants it back
<table>/_trash/<time>/                                       what nothing names any more, until it expires (`trash`)
<table>/part-b<batch>-t<task>-<query>-<nonce>.parquet        appended rows
<table>/merged-b<batch>-t0000-<query>-<nonce>.parquet        small files merged by the driver
<table>/published-b<batch>-t<task>-<query>-<nonce>.parquet   rows of a replay; also below window_date=<date>/
<table>/remaining-b<batch>-t<task>-<query>-<nonce>.parquet   rows that a publication has left of a file
<table>/snapshot-v1-<start>-<rows>-b<batch>-t0000-<query>-<nonce>.parquet   a range of the keys of a snapshot
<table>/window_date=<date>/final-b<batch>-...parquet         closed windows
<table>/window_date=<date>/open-t<task>-<start>-<hash>-<close>-<rows>-b<batch>-<query>-<nonce>.parquet   a page
```

Numbers of pages are hexadecimal of fixed width, so that the order of names is the order of pages. The start of a range
is a position (`key_positions`), in hexadecimal digits.
"""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from urllib.parse import quote

from deltaworks.errors import TableError

CONTROL_FOLDER = "_deltaworks"
LOG_FOLDER = "_delta_log"
RETAINED_FOLDER = "_retained"
TRASH_FOLDER = "_trash"
FILES_APP = "deltaworks/files"
"""The transaction that says which files a table has after a commit of ours."""
ROWS, SNAPSHOT, AS_OF_MS, GENERATION = "rows", "snapshot", "as-of-ms", "generation"
INTENT = "intent"
PUBLICATION, ROLLBACK, HANDOVER = "publication", "rollback", "handover"
RESCALED = "rescaled"
PUBLISHED, REMAINING = "published", "remaining"
RANGES_FORMAT = 1
"""Version of the files of snapshots and of the positions in their names; all others are written again."""
_CLOSED = "closed-t"
_MS_PER_DAY = 86_400_000
_FILE = re.compile(
    r"""(?: part | merged | final | open | snapshot | published | remaining ) - (?: .* - )?
        b (?P<batch> \d{10} ) - (?: t \d{4} - )? (?P<tag> [0-9a-f]{8} ) - [0-9a-f]{12} \.parquet $""",
    re.VERBOSE,
)
"""The name of any file of ours, without its folder."""
_FINAL = re.compile(r"(?:^|/)final-b\d{10}-t(?P<task>\d{4})-")
_PAGE = re.compile(
    r"""window_date= (?P<day> .{10} ) /
        open-t (?P<task> \d{4} ) - (?P<start_ms> [0-9a-f]{16} ) - (?P<key_hash> [0-9a-f]{8} ) -
        (?P<closes_ms> [0-9a-f]{16} ) - (?P<rows> [0-9a-f]{8} ) - b""",
    re.VERBOSE,
)
_RANGE = re.compile(r"snapshot-v(?P<version>\d+)-(?P<start>(?:[0-9a-f]{2})*)-(?P<rows>[0-9a-f]{8})-b")
_PAGE_PREFIX = re.compile(r"window_date=.{10}/open-t")


@dataclass(frozen=True)
class PageName:
    """A page: open windows of one task and date, from `(start_ms, key_hash)` to the next page."""

    path: str
    task: int
    start_ms: int
    key_hash: int
    closes_ms: int
    """The lowest end of a window that is not final."""
    rows: int

    @classmethod
    def of(cls, path: str) -> PageName:
        """Reads what `page_path` has written.

        Raises:
            TableError: the path names no page.
        """
        if (found := _PAGE.match(path)) is None:
            raise TableError(
                f"The file {path} is not named as a page of open windows.", hint="the file is not one of the stream's"
            )
        task, *numbers = found.group("task", "start_ms", "key_hash", "closes_ms", "rows")
        return cls(path, int(task), *(int(number, 16) for number in numbers))

    @property
    def position(self) -> tuple[int, int]:
        """The lowest window start and key hash that it may hold."""
        return self.start_ms, self.key_hash


@dataclass(frozen=True)
class RangeName:
    """A file of a snapshot: the keys from the position `start` to that of the next file; the first has all before."""

    path: str
    start: bytes
    rows: int

    @classmethod
    def of(cls, path: str) -> RangeName | None:
        """Reads what `range_name` has written; None: it is another file, or one of another version."""
        found = _RANGE.match(path)
        if found is None or int(found["version"]) != RANGES_FORMAT:
            return None
        return cls(path, bytes.fromhex(found["start"]), int(found["rows"], 16))


def query_tag(query_id: str) -> str:
    """Eight hexadecimal digits that stand for a query in file names."""
    return f"{zlib.crc32(query_id.encode()):08x}"


def app_id(application: str, table: str, step: str, query_id: str) -> str:
    """The application id of Delta transactions; steps are rows, intent, snapshot, as-of-ms and closed-t<task>.

    A replay's run id takes the place of the query with the steps publication, rollback and handover.
    """
    return f"{application}/{table}/{step}/{query_id}"


def step_of(app: str) -> str:
    """The step in an application id of ours."""
    return app.rsplit("/", 2)[-2] if app.count("/") >= 3 else ""


def query_of(app: str) -> str:
    """The query in an application id of ours."""
    return app.rsplit("/", 1)[-1] if app.count("/") >= 3 else ""


def closed_step(task: int) -> str:
    """The step whose version is the time up to which the windows of a task are closed."""
    return f"{_CLOSED}{task:04d}"


def task_of(path: str) -> int | None:
    """The task that closed the windows of a file; None: several, or it is not known."""
    found = _FINAL.search(path)
    return None if found is None else int(found["task"])


def closed_task(step: str) -> int | None:
    """Inverse of `closed_step`; None for any other step."""
    return int(step[len(_CLOSED) :]) if step.startswith(_CLOSED) else None


def nonce() -> str:
    """Makes a name unique among attempts."""
    return os.urandom(6).hex()


def part_name(kind: str, batch_id: int, task: int, tag: str) -> str:
    """A file that is not a page; `kind` is part, merged, final, snapshot, published or remaining."""
    return f"{kind}-b{batch_id:010d}-t{task:04d}-{tag}-{nonce()}.parquet"


def range_name(start: bytes, rows: int, batch_id: int, tag: str) -> str:
    """A new file of a snapshot; see `RangeName`."""
    return part_name(f"snapshot-v{RANGES_FORMAT}-{start.hex()}-{rows:08x}", batch_id, 0, tag)


def is_range(path: str) -> bool:
    """Whether a path inside a table names a range of a snapshot, of any version."""
    return _RANGE.match(path) is not None


def page_path(
    day: str, task: int, start_ms: int, key_hash: int, closes_ms: int, rows: int, batch_id: int, tag: str
) -> str:
    """The path of a new page; `day` comes from `window_day`."""
    place = page_position(day, task, start_ms, key_hash)
    return f"{place}-{closes_ms:016x}-{rows:08x}-b{batch_id:010d}-{tag}-{nonce()}.parquet"


def page_position(day: str, task: int, start_ms: int, key_hash: int) -> str:
    """The beginning of a page's path; positions sort as rows do."""
    return f"window_date={day}/open-t{task:04d}-{start_ms:016x}-{key_hash:08x}"


def is_page(path: str) -> bool:
    """Whether a path inside a table names a page."""
    return _PAGE_PREFIX.match(path) is not None


def page_day(path: str) -> str:
    """The date in a page's path, in the form of `window_day`."""
    return path[_DAY]


def page_closes(path: str) -> str:
    """The part of a page's path that compares like `closes_ms`."""
    return path[_CLOSES]


def closes_text(time_ms: int) -> str:
    """What `page_closes` is compared with."""
    return f"{max(0, time_ms):016x}"


def window_day(start_ms: int) -> str:
    """The UTC date of a window's start.

    Raises:
        TableError: the time is before 1970 or after 9999.
    """
    try:
        if start_ms < 0:
            raise OverflowError
        return (_EPOCH + timedelta(days=start_ms // _MS_PER_DAY)).isoformat()
    except OverflowError:
        raise TableError(
            f"A window starts at {start_ms} ms, which is no date between 1970-01-01 and 9999-12-31.",
            hint="timestamps of records are milliseconds since 1970; check the timestamp extractor",
        ) from None


def day_end_ms(start_ms: int) -> int:
    """The first moment of the next UTC date."""
    return (start_ms // _MS_PER_DAY + 1) * _MS_PER_DAY


def is_retained(path: str) -> bool:
    """Whether a publication wrote the file, so that a rollback must find it."""
    return path.rpartition("/")[2].startswith((f"{PUBLISHED}-", f"{REMAINING}-"))


def quoted(path: str) -> str:
    """A path as Delta's log has it: URL-encoded."""
    return quote(path, safe="/=-_.")


def partition_of(path: str) -> dict[str, str]:
    """The partition values in a path."""
    folders = path.split("/")[:-1]
    return {name: value for name, _, value in (folder.partition("=") for folder in folders)}


def with_rows(path: str, rows: int) -> str:
    """A path with another number of rows, if its name has one."""
    for name in (_PAGE, _RANGE):
        if (found := name.match(path)) is not None:
            first, last = found.span("rows")
            return f"{path[:first]}{rows:08x}{path[last:]}"
    return path


def batch_of(path: str) -> tuple[int, str] | None:
    """Batch and query tag in the name of a file of ours; None for any other file."""
    found = _FILE.search(path.rsplit("/", 1)[-1])
    return (int(found["batch"]), found["tag"]) if found else None


def utc(time_ms: int) -> str:
    """For messages."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _place(field: str) -> slice:
    """Where a field is in the path of any page: all fields have a fixed width.

    Comparing a slice is much cheaper than reading the whole name, and a batch compares it for each open page.
    """
    found = _PAGE.match(page_path("1970-01-01", 0, 0, 0, 0, 0, 0, ""))
    assert found is not None
    return slice(*found.span(field))


_EPOCH = date(1970, 1, 1)
_DAY, _CLOSES = _place("day"), _place("closes_ms")
