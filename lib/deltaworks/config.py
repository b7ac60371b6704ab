"""The project's `deltaworks.toml`: settings that hold for everybody, and what differs in an environment.

```toml
environment = "dev"                          # which one holds unless DELTAWORKS_ENVIRONMENT says otherwise
cores = 2

[environments.prod]
bootstrap = "kafka-1:9092,kafka-2:9092"
control_url = { file = "/run/secrets/registry" }

[environments.prod.kafka]                    # settings of librdkafka, for every client
"security.protocol" = "SASL_SSL"
"sasl.password" = { env = "KAFKA_PASSWORD" }

[spark]                                      # settings of Spark, for every stream and replay
"spark.sql.debug.maxToStringFields" = 100

[s3]                                         # how the object store is reached in which tables = "s3://..." are
endpoint = "https://s3.example.com"
secret_key = { file = "/run/secrets/s3" }

[schema_registry]                            # where Avro, Protobuf and JSON Schema have their schemas
url = "https://registry.example.com"
username = "streams"
password = { env = "REGISTRY_PASSWORD" }

[traces]                                     # where traces of batches go
endpoint = "http://127.0.0.1:4318"
headers = { file = "/run/secrets/traces" }

[connect]                                    # where Kafka Connect answers
url = "https://connect.example.com"
username = "streams"
password = { env = "CONNECT_PASSWORD" }

[pipelines.payments.kafka]                   # for the clients of one pipeline; likewise [pipelines.payments.spark]
"compression.type" = "zstd"
```

Keys are those of `KEYS`. An environment variable wins over the file, and an environment of the file over what holds for
all. Where neither names a Kafka, the one that the stack of the home runs is used.

A secret is a reference, `{ env = "NAME" }`, `{ file = "path" }`, `{ command = ["program", "argument"] }` or
`{ airflow = "connection" }`: it is read where it is needed, and never handed on as text. Only what a connection of
Airflow says goes to other processes, in their environment, since most of them cannot look it up.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import pkgutil
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from deltaworks import durations
from deltaworks.errors import ConfigurationError

FILE = "deltaworks.toml"
ENVIRONMENT = "DELTAWORKS_ENVIRONMENT"
PROJECT = "DELTAWORKS_PROJECT"
_PATHS = frozenset(
    {"home", "cache", "postgres_bin", "mariadb_bin", "prometheus_bin", "java_home", "ivy_settings", "hadoop_conf_dir"}
)
KEYS: Mapping[str, str] = {
    "postgres_bin": "POSTGRES_BIN",
    "java_home": "JAVA_HOME",
    "https_proxy": "HTTPS_PROXY",
} | {
    key: f"DELTAWORKS_{key.upper()}"
    for key in (
        *("home", "cache", "bootstrap", "controller_port", "postgres_port", "airflow_port", "supervisor_host"),
        *("airflow_users", "approval"),
        *("sql_port", "sql_host", "sql_user", "sql_password", "sql_memory_mb", "s3_port"),
        *("spark_port", "spark_tasks", "spark_worker_cores", "spark_worker_memory", "hadoop_conf_dir"),
        *("control_url", "broker_options", "ivy_settings", "cores", "driver_memory", "max_records_per_batch"),
        *("max_bytes_per_batch", "query_memory_mb", "query_frame_mb", "query_seconds"),
        *("start_offsets", "run_from", "supervisor", "docs_url", "tables", "storage", "schema_registry_port"),
        *("serve_stores", "connect_port", "connect_plugins", "metrics"),
        *("source_postgres_port", "source_mariadb_port", "mariadb_bin", "opensearch_port"),
        *("prometheus_port", "alertmanager_port", "prometheus_bin", "alert_webhook"),
    )
}
"""Key of a setting in the file -> its environment variable. The names of the keys are those of `Settings`."""
KAFKA = "DELTAWORKS_KAFKA_"
"""Prefix of variables with settings of Kafka's clients: DELTAWORKS_KAFKA_SASL_PASSWORD is `sasl.password`."""
OURS = frozenset(
    (
        *("bootstrap.servers", "metadata.broker.list", "group.id", "group.instance.id", "group.protocol"),
        *("transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks", "request.required.acks"),
        *("isolation.level", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset"),
        *("enable.partition.eof", "partitioner", "delivery.report.only.error", "message.max.bytes"),
    )
)
"""Settings of clients that exactly-once depends on, so nobody else sets them."""
CONNECTORS = "DELTAWORKS_CONNECT_"
"""Prefix of variables that the configuration of a connector may name."""
_REFERENCE = (
    '{ env = "NAME" }, { file = "path" }, { command = ["program", "argument"] } or '
    '{ airflow = "connection", field = "password" }'
)
_REFERENCE_KINDS = frozenset({"env", "file", "command", "airflow"})
_FIELD = r"^(password|login|host|port|schema|url|extra\..+)$"
_HANDED_ON = "DELTAWORKS_CONNECTION_"
"""Prefix of variables with what connections of Airflow say."""
_PEM = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""Settings of Kafka's clients that name a file, and those that hold what is in it."""
_ADDRESSES = frozenset({"bootstrap.servers", "metadata.broker.list"})
_COMMAND_S = 30
Kind: TypeAlias = Literal["kafka", "spark", "retention", "traces", "s3", "schema_registry", "connect"]
_OF_PIPELINES: tuple[Kind, ...] = ("kafka", "spark", "retention", "traces")
"""Tables of settings that pipelines may have of their own; `kafka` and `spark` go to a library as they are."""
_KINDS: tuple[Kind, ...] = (*_OF_PIPELINES, "s3", "schema_registry", "connect")
"""All tables of settings."""
_RETENTION = ("versions", "hours", "days")
_TRACES = ("endpoint", "headers", "ca_file", "sample_ratio", "timeout_seconds")
_LONGEST_TIMEOUT_S = 60
_TABLES = frozenset({*_KINDS, "pipelines"})
"""Keys of a layer of the file that are tables."""
SPARK_SECRET = "spark.authenticate.secret"
"""The one secret of Spark that can be set: that of a cluster. Empty: it has none, whatever holds for others."""
_MASTER = "spark.master"
_OURS_OF_SPARK = re.compile(
    r"spark\.(app\.name|authenticate\..*|local\.dir|speculation.*|python\..*|executorEnv\.PYTHONPATH|driver\.memory"
    r"|task\.maxFailures|sql\.(shuffle\.partitions|adaptive\..*|warehouse\.dir|session\.timeZone|exchange\.reuse"
    r"|execution\.arrow\..*|streaming\.(stateStore|checkpoint|forceDelete|noDataMicroBatches|minBatchesToRetain).*))"
)
"""Settings of Spark that exactly-once or the workers depend on, and those that we have a setting for."""


@dataclass(frozen=True)
class _Server:
    """What a table says of how a server is reached."""

    settings: tuple[str, ...]
    secrets: frozenset[str]
    address: str
    schemes: tuple[str, ...]
    yes_or_no: str = ""

    def require(self, kind: Kind, name: str, value: object, origin: str) -> None:
        """Raises `ConfigurationError` if a setting of the table cannot be used."""
        if name not in self.settings:
            hint = f"settings of [{kind}]: {', '.join(self.settings)}"
            raise ConfigurationError(f"{origin} is no setting.", hint=hint)
        if name == self.yes_or_no and not isinstance(value, bool):
            raise ConfigurationError(f"{origin} is {value!r}; it is true or false.")
        if name == self.address and not str(value).startswith(self.schemes):
            raise ConfigurationError(f"{origin} is {value!r}; expected http:// or https:// and a host.")
        if isinstance(value, dict) and name not in self.secrets:
            raise ConfigurationError(f"{origin} is a reference, but it is no secret.", hint="write the value")


_SERVERS = {
    "s3": _Server(
        ("endpoint", "region", "access_key", "secret_key", "path_style", "ca_file"),
        frozenset({"access_key", "secret_key"}),
        address="endpoint",
        schemes=("http://", "https://"),
        yes_or_no="path_style",
    ),
    "schema_registry": _Server(
        ("url", "username", "password", "register", "ca_file", "certificate_file", "key_file"),
        frozenset({"username", "password"}),
        address="url",
        schemes=("http://", "https://", "mock://"),
        yes_or_no="register",
    ),
    "connect": _Server(
        ("url", "username", "password", "ca_file", "standalone"),
        frozenset({"username", "password"}),
        address="url",
        schemes=("http://", "https://"),
        yes_or_no="standalone",
    ),
}


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Where a secret is: one of the fields `env`, `file`, `command` and `airflow` is given."""

    origin: str
    """The key and its file, or the variable."""
    folder: str = "/"
    """Where relative paths begin, and where the command runs."""
    env: str | None = None
    file: str | None = None
    command: tuple[str, ...] | None = None
    airflow: str | None = None
    """Id of a connection of Airflow."""
    field: Annotated[str, msgspec.Meta(pattern=_FIELD)] = "password"
    """What of the connection: one of its fields, `url` (of a PostgreSQL, as `control_url` has it) or `extra.NAME`."""

    @property
    def variable(self) -> str | None:
        """The environment variable that has the secret, or, for a connection of Airflow, may have it."""
        if self.airflow is None:
            return self.env
        text = re.sub("[^A-Za-z0-9]", lambda other: f"_{ord(other[0]):X}_", f"{self.airflow} {self.field}")
        return f"{_HANDED_ON}{text}"

    def read(self, variables: Mapping[str, str] | None = None) -> str:
        """The secret.

        Args:
            variables: the environment variables; None: those of this process.

        Raises:
            ConfigurationError: it is not there; the message says where it should be, and never what it is.
        """
        if self.env is not None:
            value = (os.environ if variables is None else variables).get(self.env)
            if not value:
                raise ConfigurationError(f"{self.origin} refers to the variable {self.env}, which is not set.")
            return value
        if self.airflow is not None:
            handed_on = (os.environ if variables is None else variables).get(self.variable or "")
            return handed_on or self._of_airflow(self.airflow)
        if self.file is not None:
            try:
                return (Path(self.folder) / Path(self.file).expanduser()).read_text(encoding="utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{self.origin} refers to a file that cannot be read: {error}.") from None
        return _output(self.command or (), self.origin, self.folder)

    def _of_airflow(self, conn_id: str) -> str:
        try:  # by its name: it is above this module, and imports Airflow
            value_of = pkgutil.resolve_name("deltaworks.airflow.connections:value_of")
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{self.origin} refers to a connection of Airflow, but '{error.name}' is not installed.",
                hint="pip install 'deltaworks[airflow]'",
            ) from None
        try:
            return str(value_of(conn_id, self.field))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{self.origin} refers to a connection of Airflow: {error.message}", hint=error.hint
            ) from None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A Kafka cluster as clients reach it. It can be sent to other processes: secrets in it are references."""

    bootstrap: str
    """`host:port[,host:port...]`"""
    settings: dict[str, str | Reference] = {}
    """Settings of librdkafka for every client."""

    def __str__(self) -> str:
        return self.bootstrap

    def __repr__(self) -> str:
        """Without the values of the settings, which may be secrets."""
        return f"Cluster({self.bootstrap!r}, settings: {', '.join(self.settings) or 'none'})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("bootstrap", self.bootstrap)]

    def client(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a client: ours, and those of the cluster, which win.

        Raises:
            ConfigurationError: a secret is not there.
        """
        theirs = {name: each.read() if isinstance(each, Reference) else each for name, each in self.settings.items()}
        return {**ours, **theirs, "bootstrap.servers": self.bootstrap}


Kafka: TypeAlias = str | Cluster
"""A cluster, or the address of one that needs no further settings."""


def client_settings(kafka: Kafka, ours: Mapping[str, Any]) -> dict[str, Any]:
    """See `Cluster.client`."""
    return (Cluster(bootstrap=kafka) if isinstance(kafka, str) else kafka).client(ours)


@dataclass(frozen=True)
class Found:
    """A value, and where it is from."""

    text: str = field(repr=False)
    origin: str
    """The variable, or the key and its file."""
    reference: Reference | None = None
    """Where it was read from; None: the file has it."""


Table: TypeAlias = tuple[Kind, str]
"""A table of settings of a library, and the pipeline that it is for; empty: for all."""


@dataclass(frozen=True)
class Values:
    """The values of environment variables and of the file; the variables win."""

    variables: Mapping[str, str] = field(repr=False)
    of_file: Mapping[str, Found] = field(default_factory=dict)
    """By the name of their variable."""
    environment: str | None = None
    """The environment of the file that holds."""
    passed_on: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables to which the file refers, and those with settings of Kafka's clients."""
    tables: Mapping[Table, Mapping[str, str | Reference]] = field(default_factory=dict, repr=False)
    """Settings of libraries."""
    table_origins: Mapping[tuple[Table, str], str] = field(default_factory=dict)
    """Table and name of such a setting -> where it is from."""

    def table(self, kind: Kind, pipeline: str = "") -> dict[str, str | Reference]:
        """The settings of a library; a pipeline's own win."""
        return {**self.tables.get((kind, ""), {}), **self.tables.get((kind, pipeline), {})}

    def get(self, name: str) -> str | None:
        """The value of a variable; None: neither says anything."""
        return self.variables.get(name) or (self.of_file[name].text if name in self.of_file else None)

    def handed_on(self) -> dict[str, str]:
        """The variables that other processes need to follow the references.

        A connection that Airflow does not find here is left out: the other process may find it.
        """
        found = dict(self.passed_on)
        in_tables = [setting for table in self.tables.values() for setting in table.values()]
        for reference in (*(each.reference for each in self.of_file.values()), *in_tables):
            if isinstance(reference, Reference) and reference.airflow is not None and reference.variable is not None:
                with contextlib.suppress(ConfigurationError):
                    found.setdefault(reference.variable, reference.read())
        return found

    def kept(self) -> Values:
        """The part to keep with the settings: of variables, only which of them are set."""
        return replace(self, variables={name: name for name in KEYS.values() if self.variables.get(name)})

    def holding(self, variables: Mapping[str, str]) -> Values:
        """These values, with settings of libraries that refer to one of these variables replaced by what it says."""

        def held(setting: str | Reference) -> str | Reference:
            if isinstance(setting, Reference) and setting.env is not None:
                return variables.get(setting.env, setting)
            return setting

        tables = {table: {name: held(each) for name, each in of.items()} for table, of in self.tables.items()}
        return replace(self, tables=tables)

    def followed(self) -> Values:
        """These values, with references in settings of libraries replaced by the secrets, and settings that name a
        certificate or a key of Kafka's clients by those that hold it.

        A file that cannot be read here is left to who has it at that path. Those of traces are left out: only drivers
        send them.

        Raises:
            ConfigurationError: a secret is not there.
        """
        tables: dict[Table, dict[str, str | Reference]] = {}
        for table, of in self.tables.items():
            if table[0] == "traces":
                continue
            tables[table] = {name: each.read() if isinstance(each, Reference) else each for name, each in of.items()}
            if table[0] == "kafka":
                tables[table] = dict(_with_its_file(name, str(each)) for name, each in tables[table].items())
        return replace(self, tables=tables)

    def origin(self, name: str) -> str | None:
        """Where the value is from; None: there is none, so the default holds."""
        if self.variables.get(name):
            return name
        return self.of_file[name].origin if name in self.of_file else None

    def shown(self, name: str) -> str:
        """The value for an error text; a secret is masked."""
        return "***" if self.is_reference(name) else repr(self.get(name))

    def is_reference(self, name: str) -> bool:
        """Whether the value was read from where the file refers to."""
        return not self.variables.get(name) and name in self.of_file and self.of_file[name].reference is not None


def _with_its_file(name: str, value: str) -> tuple[str, str]:
    """A setting of Kafka's clients; what is in the file that it names, if there is a setting for that."""
    held = _PEM.get(name)
    if held is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):  # a folder, say, or a word that means something
            return held, Path(value).read_text(encoding="utf-8")
    return name, value


def read(project: Path, variables: Mapping[str, str]) -> Values:
    """The values that hold in a project.

    Raises:
        ConfigurationError: the file cannot be used, has no such environment, or refers to what cannot be read.
    """
    file = project / FILE
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if wanted := variables.get(ENVIRONMENT):
            raise ConfigurationError(
                f"{ENVIRONMENT} is '{wanted}', but there is no {file} that says what it is.",
                hint=f"write [environments.{wanted}] into it, or leave {ENVIRONMENT} unset",
            ) from None
        document = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}.") from error
    environments = _table(document.pop("environments", {}), "environments", file)
    default = document.pop("environment", None)
    chosen = variables.get(ENVIRONMENT) or (None if default is None else str(default))
    if chosen is not None and chosen not in environments:
        known = ", ".join(environments) or "none"
        raise ConfigurationError(
            f"There is no environment {chosen!r} in {file}.", hint=f"its environments: {known}; see {ENVIRONMENT}"
        )
    for name, each in environments.items():
        _check(_table(each, f"environments.{name}", file), f"environments.{name}.", file)
    _check(document, "", file)
    given: dict[str, tuple[str, Any]] = {}
    tables: dict[Table, dict[str, str | Reference]] = {}
    origins: dict[tuple[Table, str], str] = {}
    for prefix, layer in (("", document), (f"environments.{chosen}.", environments[chosen] if chosen else {})):
        given |= {key: (f"{prefix}{key} in {file}", value) for key, value in layer.items() if key not in _TABLES}
        own = layer.get("pipelines", {})
        for pipeline, at, each in (("", prefix, layer), *((n, f"{prefix}pipelines.{n}.", own[n]) for n in own)):
            for kind in _OF_PIPELINES if pipeline else _KINDS:
                settings = _settings(kind, each.get(kind, {}), f"{at}{kind}", file)
                tables.setdefault((kind, pipeline), {}).update(settings)
                origins |= {((kind, pipeline), name): f"{at}{kind}.{name} in {file}" for name in settings}
    for name, reference in _kafka_variables(variables).items():
        for table, chosen_ones in tables.items():
            if table == ("kafka", "") or (table[0] == "kafka" and name in chosen_ones):  # a variable wins everywhere
                chosen_ones[name] = reference
                origins[table, name] = reference.origin
    found = {
        KEYS[key]: _found(key, value, origin, file.parent, variables)
        for key, (origin, value) in given.items()
        if not variables.get(KEYS[key])  # what does not hold need not be there
    }
    in_tables = [setting for table in tables.values() for setting in table.values()]
    references = [*(each.reference for each in found.values()), *in_tables]
    named = {each.variable for each in references if isinstance(each, Reference) and each.variable is not None}
    passed_on = {name: variables[name] for name in named if variables.get(name)}
    return Values(variables, found, chosen, passed_on, tables, origins)


