"""Maintenance of a home: removes what nobody needs any more, and does what nobody else would ever do.

- Corrections that somebody was killed while sending, or that Kafka or the system behind a sink did not take.
- Code archives that no driver, no restart and no open batch may need; a deployment removes them, too.
- Replays that were begun and then left alone: each holds the results of all that it has processed. Also what those of
  machines that are lost have left in the object store.
"""

from __future__ import annotations

import logging
from datetime import timedelta

import msgspec

from deltaworks import clock
from deltaworks.control import corrections, retention, sink_corrections
from deltaworks.errors import DeltaworksError
from deltaworks.files import remove_tree
from deltaworks.replay import runs
from deltaworks.settings import Settings

_log = logging.getLogger(__name__)


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What maintenance has removed, and sent."""

    sent: list[str]
    """Corrections: run, and what was done with it."""
    corrected: list[str] = []
    """Sinks: run, what was done with it, pipeline and sink."""
    archives: list[str]
    """Digests of code archives."""
    replays: list[str]
    """Ids of replays."""
    kept: dict[str, str]
    """Old replays that stay -> why."""


def maintain(settings: Settings, keep_replays: timedelta | None) -> Removed:
    """Removes what nobody needs, and sends what waits; running streams and replays are not affected.

    Args:
        settings: name the home.
        keep_replays: how long an unfinished replay stays after its last phase; None: until somebody discards it.
    """
    sent, corrected = list[str](), list[str]()
    for name in sorted(path.name for path in settings.pipelines.glob("*/")):
        try:
            sent += [kept.name for kept in corrections.send(settings, name)]
        except DeltaworksError as error:
            _log.warning("corrections of %s wait: %s", name, error)
        try:
            corrected += [f"{done.name} in {name}/{done.sink}" for done in sink_corrections.correct(settings, name)]
        except DeltaworksError as error:
            _log.warning("sinks of %s wait: %s", name, error)
    archives = retention.expire(settings, retention.named(settings))
    replays, kept = [], {}
    for paths, plan in runs.all_unfinished(settings):
        idle_s = clock.wall_s() - paths.state.stat().st_mtime
        if keep_replays is None or idle_s < keep_replays.total_seconds():
            continue
        try:
            runs.discard(settings, plan.run_id)
        except DeltaworksError as error:
            kept[plan.run_id] = error.message
            _log.warning("replay %s stays: %s", plan.run_id, error)
        else:
            replays.append(plan.run_id)
            _log.info("replay %s was discarded, %.1f days after its last phase", plan.run_id, idle_s / 86_400)
    if keep_replays is not None:
        for folder in runs.abandoned(settings, clock.wall_s() - keep_replays.total_seconds()):
            remove_tree(folder)
            replays.append(folder.name)
            _log.info("what was left of replay %s at %s is removed", folder.name, folder)
    return Removed(sent=sent, corrected=corrected, archives=archives, replays=replays, kept=kept)
