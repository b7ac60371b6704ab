"""What makes a payment suspicious: three rules, what they look at and what they say. `jobs/fraud.py` applies them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

import msgspec

HOUR_MS = 3_600_000


class Payment(msgspec.Struct, frozen=True):
    """What `payments` holds as JSON, keyed by user; unknown fields are ignored."""

    payment_id: str
    amount: Decimal
    country: str

    def __post_init__(self) -> None:
        # Infinity is a Decimal too, and no payment after it would ever be high.
        if not (self.amount.is_finite() and 0 < self.amount < 1_000_000):
            raise ValueError(f"nobody pays {self.amount}")


class Profile(msgspec.Struct, frozen=True):
    """A user, as the payments before have shown them."""

    payments: int = 0
    total: Decimal = Decimal(0)
    last_country: str | None = None
    last_ms: int = 0

    def after(self, payment: Payment, at_ms: int) -> Profile:
        """A payment that arrives late counts, but does not say where the user is now."""
        country = payment.country if at_ms >= self.last_ms else self.last_country
        return Profile(self.payments + 1, self.total + payment.amount, country, max(at_ms, self.last_ms))


class Velocity(msgspec.Struct, frozen=True):
    """How often a user pays."""

    in_five_minutes: int
    """The payment in question included."""
    in_hour_before: int
    """Before those five minutes."""


Rule = Literal["HIGH_AMOUNT", "GEO_ANOMALY", "HIGH_VELOCITY"]


class Alert(Payment, frozen=True, kw_only=True):
    """A payment that breaks a rule, and everything that it was judged by."""

    rule: Rule
    payments: int
    total: Decimal
    last_country: str | None
    last_ms: int
    in_five_minutes: int
    in_hour_before: int


def is_high_amount(payment: Payment, profile: Profile) -> bool:
    """At least three times the average of the payments before; four of them are no average yet."""
    return profile.payments >= 5 and payment.amount * profile.payments >= 3 * profile.total


def is_geo_anomaly(payment: Payment, at_ms: int, profile: Profile) -> bool:
    """Another country, less than an hour from the last payment."""
    return profile.last_country not in (None, payment.country) and abs(at_ms - profile.last_ms) < HOUR_MS


def is_high_velocity(velocity: Velocity) -> bool:
    """At least five times the user's own rate per five minutes, which is the hour's average, and never below one."""
    return velocity.in_five_minutes >= 5 * max(1, velocity.in_hour_before / 12)


def alerts(payment: Payment, at_ms: int, profile: Profile, velocity: Velocity) -> Iterator[Alert]:
    """One per rule that the payment breaks."""
    broken: dict[Rule, bool] = {
        "HIGH_AMOUNT": is_high_amount(payment, profile),
        "GEO_ANOMALY": is_geo_anomaly(payment, at_ms, profile),
        "HIGH_VELOCITY": is_high_velocity(velocity),
    }
    seen = {
        name: value for known in (payment, profile, velocity) for name, value in msgspec.structs.asdict(known).items()
    }
    return (Alert(rule=rule, **seen) for rule, is_broken in broken.items() if is_broken)
