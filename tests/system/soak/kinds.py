"""The faults: one table. How a kind is fired, when it may fire, what counts as recovered.

A kind's function fires it and says what it hit; None: it did not fire, and does not count. Afterwards every stream has
to process all that was there, or, where `may_refuse`, to refuse and go on once its message was obeyed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.system.soak import disturb, processes, storage
from tests.system.soak.record import Fault
from tests.system.soak.soak import Soak

Fire = Callable[[Soak, random.Random], str | None]


@dataclass(frozen=True)
class Kind:
    """One way in which things go wrong."""

    fire: Fire
    weight: int = 1
    """How often it is chosen, beside others."""
    alone: bool = True
    """No other fault at the same time."""
    may_refuse: bool = False
    way_back: Callable[[Soak, Fault], str] | None = field(default=None)
    """Takes it back, where a refusal names no command but says what to bring back."""


KINDS: Mapping[str, Kind] = {
    "kill driver": Kind(processes.kill("driver"), weight=3, alone=False),
    "kill JVM": Kind(processes.kill("jvm"), weight=3, alone=False),
    "kill worker": Kind(processes.kill("worker"), weight=2, alone=False),
    "kill fork server": Kind(processes.kill("forks"), alone=False),
    "pause driver": Kind(processes.pause("driver"), alone=False),
    "pause JVM": Kind(processes.pause("jvm"), alone=False),
    "pause worker": Kind(processes.pause("worker"), alone=False),
    "slow stream": Kind(processes.slow, alone=False),
    "kill broker": Kind(processes.kill_broker),
    "pause broker": Kind(processes.pause_broker),
    "slow broker": Kind(processes.slow_broker),
    "error at a point": Kind(processes.at_point("raise"), weight=2, alone=False),
    "SIGKILL at a point": Kind(processes.at_point("kill"), weight=2, alone=False),
    "loss of power": Kind(storage.lose_power, weight=2),
    "disk of the home full": Kind(storage.fill_disk),
    "disk of the broker full": Kind(storage.fill_broker_disk),
    "clock forward": Kind(disturb.clock_forward, alone=False),
    "clock back": Kind(disturb.clock_back, alone=False),
    "checkpoint restored from a copy": Kind(
        storage.restore_checkpoint, may_refuse=True, way_back=storage.bring_checkpoint_back
    ),
    "home moved": Kind(storage.move_home),
    "local stores lost": Kind(storage.lose_local_stores),
    "local stores corrupt": Kind(storage.corrupt_local_stores),
    "command files empty or torn": Kind(disturb.tear_command_files, alone=False),
    "topic deleted and recreated": Kind(disturb.recreate_topic, may_refuse=True),
    "OPTIMIZE while running": Kind(disturb.optimize_running, may_refuse=True),
    "OPTIMIZE while stopped": Kind(disturb.optimize_stopped, may_refuse=True),
    "redeployed within a batch": Kind(disturb.redeploy),
    "replay published": Kind(disturb.publish_replay),
    "replay rolled back": Kind(disturb.roll_back),
}
