"""History that is in the archive only: Kafka has removed every record that the stream has read."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from deltaworks.kafka import admin
from tests.system.replays.findings import Findings
from tests.system.replays.payments import BUG, NOTHING, Payments
from tests.system.replays.project import Project


def check(project: Project, findings: Findings) -> None:
    """Equal from the archive; and without the archive there is nothing to replay."""
    payments = Payments(project, "archived", archive=True)
    payments.write(BUG)
    payments.pay(60)
    with payments.streaming():
        bootstrap = project.settings.bootstrap
        ends = {part: payments.processed() // 2 - 5 for part in range(2)}
        offsets = [TopicPartition(payments.name, part, end) for part, end in ends.items()]
        client = admin.admin(bootstrap)  # what it does ends with it
        for done in client.delete_records(offsets).values():
            done.result()
        begins = admin.begin_offsets(bootstrap, [payments.name])
        removed = sum(begins.values())
        findings.holds(
            f"Kafka has removed {removed:,} records", begins == {(payments.name, p): e for p, e in ends.items()}
        )
        answer = project.deltaworks("replay", payments.name, "--hand-over", "--until", "compare")  # all tables
        findings.holds(f"a replay reads them from the archive (exit code {answer.code})", answer.code == 0)
        if answer.code != 0:
            findings.say(answer.text)
            return
        records = project.plan(answer.run).records
        findings.holds(f"it went through {records:,} records", records >= removed)
        for compared in project.comparison(answer.run).tables:
            findings.rows_equal(f"{compared.role} {compared.table}", compared.rows.production, compared.rows.different)
        project.deltaworks("discard", answer.run)
    for table, (rows, different) in payments.differences(NOTHING).items():
        findings.rows_equal(f"production: {table}", rows, different)
    archive = project.settings.tables / f"{payments.name}_archive"
    archive.rename(archive.with_name("elsewhere"))
    answer = project.deltaworks("replay", payments.name, "--until", "compare")
    findings.holds("without the archive the replay fails", answer.code != 0)
    findings.say(answer.text.strip().splitlines()[-1])
    archive.with_name("elsewhere").rename(archive)
    for run in project.unfinished(payments.name):
        project.deltaworks("discard", run)