def own_kafka(file: Path) -> Cluster | None:
    """The Kafka with passwords that the stack of a home runs; None: it runs none.

    Args:
        file: `bootstrap` and a table `[kafka]`, as the stack writes it.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    if (document := _written_by_stack(file, "deltaworks up kafka --secured")) is None:
        return None
    bootstrap, settings = document.pop("bootstrap", None), _table(document.pop("kafka", {}), "kafka", file)
    if document or not isinstance(bootstrap, str):
        raise ConfigurationError(f"{file} is not as the stack has written it.", hint="deltaworks up kafka --secured")
    return Cluster(bootstrap=bootstrap, settings=_settings("kafka", settings, "kafka", file))


def with_own_kafka(values: Values, file: Path) -> Values:
    """These values, and the access to the Kafka of the home's stack (`own_kafka`), unless they name another Kafka.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    if (own := own_kafka(file)) is None:
        return values
    variable = KEYS["bootstrap"]
    named = values.get(variable) or own.bootstrap
    if not set(named.split(",")) <= set(own.bootstrap.split(",")):
        return values
    found = {variable: Found(own.bootstrap, f"bootstrap in {file}")}
    table: Table = ("kafka", "")
    origins = {(table, name): f"kafka.{name} in {file}" for name in own.settings}
    return replace(
        values,
        of_file=found | dict(values.of_file),
        tables={**values.tables, table: {**own.settings, **values.tables.get(table, {})}},
        table_origins=origins | dict(values.table_origins),
    )


