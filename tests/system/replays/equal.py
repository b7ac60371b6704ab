"""All jobs stream at once with records arriving; a replay of each, in recorded order, gives the same rows.

Then a replay of the newest days, which leaves out what they do not depend on. Jobs that need a schema registry are left
out, as none is started.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from deltaworks.control import actions, heartbeat, jobs
from deltaworks.lakehouse.publish.comparison import Comparison
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.replay.model import ReplayPlan
from tests.support.live_stack import has_read, settled_end_offsets
from tests.system.replays.findings import Findings
from tests.system.replays.project import WAIT_S, Project, until
from tests.system.sample_data import flowing

RECORDS, RATE = (10_000, 20_000), 20.0
"""Written at once, and up to how many later, so that days are complete; then per second and job."""
DAYS = {
    "wordcount": ("wordcount_hours",),
    "orders": ("enriched_orders", "order_counts", "user_revenue", "dead_letters"),
    "clicks": ("clicks_pages",),
    "invoices": ("invoices_line_items",),
    "inventory": ("inventory_customer_hours",),
    "ads": ("ads_clicks",),
}
"""Tables of which a replay of days need not read all history."""
WHO = "check-replay"


def check(project: Project, findings: Findings) -> None:
    """Every table of every job that has sample data, as far as its days are complete."""
    settings = project.settings
    names = jobs.with_sample_data(settings)
    with ExitStack() as stack:
        for name in names:
            for records in RECORDS:
                assert project.deltaworks("produce", name, "--records", str(records)).code == 0
                if records == RECORDS[0]:
                    actions.deploy(settings, name, requested_by=WHO, launch_s=WAIT_S)
                    stack.callback(actions.stop, settings, name, requested_by=WHO)
                until(partial(_caught_up, project, name), f"{name} has caught up")
            findings.say(f"{name} streams")
        for name in names:
            stack.enter_context(flowing(settings, RATE, job=name, continued=True))
        for name in names:
            replayed = replay(project, name, findings)
            if replayed is not None and name in DAYS:
                _replay_days(project, name, *replayed, findings)


def _caught_up(project: Project, name: str) -> bool:
    """Whether a stream has processed everything."""
    settings = project.settings
    beat = heartbeat.read(settings.pipeline(name) / "heartbeat.json")
    if beat is None or beat.state != "running" or beat.stale_snapshots:
        return False
    plan = jobs.load(settings, name).plan()
    ends = settled_end_offsets(settings.cluster, (*plan.source_topics, *plan.global_topics))
    return has_read(beat, ends)


def replay(project: Project, name: str, findings: Findings) -> tuple[ReplayPlan, Comparison] | None:
    """One job: processed again, compared, thrown away. None: it was not replayed."""
    pipeline = jobs.load(project.settings, name)
    tables = [schema.name for schema in plan_schemas(pipeline.plan().tables, pipeline.dead_letters.table)]
    answer = project.deltaworks("replay", name, "--hand-over", "--until", "compare")  # all tables, whatever their days
    if not findings.holds(f"{name}: replayed (exit code {answer.code})", answer.code == 0):
        findings.say(answer.text)
        return None
    plan = project.plan(answer.run)
    findings.say(f"{name}: batches {plan.first_batch} to {plan.last_batch}, {plan.records:,} records")
    compared = project.comparison(answer.run)
    for table in compared.tables:
        without = f", without {len(table.open_days)} days that may still change" if table.open_days else ""
        what = f"{name}: {table.role} {table.table}{without}"
        findings.rows_equal(what, table.rows.production, table.rows.different, may_be_empty=True)
        for sample in table.samples:
            findings.say(f"  {sample.kind}: {sample.before} -> {sample.after}")
        if not table.equal:
            findings.say(f"  {table.columns} {[day for day in table.days if day.different]}")
    findings.holds(f"{name}: all {len(tables)} tables were compared", {t.table for t in compared.tables} == set(tables))
    findings.holds(f"{name}: rows were compared", any(table.rows.production for table in compared.tables))
    project.deltaworks("discard", answer.run)
    findings.holds(f"{name}: the run is discarded", not project.unfinished(name))
    return plan, compared


def _replay_days(project: Project, name: str, whole: ReplayPlan, compared: Comparison, findings: Findings) -> None:
    """The newest days of the tables that have days; of fewer records."""
    day = min(table.days[-1].day for table in compared.tables if table.table in DAYS[name] and table.days)
    tables = [word for table in DAYS[name] for word in ("--table", table)]
    answer = project.deltaworks("replay", name, "--from", day, *tables, "--until", "compare")
    if not findings.holds(f"{name}: replayed from {day} on (exit code {answer.code})", answer.code == 0):
        findings.say(answer.text)
        return
    plan = project.plan(answer.run)
    findings.holds(f"{name}: from {day} on, {plan.extent}, not {whole.records:,}", plan.records < whole.records)
    for table in project.comparison(answer.run).tables:
        findings.rows_equal(f"{name}: from {day} on, {table.table}", table.rows.production, table.rows.different)
    project.deltaworks("discard", answer.run)
