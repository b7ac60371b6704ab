"""Three Kafka brokers with passwords, certificates and ACLs: `orders` runs on them, what is missing is told clearly
before anything changes, and secrets stay where they are."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from deltaworks import clock
from deltaworks.config import Cluster
from deltaworks.control import topics
from deltaworks.kafka import admin, permissions
from deltaworks.kafka.admin import TopicSpec
from deltaworks.kafka.control_topic import control_topic
from deltaworks.kafka.permissions import Permission
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import secured_kafka
from deltaworks.stack.certificates import Authority
from deltaworks.stack.lifecycle import down, status, up
from jobs.orders import pipeline
from jobs.recomputed.orders import recomputation
from tests.support.live_stack import read_all
from tests.support.projects import Project
from tests.support.secrecy import files_below, holding

ROOT = Path(__file__).parents[2]
USER, PASSWORD = "shop", "s3cret-of-the-broker"
CLIENT = """
home = "home"
bootstrap = "{bootstrap}"

[kafka]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "{user}"
"sasl.password" = {{ file = "password" }}
"ssl.ca.location" = "{secrets}/{ca}.pem"
"ssl.certificate.location" = "{secrets}/{certificate}.pem"
"ssl.key.location" = "{secrets}/{certificate}.key"
"""
PLAN = pipeline.plan()
NEEDED = permissions.of_pipeline(
    pipeline.name, [*PLAN.source_topics, *PLAN.global_topics], topics.output_topics(pipeline, PLAN)
)
PARTITIONS = {topic.name: topic.partitions for topic in pipeline.topics}
ALL = topics.all_topics(pipeline, PLAN)


@dataclass(frozen=True)
class Secured:
    """The cluster, as its administrator sees it."""

    settings: Settings

    @property
    def secrets(self) -> Path:
        return self.settings.kafka / "secrets"

    def user(self, name: str, *allowed: Permission) -> str:
        """A user with the password `PASSWORD` and these permissions."""
        access = secured_kafka.admin_access(self.settings)
        if allowed:  # before the password: whoever knows that one knows these, too
            permissions.grant(access, name, allowed)
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(name, credentials, PASSWORD.encode())
        client = admin.admin(access)  # a client that is collected while it works never answers
        for answer in client.alter_user_scram_credentials([user]).values():
            answer.result(30)
        self._await(name)
        return name

    def _await(self, name: str) -> None:
        """Until every broker knows a user."""
        known = self.settings.cluster.settings | {"sasl.username": name, "sasl.password": PASSWORD}
        deadline = clock.ticks_s() + 60
        for address in self.settings.bootstrap.split(","):
            while not admin.answers(Cluster(bootstrap=address, settings=known)):
                assert clock.ticks_s() < deadline, f"the broker {address} does not let {name} in"

    def project(
        self, folder: Path, *, user: str = "nobody", ca: str = "ca", certificate: str = "client", password: str = ""
    ) -> Project:
        """A project whose clients are this user."""
        text = CLIENT.format(
            bootstrap=self.settings.bootstrap, user=user, secrets=self.secrets, ca=ca, certificate=certificate
        )
        return Project.make(folder, text, "password", password or PASSWORD)

    @contextlib.contextmanager
    def orders_topics(self, **config: str) -> Iterator[None]:
        """The topics of the pipeline, as its users may not create any."""
        specs = [TopicSpec(name=t, partitions=PARTITIONS.get(t, 4), replication=-1, config=config) for t in ALL]
        admin.create_topics(self.settings.cluster, specs)
        try:
            yield
        finally:
            admin.delete_topics(self.settings.cluster, [*ALL, control_topic(pipeline.name)])

    @property
    def names(self) -> set[str]:
        return set(admin.partition_counts_of(admin.admin(self.settings.cluster)))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = own_settings(tmp_path_factory.mktemp("secured"), secured=True)
    up(settings, only=["kafka"], tethered=True)
    cluster = Secured(settings)
    authority = Authority.read(cluster.secrets, "ca")
    authority.issue("expired", valid=-datetime.timedelta(days=1))
    Authority.make(cluster.secrets, "stranger")
    try:
        yield cluster
    finally:
        down(settings)


def test_the_stack_runs_three_brokers_that_only_their_own_clients_can_use(secured: Secured) -> None:
    again = up(secured.settings, only=["kafka"], tethered=True)

    assert [*again.components] == ["kafka-1", "kafka-2", "kafka-3", "kafka-access"]
    assert again.started == []
    assert [each.state for each in status(secured.settings)] == ["ready"] * 3 + ["running"]
    assert admin.answers(secured.settings.cluster)
    assert not admin.answers(secured.settings.bootstrap)
    for node in secured_kafka.NODES:
        assert admin.answers(secured_kafka.broker(secured.settings, node).access)
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    for user in ("broker", "admin", "deltaworks"):
        password = (secured.secrets / f"{user}.password").read_text().strip()
        assert [command for command in commands if password in command] == []
    assert not (secured.settings.kafka / "broker-1" / "format.arguments").exists()


def test_whoever_has_the_listed_permissions_runs_orders_exactly(secured: Secured, tmp_path: Path) -> None:
    project = secured.project(tmp_path / "project", user=secured.user(USER, *NEEDED))

    with secured.orders_topics():
        produced = project.deltaworks("produce", "orders", "--records", "600")
        settings = project.settings
        assert (produced[0], project.is_untouched()) == (78, True), produced[1]
        assert "was not acknowledged: Broker: Topic authorization failed" in produced[1]

        owner = [Permission(kind="topic", name=topic, operations=("WRITE",)) for topic in PLAN.source_topics]
        owner += [Permission(kind="topic", name=topic, operations=("WRITE",)) for topic in PLAN.global_topics]
        secured.user(USER, *owner)
        for _ in range(3):  # a broker may learn of a permission a moment after the controller has granted it
            produced = project.deltaworks("produce", "orders", "--records", "600")
            if produced[0] == 0:
                break
        ran = project.deltaworks("run", "orders", "--until-caught-up")
        assert (produced[0], ran[0]) == (0, 0), produced[1] + ran[1]
        compared = recomputation.check(
            secured.settings.cluster, settings.tables, settings.pipeline("orders") / "batches"
        )

    assert {each.name: each.differences for each in compared if not each.equal} == {}
    assert sum(each.expected for each in compared) > 600
    written = [file for file in files_below(project.folder) if file.name != "password"]
    assert len(written) > 100
    secrets = [PASSWORD, (secured.secrets / "client.key").read_text()]
    assert holding(written, *secrets) == []
    assert PASSWORD not in produced[1] + ran[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"password": "another"}, "refuses our clients: "),
        ({"ca": "stranger"}, "refuses our clients: "),
        ({"certificate": "expired"}, "refuses our clients: "),
        ({"certificate": "missing"}, "Kafka's clients refuse their settings: "),
    ],
    ids=["password", "authority", "expired", "no certificate"],
)
def test_who_is_not_let_in_is_told_before_anything_changes(
    secured: Secured, tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    project = secured.project(tmp_path / "project", user=secured.user(USER), **wrong)
    before = secured.names

    code, said = project.deltaworks("run", "orders", "--until-caught-up")

    assert code == 78, said
    assert message in said
    assert "another" not in said
    assert project.is_untouched()
    assert secured.names == before


def test_every_missing_permission_is_named_in_one_list_before_anything_changes(
    secured: Secured, tmp_path: Path
) -> None:
    allowed = [each for each in NEEDED if each.name not in ("enriched-orders", "orders-") and each.kind != "group"]
    project = secured.project(tmp_path / "project", user=secured.user("narrow", *allowed))

    with secured.orders_topics():
        before = secured.names
        code, said = project.deltaworks("run", "orders", "--until-caught-up")

        assert secured.names == before
    assert code == 78, said
    lines = said.splitlines()
    begin = lines.index(next(line for line in lines if "does not allow our clients:" in line))
    assert [line.strip() for line in lines[begin + 1 : begin + 4]] == [
        "WRITE, DESCRIBE, DESCRIBE_CONFIGS, CREATE on topic 'enriched-orders'",
        "DESCRIBE on group 'deltaworks-*'",
        "WRITE, DESCRIBE on transactional id 'orders-*'",
    ]
    assert project.is_untouched()


def test_a_topic_that_may_not_be_created_is_named(secured: Secured, tmp_path: Path) -> None:
    project = secured.project(tmp_path / "project", user=secured.user("creator", *NEEDED))
    before = secured.names

    code, said = project.deltaworks("run", "orders", "--until-caught-up")

    assert code == 78, said
    assert "READ, DESCRIBE, DESCRIBE_CONFIGS, CREATE on topic 'raw-orders'" in said
    assert project.is_untouched()
    assert secured.names == before


def test_a_topic_that_acknowledges_too_early_is_refused(secured: Secured, tmp_path: Path) -> None:
    project = secured.project(tmp_path / "project", user=secured.user(USER, *NEEDED))

    with secured.orders_topics(**{"min.insync.replicas": "1"}):
        code, said = project.deltaworks("run", "orders", "--until-caught-up")

        assert read_all(secured.settings.cluster, "enriched-orders") == []
    assert code == 78, said
    assert "topic 'enriched-orders': min.insync.replicas=1 of 3 replicas: a written record may be lost" in said
    assert "raw-orders" not in said, "which is only read"
    assert project.is_untouched()


def test_a_home_with_another_kafka_gets_no_second_one(tmp_path: Path) -> None:
    settings = own_settings(tmp_path / "home")
    (settings.kafka / "data").mkdir(parents=True)
    (settings.kafka / "data" / "meta.properties").touch()

    with pytest.raises(Exception, match="has a Kafka without passwords"):
        secured_kafka.make(settings)

    assert not secured_kafka.is_there(settings)