def with_own_server(values: Values, file: Path, kind: Literal["s3", "schema_registry", "connect"]) -> Values:
    """These values, and the access to a server of the home's stack, unless they name another address.

    Args:
        values: of variables and of `deltaworks.toml`.
        file: a table of this kind, as the stack writes it.
        kind: of the server.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    command, address = f"deltaworks up {kind.replace('_', '-')}", _SERVERS[kind].address
    if (document := _written_by_stack(file, command)) is None:
        return values
    own = _settings(kind, _table(document.get(kind, {}), kind, file), kind, file)
    if address not in own:
        raise ConfigurationError(f"{file} is not as the stack has written it.", hint=command)
    table: Table = (kind, "")
    named = values.tables.get(table, {})
    if named.get(address, own[address]) != own[address]:
        return values
    origins = {(table, name): f"{kind}.{name} in {file}" for name in own}
    return replace(
        values, tables={**values.tables, table: {**own, **named}}, table_origins=origins | dict(values.table_origins)
    )


def with_own_spark(values: Values, file: Path) -> Values:
    """These values, and the secret of the Spark cluster of the home's stack for those who name it, and no secret.

    Args:
        values: of variables and of `deltaworks.toml`.
        file: a table `[spark]`, as the stack writes it.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    if (document := _written_by_stack(file, "deltaworks up spark")) is None:
        return values
    own = _settings("spark", _table(document.get("spark", {}), "spark", file), "spark", file)
    master, secret = own.get(_MASTER), own.get(SPARK_SECRET)
    if master is None or not isinstance(secret, Reference):
        raise ConfigurationError(f"{file} is not as the stack has written it.", hint="deltaworks up spark")
    general = values.table("spark")
    is_general = general.get(_MASTER) == master and SPARK_SECRET not in general
    tables, origins = dict(values.tables), dict(values.table_origins)
    for table, said in values.tables.items():
        kind, pipeline = table
        holds = values.table(kind, pipeline)
        if kind != "spark" or SPARK_SECRET in holds:
            continue
        if holds.get(_MASTER) == master:
            tables[table] = {**said, SPARK_SECRET: secret}
            origins[table, SPARK_SECRET] = secret.origin
        elif is_general:  # no secret of ours goes to another cluster
            tables[table] = {**said, SPARK_SECRET: ""}
    return replace(values, tables=tables, table_origins=origins)


