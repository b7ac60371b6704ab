"""What an operator does when a stream refuses to go on: what the message says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from tests.system.soak.record import Fault
from tests.system.soak.soak import RECOVERY_S, NotRecoveredError, Soak
from tests.system.soak.streams import Stream

_ROUNDS = 3
_RUN = "run"


def recover(soak: Soak, fault: Fault, *, may_refuse: bool, otherwise: Callable[[], str] | None = None) -> None:
    """Waits until all streams have processed what there is now; a refusal is answered as its message says.

    Args:
        soak: the run.
        fault: what was fired; gets the refusal and the way out.
        may_refuse: whether a refusal is allowed.
        otherwise: takes the fault back, where the message names no command; says what it did.

    Raises:
        NotRecoveredError: a stream does not go on, or refuses where it must not.
    """
    ends = soak.ends()
    for _ in range(_ROUNDS):
        try:
            soak.await_recovery(ends)
            return
        except NotRecoveredError:
            refusing = [stream for stream in soak.streams.values() if stream.refusal is not None]
            if not refusing or not may_refuse:
                raise
            for stream in refusing:
                _take_way_out(soak, stream, fault, otherwise)
    soak.await_recovery(ends, RECOVERY_S)


def _take_way_out(soak: Soak, stream: Stream, fault: Fault, otherwise: Callable[[], str] | None) -> None:
    refusal = stream.refusal
    assert refusal is not None
    fault.refused = f"{refusal.code}: {refusal.text[-800:]}"
    command = refusal.command
    if command is None:
        if otherwise is None:
            raise NotRecoveredError(f"{stream.name} refuses and names no command: {refusal.text[-800:]}")
        fault.way_out = otherwise()
        stream.go_on()
        return
    fault.way_out = f"deltaworks {' '.join(command)}"
    if command[0] == _RUN:
        stream.go_on(*[word for word in command[1:] if word != stream.name])
        return
    with soak.reader.idle:
        said = soak.deltaworks(*command)
    if said.code:
        raise NotRecoveredError(f"{fault.way_out}, which the message of {stream.name} names, ended with {said.text}")
    stream.go_on()
