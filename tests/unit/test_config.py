"""`deltaworks.toml`: what holds, where it is from, and that secrets stay where they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from deltaworks import config
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

SECRET = "postgresql://shop:s3cret@registry/shop"


def settings(project: Path, text: str, **variables: str) -> Settings:
    (project / "deltaworks.toml").write_text(text)
    return Settings.from_environment(variables, cwd=project)


LAYERS = """
cores = 3
driver_memory = "2g"
postgres_port = 5555

[environments.prod]
driver_memory = "8g"
bootstrap = "kafka-1:9092,kafka-2:9092"
broker_options = ["-Xmx1g", "-Xms1g"]
"""


def test_a_variable_wins_over_an_environment_and_that_over_what_holds_for_all(tmp_path: Path) -> None:
    base = settings(tmp_path, LAYERS)
    prod = settings(tmp_path, LAYERS, DELTAWORKS_ENVIRONMENT="prod", DELTAWORKS_CORES="16")

    assert (base.cores, base.driver_memory, base.bootstrap) == (3, "2g", "127.0.0.1:19092")
    assert (prod.cores, prod.driver_memory, prod.postgres_port) == (16, "8g", 5555)
    assert prod.bootstrap == "kafka-1:9092,kafka-2:9092"
    assert prod.broker_options == ("-Xmx1g", "-Xms1g")
    file = tmp_path / "deltaworks.toml"
    assert [prod.values.origin(config.KEYS[key]) for key in ("cores", "driver_memory", "postgres_port", "home")] == [
        "DELTAWORKS_CORES",
        f"environments.prod.driver_memory in {file}",
        f"postgres_port in {file}",
        None,
    ]


def test_the_file_names_the_environment_unless_the_variable_does(tmp_path: Path) -> None:
    text = 'environment = "dev"\n[environments.dev]\ncores = 1\n[environments.prod]\ncores = 9\n'

    assert settings(tmp_path, text).cores == 1
    assert settings(tmp_path, text, DELTAWORKS_ENVIRONMENT="prod").cores == 9


def test_the_file_marks_the_project_and_its_paths_begin_there(tmp_path: Path) -> None:
    below = tmp_path / "notebooks"
    below.mkdir()
    settings(tmp_path, 'home = "state"\ncache = "/var/cache/deltaworks"\n')

    found = Settings.from_environment({}, cwd=below)

    assert (found.project, found.home, found.cache) == (
        tmp_path,
        tmp_path / "state",
        Path("/var/cache/deltaworks"),
    )


def test_another_process_gets_the_same_settings(tmp_path: Path) -> None:
    text = f"{LAYERS}control_url = {{ env = 'REGISTRY' }}\nhome = 'state'\n"
    found = settings(tmp_path, text, DELTAWORKS_ENVIRONMENT="prod", REGISTRY=SECRET)

    environment = found.environment()

    assert "DELTAWORKS_CONTROL_URL" not in environment  # the other process follows the reference itself
    assert environment["REGISTRY"] == SECRET
    again = Settings.from_environment(environment, cwd=Path("/"))
    assert again == found
    assert again.control_url == SECRET


def test_a_secret_is_read_from_a_file_or_a_command(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    counted = tmp_path / "counted"
    counted.touch()
    script = f"open({str(counted)!r}, 'a').write('x'); print({SECRET!r})"
    command = f'control_url = {{ command = ["{sys.executable}", "-c", "{script}"] }}\n'

    assert settings(tmp_path, 'control_url = { file = "secret" }\n').control_url == SECRET
    assert settings(tmp_path, command).control_url == SECRET
    assert settings(tmp_path, command).control_url == SECRET
    assert counted.read_text() == "x"  # once per process


def test_what_does_not_hold_need_not_be_there(tmp_path: Path) -> None:
    text = 'control_url = { env = "NOWHERE" }\n'

    assert settings(tmp_path, text, DELTAWORKS_CONTROL_URL=SECRET).control_url == SECRET


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cores = ", "cannot be read: Invalid value"),
        ("core = 2", "has the key 'core', which is no setting.\n  Hint: did you mean 'cores'?"),
        ("[environments.prod]\nbootstrp = 'a:1'", "has the key 'environments.prod.bootstrp', which is no setting."),
        ("cores = 1.5", "cores in "),
        ("cores = true", "cores in "),
        ("cores = 0", "is '0'; it must be a whole number above 0"),
        ("bootstrap = 'kafka'", "is 'kafka'; expected host:port"),
        ("environment = 'prod'", "There is no environment 'prod' in "),
        ("environments = 3", "environments in "),
        ("control_url = { env = 'NOWHERE' }", "refers to the variable NOWHERE, which is not set."),
        ("control_url = { file = 'nowhere' }", "refers to a file that cannot be read"),
        (
            "control_url = { command = ['nowhere'] }",
            "refers to the command 'nowhere', which is not on the PATH.",
        ),
        (
            "control_url = { command = ['./nowhere'] }",
            "refers to the command './nowhere', which failed: FileNotFoundError.",
        ),
        ("control_url = { vault = 'x' }", "is no reference.\n  Hint: a reference is { env = "),
        ("control_url = { env = 'A', file = 'b' }", "is no reference."),
    ],
)
def test_a_mistake_is_told_with_its_file(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings(tmp_path, text)

    assert str(tmp_path / "deltaworks.toml") in str(error.value)
    assert message in str(error.value)


def test_an_environment_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DELTAWORKS_ENVIRONMENT is 'prod', but there is no "):
        Settings.from_environment({"DELTAWORKS_ENVIRONMENT": "prod"}, cwd=tmp_path)


def test_no_error_shows_a_secret(tmp_path: Path) -> None:
    failing = f"import sys; print({SECRET!r}); print({SECRET!r}, file=sys.stderr); sys.exit(3)"
    for text, message in (
        (f'control_url = {{ command = ["{sys.executable}", "-c", "{failing}"] }}\n', "ended with exit code 3"),
        ('cores = { env = "REGISTRY" }\n', "is ***; it must be a whole number"),
        ('bootstrap = { env = "REGISTRY" }\n', "is ***; expected"),
    ):
        with pytest.raises(ConfigurationError) as error:
            settings(tmp_path, text, REGISTRY="s3cret")
        assert message in str(error.value)
        assert "s3cret" not in repr(error.value) + str(error.value)


def test_settings_do_not_show_a_secret(tmp_path: Path) -> None:
    found = settings(tmp_path, 'control_url = { env = "REGISTRY" }\n', REGISTRY=SECRET)

    assert "s3cret" not in repr(found)
    assert "s3cret" not in repr(found.values)
    assert found.values.variables == {}  # nothing of the environment is kept


def test_a_secret_of_a_variable_is_not_kept_twice(tmp_path: Path) -> None:
    found = Settings.from_environment({"DELTAWORKS_CONTROL_URL": SECRET, "OTHER": "s3cret"}, cwd=tmp_path)

    assert found.control_url == SECRET
    assert found.values.origin("DELTAWORKS_CONTROL_URL") == "DELTAWORKS_CONTROL_URL"
    assert "s3cret" not in str(dict(found.values.variables))


KAFKA = """
[kafka]
"client.id" = "shop"
"socket.keepalive.enable" = true