def _written_by_stack(file: Path, command: str) -> dict[str, Any] | None:
    """What a file of the stack says, which a command writes; None: there is none."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}.", hint=command) from error


def kafka_variable(name: str) -> str:
    """The variable for a setting of Kafka's clients."""
    return KAFKA + name.upper().replace(".", "_")


def _kafka_variables(variables: Mapping[str, str]) -> dict[str, Reference]:
    """Settings of Kafka's clients that are variables: references, as any of them may be a secret."""
    found = {}
    for variable in (name for name, value in variables.items() if name.startswith(KAFKA) and value):
        name = variable.removeprefix(KAFKA).lower().replace("_", ".")
        _require_theirs(name, variable)
        found[name] = Reference(origin=variable, env=variable)
    return found


def _settings(kind: Kind, table: Mapping[str, object], prefix: str, file: Path) -> dict[str, str | Reference]:
    """The settings of a library in a table of the file."""
    return {
        name: _setting(kind, name, value, f"{prefix}.{name} in {file}", file.parent) for name, value in table.items()
    }


def _setting(kind: Kind, name: str, value: object, origin: str, folder: Path) -> str | Reference:
    match kind:
        case "kafka":
            _require_theirs(name, origin)
        case "spark":
            _require_for_spark(name, value, origin)
        case "retention":
            return _retention(name, value, origin)
        case "traces":
            _require_for_traces(name, value, origin)
            if name == "ca_file":
                return str(folder / Path(str(value)).expanduser())
            if isinstance(value, float):
                return str(value)
        case "s3" | "schema_registry" | "connect":
            _SERVERS[kind].require(kind, name, value, origin)
            if name.endswith("_file"):
                return str(folder / Path(str(value)).expanduser())
    if isinstance(value, dict):
        return _reference(value, origin, folder)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    raise _unexpected(value, origin)


