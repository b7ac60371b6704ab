"""`make check-queries-cluster`: stores beside executors are asked all the time, while what they run on is killed.

The stream runs on a standalone cluster, with everything in an object store. Executors, whole workers, driver, JVM,
store, the server that is asked and the servers beside executors get SIGKILL; each answer is compared with what the
records of the topics say as of its offsets.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil

from deltaworks.settings import Settings
from tests.system.kills.cluster import on_cluster
from tests.system.kills.machines import Machines, machines
from tests.system.kills.store_under_kills import StoreUnderKills, stored
from tests.system.queries.asking import asking
from tests.system.queries.flow import flowing
from tests.system.queries.run import Run, stack, verdict

VICTIMS = ("executor", "worker", "driver", "jvm", "store", "server", "store server")
_RATE = 200.0
_KILLS_AT_LEAST, _ANSWERS_AT_LEAST = 20, 10_000
_SERVER = "deltaworks.query_server.store_server"


def asked_on_a_cluster(settings: Settings, folder: Path, victims: Sequence[str], *, rate: float) -> Run:
    """Asks all the time, while these are killed one after the other.

    Args:
        settings: of the stack; the home is another one.
        folder: for home and project.
        victims: of `VICTIMS`.
        rate: records per second.
    """
    own = replace(settings, home=folder / "home")
    with machines(extras={"queries"}) as cluster, stored(own, everything=True) as store:
        run = Run(
            store.settings,
            cluster.folder,
            placed=lambda given: replace(on_cluster(given, cluster, folder / "on-cluster"), serve_stores="executors"),
            environment={"DELTAWORKS_SERVE_STORES": "executors"},
        )
        with ExitStack() as clients, run.stream.running():
            with flowing(settings.bootstrap, run.rng, rate):
                run.stream.at_work(run.rng)
                clients.enter_context(run.serving())
                clients.enter_context(asking(run.port, run.rng, run.asked, run.followers))
                for victim in victims:
                    _kill(victim, run, cluster, store)
                run.stream.at_work(run.rng)
            store.await_back()
            run.await_events()  # once the stream has ended, nobody serves its stores
        run.kills.update(cluster.kills)
        run.kills["store"] += len(store.kills)
        run.judge()
    return run


def _kill(victim: str, run: Run, cluster: Machines, store: StoreUnderKills) -> None:
    if victim in ("server", "driver", "jvm"):
        run.kill(victim)
        return
    run.stream.at_work(run.rng)
    match victim:
        case "executor":
            cluster.kill_any_executor(run.rng)
        case "worker":
            cluster.kill_worker(run.rng.choice(list(cluster.workers)))
        case "store":
            store.kill()
        case _:
            _kill_a_store_server(run)


def _kill_a_store_server(run: Run) -> None:
    there = [each for each in psutil.process_iter() if _is_store_server(each)]
    if there:
        run.rng.choice(there).kill()
        run.kills["store server"] += 1


def _is_store_server(process: psutil.Process) -> bool:
    try:
        return _SERVER in process.cmdline()
    except psutil.Error:
        return False


def main() -> int:
    """The check."""
    begun, rng = time.monotonic(), random.Random(7)
    victims = [*VICTIMS * 3]
    rng.shuffle(victims)
    with tempfile.TemporaryDirectory(prefix="deltaworks-queries-") as folder, stack(Path(folder)) as settings:
        run = asked_on_a_cluster(settings, Path(folder) / "on-cluster", victims, rate=_RATE)
    return verdict(begun, run.killed, len(run.asked.answers), run.wrong, (_KILLS_AT_LEAST, _ANSWERS_AT_LEAST))


if __name__ == "__main__":
    sys.exit(main())