[environments.prod.kafka]
"client.id" = "shop-prod"
"security.protocol" = "SASL_SSL"
"sasl.password" = { env = "KAFKA_PASSWORD" }
"""


def test_settings_of_kafkas_clients_are_laid_over_each_other(tmp_path: Path) -> None:
    base = settings(tmp_path, KAFKA).cluster
    found = settings(
        tmp_path,
        KAFKA,
        DELTAWORKS_ENVIRONMENT="prod",
        DELTAWORKS_BOOTSTRAP="kafka:9093",
        DELTAWORKS_KAFKA_SASL_USERNAME="me",
        DELTAWORKS_KAFKA_CLIENT_ID="mine",
        KAFKA_PASSWORD="s3cret",
    )

    assert base.client({}) == {
        "bootstrap.servers": "127.0.0.1:19092",
        "client.id": "shop",
        "socket.keepalive.enable": "true",
    }
    assert {**found.cluster.settings, "sasl.password": 0, "sasl.username": 0, "client.id": 0} == {
        "client.id": 0,
        "socket.keepalive.enable": "true",
        "security.protocol": "SASL_SSL",
        "sasl.password": 0,
        "sasl.username": 0,
    }
    assert str(found.cluster) == "kafka:9093"


PER_PIPELINE = """
[kafka]
"client.id" = "all"
"linger.ms" = 5