def _require_for_traces(name: str, value: object, origin: str) -> None:
    if name not in _TRACES:
        raise ConfigurationError(f"{origin} is no setting.", hint=f"settings of [traces]: {', '.join(_TRACES)}")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match name:
        case "headers" if not isinstance(value, dict):
            raise ConfigurationError(f"{origin} is a secret.", hint='{ file = "..." } says where it is')
        case "endpoint" if isinstance(value, str) and "@" in value:
            raise ConfigurationError(f"{origin} has a password.", hint='{ file = "..." } says where the address is')
        case "endpoint" if not isinstance(value, dict) and not str(value).startswith(("http://", "https://")):
            raise ConfigurationError(f"{origin} is {value!r}; expected http:// or https:// and a host.")
        case "sample_ratio" if not is_number or not 0 <= float(str(value)) <= 1:
            raise ConfigurationError(f"{origin} is {value!r}; expected a share from 0 to 1, such as 0.1.")
        case "timeout_seconds" if not isinstance(value, int) or not is_number or not 1 <= value <= _LONGEST_TIMEOUT_S:
            raise ConfigurationError(f"{origin} is {value!r}; expected seconds from 1 to {_LONGEST_TIMEOUT_S}.")
        case "ca_file" if not isinstance(value, str):
            raise ConfigurationError(f"{origin} is {value!r}; expected the path of a file.")


