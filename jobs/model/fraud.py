"""Three rules for suspicious payments, with their inputs and alerts. `jobs/fraud.py` applies them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

import msgspec

HOUR_MS = 3_600_000


class Payment(msgspec.Struct, frozen=True):
    """A JSON value in `payments`, keyed by user; unknown fields are ignored."""

    payment_id: str
    """Number of the payment."""
    amount: Decimal
    """Amount in euros."""
    country: str
    """ISO code of the country in which it was made."""

    def __post_init__(self) -> None:
        # Infinity is a Decimal, too, and after it no payment would ever be high.
        if not (self.amount.is_finite() and 0 < self.amount < 1_000_000):
            raise ValueError(f"nobody pays {self.amount}")


class Profile(msgspec.Struct, frozen=True):
    """What earlier payments have shown of a user."""

    payments: int = 0
    total: Decimal = Decimal(0)
    last_country: str | None = None
    last_ms: int = 0

    def after(self, payment: Payment, at_ms: int) -> Profile:
        """Adds a payment; a late one counts, but does not change the user's location."""
        country = payment.country if at_ms >= self.last_ms else self.last_country
        return Profile(self.payments + 1, self.total + payment.amount, country, max(at_ms, self.last_ms))


class Velocity(msgspec.Struct, frozen=True):
    """How often a user pays."""

    in_five_minutes: int
    """Payments in the last five minutes, including the current one."""
    in_hour_before: int
    """Payments in the hour before those five minutes."""


Rule = Literal["HIGH_AMOUNT", "GEO_ANOMALY", "HIGH_VELOCITY"]


class Alert(Payment, frozen=True, kw_only=True):
    """A payment that breaks a rule, with everything that the rule looked at."""

    rule: Rule
    """The rule that it breaks."""
    payments: int
    """Number of earlier payments of the user."""
    total: Decimal
    """Sum of these payments in euros."""
    last_country: str | None
    """Country of the latest of them; None: there is none."""
    last_ms: int
    """Time of the latest of them, in milliseconds since 1970; 0: there is none."""
    in_five_minutes: int
    """Payments of the user in the last five minutes, including this one."""
    in_hour_before: int
    """Payments of the user in the hour before those five minutes."""


def is_high_amount(payment: Payment, profile: Profile) -> bool:
    """Whether it is at least three times the average of the earlier payments, which are at least five."""
    return profile.payments >= 5 and payment.amount * profile.payments >= 3 * profile.total


def is_geo_anomaly(payment: Payment, at_ms: int, profile: Profile) -> bool:
    """Whether it is from another country, less than an hour from the last payment."""
    return profile.last_country not in (None, payment.country) and abs(at_ms - profile.last_ms) < HOUR_MS


def is_high_velocity(velocity: Velocity) -> bool:
    """Whether it is at least five times the user's usual rate: the hour's average per five minutes, at least one."""
    return velocity.in_five_minutes >= 5 * max(1, velocity.in_hour_before / 12)


def alerts(payment: Payment, at_ms: int, profile: Profile, velocity: Velocity) -> Iterator[Alert]:
    """Yields one alert per rule that the payment breaks."""
    broken: dict[Rule, bool] = {
        "HIGH_AMOUNT": is_high_amount(payment, profile),
        "GEO_ANOMALY": is_geo_anomaly(payment, at_ms, profile),
        "HIGH_VELOCITY": is_high_velocity(velocity),
    }
    seen = {
        name: value for known in (payment, profile, velocity) for name, value in msgspec.structs.asdict(known).items()
    }
    return (Alert(rule=rule, **seen) for rule, is_broken in broken.items() if is_broken)