[pipelines.payments.kafka]
"client.id" = "payments"
"compression.type" = "zstd"

[environments.prod.pipelines.payments.kafka]
"compression.type" = "lz4"
"sasl.password" = { env = "PAYMENTS_PASSWORD" }
"""


def test_a_pipeline_may_have_settings_of_its_own(tmp_path: Path) -> None:
    given = {"DELTAWORKS_ENVIRONMENT": "prod", "PAYMENTS_PASSWORD": "s3cret"}
    found = settings(tmp_path, PER_PIPELINE, **given)

    assert found.cluster_of("others").client({}) == found.cluster.client({})
    assert found.cluster_of("payments").settings.keys() - found.cluster.settings.keys() == {
        "compression.type",
        "sasl.password",
    }
    assert {found.cluster_of("payments").settings[name] for name in ("client.id", "linger.ms", "compression.type")} == {
        "payments",
        "5",
        "lz4",
    }
    assert found.environment()["PAYMENTS_PASSWORD"] == "s3cret", "the driver reads it"
    by_variable = settings(tmp_path, PER_PIPELINE, **given, DELTAWORKS_KAFKA_CLIENT_ID="mine")
    value = by_variable.cluster_of("payments").settings["client.id"]
    assert isinstance(value, config.Reference)
    assert value.env == "DELTAWORKS_KAFKA_CLIENT_ID"


SPARK = """
[spark]
"spark.sql.debug.maxToStringFields" = 100
"spark.driver.extraJavaOptions" = "-Dx=1"

[pipelines.payments.spark]
"spark.sql.debug.maxToStringFields" = 200
"spark.eventLog.enabled" = true
"""


def test_settings_of_spark_pass_through_for_all_pipelines_or_one(tmp_path: Path) -> None:
    found = settings(tmp_path, SPARK)

    assert found.spark_of("others") == {
        "spark.sql.debug.maxToStringFields": "100",
        "spark.driver.extraJavaOptions": "-Dx=1",
    }
    assert found.spark_of("payments") == found.spark_of("others") | {
        "spark.sql.debug.maxToStringFields": "200",
        "spark.eventLog.enabled": "true",
    }
    assert Settings.from_environment(found.environment(), cwd=Path("/")).spark_of("payments") == found.spark_of(
        "payments"
    )


SPARK_CLUSTER = """
[spark]
"spark.master" = "spark://m:7077"
"spark.authenticate" = true
"spark.authenticate.secret" = { env = "SPARK_SECRET" }

[pipelines.payments.spark]
"spark.authenticate.secret" = { file = "payments-secret" }