def _retention(name: str, value: object, origin: str) -> str:
    if name not in _RETENTION:
        raise ConfigurationError(f"{origin} is no setting.", hint=f"settings of [retention]: {', '.join(_RETENTION)}")
    durations.parse(str(value), origin)
    return str(value)


def _require_for_spark(name: str, value: object, origin: str) -> None:
    if not name.startswith("spark."):
        raise ConfigurationError(f"{origin} is no setting of Spark.", hint=f'"spark.{name}"?')
    if name == SPARK_SECRET:
        if not isinstance(value, dict):
            raise ConfigurationError(f"{origin} is a secret.", hint='{ file = "..." } says where it is')
        return
    if _OURS_OF_SPARK.fullmatch(name):
        hint = "driver_memory sets it" if name == "spark.driver.memory" else "remove it"
        raise ConfigurationError(
            f"{origin} cannot be set: streams depend on the value of '{name}' that deltaworks chooses.", hint=hint
        )
    if isinstance(value, dict):
        raise ConfigurationError(
            f"{origin} is a reference, but Spark's settings are on the command line of the JVM, where others see them.",
            hint="write the value, if it is no secret",
        )


def _require_theirs(name: str, origin: str) -> None:
    if name in OURS:
        raise ConfigurationError(
            f"{origin} cannot be set: exactly-once depends on the value of '{name}' that deltaworks chooses.",
            hint="DELTAWORKS_BOOTSTRAP is the address of Kafka" if name in _ADDRESSES else "remove it",
        )


