"""Fraud: finds payments that are unusual for their user, with a custom processor, three stores and two punctuators.
Rules: `model/fraud.py`. Sample data: `sample_data/fraud.py`. Expected results: `recomputed/fraud.sql`.

```
payments -> watch -> fraud-alerts, fraud_alerts
                       |- fraud-profiles  what a user has paid, and where and when last
                       |- fraud-minutes   number of payments per user and minute
                       '- fraud-bursts    alerts that wait for the clock, so that a burst gives one alert
```

HIGH_AMOUNT and GEO_ANOMALY alerts are sent at once. HIGH_VELOCITY alerts are sent every ten seconds of the wall clock,
only the last one per user and five minutes. The results depend only on the payments: a user is forgotten after a day
without payments, by the time of the payments; the wall clock only decides when the space is freed.
"""

from __future__ import annotations

from datetime import timedelta

from deltaworks import (
    Column,
    DeadLetters,
    Pipeline,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
)
from jobs.model.fraud import Alert, Payment, Profile, Velocity, alerts

USER_ID = Column("user_id", "The user who paid.")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MINUTE_MS, DAY_MS = 60_000, 86_400_000

PROFILES = Stores.key_value("fraud-profiles", key=str, value=Profile)
MINUTES = Stores.window("fraud-minutes", key=str, value=int, window_size=MINUTE, retention=2 * HOUR)
BURSTS = Stores.key_value("fraud-bursts", key=str, value=Record[str, Alert])


class Watch(Processor[str, Payment, str, Alert]):
    """Applies the rules to each payment and keeps the state that they need."""

    stores = (PROFILES, MINUTES, BURSTS)

    def init(self, context: ProcessorContext[str, Alert]) -> None:
        super().init(context)
        self.profiles = context.state_store(PROFILES)
        self.minutes = context.state_store(MINUTES)
        self.bursts = context.state_store(BURSTS)
        context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, self.tell_bursts)
        context.schedule(HOUR, PunctuationType.WALL_CLOCK_TIME, self.clean_up)

    def process(self, record: Record[str, Payment]) -> None:
        user, payment, at_ms = record.key, record.value, record.timestamp_ms
        profile = self.profiles.get(user)
        if profile is None or self.is_forgotten(profile):
            profile = Profile()
        for alert in alerts(payment, at_ms, profile, self.velocity(user, at_ms)):
            if alert.rule == "HIGH_VELOCITY":
                self.bursts.put(f"{user}@{at_ms // (5 * MINUTE_MS)}", record.with_value(alert))
            else:
                self.context.forward(record.with_value(alert))
        self.profiles.put(user, profile.after(payment, at_ms))

    def velocity(self, user: str, at_ms: int) -> Velocity:
        """Counts the payment, then those in the five minutes up to its minute and in the hour before them."""
        now = at_ms - at_ms % MINUTE_MS
        self.minutes.put(user, (self.minutes.fetch(user, now) or 0) + 1, now)
        last = self.minutes.fetch_range(user, now - 4 * MINUTE_MS, now)
        before = self.minutes.fetch_range(user, now - 64 * MINUTE_MS, now - 5 * MINUTE_MS)
        return Velocity(sum(count for _, count in last), sum(count for _, count in before))

    def tell_bursts(self, _: int) -> None:
        for burst, alert in self.bursts.all():
            self.context.forward(alert)
            self.bursts.delete(burst)

    def clean_up(self, _: int) -> None:
        for user, profile in self.profiles.all():
            if self.is_forgotten(profile):
                self.profiles.delete(user)

    def is_forgotten(self, profile: Profile) -> bool:
        return profile.last_ms < self.context.current_stream_time_ms - DAY_MS


def topology(builder: StreamsBuilder) -> None:
    """Payments without content or a user are dropped, which is not an error."""
    suspicious = (
        builder.stream("payments", key=str, value=Payment, on_null="skip_empty", name="payments-source")
        .filter(lambda user, _: bool(user))
        .process(Watch, name="watch")
    )
    suspicious.to("fraud-alerts")
    suspicious.to_delta("fraud_alerts", key=USER_ID, doc="Payments that break a rule")


pipeline = Pipeline(
    name="fraud",
    topology=topology,
    on_error="continue",
    dead_letters=DeadLetters(topic="fraud-dead-letters", table="fraud_dead_letters", keep_bytes=True),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