[pipelines.open.spark]
"spark.authenticate" = false
"""


def test_the_secret_of_a_spark_cluster_is_read_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = settings(tmp_path, SPARK_CLUSTER)

    with pytest.raises(ConfigurationError, match="SPARK_SECRET, which is not set"):
        found.spark_secret_of("others")
    with pytest.raises(ConfigurationError, match="payments-secret"):
        found.spark_secret_of("payments")
    monkeypatch.setenv("SPARK_SECRET", "s3cret")
    (tmp_path / "payments-secret").write_text("an0ther\n")
    assert found.spark_secret_of("others") == found.spark_secret_of("open") == "s3cret"
    assert found.spark_secret_of("payments") == "an0ther"
    assert settings(tmp_path, "").spark_secret_of("others") is None


def test_where_tasks_run_may_differ_between_pipelines(tmp_path: Path) -> None:
    found = settings(tmp_path, SPARK_CLUSTER)

    assert found.spark_of("others") == {"spark.master": "spark://m:7077", "spark.authenticate": "true"}
    assert found.spark_of("open")["spark.authenticate"] == "false"


def followed(found: Settings) -> Settings:
    return found.without_references()


def held(found: Settings) -> Settings:
    return replace(found, values=found.values.holding({"SPARK_SECRET": "s3cret"}))


def sent(found: Settings) -> Settings:
    return Settings.from_environment(found.environment(), cwd=Path("/"))


@pytest.mark.parametrize("change", [followed, held, sent])
def test_settings_of_spark_are_on_a_command_line_so_they_never_have_the_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: Callable[[Settings], Settings]
) -> None:
    monkeypatch.setenv("SPARK_SECRET", "s3cret")
    (tmp_path / "payments-secret").write_text("an0ther")

    found = change(settings(tmp_path, SPARK_CLUSTER, SPARK_SECRET="s3cret"))

    for pipeline in ("others", "payments", "open"):
        assert found.spark_of(pipeline).keys() == {"spark.master", "spark.authenticate"}
    assert (found.spark_secret_of("others"), found.spark_secret_of("payments")) == ("s3cret", "an0ther")
    for text in (f"{found!r} {found.values!r}", f"{found.cluster!r}"):
        assert "s3cret" not in text and "an0ther" not in text


def test_settings_without_references_have_the_secrets_of_kafka_and_the_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (
        "[kafka]\n'sasl.password' = { env = 'PASSWORD' }\n[s3]\nregion = 'eu-1'\nsecret_key = { file = 'key' }\n"
        "[pipelines.payments.kafka]\n'sasl.password' = { file = 'payments-password' }\n"
    )
    found = settings(tmp_path, text)
    monkeypatch.setenv("PASSWORD", "s3cret")
    (tmp_path / "key").write_text("k3y\n")
    with pytest.raises(ConfigurationError, match="payments-password"):
        found.without_references()
    (tmp_path / "payments-password").write_text("an0ther")

    known = found.without_references()
    for file in ("key", "payments-password"):
        (tmp_path / file).unlink()
    monkeypatch.delenv("PASSWORD")

    assert known.values.table("s3") == {"region": "eu-1", "secret_key": "k3y"}
    assert known.cluster_of("others").client({})["sasl.password"] == "s3cret"
    assert known.cluster_of("payments").client({})["sasl.password"] == "an0ther"
    assert isinstance(found.cluster.settings["sasl.password"], config.Reference), "the others are as they were"


def test_settings_without_references_hold_the_certificates_and_keys_of_kafka_that_are_here(tmp_path: Path) -> None:
    text = (
        "[kafka]\n'ssl.ca.location' = '{0}/ca.pem'\n'ssl.key.location' = '{0}/key.pem'\n"
        "'ssl.certificate.location' = '/of/the/workers.pem'\n'ssl.keystore.location' = '{0}/key.pem'\n"
        "[pipelines.payments.kafka]\n'ssl.ca.location' = '{0}'\n'ssl.key.location' = '{0}/payments.pem'\n"
    )
    for name in ("ca", "key", "payments"):
        (tmp_path / f"{name}.pem").write_text(f"the {name}")
    found = settings(tmp_path, text.format(tmp_path))

    known = found.without_references()
    for name in ("ca", "key", "payments"):
        (tmp_path / f"{name}.pem").unlink()

    others, payments = (known.cluster_of(name).client({}) for name in ("others", "payments"))
    assert others["ssl.ca.pem"] == "the ca" and others["ssl.key.pem"] == "the key"
    assert not {"ssl.ca.location", "ssl.key.location"} & others.keys()
    assert others["ssl.certificate.location"] == "/of/the/workers.pem", "perhaps the workers have it"
    assert others["ssl.keystore.location"] == f"{tmp_path}/key.pem", "there is no setting that holds it"
    assert payments["ssl.key.pem"] == "the payments" and payments["ssl.ca.location"] == str(tmp_path)
    assert found.cluster.settings["ssl.ca.location"] == f"{tmp_path}/ca.pem", "the others are as they were"


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_shown_of_the_settings_of_spark_has_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    from deltaworks.cli import app

    monkeypatch.setenv("SPARK_SECRET", "s3cret")
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "payments-secret").write_text("an0ther")
    (tmp_path / "deltaworks.toml").write_text(SPARK_CLUSTER)
    monkeypatch.chdir(tmp_path)
    for variable in (config.PROJECT, config.ENVIRONMENT):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "argv", ["deltaworks", "config", "show", *(["--json"] if as_json else [])])

    with pytest.raises(SystemExit):
        app.main()

    shown = capsys.readouterr().out
    assert "s3cret" not in shown and "an0ther" not in shown
    if as_json:
        listed = {each["name"]: each["value"] for each in msgspec.json.decode(shown)["settings"]}
        assert listed["spark.spark.authenticate.secret"] == "***"
        assert listed["pipelines.payments.spark.spark.authenticate.secret"] == "***"
        assert listed["spark.spark.master"] == "spark://m:7077"


def access(home: Path) -> Path:
    file = Settings.kafka_access_in(home)
    file.parent.mkdir(parents=True)
    file.write_text('bootstrap = "127.0.0.1:1,127.0.0.1:2"\n[kafka]\n"client.id" = "own"\n"linger.ms" = 7\n')
    return file


@pytest.mark.parametrize("named", [None, "127.0.0.1:2", "127.0.0.1:2,127.0.0.1:1"])
def test_the_secured_kafka_of_the_home_is_used_unless_another_is_named(tmp_path: Path, named: str | None) -> None:
    file = access(tmp_path / ".deltaworks")
    variables = {"DELTAWORKS_BOOTSTRAP": named} if named else {}

    found = settings(tmp_path, PER_PIPELINE, **variables, PAYMENTS_PASSWORD="x")

    assert found.bootstrap == (named or "127.0.0.1:1,127.0.0.1:2")
    assert found.cluster.settings == {"client.id": "all", "linger.ms": "5"}, "the project says otherwise"
    alone = settings(tmp_path, "", **variables)
    assert alone.cluster.settings == {"client.id": "own", "linger.ms": "7"}
    assert alone.values.table_origins[("kafka", ""), "client.id"] == f"kafka.client.id in {file}"
    assert Settings.from_environment(alone.environment(), cwd=Path("/")).cluster == alone.cluster
    elsewhere = settings(tmp_path, "", DELTAWORKS_BOOTSTRAP="kafka:9092")
    assert elsewhere.cluster.settings == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka = 1", "kafka in "),
        ("bootstrap = 1", "is not as the stack has written it"),
        ("home = 1\nbootstrap = 'a:1'", "is not as the stack has written it"),
        ("[", "cannot be read"),
    ],
)
def test_a_damaged_access_to_the_kafka_of_the_home_is_told(tmp_path: Path, text: str, message: str) -> None:
    access(tmp_path / ".deltaworks").write_text(text)

    with pytest.raises(ConfigurationError, match=message):
        settings(tmp_path, "")


def test_a_cluster_travels_without_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(
        tmp_path, KAFKA, DELTAWORKS_ENVIRONMENT="prod", KAFKA_PASSWORD="s3cret", DELTAWORKS_KAFKA_SASL_USERNAME="me"
    )
    sent = msgspec.json.encode(found.cluster)
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)

    received = msgspec.json.decode(sent, type=config.Cluster)

    assert b"s3cret" not in sent
    assert "s3cret" not in repr(found.cluster)
    assert received.client({"acks": "all"}) == {
        "acks": "all",
        "bootstrap.servers": "127.0.0.1:19092",
        "client.id": "shop-prod",
        "socket.keepalive.enable": "true",
        "security.protocol": "SASL_SSL",
        "sasl.password": "s3cret",
        "sasl.username": "me",
    }
    assert Settings.from_environment(found.environment(), cwd=Path("/")).cluster == found.cluster


def test_what_the_cluster_says_wins_over_our_own_choice() -> None:
    cluster = config.Cluster(bootstrap="a:1", settings={"fetch.wait.max.ms": "500"})

    assert cluster.client({"fetch.wait.max.ms": 10, "linger.ms": 5}) == {
        "bootstrap.servers": "a:1",
        "fetch.wait.max.ms": "500",
        "linger.ms": 5,
    }
    assert config.client_settings("a:1,b:2", {"linger.ms": 5}) == {"bootstrap.servers": "a:1,b:2", "linger.ms": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[kafka]\n"isolation.level" = "read_uncommitted"', "kafka.isolation.level in "),
        ('[kafka]\n"bootstrap.servers" = "a:1"', "Hint: DELTAWORKS_BOOTSTRAP is the address of Kafka"),
        ('[environments.dev.kafka]\n"acks" = 1\n', ""),
        ("[kafka]\nlingering = 1.5", "is 1.5; expected text, a whole number or { env"),
        ("kafka = 3", "kafka in "),
        ('[kafka]\n"sasl.password" = { vault = "x" }', "is no reference"),
    ],
)
def test_a_mistake_in_the_settings_of_kafka(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings(tmp_path, text, DELTAWORKS_ENVIRONMENT="dev" if "dev" in text else "")

    assert str(tmp_path / "deltaworks.toml") in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipelines = 1", "pipelines in .* is not a table"),
        ("pipelines.shop = 1", "pipelines.shop in .* is not a table"),
        ("pipelines.shop.kafka = 1", "pipelines.shop.kafka in .* is not a table"),
        ("pipelines.shop.cores = 1", "no setting of a pipeline"),
        ("spark.'sql.x' = 1", "is no setting of Spark"),
        ("spark.'spark.sql.shuffle.partitions' = 7", "cannot be set: streams depend on"),
        ("spark.'spark.sql.streaming.stateStore.providerClass' = 'x'", "cannot be set: streams depend on"),
        ("pipelines.shop.spark.'spark.driver.memory' = '4g'", "cannot be set"),
        ("spark.'spark.hadoop.fs.s3a.secret.key' = { env = 'KEY' }", "is a reference, but Spark's settings are on"),
        ("spark.'spark.authenticate.secret' = 's3cret'", "spark.authenticate.secret in .* is a secret"),
        ("spark.'spark.authenticate.secret' = 7", "spark.authenticate.secret in .* is a secret"),
        ("spark.'spark.authenticate.secret' = { vault = 'x' }", "is no reference"),
        ("pipelines.shop.spark.'spark.authenticate.secret' = 's3cret'", "is a secret"),
        ("spark.'spark.authenticate.secret.file' = '/x'", "cannot be set: streams depend on"),
        ("spark.'spark.authenticate.enableSaslEncryption' = true", "cannot be set: streams depend on"),
        ("spark.'spark.authenticate' = { env = 'KEY' }", "is a reference, but Spark's settings are on"),
        ("spark.'spark.master' = { env = 'KEY' }", "is a reference, but Spark's settings are on"),
        ("spark.'spark.executorEnv.PYTHONPATH' = '/x'", "cannot be set: streams depend on"),
        ("pipelines.shop.kafka.acks = 1", "cannot be set: exactly-once"),
        ("environments.prod.pipelines.shop.x = 1", "'environments.prod.pipelines.shop.x', which is no setting"),
    ],
)
def test_a_mistake_in_the_settings_of_a_pipeline(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        settings(tmp_path, text)
    assert "s3cret" not in f"{error.value} {error.value.hint}"


def test_a_variable_cannot_set_what_exactly_once_depends_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="DELTAWORKS_KAFKA_ENABLE_IDEMPOTENCE cannot be set: exactly-once"):
        Settings.from_environment({"DELTAWORKS_KAFKA_ENABLE_IDEMPOTENCE": "false"}, cwd=tmp_path)
