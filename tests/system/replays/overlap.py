"""Replays of the same days exclude each other; those of other days go on side by side."""

from __future__ import annotations

import msgspec

from deltaworks.lakehouse.publish.publication import Publication
from tests.system.replays.findings import Findings
from tests.system.replays.payments import BUG, DAY_MS, NOTHING, START_MS, Payments, Published
from tests.system.replays.project import Project

FIRST = ("--from", "2026-03-01", "--to", "2026-03-03")
INSIDE = ("--from", "2026-03-02", "--to", "2026-03-03")
OTHER = ("--from", "2026-03-03", "--to", "2026-03-05")


def check(project: Project, findings: Findings) -> None:
    """One of two at the same moment; none beside one that lies there; two of other days to their end."""
    payments = Payments(project, "overlaps")
    payments.write(BUG)
    payments.pay(110)
    with payments.streaming():
        payments.write()
        run = _at_once(payments, findings)
        for days in (FIRST, INSIDE, ()):
            _is_refused(payments, findings, run, days)
        _side_by_side(payments, findings, run)
        payments.settle()


def _at_once(payments: Payments, findings: Findings) -> str:
    """Two processes ask for the same days; the run that is planned."""
    project = payments.project
    processes = [project.launch("replay", payments.name, *FIRST, "--until", "plan") for _ in range(2)]
    texts = [process.communicate()[0] for process in processes]
    codes = sorted(process.returncode for process in processes)
    findings.holds(f"two at the same moment: exit codes {codes}", codes[0] == 0 and codes[1] != 0)
    said = next(text for text, process in zip(texts, processes, strict=True) if process.returncode)
    (run,) = project.unfinished(payments.name)
    _says_why(findings, run, said)
    return run


def _is_refused(payments: Payments, findings: Findings, run: str, days: tuple[str, ...]) -> None:
    answer = payments.project.deltaworks("replay", payments.name, *days, "--until", "plan")
    findings.holds(f"{' '.join(days) or 'all days'}: refused (exit code {answer.code})", answer.code != 0)
    _says_why(findings, run, answer.text)


def _says_why(findings: Findings, run: str, said: str) -> None:
    message = " ".join(said.partition("error: ")[2].split())
    findings.say(message)
    findings.holds("it names the run and the way out", run in message and f"deltaworks discard {run}" in message)


def _side_by_side(payments: Payments, findings: Findings, run: str) -> None:
    """The run that lies there and one of other days, at the same time; nobody else on either."""
    project = payments.project
    resume = ("replay", payments.name, "--resume", run, "--yes")
    processes = [
        project.launch(*resume),
        project.launch("replay", payments.name, *OTHER, "--yes", "--reason", "other days"),
    ]
    third = project.deltaworks(*resume)
    texts = [process.communicate()[0] for process in processes]
    # Whichever of the two comes first has the run.
    twice = [(processes[0].returncode, texts[0]), (third.code, third.text)]
    twice.sort(key=lambda each: each[0])
    (done, text), (refused, said) = twice
    findings.holds(f"the same run twice at once: refused (exit code {refused})", refused != 0)
    findings.say(" ".join(said.partition("error: ")[2].split()))
    codes = [done, processes[1].returncode]
    if not findings.holds(f"other days, at the same time: exit codes {codes}", codes == [0, 0]):
        findings.say("\n".join([text, texts[1]]))
        return
    # Both have replayed every payment of their four days.
    everything = {str(part): 110 * 5 for part in range(2)}
    published = Published(START_MS, START_MS + 4 * DAY_MS, everything)
    for table, (rows, different) in payments.differences(published).items():
        findings.rows_equal(f"both published: {table}", rows, different)
    # Files of rows of both may be those of the later one, whichever that is.
    files = (project.settings.pipeline(payments.name) / "publications").glob("*.json")
    publications = [msgspec.json.decode(file.read_bytes(), type=Publication) for file in files]
    earlier, later = (
        publication.request
        for publication in sorted(publications, key=lambda publication: publication.published_ms or 0)
    )
    assert earlier.from_ms is not None and earlier.to_ms is not None
    left = Published(earlier.from_ms, earlier.to_ms, everything)
    for what, request, state in (("the later one", later, left), ("both", earlier, NOTHING)):
        answer = project.deltaworks("rollback", request.run_id)
        if not findings.holds(f"{what}: rolled back (exit code {answer.code})", answer.code == 0):
            findings.say(answer.text)
        for table, (rows, different) in payments.differences(state).items():
            findings.rows_equal(f"{what} rolled back: {table}", rows, different)
