"""One row after the other: what is said of it, what is refused, what is hidden, and the test that is written."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from deltaworks import DeadLetters, Pipeline, Secret, StreamsBuilder, TimeWindows, Topic
from deltaworks.cli import app as cli
from deltaworks.cli import listings
from deltaworks.cli.explain import show
from deltaworks.control.intents import Intents
from deltaworks.errors import ConfigurationError, DeltaworksError, TableError
from deltaworks.explain import explaining
from deltaworks.explain.explaining import code_of
from deltaworks.explain.question import Question, pipeline_of
from deltaworks.explain.written import write_test
from deltaworks.files import LocalFiles
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.records import Coordinates
from tests.hosts import test_replay_of_jobs as jobs
from tests.hosts.explaining import Explained, asked
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryBroker, MemoryKafka

PROJECT = Path(__file__).parents[2]
START_MS = 1_790_000_000_000 - 1_790_000_000_000 % 3_600_000
MINUTE = timedelta(minutes=1)


class Buyer(msgspec.Struct):
    name: Annotated[str, Secret()]
    country: str


class Order(msgspec.Struct):
    mail: Annotated[str, Secret()]
    amount: int


class Sold(msgspec.Struct):
    buyer: str
    country: str
    amount: int
    letters: int


def sold(order: Order, buyer: Buyer) -> Sold:
    return Sold(buyer.name, buyer.country, order.amount, len(order.mail))


def noted(order: Order) -> str:
    return f"asked {order.mail}" if order.amount % 2 == 0 else "nothing"


def shop(builder: StreamsBuilder) -> None:
    buyers = builder.table("buyers", key=str, value=Buyer, store="buyers")
    buyers.to_delta("buyers", key="buyer_id")
    orders = builder.stream("orders", key=str, value=Order)
    orders.join(buyers, sold, value=Sold).to_delta("sold", key="buyer_id")
    minutes = TimeWindows(size=MINUTE, grace=timedelta(0))
    orders.group_by_key().windowed_by(minutes).aggregate(
        int, lambda _, order, total: total + order.amount, value=int, store="minutes"
    ).to_delta("minutes", key="buyer_id", value="amount")
    orders.group_by_key().count(store="counts").to_delta("counts", key="buyer_id", value="orders")
    orders.map_values(noted, value=str).to_table(store="notes").to_delta("notes", key="buyer_id", value="note")
    orders.group_by(lambda _, order: order.mail, key=str, name="by-mail").count(store="mails").to_delta(
        "mails", key="mail", value="orders"
    )


def shopping(home: Path, **options: Any) -> Explained:
    """Two orders of ann and one of bob in each of six minutes; ann has moved after three."""
    kafka = MemoryKafka({"buyers": 2, "orders": 2})
    options.setdefault("dead_letters", DeadLetters(table="letters"))
    pipeline = Pipeline(name="shop", topology=shop, **options)
    stream = InProcessStream(pipeline, replace(Settings.from_environment({}), home=home), kafka=kafka)
    stream.run(stream.end())
    for minute in range(6):
        at_ms = START_MS + minute * 60_000
        if minute in (0, 3):
            for name in ("ann", "bob"):
                value = {"name": f"{name} smith", "country": "DE" if minute == 0 else "JP"}
                kafka.write("buyers", RawRecord(name.encode(), json.dumps(value).encode(), at_ms))
        for number, name in enumerate(("ann", "ann", "bob")):
            value = {"mail": f"{name}@example.org", "amount": 10 ** (number % 2) + minute}
            kafka.write("orders", RawRecord(name.encode(), json.dumps(value).encode(), at_ms + number + 1))
        stream.run(stream.end())
    stream.committer.refresh_snapshots(force=True)
    stream.close()
    return Explained(stream)


@pytest.fixture
def shop_(tmp_path: Path) -> Explained:
    return shopping(tmp_path)


def minute(number: int) -> datetime:
    return datetime.fromtimestamp(START_MS / 1000, UTC) + number * MINUTE


def test_a_window_names_its_records_and_the_one_that_closed_it(shop_: Explained) -> None:
    found = shop_(Question("minutes", ("ann",), minute(2)))

    assert found.reproduced and found.is_minimal
    assert found.row["amount"] == 3 + 12
    assert [each.role for each in found.inputs] == ["wrote", "wrote", "closed"]
    times = [each.record.timestamp_ms - START_MS for each in found.inputs]
    assert times == [120_001, 120_002, 180_001]
    assert [(each.batch, each.values) for each in found.changes] == [(3, {"amount": 15})]


def test_a_joined_row_names_the_partner_that_it_met_and_no_other(shop_: Explained) -> None:
    (row,) = [row for row in shop_.rows("sold") if row["buyer_id"] == "bob" and row["amount"] == 1 + 4]
    schema = next(each for each in shop_.tables() if each.name == "sold")
    found = shop_(asked(schema, row))

    assert found.reproduced
    assert [(each.record.topic, each.role) for each in found.inputs] == [("buyers", "needed"), ("orders", "wrote")]
    assert found.inputs[0].record.timestamp_ms == START_MS + 180_000
    assert found.row["source_offset"] == row["source_offset"]


def test_a_count_names_every_record_and_the_batches_newest_first(shop_: Explained) -> None:
    found = shop_(Question("counts", ("ann",)), max_changes=4)

    assert len(found.inputs) == 12
    assert {each.role for each in found.inputs} == {"wrote"}
    assert [each.batch for each in found.changes] == [6, 5, 4, 3]
    assert [each.values["orders"] for each in found.changes] == [12, 10, 8, 6]
    assert found.changes_in_all == 6


def test_a_row_that_is_replaced_names_only_the_last_record(shop_: Explained) -> None:
    found = shop_(Question("buyers", ("ann",)))

    assert len(found.inputs) == 1
    assert found.changes_in_all == 2


@pytest.mark.parametrize(
    ("question", "error", "text"),
    [
        (Question("minutes", ("ann",), minute(9)), TableError, r"begin at .*T.*:00, .*T"),
        (Question("minutes", ("ann",)), ConfigurationError, r"6 windows of this key.*\n.*--window"),
        (Question("counts", ("an",)), TableError, "no row with buyer_id = 'an'"),
        (Question("counts", ("ann",), minute(1)), ConfigurationError, "has no windows"),
        (Question("counts", ()), ConfigurationError, r"1 column \(buyer_id\), but --key was given 0 times"),
        (Question("sold", ("ann",)), ConfigurationError, r"12 rows of this key.*\n.*--source"),
        (Question("sold", ("ann",), None, Coordinates("orders", 0, 99)), TableError, "orders-0@99"),
        (Question("letters", ("ann",)), TableError, r"is a dead letter.*\n?.*\n.*tables to explain: .*sold"),
        (Question("gone", ("ann",)), TableError, "no longer writes the table 'gone'"),
        (
            Question("minutes", ("ann",), None, Coordinates("orders", 0, 1)),
            ConfigurationError,
            "comes from many records",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_says_what_would(
    shop_: Explained, question: Question, error: type[DeltaworksError], text: str
) -> None:
    with pytest.raises(error, match=text):
        shop_(question)


def test_a_table_that_does_not_exist_or_that_no_pipeline_writes_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "sales", pa.table({"day": [1]}))

    with pytest.raises(TableError, match="nothing"):
        pipeline_of(tmp_path, "nothing")
    with pytest.raises(TableError, match="No pipeline writes the table 'sales'"):
        pipeline_of(tmp_path, "sales")


def test_records_that_are_gone_are_named(shop_: Explained) -> None:
    for partition in range(2):
        shop_.kafka.removed["orders", partition] = shop_.kafka.end("orders", partition)

    with pytest.raises(TableError, match=r"orders-\d: offsets 0 to \d+ are gone(.|\n)*archive=True"):
        shop_(Question("counts", ("ann",)))


def test_records_that_are_partly_gone_make_another_row_and_it_says_so(shop_: Explained) -> None:
    for partition in range(2):
        shop_.kafka.removed["orders", partition] = min(4, shop_.kafka.end("orders", partition))
    found = shop_(Question("counts", ("ann",)))

    assert not found.reproduced
    assert found.differing == {"orders": (12, found.found["orders"])} if found.found else False
    assert any("offsets 0 to 3 are gone" in note for note in found.notes)


def test_the_limit_is_kept_and_told(shop_: Explained) -> None:
    found = shop_(Question("counts", ("bob",)), max_records=7)

    assert found.records_read <= 7
    assert not found.reproduced
    total = shop_(Question("counts", ("bob",))).records_read
    assert (
        f"read {found.records_read} of {total} records, back to batch {found.first_batch}; older ones were not read, "
        f"because --max-records is 7; --max-records {total} reads all of them"
    ) in found.notes
    assert shop_(Question("counts", ("bob",)), max_records=total).reproduced


def test_a_limit_that_leaves_out_all_records_of_the_row_is_an_error(tmp_path: Path) -> None:
    shop_ = shopping(tmp_path, idle_timeout=timedelta(days=9))  # so all history is needed, and read from its end

    with pytest.raises(TableError, match=r"None of the records that were read(.|\n)*read \d of 22 records"):
        shop_(Question("minutes", ("ann",), minute(0)), max_records=4)


def test_a_row_of_a_window_does_not_need_what_is_older(shop_: Explained) -> None:
    whole = shop_(Question("minutes", ("ann",), minute(5)))
    early = shop_(Question("minutes", ("ann",), minute(0)), max_records=8)

    assert whole.reproduced and whole.records_read == 4 + 3 + 3  # all buyers, and orders of two minutes
    assert early.reproduced


class _With:
    """A builder for which every order has another amount."""

    def __init__(self, builder: StreamsBuilder, amount: Callable[[Order], int]) -> None:
        self._builder, self._amount = builder, amount

    def table(self, *args: Any, **kwargs: Any) -> Any:
        return self._builder.table(*args, **kwargs)

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        orders = self._builder.stream(*args, **kwargs)
        return orders.map_values(lambda order: Order(order.mail, self._amount(order)), value=Order)


def test_code_that_does_something_else_is_noticed(shop_: Explained) -> None:
    def other(builder: StreamsBuilder) -> None:
        shop(_With(builder, lambda order: 2 * order.amount))  # type: ignore[arg-type]

    pipeline = replace(shop_.stream.pipeline, topology=other)
    found = shop_(Question("minutes", ("ann",), minute(2)), pipeline=pipeline)

    assert not found.reproduced
    assert found.found is not None and found.found["amount"] == 2 * found.row["amount"]
    assert any("another row than the table has" in note for note in found.notes)


def test_the_code_of_a_batch_is_known_as_long_as_its_intent_is_kept(shop_: Explained) -> None:
    paths = shop_.stream.paths
    intents = Intents(LocalFiles(paths.current.intents))
    intents.replace(intents.require(6), msgspec.structs.replace(intents.require(6), code="abc"))

    assert shop_(Question("counts", ("ann",))).changes[0].code == "abc"
    assert code_of(paths, 99) is None


class TestMasking:
    """The shop marks the names of buyers and the addresses of orders."""

    def test_secrets_are_in_nothing_that_is_shown_or_written(self, shop_: Explained, tmp_path: Path) -> None:
        schema = next(each for each in shop_.tables() if each.name == "sold")
        row = shop_.rows("sold")[0]
        found = shop_(asked(schema, row))
        name = row["buyer"]

        assert found.masked and found.reproduced
        shown = repr(found) + found.case.encoded().decode()
        assert name not in shown and "@example.org" not in shown
        assert found.row["buyer"].startswith("masked-")
        assert found.case.found(shop_.stream.pipeline) == found.case.row

    def test_a_result_that_looks_into_a_secret_is_named(self, shop_: Explained) -> None:
        schema = next(each for each in shop_.tables() if each.name == "sold")
        found = shop_(asked(schema, shop_.rows("sold")[0]))

        assert found.masking_changes == ("letters",)
        assert found.row["letters"] == len("masked-") + 12

    def test_a_field_that_does_not_matter_changes_nothing(self, shop_: Explained) -> None:
        found = shop_(Question("minutes", ("ann",), minute(2)))

        assert found.masked and found.reproduced
        assert found.masking_changes == ()
        assert found.row["amount"] == 15

    def test_keys_still_meet(self, tmp_path: Path) -> None:
        topics = (Topic("orders", secret=("key",)), Topic("buyers", secret=("key",)))
        explained = shopping(tmp_path, topics=topics)
        schema = next(each for each in explained.tables() if each.name == "sold")
        row = next(row for row in explained.rows("sold") if row["buyer_id"] == "bob")
        found = explained(asked(schema, row))

        assert found.reproduced and found.masking_changes == ("letters",)
        assert found.row["buyer_id"] == found.case.identity["buyer_id"] != "bob"
        assert len(found.inputs) == 2

    def test_earlier_values_are_hidden_even_if_the_last_one_has_no_secret(self, shop_: Explained) -> None:
        found = shop_(Question("notes", ("ann",)))

        assert found.reproduced and found.row["note"] == "nothing"
        assert any(str(each.values["note"]).startswith("asked masked-") for each in found.changes)
        assert "@example.org" not in repr(found)

    def test_a_row_that_is_not_reproduced_shows_no_secret_either(self, shop_: Explained) -> None:
        rows = [row for row in shop_.rows("mails") if row["mail"] == "bob@example.org"]
        found = shop_(Question("mails", (rows[0]["mail"],)), max_records=7)

        assert not found.reproduced
        assert "@example.org" not in repr(found) and found.row["orders"] == rows[0]["orders"]
        assert found.row["mail"].startswith("masked-")

    def test_two_cases_of_one_row_have_other_replacements_and_each_gives_its_row(self, shop_: Explained) -> None:
        schema = next(each for each in shop_.tables() if each.name == "sold")
        one, other = (shop_(asked(schema, shop_.rows("sold")[0])) for _ in range(2))

        assert one.row["buyer"] != other.row["buyer"]
        assert one.case.found(shop_.stream.pipeline) == one.row
        assert other.case.found(shop_.stream.pipeline) == other.row

    def test_no_error_names_keys_that_may_be_made_of_a_secret(self, shop_: Explained) -> None:
        with pytest.raises(TableError) as error:
            shop_(Question("mails", ("bo@example.org",)))

        assert "bob@" not in str(error.value) and "similar" not in str(error.value)

    def test_what_a_function_says_of_a_secret_is_not_passed_on(self, shop_: Explained) -> None:
        def failing(builder: StreamsBuilder) -> None:
            shop(_With(builder, lambda order: int(order.mail)))  # type: ignore[arg-type]

        with pytest.raises(TableError, match=r"A record failed in operator .*\.(.|\n)*not shown") as error:
            shop_(Question("counts", ("ann",)), pipeline=replace(shop_.stream.pipeline, topology=failing))

        assert "@example.org" not in "".join(traceback.format_exception(error.value))

    def test_no_file_and_no_line_of_the_terminal_has_a_secret(
        self, shop_: Explained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        schema = next(each for each in shop_.tables() if each.name == "sold")
        found = shop_(asked(schema, shop_.rows("sold")[0]))
        names = {row["buyer"] for row in shop_.rows("sold")}

        files = write_test(found, tmp_path / "test_sold.py")
        show(found, 10, shop_.stream.settings)
        shown = capsys.readouterr()
        texts = [*(file.read_text() for file in files), *map(str, files), shown.out, shown.err]

        assert "masked-" in shown.out and "masked-" in files[1].read_text()
        assert not [text for text in texts if "@example.org" in text or any(name in text for name in names)]


class TestWrittenTest:
    def test_it_passes_under_pytest_and_fails_with_other_records(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(jobs.JOBS, "wordcount", 60)
        stream = jobs.streamed("wordcount", tmp_path / "home", 1)
        stream.close()
        explained = Explained(stream)
        schema = next(each for each in explained.tables() if each.name == "wordcount_hours")
        (question,) = explained.questions(schema, 1, random.Random(1))

        file, data = write_test(explained(question), tmp_path / "test_words.py")

        assert pytest_of(file) == 0
        case = json.loads(data.read_text())
        data.write_text(json.dumps({**case, "records": case["records"][1:]}))
        assert pytest_of(file) == 1

    def test_nothing_is_overwritten_and_nothing_is_written_that_would_fail(
        self, shop_: Explained, tmp_path: Path
    ) -> None:
        good = shop_(Question("counts", ("ann",)))
        folder = tmp_path / "tests"
        folder.mkdir()
        (folder / "test_there.json").touch()

        with pytest.raises(ConfigurationError, match="exists already"):
            write_test(good, folder / "test_there.py")
        with pytest.raises(ConfigurationError, match=r"pytest finds no test in counts\.py"):
            write_test(good, folder / "counts.py")
        with pytest.raises(ConfigurationError, match="There is no folder"):
            write_test(good, tmp_path / "other" / "test_counts.py")
        with pytest.raises(ConfigurationError, match="does not give the row"):
            write_test(shop_(Question("counts", ("bob",)), max_records=7), folder / "test_counts.py")
        assert [path.name for path in folder.iterdir()] == ["test_there.json"]


def pytest_of(file: Path) -> int:
    """The exit code of pytest for a file."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(file.parent), str(file)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, check=False).returncode


