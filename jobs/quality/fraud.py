"""The suite for the tables of `jobs/fraud.py`; `deltaworks quality fraud` checks it.

An alert carries everything that its rule looked at, so each can be checked again from its row alone.
"""

from __future__ import annotations

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, never, never_null, one_row_per

BREAKS = {
    "HIGH_AMOUNT": "(payments >= 5 AND amount * payments >= 3 * total)",
    "GEO_ANOMALY": "(coalesce(country <> last_country, false) AND abs(epoch_ms(timestamp) - last_ms) < 3600000)",
    "HIGH_VELOCITY": "(12 * in_five_minutes >= 5 * greatest(12, in_hour_before))",
}
"""Rule -> the condition under which a payment breaks it."""

fraud_alerts: Suite = [
    never(
        "there are alerts where many payments are set aside",
        "SELECT * FROM (SELECT count(*) AS letters FROM fraud_dead_letters WHERE message LIKE '%json(Payment)%') "
        "WHERE letters >= 20 AND NOT EXISTS (FROM {batch})",
        why="All other rules hold in an empty table. Most payments are good, and some of them are suspicious.",
    ),
    one_row_per(
        *("user_id", "rule", "payment_id", "timestamp", "payments"),
        why="A payment breaks a rule once: a second row is a batch that was written twice, or a repeated burst.",
    ),
    *never_null(
        *("user_id", "rule", "payment_id", "amount", "country", "timestamp"),
        *("payments", "total", "last_ms", "in_five_minutes", "in_hour_before"),
        why="The person who calls the user has to know the payment and why it is suspicious.",
    ),
    gxe.ExpectColumnValuesToBeInSet(
        column="rule",
        value_set=list(BREAKS),
        meta={"why": "Each rule has its team; nobody would see an alert of another rule."},
    ),
    *(
        never(
            f"what {rule} says is so",
            f"SELECT * FROM {{batch}} WHERE rule = '{rule}' AND NOT {broken}",
            why="A wrong alert blocks the card of an innocent user.",
        )
        for rule, broken in BREAKS.items()
    ),
    *(
        never(
            f"a payment that breaks {rule} and another rule is told for both",
            f"SELECT * FROM {{batch}} a WHERE source_topic = 'payments' AND {broken} AND NOT EXISTS "
            f"(FROM {{batch}} b WHERE b.rule = '{rule}' AND b.source_topic = a.source_topic "
            "AND b.source_partition = a.source_partition AND b.source_offset = a.source_offset)",
            why="The rules are independent; a missing alert was lost on the way.",
        )
        for rule, broken in BREAKS.items()
        if rule != "HIGH_VELOCITY"
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="country", regex=r"^[A-Z]{2}$", meta={"why": "FR and fr would be two countries within an hour."}
    ),
    never(
        "amounts are positive, below a million and whole cents",
        "SELECT * FROM {batch} WHERE amount <= 0 OR amount >= 1000000 OR amount <> round(amount, 2)",
        why="Other amounts become dead letters; a fraction of a cent means that an amount went through a float.",
    ),
    never(
        "a profile is empty or whole",
        "SELECT * FROM {batch} WHERE payments < 0 OR (payments = 0) <> (total = 0) OR (payments = 0) <> (last_ms = 0) "
        "OR (payments = 0) <> (last_country IS NULL) OR total < 0.01 * payments",
        why="Count, sum and place change together in one write; half of them would be a lost write.",
    ),
    never(
        "the profile has seen every payment that was counted by the minute",
        "SELECT * FROM {batch} WHERE in_five_minutes < 0 OR in_hour_before < 0 "
        "OR in_five_minutes + in_hour_before > payments + 1",
        why="Two stores count the same payments; they differ if one of them was restored to another batch.",
    ),
    never(
        "bursts come from the clock, everything else from a payment",
        "SELECT * FROM {batch} WHERE (rule = 'HIGH_VELOCITY') <> (source_topic = '') "
        "OR (rule = 'HIGH_VELOCITY') <> (source_offset < 0) OR (source_topic <> 'payments' AND source_topic <> '')",
        why="The source of an alert leads back to its record; a burst has none, because it stands for many.",
    ),
    never(
        "a user's sum grows with every payment",
        "SELECT * FROM (SELECT *, lag(payments) OVER told AS payments_before, lag(total) OVER told AS total_before, "
        "lag(timestamp) OVER told AS before FROM {batch} "
        "WINDOW told AS (PARTITION BY user_id ORDER BY timestamp, payments)) "
        "WHERE timestamp - before < INTERVAL 1 DAY AND payments > payments_before AND total <= total_before",
        why="Each payment adds to it; a sum that stands still or falls has lost one.",
    ),
    never(
        "two payments never find the same profile",
        "SELECT user_id, payments, total, last_ms FROM {batch} WHERE source_topic = 'payments' AND payments > 0 "
        "GROUP BY ALL HAVING count(DISTINCT source_offset) > 1",
        why="Every payment changes the profile of its user; if it is unchanged, a payment was lost.",
    ),
    never(
        "alerts of one payment say the same of it",
        "SELECT source_partition, source_offset FROM {batch} WHERE source_topic = 'payments' GROUP BY ALL "
        "HAVING count(DISTINCT (user_id, payment_id, amount, country, timestamp, payments, total, last_ms, "
        "in_five_minutes, in_hour_before)) > 1",
        why="All rules judge a payment at once; if they differ, one of them looked at something else.",
    ),
    never(
        "the payments of a user are in one partition",
        "SELECT user_id FROM {batch} WHERE source_topic = 'payments' GROUP BY user_id "
        "HAVING count(DISTINCT source_partition) > 1",
        why="Partitions follow from the user: a user in two of them has alerts for another user's payment.",
    ),
    never(
        "sums have cents",
        "SELECT * FROM (SELECT count(*) AS alerts, count(*) FILTER (total <> trunc(total)) AS with_cents FROM {batch} "
        "WHERE payments > 0) WHERE alerts >= 20 AND with_cents < alerts / 10",
        why="Prices have cents; a profile that adds up whole amounts has rounded them.",
    ),
    never(
        "every rule has its alerts",
        "SELECT rule FROM (VALUES ('HIGH_AMOUNT'), ('GEO_ANOMALY'), ('HIGH_VELOCITY')) AS rules(rule) "
        "ANTI JOIN {batch} USING (rule) WHERE (SELECT count(*) FROM {batch}) >= 50",
        why="Each kind of fraud happens; of fifty alerts, some are of each rule, unless a rule has stopped working.",
    ),
    never(
        "there are alerts as long as there are payments",
        "SELECT * FROM (SELECT max(timestamp) AS newest FROM {batch}) WHERE newest < "
        "(SELECT max(timestamp) FROM fraud_dead_letters WHERE message LIKE '%json(Payment)%') - INTERVAL 1 DAY",
        why="If a day has bad payments but no suspicious one, the rules have stopped working.",
    ),
]
fraud_dead_letters: Suite = [
    one_row_per("topic", "partition", "offset", why="A record becomes a dead letter once, where it first failed."),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "error_class", "message", "operator"),
        why="To repair a record, people need to know where it was and what was wrong with it.",
    ),
    never(
        "what is set aside fails where the pipeline can fail",
        "SELECT * FROM {batch} WHERE topic <> 'payments' OR operator <> 'payments-source' "
        "OR error_class <> 'deltaworks.errors.SerializationError'",
        why="Any other error is a bug in the rules, not a bad record.",
    ),
    never(
        "what has no readable key fails by its key, and nothing else does",
        "SELECT * FROM {batch} WHERE (message LIKE '%json(Payment)%') = (key IS NOT NULL AND TRY(decode(key)) IS NULL)",
        why="A payment of a known user must not be lost among those without a user.",
    ),
    never(
        "no good payment is set aside",
        "SELECT * FROM (SELECT *, TRY_CAST(TRY(decode(value)) AS JSON) AS payment FROM {batch}) "
        "WHERE message LIKE '%json(Payment)%' AND json_type(payment, ['$.payment_id', '$.country']) = "
        "['VARCHAR', 'VARCHAR'] AND json_type(payment, '$.amount') <> 'BOOLEAN' "
        "AND TRY_CAST(payment->>'$.amount' AS DECIMAL(18, 2)) BETWEEN 0.01 AND 999999.99",
        why="Unwatched payments can be stolen.",
    ),
    never(
        "a payment is judged or set aside",
        "SELECT * FROM {batch} d JOIN fraud_alerts a ON a.source_topic = d.topic "
        'AND a.source_partition = d."partition" AND a.source_offset = d."offset"',
        why="A payment that was judged and then failed would be repaired and count twice in the profile.",
    ),
]
suites: dict[str, Suite] = {"fraud_alerts": fraud_alerts, "fraud_dead_letters": fraud_dead_letters}
