"""The DAG `streams__notices`: it tells people of incidents, once when one opens and once when it is over.

```
tell
```

`streams__reconcile` finds incidents every minute and records them in the registry. This DAG reads them there and calls
Airflow's notifiers. A notifier that fails, or a task that is killed, delays a notice and loses none: each of them is
claimed, sent, and then recorded as sent (`deltaworks.control.incident_book`). So nobody is told twice, with one
exception: whoever is killed after a notice has left and before that is recorded. It is sent again five minutes later,
with the same `incident.key`.
"""

from __future__ import annotations

import copy
import html
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack
from urllib.parse import quote

import msgspec
from airflow.sdk import DAG, BaseNotifier, task
from airflow.sdk.exceptions import AirflowException

from deltaworks.airflow.access import Access
from deltaworks.airflow.home_dags import home_dag
from deltaworks.airflow.options import DagOptions, access_of
from deltaworks.control.incidents import KINDS, OF_CONNECTORS, Incident, runbook
from deltaworks.errors import ConfigurationError

if TYPE_CHECKING:
    from deltaworks.control.incident_book import State, Told

Notifiers: TypeAlias = Sequence[BaseNotifier] | Mapping[str, Sequence[BaseNotifier]]

log = logging.getLogger(__name__)
DAG_ID = "streams__notices"
OTHERS = "*"
"""In a mapping of notifiers: the pipelines that it does not name, and the home."""
_MAIL = {"subject": "{{ incident.title }}", "html_content": "{{ incident.html }}"}
"""Subject and text of a mail whose notifier has none of its own."""
_DAGS: dict[str, str] = {
    "quality_failed": "quality",
    "approval_waits": "replay",
    **dict.fromkeys(OF_CONNECTORS, "connector"),
}
"""Kind -> the DAG of its pipeline; the others have `stream`."""


def notices_dag(notifiers: Notifiers, every: timedelta = timedelta(minutes=1), **options: Unpack[DagOptions]) -> DAG:
    """Makes the DAG, which an Airflow has once for a home, beside `reconcile_dag`.

    Args:
        notifiers: whom to tell; or name of a pipeline -> whom to tell of its incidents, where `*` stands for all
            others and for the home.
        every: time between looks.
        options: see `DagOptions`.

    Raises:
        ConfigurationError: something in it is no notifier.
    """
    access, chosen = access_of(options), _checked(notifiers)

    def tell_all(**context: Any) -> list[str]:
        return tell(context, chosen, access)

    with home_dag(
        DAG_ID,
        "Tells people of incidents of all streams, and when they are over.",
        __doc__,
        options,
        access,
        schedule=every,
        limit=timedelta(minutes=30),
    ) as dag:
        task(task_id="tell", execution_timeout=timedelta(minutes=10))(tell_all)()
    return dag


def tell(context: Mapping[str, Any], notifiers: Notifiers, access: Access) -> list[str]:
    """Tells of all incidents of which somebody has not been told yet; returns the keys of the notices.

    Raises:
        AirflowException: a notifier has failed; all others were called.
    """
    from deltaworks.control.incident_book import IncidentBook

    settings, by = access.settings(), f"{context['run_id']} {context['ti'].try_number}"
    book, sent, failed = IncidentBook.of(settings), [], []
    for incident, told in book.to_tell():
        for channel, notifier in channels(notifiers, incident.pipeline):
            for each in due(incident, told, channel):
                if not book.claim(incident.id, each, by):
                    break  # somebody else is about to; a notice of the end has to follow
                notice = Notice.of(incident, each.state, base_url(), settings.docs_url)
                try:
                    send(notifier, notice, context)
                except Exception as error:
                    book.release(incident.id, each, by)
                    log.error("%s: %s has failed: %s", notice.title, channel, error)
                    failed.append(f"{notice.title}: {channel}: {error}")
                    break
                book.told(incident.id, each)
                log.info("%s: told %s", notice.title, channel)
                sent.append(notice.key)
    if failed:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise AirflowException(f"a notice has not left, and the next run tries again: {failed[0]}{more}")
    return sent


def channels(notifiers: Notifiers, pipeline: str) -> Iterator[tuple[str, BaseNotifier]]:
    """The notifiers for a pipeline, each with the name under which it was told."""
    chosen = notifiers.get(pipeline, notifiers.get(OTHERS, ())) if isinstance(notifiers, Mapping) else notifiers
    for number, notifier in enumerate(chosen):
        yield f"{number} {type(notifier).__name__}", notifier


