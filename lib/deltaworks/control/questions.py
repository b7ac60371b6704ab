"""What tasks ask a person, as incidents while nobody has answered.

The task that asks leaves a note in the pipeline's folder. Whether it still waits, only the scheduler knows, so whoever
looks says how to ask it; the note of a question that was answered, or whose run has ended or is gone, is removed.
Replays that wait are known from their own files (`replay.waiting`), because they wait longer than the run that asks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

import msgspec

from deltaworks import formats
from deltaworks.control.incidents import Finding
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import replace_file
from deltaworks.settings import Settings

FORMAT = 1


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks."""

    format: int = FORMAT
    pipeline: str
    dag: str
    run: str
    task: str
    what: str
    """What waits, for people."""

    @property
    def key(self) -> str:
        """What tells it from others of the pipeline."""
        return f"{self.dag}/{self.run}/{self.task}"

    @property
    def finding(self) -> Finding:
        """The incident that it is while it waits."""
        place = f"{self.dag}/runs/{self.run}"
        return Finding(pipeline=self.pipeline, kind="approval_waits", key=self.key, what=self.what, place=place)


def note(settings: Settings, question: Question) -> None:
    """Notes that a question is asked; again, if it is asked again."""
    name = f"{sha256(question.key.encode()).hexdigest()[:32]}.json"
    folder = PipelinePaths.of(settings, question.pipeline).questions
    replace_file(folder / name, msgspec.json.encode(question), durable=True)


def waiting(settings: Settings, waits: Callable[[Question], bool]) -> list[Finding]:
    """The questions that nobody has answered; removes the notes of the others.

    Args:
        settings: the home.
        waits: whether the task still waits for an answer.
    """
    found = []
    for path in sorted(settings.pipelines.glob(f"*/{PipelinePaths.QUESTIONS}/*.json")):
        with suppress(IncompatibleCheckpointError):  # of another version, which knows what to do with it
            question = formats.read(path, Question, FORMAT, str(path))
            if question is None:
                continue
            if waits(question):
                found.append(question.finding)
            else:
                path.unlink(missing_ok=True)
    return found
