"""The client of a home's supervisor; it starts one if none answers."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from deltaworks import clock, home, processes
from deltaworks.control.model import Overview
from deltaworks.control.supervisor import address, messages
from deltaworks.control.supervisor.messages import (
    Answer,
    AskForOverview,
    Done,
    Envelope,
    Hello,
    Launch,
    Leave,
    Question,
)
from deltaworks.errors import StackError
from deltaworks.files import alone
from deltaworks.processes import Registered
from deltaworks.settings import Settings

NAME = "supervisor"
MODULE = "deltaworks.control.supervisor.server"
IF_NONE = "--if-none"
"""Command-line option: do not replace another supervisor that runs."""
DRAIN = "--drain"
"""Command-line option: stop the drivers before the supervisor ends."""
_ANSWER_S = 10.0
_START_S = 60.0
_POLL_S = 0.02


def answers(settings: Settings) -> bool:
    """Whether a supervisor of this home listens."""
    return _answer(settings, Hello()) is not None


def launch(
    settings: Settings, *, name: str, kind: str, command: Sequence[str], log: Path, env: Mapping[str, str]
) -> Registered:
    """Has the supervisor start a process; see `processes.launch`.

    Raises:
        StackError: no supervisor runs and none can be started, or it cannot start the process.
    """
    ensure(settings)
    question = Launch(name=name, kind=kind, command=tuple(command), log=str(log), environment=dict(env))
    try:
        started = ask(settings, question).started
    except OSError as error:
        raise StackError(
            f"The supervisor did not answer: {error}.", hint=f"retry; its log is {log_of(settings)}"
        ) from error
    assert started is not None
    return started


def overview(settings: Settings, name: str | None = None) -> Overview | None:
    """The result of `control.overview` without its imports and connections; None if no supervisor can answer."""
    question = AskForOverview(pipeline=name, registry=messages.digest_of_registry(settings))
    answer = _answer(settings, question)
    return None if answer is None else answer.overview


def leave(settings: Settings) -> bool:
    """Makes the supervisor end; False if there is none."""
    return _answer(settings, Leave()) is not None


def ensure(settings: Settings) -> None:
    """Starts a supervisor unless one runs or should run elsewhere, and waits until it answers.

    Raises:
        StackError: none answers; its log says why.
    """
    if answers(settings):
        return
    home.make(settings)
    settings.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone(settings.run):
        if answers(settings):  # somebody else has started it
            return
        log = log_of(settings)
        log_from = log.stat().st_size if log.exists() else 0
        entry = None
        if settings.supervisor_host == Settings.supervisor_host and settings.supervisor == Settings.supervisor:
            entry = processes.launch(
                settings.run,
                name=NAME,
                kind=NAME,
                command=[sys.executable, "-P", "-m", MODULE, IF_NONE],
                log=log,
                env=settings.process_environment(),
            )
        end = clock.ticks_s() + _START_S
        while not answers(settings):
            if (entry is not None and not entry.alive) or clock.ticks_s() > end:
                raise StackError(
                    f"No supervisor answers for {settings.home}.",
                    log=processes.last_lines(log, after=log_from),
                    hint=f"see the full log in {log}",
                )
            time.sleep(_POLL_S)


def require_elsewhere(settings: Settings) -> None:
    """Refuses to start drivers from here unless a supervisor answers at an address that other machines reach, too.

    Does nothing where the settings allow to start a supervisor here.

    Raises:
        StackError: no supervisor answers, or it listens on a loopback address, where other machines do not reach it.
    """
    if settings.supervisor == Settings.supervisor:
        return
    found = address.read(settings.run)
    if found is None or not answers(settings):
        what = f"none answers for {settings.home}"
    elif _is_of_one_machine(found.host):
        what = f"the one on {found.machine} listens on {found.host}, where other machines do not reach it"
    else:
        return
    raise StackError(
        f"This process may run on any machine, and a stream must not depend on it: it needs a supervisor elsewhere, "
        f"and {what}.",
        hint="on the machine of the streams, which has the same home, set DELTAWORKS_SUPERVISOR_HOST to its name or "
        f"address and run `python -m {MODULE}`; or set DELTAWORKS_SUPERVISOR=here if all of this runs on one machine",
    )


def log_of(settings: Settings) -> Path:
    """The log file of the supervisor."""
    return settings.logs / f"{NAME}.log"


def ask(settings: Settings, question: Question) -> Done:
    """Asks the supervisor a question.

    Raises:
        OSError: nobody listens, or nobody answers.
        StackError: the supervisor refuses.
    """
    found = address.read(settings.run)
    if found is None:
        raise ConnectionError("no supervisor listens")
    with socket.create_connection((found.host, found.port), timeout=_ANSWER_S) as connection:
        messages.send(connection, Envelope(found.token, question))
        answer: Answer = msgspec.json.decode(messages.receive(connection), type=Answer)
    if isinstance(answer, messages.Refused):
        raise StackError(answer.message, hint=answer.hint)
    return answer


def _answer(settings: Settings, question: Question) -> Done | None:
    """The answer; None if nobody listens or answers, or the supervisor refuses."""
    try:
        return ask(settings, question)
    except (OSError, StackError):
        return None


def _is_of_one_machine(host: str) -> bool:
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(host)
        return parsed.is_loopback or parsed.is_unspecified
    return host == "localhost"


if __name__ == "__main__":  # the health check of its container
    sys.exit(not answers(Settings.from_environment()))
