"""The settings, from environment variables and the project's `deltaworks.toml`.

No other module reads variables, except `config` for this one and for secrets. Code that needs a `Settings` gets it as
an argument. Only this module names the folders below `home`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltaworks import config
from deltaworks.config import Cluster, Values
from deltaworks.errors import ConfigurationError
from deltaworks.names import CONNECTOR, PIPELINE
from deltaworks.remote import Remote

_ADDRESS = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_=.-]*[A-Za-z0-9_=-])+")
_HOME = "home"
"""Where tables are unless an address says another place."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_SURROUNDINGS = frozenset(
    (
        *("HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "XDG_CACHE_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        *_PROXIES,
        *(name.lower() for name in _PROXIES),
    )
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Locations and limits of a deployment."""

    project: Path
    """Folder with `jobs/` and `deltaworks.toml`; DELTAWORKS_PROJECT, else the nearest above the working directory."""
    home: Path
    """Folder for everything that a running system writes; DELTAWORKS_HOME, else `.deltaworks` in the project."""
    infra: Path
    """Versions, ports, configuration and locks of the components; part of the distribution."""
    cache: Path
    """Downloads shared by all clones of this user; DELTAWORKS_CACHE, else `deltaworks` in XDG_CACHE_HOME."""
    bootstrap: str = "127.0.0.1:19092"
    """Kafka's address; DELTAWORKS_BOOTSTRAP. The broker of the stack listens on its port."""
    controller_port: int = 19093
    """Port of the broker's controller; DELTAWORKS_CONTROLLER_PORT."""
    postgres_port: int = 19432
    """Port of PostgreSQL; DELTAWORKS_POSTGRES_PORT."""
    airflow_port: int = 19080
    """Port of Airflow's pages and REST API; DELTAWORKS_AIRFLOW_PORT."""
    airflow_users: str = ""
    """Users of the stack's Airflow besides `admin`, `ada:operator, bob:approver`; DELTAWORKS_AIRFLOW_USERS."""
    approval: str = "form"
    """Who approves what a replay publishes or rolls back in Airflow; DELTAWORKS_APPROVAL, see `airflow.approvals`."""
    sql_port: int = 19100
    """Port of the SQL server; DELTAWORKS_SQL_PORT."""
    sql_host: str = "127.0.0.1"
    """Where the SQL server listens; DELTAWORKS_SQL_HOST, for containers."""
    sql_user: str = "reader"
    """The user of the SQL server; DELTAWORKS_SQL_USER."""
    sql_password: str | None = field(default=None, repr=False)
    """The password of that user; DELTAWORKS_SQL_PASSWORD, else the home keeps one."""
    sql_memory_mb: int = 512
    """Heap of the SQL server's JVM; DELTAWORKS_SQL_MEMORY_MB. Answers may take a part of it."""
    s3_port: int = 19333
    """Port of the object store; DELTAWORKS_S3_PORT. Its parts take the next eight, and one 10,000 away from those."""
    schema_registry_port: int = 19081
    """Port of the stack's schema registry; DELTAWORKS_SCHEMA_REGISTRY_PORT."""
    connect_port: int = 19083
    """Port of the stack's Kafka Connect; DELTAWORKS_CONNECT_PORT. A second worker takes the next one."""
    connect_plugins: tuple[str, ...] = ("file",)
    """What it has connectors of, see `stack.connect_plugins`; DELTAWORKS_CONNECT_PLUGINS, `file,debezium-postgres`."""
    source_postgres_port: int = 19433
    """Port of the PostgreSQL whose changes connectors read; DELTAWORKS_SOURCE_POSTGRES_PORT."""
    source_mariadb_port: int = 19306
    """Port of the MariaDB whose changes connectors read; DELTAWORKS_SOURCE_MARIADB_PORT."""
    mariadb_bin: Path | None = None
    """Preferred folder with `mariadbd` and `mariadb-install-db`; DELTAWORKS_MARIADB_BIN, else the system's, else
    Debian's packages."""
    opensearch_port: int = 19210
    """Port of the stack's OpenSearch; DELTAWORKS_OPENSEARCH_PORT. It takes the next one for itself."""
    prometheus_port: int = 19090
    """Port of the stack's Prometheus; DELTAWORKS_PROMETHEUS_PORT."""
    alertmanager_port: int = 19094
    """Port of its Alertmanager; DELTAWORKS_ALERTMANAGER_PORT."""
    prometheus_bin: Path | None = None
    """Preferred folder with `prometheus` and `alertmanager`; DELTAWORKS_PROMETHEUS_BIN, else the system's, else
    Debian's packages."""
    alert_webhook: str | None = field(default=None, repr=False)
    """Address that the Alertmanager tells of alerts; DELTAWORKS_ALERT_WEBHOOK, else they are on its page only."""
    spark_port: int = 7077
    """Port of the master of the stack's Spark cluster; DELTAWORKS_SPARK_PORT. Its page and the workers take the next
    five."""
    spark_worker_cores: int = 2
    """Cores of each worker of that cluster; DELTAWORKS_SPARK_WORKER_CORES, else the cores of the machine."""
    spark_tasks: str = "cluster"
    """Whether tasks run on the `cluster` that `[spark]` names, if it names one, or `here`; DELTAWORKS_SPARK_TASKS."""
    spark_worker_memory: str = "2g"
    """Memory of each worker for executors, in Spark's notation; DELTAWORKS_SPARK_WORKER_MEMORY."""
    hadoop_conf_dir: Path | None = None
    """Hadoop's configuration, for YARN; DELTAWORKS_HADOOP_CONF_DIR, else HADOOP_CONF_DIR or YARN_CONF_DIR."""
    supervisor_host: str = "127.0.0.1"
    """Where the supervisor of the streams listens, on a port of its choice; DELTAWORKS_SUPERVISOR_HOST."""
    supervisor: str = "here"
    """Whether whoever needs a supervisor starts it `here`, or it runs `elsewhere`; DELTAWORKS_SUPERVISOR."""
    postgres_bin: Path | None = None
    """Preferred folder with `initdb` and `postgres`; POSTGRES_BIN, else the system's, else that of a package."""
    control_url: str | None = field(default=None, repr=False)
    """Database of the registry as an SQLAlchemy URL; DELTAWORKS_CONTROL_URL, else the PostgreSQL of the stack."""
    java_home: Path | None = None
    """Preferred Java; JAVA_HOME."""
    path: tuple[Path, ...] = ()
    """Search path for programs; PATH."""
    broker_options: tuple[str, ...] = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    """JVM options of the broker; DELTAWORKS_BROKER_OPTIONS. These start fast; drop the last for top throughput."""
    ivy_settings: Path | None = None
    """Ivy settings with a company's own repositories; DELTAWORKS_IVY_SETTINGS, else Maven Central."""
    https_proxy: str | None = field(default=None, repr=False)
    """Proxy for downloads of jars, `http://host:port`; HTTPS_PROXY."""
    cores: int = 2
    """Cores that a stream may use; DELTAWORKS_CORES, else the cores of the machine."""
    driver_memory: str = "1g"
    """Heap of a stream's JVM, in Spark's notation; DELTAWORKS_DRIVER_MEMORY."""
    serve_stores: str = "no"
    """Whether `executors` of a cluster let `deltaworks store serve` read the stores beside them; `no` or `executors`,
    DELTAWORKS_SERVE_STORES."""
    metrics: str = "off"
    """Whether each driver has an endpoint for Prometheus on this machine; `off` or `on`, DELTAWORKS_METRICS."""
    max_records_per_batch: int = 400_000
    """Maximum number of records in a micro-batch; DELTAWORKS_MAX_RECORDS_PER_BATCH."""
    max_bytes_per_batch: int = 256 * 1024 * 1024
    """Maximum bytes of records in a micro-batch, as estimated from earlier batches; DELTAWORKS_MAX_BYTES_PER_BATCH."""
    query_memory_mb: int = 768
    """Memory limit of a query of `deltaworks sql` or a quality suite; DELTAWORKS_QUERY_MEMORY_MB."""
    query_frame_mb: int = 256
    """Size of a data frame; a quality suite checks a larger table in parts; DELTAWORKS_QUERY_FRAME_MB."""
    query_seconds: int = 600
    """Time limit of such a query, and of one of the SQL server; DELTAWORKS_QUERY_SECONDS."""
    tables_address: str | None = None
    """Where the tables are, `s3://<bucket>/<prefix>`; None: in the home. DELTAWORKS_TABLES, which may say `home`;
    `[s3]` says how to get there."""
    storage_address: str | None = None
    """Where everything is that a stream needs to go on, `s3://<bucket>/<prefix>`, and its tables, unless
    `tables_address` says another place; None: in the home. DELTAWORKS_STORAGE, which may say `home`."""
    docs_url: str | None = None
    """Where the documentation is as a site (`make docs`), for links to the runbooks; DELTAWORKS_DOCS_URL."""
    python_path: tuple[Path, ...] = ()
    """Where workers find `deltaworks` and the pipelines: the package (or `code`), the project, then PYTHONPATH."""
    start_offsets: str = "earliest"
    """Where a new checkpoint starts, `earliest` or `latest`; DELTAWORKS_START_OFFSETS."""
    code: Path | None = None
    """The archive that this process runs from, see `control.code`; DELTAWORKS_CODE, which the launcher sets."""
    run_from: str = "archive"
    """Whether `run` and `deploy` use an `archive` of the code or the `source` itself; DELTAWORKS_RUN_FROM."""
    fault_hook: str | None = None
    """`module:function` that arms the named fault points in driver and workers, for tests; DELTAWORKS_FAULT_HOOK."""

    values: Values = field(default_factory=lambda: Values({}), compare=False, repr=False)
    """The environment of `deltaworks.toml` that holds, DELTAWORKS_ENVIRONMENT, and where each value is from."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, *, cwd: Path | None = None) -> Settings:
        """Reads the settings once; hand the result on instead of calling this again.

        Raises:
            ConfigurationError: a variable has a value that cannot be used.
        """
        variables = os.environ if environ is None else environ
        start = Path.cwd() if cwd is None else cwd
        project = _folder(Values(variables), config.PROJECT) or _project_above(start)
        env = config.read(project, variables)
        home = _folder(env, "DELTAWORKS_HOME") or project / ".deltaworks"
        env = config.with_own_kafka(env, cls.kafka_access_in(home))
        env = config.with_own_server(env, cls.s3_access_in(home), "s3")
        env = config.with_own_server(env, cls.schema_registry_access_in(home), "schema_registry")
        env = config.with_own_server(env, cls.connect_access_in(home), "connect")
        env = config.with_own_spark(env, cls.spark_access_in(home))
        code = _folder(env, "DELTAWORKS_CODE")
        user_cache = _folder(env, "XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home()) / ".cache"
        default = cls(project=project, home=project, infra=project, cache=project)
        storage = _object_store(env, "DELTAWORKS_STORAGE")
        options = env.get("DELTAWORKS_BROKER_OPTIONS")
        return cls(
            project=project,
            home=home,
            infra=_infra(),
            cache=_folder(env, "DELTAWORKS_CACHE") or user_cache / "deltaworks",
            bootstrap=_address(env, "DELTAWORKS_BOOTSTRAP", default.bootstrap),
            controller_port=_port(env, "DELTAWORKS_CONTROLLER_PORT", default.controller_port),
            postgres_port=_port(env, "DELTAWORKS_POSTGRES_PORT", default.postgres_port),
            airflow_port=_port(env, "DELTAWORKS_AIRFLOW_PORT", default.airflow_port),
            airflow_users=env.get("DELTAWORKS_AIRFLOW_USERS") or default.airflow_users,
            approval=_choice(env, "DELTAWORKS_APPROVAL", default.approval, ("form", "always", "other person")),
            sql_port=_port(env, "DELTAWORKS_SQL_PORT", default.sql_port),
            sql_host=env.get("DELTAWORKS_SQL_HOST") or default.sql_host,
            sql_user=env.get("DELTAWORKS_SQL_USER") or default.sql_user,
            sql_password=env.get("DELTAWORKS_SQL_PASSWORD") or None,
            sql_memory_mb=_number(env, "DELTAWORKS_SQL_MEMORY_MB", default.sql_memory_mb),
            s3_port=_port(env, "DELTAWORKS_S3_PORT", default.s3_port),
            schema_registry_port=_port(env, "DELTAWORKS_SCHEMA_REGISTRY_PORT", default.schema_registry_port),
            connect_port=_port(env, "DELTAWORKS_CONNECT_PORT", default.connect_port),
            connect_plugins=_words(env, "DELTAWORKS_CONNECT_PLUGINS") or default.connect_plugins,
            source_postgres_port=_port(env, "DELTAWORKS_SOURCE_POSTGRES_PORT", default.source_postgres_port),
            source_mariadb_port=_port(env, "DELTAWORKS_SOURCE_MARIADB_PORT", default.source_mariadb_port),
            mariadb_bin=_folder(env, "DELTAWORKS_MARIADB_BIN"),
            opensearch_port=_port(env, "DELTAWORKS_OPENSEARCH_PORT", default.opensearch_port),
            prometheus_port=_port(env, "DELTAWORKS_PROMETHEUS_PORT", default.prometheus_port),
            alertmanager_port=_port(env, "DELTAWORKS_ALERTMANAGER_PORT", default.alertmanager_port),
            prometheus_bin=_folder(env, "DELTAWORKS_PROMETHEUS_BIN"),
            alert_webhook=_webhook(env, "DELTAWORKS_ALERT_WEBHOOK"),
            spark_port=_port(env, "DELTAWORKS_SPARK_PORT", default.spark_port),
            spark_worker_cores=_number(
                env, "DELTAWORKS_SPARK_WORKER_CORES", os.cpu_count() or default.spark_worker_cores
            ),
            spark_tasks=_choice(env, "DELTAWORKS_SPARK_TASKS", default.spark_tasks, ("cluster", "here")),
            spark_worker_memory=env.get("DELTAWORKS_SPARK_WORKER_MEMORY") or default.spark_worker_memory,
            hadoop_conf_dir=_folder(env, "DELTAWORKS_HADOOP_CONF_DIR")
            or _folder(env, "HADOOP_CONF_DIR")
            or _folder(env, "YARN_CONF_DIR"),
            supervisor_host=env.get("DELTAWORKS_SUPERVISOR_HOST") or default.supervisor_host,
            supervisor=_choice(env, "DELTAWORKS_SUPERVISOR", default.supervisor, ("here", "elsewhere")),
            postgres_bin=_folder(env, "POSTGRES_BIN"),
            control_url=env.get("DELTAWORKS_CONTROL_URL") or None,
            java_home=_folder(env, "JAVA_HOME"),
            path=tuple(Path(entry) for entry in (env.get("PATH") or "").split(os.pathsep) if entry),
            broker_options=tuple(options.split()) if options else default.broker_options,
            ivy_settings=_folder(env, "DELTAWORKS_IVY_SETTINGS"),
            https_proxy=env.get("HTTPS_PROXY") or env.get("https_proxy") or None,
            cores=_number(env, "DELTAWORKS_CORES", os.cpu_count() or default.cores),
            driver_memory=env.get("DELTAWORKS_DRIVER_MEMORY") or default.driver_memory,
            serve_stores=_choice(env, "DELTAWORKS_SERVE_STORES", default.serve_stores, ("no", "executors")),
            metrics=_choice(env, "DELTAWORKS_METRICS", default.metrics, ("off", "on")),
            max_records_per_batch=_number(env, "DELTAWORKS_MAX_RECORDS_PER_BATCH", default.max_records_per_batch),
            max_bytes_per_batch=_number(env, "DELTAWORKS_MAX_BYTES_PER_BATCH", default.max_bytes_per_batch),
            query_memory_mb=_number(env, "DELTAWORKS_QUERY_MEMORY_MB", default.query_memory_mb),
            query_frame_mb=_number(env, "DELTAWORKS_QUERY_FRAME_MB", default.query_frame_mb),
            query_seconds=_number(env, "DELTAWORKS_QUERY_SECONDS", default.query_seconds),
            tables_address=_object_store(env, "DELTAWORKS_TABLES", "" if storage is None else f"{storage}/tables"),
            storage_address=storage,
            docs_url=_link(env, "DELTAWORKS_DOCS_URL"),
            python_path=_python_path(env, project, code),
            start_offsets=_choice(env, "DELTAWORKS_START_OFFSETS", default.start_offsets, ("earliest", "latest")),
            code=code,
            run_from=_choice(env, "DELTAWORKS_RUN_FROM", default.run_from, ("archive", "source")),
            fault_hook=env.get("DELTAWORKS_FAULT_HOOK") or None,
            values=env.kept(),
        )

    @classmethod
    def overlaid(cls, variables: Mapping[str, str]) -> Settings:
        """Settings of the environment with other values for some variables, which stay out of this process' own.

        Raises:
            ConfigurationError: a variable has a value that cannot be used.
        """
        settings = cls.from_environment({**os.environ, **variables})
        return replace(settings, values=settings.values.holding(variables))

    def without_references(self) -> Settings:
        """For processes of other machines, which cannot look up what `[kafka]` and `[s3]` refer to: these settings have
        the secrets, and paths that are asked of them know how they are reached.

        Raises:
            ConfigurationError: a secret is not there.
        """
        return replace(self, values=self.values.followed())

    def environment(self) -> dict[str, str]:
        """The variables that give another process these settings; `from_environment` of them is equal."""
        text = {
            config.PROJECT: self.project,
            "DELTAWORKS_HOME": self.home,
            "DELTAWORKS_CACHE": self.cache,
            "DELTAWORKS_BOOTSTRAP": self.bootstrap,
            "DELTAWORKS_CONTROLLER_PORT": self.controller_port,
            "DELTAWORKS_POSTGRES_PORT": self.postgres_port,
            "DELTAWORKS_AIRFLOW_PORT": self.airflow_port,
            "DELTAWORKS_SQL_PORT": self.sql_port,
            "DELTAWORKS_SQL_HOST": self.sql_host,
            "DELTAWORKS_SQL_USER": self.sql_user,
            "DELTAWORKS_SQL_MEMORY_MB": self.sql_memory_mb,
            "DELTAWORKS_S3_PORT": self.s3_port,
            "DELTAWORKS_SCHEMA_REGISTRY_PORT": self.schema_registry_port,
            "DELTAWORKS_CONNECT_PORT": self.connect_port,
            "DELTAWORKS_CONNECT_PLUGINS": ",".join(self.connect_plugins),
            "DELTAWORKS_SOURCE_POSTGRES_PORT": self.source_postgres_port,
            "DELTAWORKS_SOURCE_MARIADB_PORT": self.source_mariadb_port,
            "DELTAWORKS_OPENSEARCH_PORT": self.opensearch_port,
            "DELTAWORKS_PROMETHEUS_PORT": self.prometheus_port,
            "DELTAWORKS_ALERTMANAGER_PORT": self.alertmanager_port,
            "DELTAWORKS_SPARK_PORT": self.spark_port,
            "DELTAWORKS_SPARK_WORKER_CORES": self.spark_worker_cores,
            "DELTAWORKS_SPARK_WORKER_MEMORY": self.spark_worker_memory,
            "DELTAWORKS_SUPERVISOR_HOST": self.supervisor_host,
            "DELTAWORKS_BROKER_OPTIONS": " ".join(self.broker_options),
            "DELTAWORKS_CORES": self.cores,
            "DELTAWORKS_DRIVER_MEMORY": self.driver_memory,
            "DELTAWORKS_MAX_RECORDS_PER_BATCH": self.max_records_per_batch,
            "DELTAWORKS_MAX_BYTES_PER_BATCH": self.max_bytes_per_batch,
            "DELTAWORKS_QUERY_MEMORY_MB": self.query_memory_mb,
            "DELTAWORKS_QUERY_FRAME_MB": self.query_frame_mb,
            "DELTAWORKS_QUERY_SECONDS": self.query_seconds,
            "DELTAWORKS_START_OFFSETS": self.start_offsets,
            "DELTAWORKS_RUN_FROM": self.run_from,
            "PATH": os.pathsep.join(map(str, self.path)),
            "PYTHONPATH": os.pathsep.join(map(str, self.python_path[2:])),
        }
        optional = {
            "POSTGRES_BIN": self.postgres_bin,
            "DELTAWORKS_MARIADB_BIN": self.mariadb_bin,
            "DELTAWORKS_PROMETHEUS_BIN": self.prometheus_bin,
            "DELTAWORKS_ALERT_WEBHOOK": self.alert_webhook,
            "DELTAWORKS_CONTROL_URL": self.control_url,
            "DELTAWORKS_SQL_PASSWORD": self.sql_password,
            "JAVA_HOME": self.java_home,
            "DELTAWORKS_IVY_SETTINGS": self.ivy_settings,
            "HTTPS_PROXY": self.https_proxy,
            "DELTAWORKS_HADOOP_CONF_DIR": self.hadoop_conf_dir,
            "DELTAWORKS_DOCS_URL": self.docs_url,
            "DELTAWORKS_TABLES": self.tables_address or _HOME,  # `deltaworks.toml` may say another place
            "DELTAWORKS_STORAGE": self.storage_address or _HOME,
            "DELTAWORKS_CODE": self.code,
            "DELTAWORKS_FAULT_HOOK": self.fault_hook,
            "DELTAWORKS_AIRFLOW_USERS": self.airflow_users,
            "DELTAWORKS_APPROVAL": None if self.approval == Settings.approval else self.approval,
            "DELTAWORKS_SPARK_TASKS": None if self.spark_tasks == Settings.spark_tasks else self.spark_tasks,
            "DELTAWORKS_SERVE_STORES": None if self.serve_stores == Settings.serve_stores else self.serve_stores,
            "DELTAWORKS_METRICS": None if self.metrics == Settings.metrics else self.metrics,
            "DELTAWORKS_SUPERVISOR": None if self.supervisor == Settings.supervisor else self.supervisor,
            config.ENVIRONMENT: self.values.environment,
        }
        named = {name: str(value) for name, value in (text | optional).items() if value is not None and str(value)}
        secret = {name for name in named if self.values.is_reference(name)}
        return {name: value for name, value in named.items() if name not in secret} | self.values.handed_on()

    @staticmethod
    def surroundings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """The variables about user and machine that programs need: home, language, time zone, proxies, certificates.

        A process that outlives its launcher gets these and `environment`, and no other variable of its launcher: no
        configuration of another program, no secret.
        """
        env = os.environ if environ is None else environ
        return {name: value for name, value in env.items() if name in _SURROUNDINGS or name.startswith("LC_")}

    @staticmethod
    def connector_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """The variables that the configuration of a connector may name, which may be secrets; no setting of ours."""
        env = os.environ if environ is None else environ
        ours = set(config.KEYS.values())
        return {name: value for name, value in env.items() if name.startswith(config.CONNECTORS) and name not in ours}

    def process_environment(self) -> dict[str, str]:
        """All variables of a process of the stack, which imports deltaworks and the pipelines from where we do."""
        return {**self.surroundings(), **self.environment(), "PYTHONPATH": self.joined_python_path}

    def with_code(self, code: Path) -> Settings:
        """These settings for a process that imports package and pipelines from an archive."""
        return replace(self, code=code, python_path=(code, self.project, *self.python_path[2:]))

    def driver_environment(self) -> dict[str, str]:
        """All variables of a driver. From an archive, it imports from there first, not from its working directory, and
        writes nothing into it."""
        if self.code is None:
            return self.surroundings() | self.environment()
        return self.process_environment() | {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    @property
    def cluster(self) -> Cluster:
        """Kafka, as every client reaches it."""
        return Cluster(bootstrap=self.bootstrap, settings=self.values.table("kafka"))

    def cluster_of(self, pipeline: str) -> Cluster:
        """Kafka, as the clients of a pipeline reach it: `[pipelines.NAME.kafka]` may say what differs."""
        return Cluster(bootstrap=self.bootstrap, settings=self.values.table("kafka", pipeline))

    def spark_of(self, pipeline: str) -> dict[str, str]:
        """Settings of Spark for a pipeline, without the secret: `[spark]`, and `[pipelines.NAME.spark]` says what
        differs."""
        own = self.values.table("spark", pipeline)
        return {name: str(value) for name, value in own.items() if name != config.SPARK_SECRET}

    def spark_secret_of(self, pipeline: str) -> str | None:
        """What the processes of a Spark cluster authenticate with.

        Raises:
            ConfigurationError: the secret is not there.
        """
        secret = self.values.table("spark", pipeline).get(config.SPARK_SECRET)
        return (secret.read() if isinstance(secret, config.Reference) else secret) or None

    def retention_of(self, pipeline: str) -> dict[str, str]:
        """How long the tables of a pipeline can be read: `[retention]`, and `[pipelines.NAME.retention]` says what
        differs."""
        return {name: str(value) for name, value in self.values.table("retention", pipeline).items()}

    def traces_of(self, pipeline: str) -> dict[str, str | config.Reference]:
        """Where traces of batches go, and which: `[traces]`, and `[pipelines.NAME.traces]` says what differs. No
        endpoint: there are none."""
        return self.values.table("traces", pipeline)

    @property
    def joined_python_path(self) -> str:
        """`python_path` in the format of PYTHONPATH."""
        return os.pathsep.join(map(str, self.python_path))

    @property
    def jobs(self) -> Path:
        """The folder of the pipelines and their suites, sample data and models."""
        return (self.code or self.project) / "jobs"

    @property
    def archives(self) -> Path:
        """One folder per version of the code that drivers run from."""
        return self.home / "code"

    @property
    def registry_url(self) -> str:
        """URL of the registry. The password is in a file, so that no command line and no environment has it."""
        local = f"postgresql+psycopg://deltaworks@127.0.0.1:{self.postgres_port}/deltaworks?passfile={self.pgpass}"
        return self.control_url or local

    @property
    def marker(self) -> Path:
        """The file that marks the home; see `home`."""
        return self.home / "home.json"

    @property
    def parts(self) -> tuple[Path, ...]:
        """Everything that deltaworks makes in the home; nothing else in it is ever deleted."""
        others = (self.airflow, self.pgpass, self.source_pgpass, self.source_options, self.run, self.temporary)
        return (*self.private, *self.of_servers, *others, self.metrics_targets, self.monitoring, self.marker)

    @property
    def of_servers(self) -> tuple[Path, ...]:
        """The folders of servers that refuse root; under root, they belong to other users."""
        return (self.postgres, self.source_postgres, self.source_mariadb, self.opensearch)

    @property
    def private(self) -> tuple[Path, ...]:
        """The folders that a home has from the beginning; only its user can access them."""
        of_components = (self.kafka, self.sql, self.s3, self.schema_registry, self.connect, self.spark)
        return (self.pipelines, self.local_tables, self.archives, self.logs, *of_components, self.jars)

    @property
    def postgres(self) -> Path:
        """Configuration and data of PostgreSQL."""
        return self.home / "postgres"

    @property
    def pgpass(self) -> Path:
        """The passwords of the stack's PostgreSQL, as libpq reads them."""
        return self.home / "postgres.pgpass"

    @property
    def source_postgres(self) -> Path:
        """Data of the PostgreSQL whose changes connectors read."""
        return self.home / "source-postgres"

    @property
    def source_pgpass(self) -> Path:
        """Its passwords, as libpq reads them."""
        return self.home / "source-postgres.pgpass"

    @property
    def source_mariadb(self) -> Path:
        """Data of the MariaDB whose changes connectors read."""
        return self.home / "source-mariadb"

    @property
    def source_options(self) -> Path:
        """Its passwords, as an option file of its clients."""
        return self.home / "source-mariadb.cnf"

    @property
    def opensearch(self) -> Path:
        """Program, configuration and data of OpenSearch."""
        return self.home / "opensearch"

    @property
    def sql(self) -> Path:
        """The password of the SQL server."""
        return self.home / "sql"

    @property
    def s3(self) -> Path:
        """Data and keys of the object store."""
        return self.home / "s3"

    @property
    def schema_registry(self) -> Path:
        """Configuration and passwords of the schema registry; its data is in PostgreSQL."""
        return self.home / "schema-registry"

    @property
    def connect(self) -> Path:
        """Configuration, login, plugins and secrets of Kafka Connect; its data is in Kafka."""
        return self.home / "connect"

    @property
    def spark(self) -> Path:
        """Secret of the Spark cluster, and the folders of its workers."""
        return self.home / "spark"

    @property
    def airflow(self) -> Path:
        """Airflow's home: configuration, secrets, logs of tasks."""
        return self.home / "airflow"

    @property
    def jars(self) -> Path:
        """One folder per set of jars."""
        return self.home / "jars"

    @property
    def kafka(self) -> Path:
        """Configuration and data of the broker."""
        return self.home / "kafka"

    @staticmethod
    def kafka_access_in(home: Path) -> Path:
        """How clients reach the secured Kafka of the stack: `bootstrap` and `[kafka]`, as in `deltaworks.toml`."""
        return home / "kafka" / "access.toml"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.home / "logs"

    @property
    def run(self) -> Path:
        """One file per running process."""
        return self.home / "run"

    @property
    def monitoring(self) -> Path:
        """Programs, configuration and data of Prometheus and its Alertmanager."""
        return self.home / "monitoring"

    @property
    def metrics_targets(self) -> Path:
        """One file per driver that Prometheus can ask, as its `file_sd_configs` read them."""
        return self.home / "metrics"

    def metrics_target(self, pipeline: str) -> Path:
        """That of one pipeline."""
        return self.metrics_targets / f"{pipeline}.json"

    @property
    def connectors_target(self) -> Path:
        """That of the metrics of connectors."""
        return self.metrics_targets / "connectors" / "connectors.json"

    @property
    def temporary(self) -> Path:
        """Temporary files of the components."""
        return self.home / "tmp"

    @property
    def tables(self) -> Path:
        """One Delta table per folder."""
        return self.local_tables if self.remote is None else self.remote.path

    @property
    def local_tables(self) -> Path:
        """The tables, unless they are in an object store; then what need not last of them."""
        return self.home / "tables"

    @property
    def remote(self) -> Remote | None:
        """The object store that has the tables; None: they are in the home."""
        return self._remote(self.tables_address)

    @property
    def storage(self) -> Remote | None:
        """The object store that has what streams need to go on; None: the home has it."""
        return self._remote(self.storage_address)

    def _remote(self, address: str | None) -> Remote | None:
        return None if address is None else Remote(address, self.values.table("s3"), self.local_tables)

    @staticmethod
    def s3_access_in(home: Path) -> Path:
        """How the object store of the stack is reached: `[s3]`, as in `deltaworks.toml`."""
        return home / "s3" / "access.toml"

    @staticmethod
    def schema_registry_access_in(home: Path) -> Path:
        """How the schema registry of the stack is reached: `[schema_registry]`, as in `deltaworks.toml`."""
        return home / "schema-registry" / "access.toml"

    @staticmethod
    def connect_access_in(home: Path) -> Path:
        """How Kafka Connect of the stack is reached: `[connect]`, as in `deltaworks.toml`."""
        return home / "connect" / "access.toml"

    @staticmethod
    def spark_access_in(home: Path) -> Path:
        """How the Spark cluster of the stack is reached: `[spark]`, as in `deltaworks.toml`."""
        return home / "spark" / "access.toml"

    @property
    def pipelines(self) -> Path:
        """One folder per pipeline, with what this machine has of it."""
        return self.home / "pipelines"

    @property
    def lasting_pipelines(self) -> Path:
        """One folder per pipeline, with what it needs to go on, here or on another machine."""
        return self.pipelines if self.storage is None else self.storage.path / "pipelines"

    def pipeline(self, name: str) -> Path:
        """Local stores, heartbeat and lease of one pipeline.

        Raises:
            ConfigurationError: the name would lead elsewhere.
        """
        return self.pipelines / PIPELINE.checked(name, self.pipelines)

    def lasting_pipeline(self, name: str) -> Path:
        """Checkpoint and batch records of one pipeline; raises like `pipeline`."""
        return self.lasting_pipelines / PIPELINE.checked(name, self.pipelines)

    def sent_again(self, connector: str) -> Path:
        """Which dead letters of a connector were sent again; see `connectors.resends`.

        Raises:
            ConfigurationError: the name would lead elsewhere.
        """
        folder = (self.connect if self.storage is None else self.storage.path / "connect") / "sent-again"
        return folder / CONNECTOR.checked(connector, folder)

    def begun_again(self, connector: str) -> Path:
        """Where the topics of a connector ended when its offsets were reset; see `connectors.sweep`.

        Raises:
            ConfigurationError: the name would lead elsewhere.
        """
        folder = (self.connect if self.storage is None else self.storage.path / "connect") / "begun-again"
        return folder / f"{CONNECTOR.checked(connector, folder)}.json"

    @property
    def broker_port(self) -> int:
        """The first port in `bootstrap`."""
        return self.broker_ports[0]

    @property
    def broker_ports(self) -> tuple[int, ...]:
        """The ports in `bootstrap`."""
        return tuple(int(address.rpartition(":")[2]) for address in self.bootstrap.split(","))


def _python_path(env: Values, project: Path, code: Path | None) -> tuple[Path, ...]:
    """Folders for imports, each once: a child gets our path and would add the first two again."""
    others = (Path(entry) for entry in (env.get("PYTHONPATH") or "").split(os.pathsep) if entry)
    package = Path(__file__).resolve().parents[1] if code is None else code
    return tuple(dict.fromkeys((package, project, *others)))


def _project_above(start: Path) -> Path:
    candidates = (start, *start.parents)
    marks = ("jobs", config.FILE)
    return next((folder for folder in candidates if any((folder / mark).exists() for mark in marks)), start)


def _infra() -> Path:
    """The folder `infra`: next to the package in a wheel, at the top of the repository in a clone."""
    here = Path(__file__).resolve().parent
    packaged = here / "_infra"
    return packaged if packaged.is_dir() else here.parents[1] / "infra"


def _folder(env: Values, name: str) -> Path | None:
    value = env.get(name)
    return Path(value).expanduser().absolute() if value else None


def _address(env: Values, name: str, default: str) -> str:
    value = env.get(name) or default
    for address in value.split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigurationError(
                f"{env.origin(name)} is {env.shown(name)}; expected host:port[,host:port...].",
                hint=f"such as {default}, or leave it unset",
            )
    return value


def _link(env: Values, name: str) -> str | None:
    value = env.get(name) or None
    if value is not None and not value.startswith(("https://", "http://")):
        raise ConfigurationError(
            f"{env.origin(name)} is {env.shown(name)}; expected the address of a folder on a web server.",
            hint="such as https://docs.example.com/deltaworks",
        )
    return None if value is None else value.rstrip("/")


def _webhook(env: Values, name: str) -> str | None:
    value = env.get(name) or None
    if value is not None and not value.startswith(("https://", "http://")):  # never shown: it may have a secret
        raise ConfigurationError(
            f"{env.origin(name)} is no address of a web server.", hint="such as https://hooks.example.com/alerts"
        )
    return value


def _object_store(env: Values, name: str, default: str = "") -> str | None:
    value = (env.get(name) or default or _HOME).rstrip("/")
    if value == _HOME:
        return None
    if not _ADDRESS.fullmatch(value):
        raise ConfigurationError(
            f"{env.origin(name)} is {env.shown(name)}; expected a bucket and a folder in it.",
            hint="such as s3://lake/deltaworks; without it, it is in the home",
        )
    return value


def _port(env: Values, name: str, default: int) -> int:
    value = env.get(name) or str(default)
    if not value.isdigit() or not 0 < int(value) < 65536:
        raise ConfigurationError(
            f"{env.origin(name)} is {env.shown(name)}; expected a port from 1 to 65535.", hint=f"such as {default}"
        )
    return int(value)


def _words(env: Values, name: str) -> tuple[str, ...]:
    """Separated by commas or spaces."""
    return tuple((env.get(name) or "").replace(",", " ").split())


def _number(env: Values, name: str, default: int) -> int:
    text = env.get(name)
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"{env.origin(name)} is {env.shown(name)}; it must be a whole number above 0")
    return int(text)


def _choice(env: Values, name: str, default: str, valid: tuple[str, ...]) -> str:
    text = env.get(name) or default
    if text not in valid:
        raise ConfigurationError(f"{env.origin(name)} is {env.shown(name)}; it must be one of {', '.join(valid)}")
    return text