Run = Callable[..., str]


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in a home where `wordcount` has run, with its broker in memory."""
    monkeypatch.setitem(jobs.JOBS, "wordcount", 60)
    stream = jobs.streamed("wordcount", tmp_path, 1)
    stream.close()
    explained = Explained(stream)
    monkeypatch.setattr(explaining, "Broker", lambda cluster: MemoryBroker(explained.kafka))
    monkeypatch.setattr(explaining, "history", lambda settings, pipeline, plan: lambda: explained.history(plan))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(PROJECT))

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["deltaworks", "explain", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        shown = capsys.readouterr()
        assert int(end.value.code or 0) == code, shown
        return shown.out + shown.err

    return run


def words_of(tmp_path: Path) -> dict[str, int]:
    from deltalake import DeltaTable

    rows = DeltaTable(tmp_path / "tables" / "wordcount_counts").to_pyarrow_table().to_pylist()
    return {row["word"]: row["count"] if "count" in row else row["uses"] for row in rows}


class TestCommand:
    def test_it_prints_row_batches_records_and_verdict(self, terminal: Run, tmp_path: Path) -> None:
        word, count = max(words_of(tmp_path).items(), key=lambda each: each[1])
        shown = terminal("wordcount_counts", "--key", word, "--limit", "2")

        assert "Batches that changed it" in shown
        assert "wordcount-lines-" in shown
        assert "went into the row" in shown
        assert "reproduced: " in shown
        assert str(count) in shown

    def test_a_key_that_does_not_exist_is_refused_and_names_similar_ones(self, terminal: Run, tmp_path: Path) -> None:
        word = max(words_of(tmp_path), key=len)

        assert f"similar: {word}" in terminal("wordcount_counts", "--key", word + "x", code=65)

    def test_its_document_has_the_schema(self, terminal: Run, tmp_path: Path) -> None:
        word = max(words_of(tmp_path), key=words_of(tmp_path).__getitem__)
        file = tmp_path / "test_word.py"
        shown = terminal("wordcount_counts", "--key", word, "--json", "--write-test", str(file))
        document = msgspec.json.decode(shown, type=listings.Explained)

        assert document.reproduced
        assert document.files == [str(file), str(file.with_suffix(".json"))]
        assert {each.topic for each in document.inputs} == {"wordcount-lines"}

    def test_it_exits_with_1_if_the_row_is_not_reproduced(self, terminal: Run, tmp_path: Path) -> None:
        word = max(words_of(tmp_path), key=words_of(tmp_path).__getitem__)
        shown = terminal("wordcount_counts", "--key", word, "--max-records", "1", code=1)

        assert "not reproduced" in shown
        assert "back to batch" in shown and "reads all of them" in shown

    @pytest.mark.parametrize(
        ("arguments", "code", "text"),
        [
            (("nothing", "--key", "a"), 65, "nothing"),
            (("wordcount_counts", "--key", "a", "--source", "x"), 78, "'x' names no record"),
            (("wordcount_counts", "--key", "a", "--window", "x"), 78, "'x' is no time"),
        ],
    )
    def test_wrong_arguments_are_refused(self, terminal: Run, arguments: tuple[str, ...], code: int, text: str) -> None:
        assert text in terminal(*arguments, code=code)

    def test_code_that_is_unknown_or_gone_is_refused(self, terminal: Run, tmp_path: Path) -> None:
        word = max(words_of(tmp_path), key=words_of(tmp_path).__getitem__)
        arguments = ("wordcount_counts", "--key", word, "--as-deployed")
        assert "no longer known which code ran batch" in terminal(*arguments, code=78)

        intents = Intents(LocalFiles(tmp_path / "pipelines" / "wordcount" / "intents"))
        for batch in intents.batches():
            intents.replace(intents.require(batch), msgspec.structs.replace(intents.require(batch), code="abc"))
        assert "abc is gone" in terminal(*arguments, code=78)


def test_decimals_and_times_are_compared_exactly() -> None:
    from deltaworks.testing.cases import plain_cell

    assert plain_cell(Decimal("1.500")) == plain_cell(Decimal("1.5")) == "1.5"
    assert plain_cell(Decimal("0E+3")) == "0"
    assert plain_cell(b"\xff") == {"base64": "/w=="}
    assert plain_cell(float("nan")) == "nan"
