"""What would change in a cluster: compared with the files, validated by its worker, applied if all of it fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deltaworks.connect import Connector, DebeziumPostgres, FileSource, JdbcSink, planning, validation
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connect.planning import Plan
from deltaworks.errors import ConfigurationError, ConflictError, ConnectUnavailableError
from tests.support import fake_connect as fake_module
from tests.support.fake_connect import FILE_SOURCE, POSTGRES, FakeConnect, fake_connect

PATIENT = Patience(answer_s=20.0, work_s=20.0, rebalance_s=20.0, pause_s=0.02)
SECRET = "hunter2"
PW = {"env": "CDC_PASSWORD"}
REFERENCE = "${env:CDC_PASSWORD}"


def cdc(name: str = "orders_cdc", **others: Any) -> Connector:
    arguments = {"hostname": "db", "user": "cdc", "password": PW, "dbname": "shop", "topic_prefix": f"p-{name}"}
    return DebeziumPostgres(name=name, **{**arguments, **others})


def sink(name: str = "orders_sink", **others: Any) -> Connector:
    return JdbcSink(name=name, topics=["cdc.orders"], url="jdbc:postgresql://db/shop", user="w", password=PW, **others)


@pytest.fixture
def fake() -> Iterator[FakeConnect]:
    with fake_connect() as made:
        yield made


@pytest.fixture
def api(fake: FakeConnect) -> Iterator[ConnectApi]:
    with ConnectApi(fake.url, patience=PATIENT) as made:
        yield made


def planned(api: ConnectApi, *connectors: Connector, **options: Any) -> Plan:
    return planning.plan({each.name: each for each in connectors}, api, **options)


def kinds(plan: Plan) -> dict[str, str]:
    return {change.name: change.kind for change in plan.changes}


def problems(plan: Plan) -> list[str]:
    return [str(problem) for problem in plan.problems]


def test_files_and_cluster_are_compared(fake: FakeConnect, api: ConnectApi) -> None:
    fake.add("same", cdc("same").properties)
    fake.add("theirs", {"connector.class": POSTGRES})
    fake.add("other", {**cdc("other").properties, "snapshot.mode": "initial", "old": "1"})

    plan = planned(api, cdc("same"), cdc("other", snapshot_mode="no_data", decimals="string"), sink())

    assert kinds(plan) == {"orders_sink": "new", "other": "changed", "same": "unchanged", "theirs": "unknown"}
    assert plan.problems == () and [change.name for change in plan.pending] == ["orders_sink", "other"]
    changed = next(change for change in plan.changes if change.name == "other")
    assert [(each.setting, each.before, each.after) for each in changed.settings] == [
        ("decimal.handling.mode", None, "string"),
        ("old", "1", None),
        ("snapshot.mode", "initial", "no_data"),
    ]
    assert fake.changes == []


@pytest.mark.parametrize(("standalone", "refused"), [(True, True), (False, False)])
def test_a_worker_alone_writes_nothing_exactly_once(fake: FakeConnect, standalone: bool, refused: bool) -> None:
    with ConnectApi(fake.url, standalone=standalone, patience=PATIENT) as api:
        found = problems(planned(api, cdc(exactly_once=True)))

        assert [each for each in found if "exactly.once.support" in each and "standalone mode" in each] == found
        assert bool(found) == refused
        assert problems(planned(api, cdc())) == []


def test_some_are_planned_without_the_others(fake: FakeConnect, api: ConnectApi) -> None:
    fake.add("theirs", {"connector.class": POSTGRES})

    assert kinds(planned(api, sink(), whole=False)) == {"orders_sink": "new"}


def test_what_a_plan_creates_is_unchanged_in_the_next(fake: FakeConnect, api: ConnectApi) -> None:
    told = list[str]()
    everything = cdc(unwrap=True, topics="cdc.$1", plain_json=True, partitions=1, replication=1), sink(tasks_max=2)

    planning.apply(planned(api, *everything), api, lambda change: told.append(change.name))

    assert told == ["orders_cdc", "orders_sink"]
    assert fake.connectors["orders_cdc"].config["database.password"] == REFERENCE
    assert set(kinds(planned(api, *everything)).values()) == {"unchanged"}
    assert fake.changes == [("PUT", "/connectors/orders_cdc/config"), ("PUT", "/connectors/orders_sink/config")]


def test_secrets_are_masked_in_a_plan_whoever_wrote_them(fake: FakeConnect, api: ConnectApi) -> None:
    fake.add("orders_cdc", {**cdc().properties, "database.password": SECRET, "custom": SECRET})
    made = cdc(secrets={"custom": {"env": "CUSTOM"}}, config={"custom.address": f"http://a:{REFERENCE}@b"})

    plan = planned(api, made)

    shown = {each.setting: (each.before, each.after) for each in plan.changes[0].settings}
    assert shown == {
        "custom": ("***", "${env:CUSTOM}"),
        "custom.address": (None, "http://a:***@b"),
        "database.password": ("***", REFERENCE),
    }
    assert SECRET not in repr(plan)


def test_what_the_worker_says_of_a_setting_is_a_problem(fake: FakeConnect, api: ConnectApi) -> None:
    fake.errors = {"database.hostname": ["The 'database.hostname' value is invalid: A value is required"]}

    plan = planned(api, cdc(), sink())

    assert problems(plan) == [
        "orders_cdc: database.hostname: The 'database.hostname' value is invalid: A value is required"
    ]
    with pytest.raises(ConfigurationError, match=r"do not fit Kafka Connect at http(.|\n)*A value is required"):
        planning.apply(plan, api)
    assert fake.changes == []


def test_a_problem_of_one_that_does_not_change_stops_no_other(fake: FakeConnect, api: ConnectApi) -> None:
    fake.add("orders_cdc", cdc().properties)
    fake.errors = {"database.hostname": ["Unable to connect"]}

    plan = planned(api, cdc(), sink())

    assert problems(plan) == []
    assert [str(note) for note in plan.notes] == ["orders_cdc: database.hostname: Unable to connect"]


def test_the_worker_is_not_quoted_with_the_secrets_that_it_has_read(fake: FakeConnect, api: ConnectApi) -> None:
    fake.secrets = {REFERENCE: SECRET}
    fake.errors = {
        "insert.mode": [f"{SECRET} is refused for this user", "token=other", "Invalid value x for configuration a: no"],
        "connection.url": [f"Invalid value {SECRET} for configuration connection.url: no driver"],
    }
    made = sink("s", table=REFERENCE, config={"connection.url": f"jdbc:x://db?password={REFERENCE}"})

    plan = planned(api, made)

    assert sorted(problems(plan)) == [
        f"s: connection.url: {validation._HIDDEN}",
        "s: insert.mode: *** is refused for this user",
        "s: insert.mode: Invalid value x for configuration a: no",
        "s: insert.mode: token=***",
    ]
    assert SECRET not in repr(plan)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("3.4.0.Final", f"is 3.4.0.Final, but the workers have {POSTGRES} in version 3.5.0.Final: install 3.4.0.Final"),
        ("3.5.0.Final", None),
        (" 3.5.0.Final ", None),
        ("latest", None),
        ("[3.4,3.5)", None),
        ("${env:VERSION}", None),
    ],
)
def test_a_plugin_of_another_version_than_the_file_says_is_refused(
    fake: FakeConnect, api: ConnectApi, version: str, said: str | None
) -> None:
    plan = planned(api, cdc(plugin_version=version))

    told = f"orders_cdc: connector.plugin.version: {said} on them, or write the version they have"
    assert problems(plan) == ([] if said is None else [told])
    assert [str(note) for note in plan.notes] == []
    if said is not None:
        with pytest.raises(ConfigurationError, match="or write the version they have"):
            planning.apply(plan, api)
        assert fake.changes == []


@pytest.mark.parametrize("version", [None, "undefined"])
def test_a_class_of_which_the_workers_know_no_version_has_none_that_is_wanted(
    fake: FakeConnect, api: ConnectApi, version: str | None
) -> None:
    fake.versions[POSTGRES] = version

    (problem,) = planned(api, cdc(plugin_version="3.5.0.Final")).problems
    assert "the workers do not say which version they have: leave it out" in problem.what
    assert problems(planned(api, cdc(), locked={POSTGRES: "3.5.0.Final"})) == []


def test_a_plugin_of_another_version_than_the_lock_is_refused_unless_the_file_says_it(
    fake: FakeConnect, api: ConnectApi
) -> None:
    locked = {POSTGRES: "3.6.0.Final"}

    (problem,) = problems(planned(api, cdc(), sink(), locked=locked))
    assert problem == (
        f"orders_cdc: connector.class: the workers have {POSTGRES} in version 3.5.0.Final, but the lock of their "
        "plugins has 3.6.0.Final: deltaworks down connect, and deltaworks up connect"
    )
    said, _ = planning.validate({"orders_cdc": cdc()}, api, locked=locked)
    assert [str(each) for each in said] == [problem]
    assert problems(planned(api, cdc(plugin_version="3.5.0.Final"), locked=locked)) == []


def test_another_version_is_a_note_where_nothing_changes(fake: FakeConnect, api: ConnectApi) -> None:
    fake.add("orders_cdc", cdc().properties)

    plan = planned(api, cdc(), locked={POSTGRES: "3.6.0.Final"})

    assert problems(plan) == [] and "has 3.6.0.Final" in str(plan.notes[0])


def test_a_class_that_no_worker_has_is_named_with_near_ones(fake: FakeConnect, api: ConnectApi) -> None:
    wrong = Connector(name="a", class_="io.debezium.connector.postgres.PostgresConnector")
    other = Connector(name="b", class_="org.example.Nothing")

    first, second = problems(planned(api, wrong, other))

    assert first.startswith(f"a: connector.class: no worker has the class '{wrong.class_}'; did you mean '{POSTGRES}'?")
    assert second.startswith("b: connector.class: no worker has the class 'org.example.Nothing'; Classes: io.debezium.")
    assert POSTGRES in second and "FileStreamSourceConnector" in second


@pytest.mark.parametrize("short", ["PostgresConnector", "Postgres"])
def test_a_class_may_be_called_as_connect_shortens_it(fake: FakeConnect, api: ConnectApi, short: str) -> None:
    assert validation._of_class("a", short, api.plugins()) is None


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"tabel.include.list": "a"},
            "tabel.include.list: the class defines no such setting; did you mean 'table.inclu",
        ),
        ({"database.hostnam": "a"}, "did you mean 'database.hostname'?"),
        ({"transforms.unwrap.add.field": "a"}, "did you mean 'transforms.unwrap.add.fields'?"),
        ({"value.converter.schema.enable": "a"}, "did you mean 'value.converter.schemas.enable'?"),
        ({"transforms.unwarp.type": "a"}, "'unwarp' is not in transforms; did you mean 'unwrap'?"),
        ({"transforms": "unwrap,mask"}, "transforms.mask.type: 'mask' is in transforms, but its class is missing"),
        ({"transforms.unwrap.predicate": "isOrder"}, "there is no predicate 'isOrder'; it has: none yet"),
        ({"predicates.isOrder.pattern": "a"}, "'isOrder' is not in predicates"),
    ],
)
def test_a_misspelt_setting_is_a_problem(fake: FakeConnect, api: ConnectApi, config: dict[str, str], told: str) -> None:
    (problem,) = problems(planned(api, cdc(unwrap=True, plain_json=True, config=config)))

    assert told in problem


@pytest.mark.parametrize(
    "setting",
    [
        "producer.override.compression.type",
        "topic.creation.default.cleanup.policy",
        "snapshot.select.statement.overrides.public.orders",
        "driver.sslmode",
        "transforms.own.anything",
        "header.converter.anything",
    ],
)
def test_settings_that_classes_need_not_define_are_no_problem(fake: FakeConnect, api: ConnectApi, setting: str) -> None:
    own = {"transforms": "own", "transforms.own.type": "org.example.Own"} if "own" in setting else {}

    assert problems(planned(api, cdc(config={setting: "a", **own}))) == []


def test_undefined_settings_are_notes_where_they_are_allowed(fake: FakeConnect, api: ConnectApi) -> None:
    plan = planned(api, cdc(config={"tabel.include.list": "a", "odd": "b", "driver.x": "c"}), undefined=True)

    assert problems(plan) == []
    assert [note.setting for note in plan.notes] == ["tabel.include.list", "odd"]


def test_a_topic_that_a_sink_misspells_is_a_problem_and_one_that_may_come_is_none(
    fake: FakeConnect, api: ConnectApi
) -> None:
    found = planned(api, sink(), topics={"cdc.order", "other"})
    assert problems(found) == ["orders_sink: topics: there is no topic 'cdc.orders'; did you mean 'cdc.order'?"]
    with pytest.raises(ConfigurationError, match="so nothing was changed"):
        found.require_sound()

    later = planned(api, sink(), topics={"other"})
    assert problems(later) == []
    assert [str(each) for each in later.notes if each.setting == "topics"] == [
        "orders_sink: topics: there is no topic 'cdc.orders' yet: nothing is read until it is there"
    ]
    for topics in ({"cdc.orders", "cdc.order"}, None):
        assert not [each for each in planned(api, sink(), topics=topics).notes if each.setting == "topics"]
    assert problems(planned(api, sink(), topics={"cdc.order"}, undefined=True)) == []


def test_what_the_class_defines_as_a_password_must_be_a_reference(
    fake: FakeConnect, api: ConnectApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = {**fake_module.DEFINED[FILE_SOURCE], "batch.size": "PASSWORD"}
    monkeypatch.setattr(fake_module, "DEFINED", {**fake_module.DEFINED, FILE_SOURCE: types})

    plan = planned(api, FileSource(name="a", file="/x", topic="t", config={"batch.size": 7}))

    assert [problem.setting for problem in plan.problems] == ["batch.size"]
    assert "is a secret, and is written as text" in plan.problems[0].what
    assert {each.setting: each.after for each in plan.changes[0].settings}["batch.size"] == "***"


@pytest.mark.parametrize(
    ("others", "setting"),
    [
        ({"slot": "orders_cdc", "topic_prefix": "q"}, "slot.name"),
        ({"topic_prefix": "p-orders_cdc"}, "topic.prefix"),
    ],
)
def test_what_each_must_have_for_itself_is_compared_with_the_cluster_too(
    fake: FakeConnect, api: ConnectApi, others: dict[str, str], setting: str
) -> None:
    fake.add("orders_cdc", cdc().properties)

    plan = planned(api, cdc("other", **others))

    assert [(problem.connector, problem.setting) for problem in plan.problems] == [("other", setting)]
    assert "which connector 'orders_cdc' has, too" in plan.problems[0].what
    elsewhere = planned(api, cdc("other", **{**others, "hostname": "other-db", "topic_prefix": "q"}))
    assert elsewhere.problems == ()


def test_somebody_who_changes_a_connector_meanwhile_is_not_overwritten(fake: FakeConnect, api: ConnectApi) -> None:
    fake.add("orders_cdc", {**cdc().properties, "snapshot.mode": "initial"})
    plan = planned(api, cdc(), sink())
    fake.connectors["orders_cdc"].config["snapshot.mode"] = "never"

    with pytest.raises(ConflictError, match="connector 'orders_cdc' was changed in Kafka Connect at"):
        planning.apply(plan, api)
    assert fake.changes == []


def test_a_rebalance_in_between_is_waited_for(fake: FakeConnect, api: ConnectApi) -> None:
    plan = planned(api, cdc())
    fake.next = [(409, "worker rebalance")] * 2

    planning.apply(plan, api)

    assert list(fake.connectors) == ["orders_cdc"]


def test_a_worker_that_fails_at_validation_changes_nothing(
    fake: FakeConnect, api: ConnectApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = fake.answer

    def failing(method: str, target: str, body: Any) -> tuple[int, Any]:
        if "/validate" in target:
            return 500, {"error_code": 500, "message": f"jdbc:x://u:{SECRET}@db does not answer"}
        return answer(method, target, body)

    monkeypatch.setattr(fake, "answer", failing)

    with pytest.raises(ConnectUnavailableError, match="does not answer") as raised:
        planned(api, cdc())
    assert SECRET not in str(raised.value)
    assert fake.changes == []


def test_files_are_checked_without_a_worker() -> None:
    made = cdc(config={"transforms": "mask"}), cdc("other", topic_prefix="p-orders_cdc")

    found, notes = planning.validate({each.name: each for each in made}, None)

    assert [(problem.connector, problem.setting) for problem in found] == [
        ("other", "topic.prefix"),
        ("orders_cdc", "transforms.mask.type"),
    ]
    assert notes == []


def test_a_worker_checks_all_files_and_changes_nothing(fake: FakeConnect, api: ConnectApi) -> None:
    fake.add("orders_cdc", cdc().properties)
    fake.errors = {"database.hostname": ["Unable to connect"]}

    found, _ = planning.validate({each.name: each for each in (cdc(), sink())}, api)

    assert list(map(str, found)) == ["orders_cdc: database.hostname: Unable to connect"]
    assert fake.changes == []