def due(incident: Incident, told: Iterable[Told], channel: str) -> list[Told]:
    """What a channel has to be told of an incident, in this order."""
    from deltaworks.control.incident_book import Told

    states: tuple[State, ...] = ("open",) if incident.ended_at is None else ("open", "over")
    known = set(told)
    return [each for state in states if (each := Told(state, channel)) not in known]


def send(notifier: BaseNotifier, notice: Notice, context: Mapping[str, Any]) -> None:
    """Calls a notifier with the notice as `incident` in its templates."""
    own = copy.copy(notifier)  # rendering replaces the templates
    for name, template in _MAIL.items():
        if getattr(own, name, template) is None:
            setattr(own, name, template)
    own({**context, "incident": notice})


def base_url() -> str:
    """Where people reach Airflow."""
    from airflow.configuration import conf

    return str(conf.get("api", "base_url", fallback=None) or "http://localhost:8080").rstrip("/")


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What the templates of a notifier know as `incident`."""

    key: str
    """The same each time that this notice is sent, and no other notice has it."""
    id: int
    state: State
    """`open` or `over`."""
    pipeline: str
    """Empty: the whole home."""
    kind: str
    name: str
    """The kind, for people."""
    title: str
    what: str
    cause: str | None
    advice: str
    since: datetime
    ended: datetime | None
    how: str | None
    """How it has ended."""
    link: str
    """The page in Airflow to look at."""
    runbook: str
    """The section of the runbooks: an address, or a file of the documentation."""

    @classmethod
    def of(cls, incident: Incident, state: State, airflow: str, docs_url: str | None) -> Notice:
        """The notice of a state of an incident.

        Args:
            incident: as recorded.
            state: the state to tell of.
            airflow: where people reach Airflow.
            docs_url: of the settings.
        """
        kind = KINDS[incident.kind]
        over = state == "over"
        dag = (
            f"{incident.pipeline}__{_DAGS.get(incident.kind, 'stream')}" if incident.pipeline else "streams__reconcile"
        )
        return cls(
            key=f"{incident.id}-{incident.opened_at:%Y%m%dT%H%M%S}-{state}",
            id=incident.id,
            state=state,
            pipeline=incident.pipeline,
            kind=incident.kind,
            name=kind.title,
            title=f"{incident.subject}: {kind.title}{' is over' if over else ''}",
            what=incident.what,
            cause=incident.cause,
            advice=incident.advice,
            since=incident.opened_at,
            ended=incident.ended_at if over else None,
            how=incident.how if over else None,
            link=f"{airflow}/dags/{quote(incident.place or dag)}",
            runbook=runbook(docs_url, kind.anchor),
        )

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Heading and text of each line."""
        found = [("What", self.what)]
        if self.cause:
            found.append(("Likely cause", self.cause))
        found.append(("Since", f"{self.since:%Y-%m-%d %H:%M:%S} UTC"))
        if self.ended is not None:
            return [*found, ("Over since", f"{self.ended:%Y-%m-%d %H:%M:%S} UTC: {self.how}"), ("Look at", self.link)]
        return [*found, ("What to do", self.advice), ("Look at", self.link), ("Runbook", self.runbook)]

    @property
    def text(self) -> str:
        """All of it as plain text."""
        return "\n".join([self.title, *(f"{heading}: {text}" for heading, text in self.lines)])

    @property
    def html(self) -> str:
        """All of it as HTML; nothing in it is taken for markup."""
        rows = "".join(
            f"<tr><th align='left' valign='top'>{heading}</th><td>{_cell(text)}</td></tr>"
            for heading, text in self.lines
        )
        return f"<h3>{html.escape(self.title)}</h3><table>{rows}</table>"

    @property
    def document(self) -> dict[str, Any]:
        """All of it as a JSON object."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content

    @property
    def json(self) -> str:
        """`document` as text."""
        return msgspec.json.encode(self).decode()


def _cell(text: str) -> str:
    escaped = html.escape(text).replace("\n", "<br>")
    return f"<a href='{escaped}'>{escaped}</a>" if text.startswith(("https://", "http://")) else escaped


def _checked(notifiers: Any) -> Notifiers:
    """Raises `ConfigurationError` unless these are notifiers."""
    hint = "notifiers=[SmtpNotifier(...)], or {'orders': [...], '*': [...]}"
    groups = notifiers.values() if isinstance(notifiers, Mapping) else [notifiers]
    for group in groups:
        if isinstance(group, str) or not isinstance(group, Sequence):
            raise ConfigurationError(f"notifiers= has {group!r} in place of a list of notifiers.", hint=hint)
        for each in group:
            if not isinstance(each, BaseNotifier):
                raise ConfigurationError(f"notifiers= has {each!r}, which is no notifier of Airflow.", hint=hint)
    chosen: Notifiers = notifiers
    return chosen