def _table(value: object, name: str, file: Path) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ConfigurationError(f"{name} in {file} is not a table.", hint=f"write [{name}]")


def _check(layer: Mapping[str, Any], prefix: str, file: Path) -> None:
    for kind in _KINDS:
        _table(layer.get(kind, {}), f"{prefix}{kind}", file)
    for name, each in _table(layer.get("pipelines", {}), f"{prefix}pipelines", file).items():
        for key in _table(each, f"{prefix}pipelines.{name}", file):
            if key not in _OF_PIPELINES:
                raise ConfigurationError(
                    f"{file} has the key '{prefix}pipelines.{name}.{key}', which is no setting of a pipeline.",
                    hint=f"tables of a pipeline: [{prefix}pipelines.{name}.kafka], spark, retention, traces",
                )
            _table(each[key], f"{prefix}pipelines.{name}.{key}", file)
    for key in layer.keys() - _TABLES:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            raise ConfigurationError(
                f"{file} has the key '{prefix}{key}', which is no setting.",
                hint=f"did you mean '{near[0]}'?" if near else f"settings: {', '.join(sorted(KEYS))}",
            )


def _found(key: str, value: object, origin: str, folder: Path, variables: Mapping[str, str]) -> Found:
    if isinstance(value, dict):
        reference = _reference(value, origin, folder)
        return Found(reference.read(variables), origin, reference)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return Found(" ".join(value), origin)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _unexpected(value, origin)
    return Found(str(folder / Path(str(value)).expanduser()) if key in _PATHS else str(value), origin)


def _unexpected(value: object, origin: str) -> ConfigurationError:
    return ConfigurationError(f"{origin} is {value!r}; expected text, a whole number or {_REFERENCE}.")


def _reference(given: Mapping[str, Any], origin: str, folder: Path) -> Reference:
    try:
        reference = msgspec.convert({**given, "origin": origin, "folder": str(folder)}, Reference)
    except msgspec.ValidationError:
        reference = None
    kinds = given.keys() - ({"field"} if "airflow" in given else set())
    if reference is None or len(kinds) != 1 or not kinds <= _REFERENCE_KINDS or reference.command == ():
        raise ConfigurationError(f"{origin} is no reference.", hint=f"a reference is {_REFERENCE}")
    return reference


@lru_cache(maxsize=32)
def _output(command: tuple[str, ...], origin: str, folder: str) -> str:
    """Runs a command, once per process, and returns what it prints, which is never shown to anybody."""
    if os.sep not in command[0] and shutil.which(command[0]) is None:
        raise ConfigurationError(f"{origin} refers to the command '{command[0]}', which is not on the PATH.")
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{origin} refers to the command '{command[0]}', which failed: {type(error).__name__}."
        ) from None
    if done.returncode != 0:
        raise ConfigurationError(
            f"{origin} refers to the command '{command[0]}', which ended with exit code {done.returncode}."
        )
    return done.stdout.rstrip("\n")
