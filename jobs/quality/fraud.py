"""What must hold in the tables of `jobs/fraud.py`; `deltaworks quality fraud` checks it.

An alert carries what it was judged by, so each can be judged again from its row alone.
"""

from __future__ import annotations

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, never, never_null, one_row_per

BREAKS = {
    "HIGH_AMOUNT": "(payments >= 5 AND amount * payments >= 3 * total)",
    "GEO_ANOMALY": "(coalesce(country <> last_country, false) AND abs(epoch_ms(timestamp) - last_ms) < 3600000)",
    "HIGH_VELOCITY": "(12 * in_five_minutes >= 5 * greatest(12, in_hour_before))",
}
"""Rule -> what a payment must be to break it."""

fraud_alerts: Suite = [
    never(
        "there are alerts where many payments are set aside",
        "SELECT * FROM (SELECT count(*) AS letters FROM fraud_dead_letters WHERE operator = 'decode-payment') "
        "WHERE letters >= 20 AND NOT EXISTS (FROM {batch})",
        why="Every other rule holds in an empty table; good payments are more than bad ones, and some are suspicious.",
    ),
    one_row_per(
        *("key", "rule", "payment_id", "timestamp", "payments"),
        why="A payment breaks a rule once: a second row is a batch that was written twice, or a burst told again.",
    ),
    *never_null(
        *("key", "rule", "payment_id", "amount", "country", "timestamp"),
        *("payments", "total", "last_ms", "in_five_minutes", "in_hour_before"),
        why="Whoever calls the user has to know the payment and what makes it suspicious.",
    ),
    gxe.ExpectColumnValuesToBeInSet(
        column="rule", value_set=list(BREAKS), meta={"why": "Each rule has its team; nobody would see another one."}
    ),
    *(
        never(
            f"what {rule} says is so",
            f"SELECT * FROM {{batch}} WHERE rule = '{rule}' AND NOT {broken}",
            why="A wrong alert blocks the card of somebody who has done nothing.",
        )
        for rule, broken in BREAKS.items()
    ),
    *(
        never(
            f"a payment that breaks {rule} and another rule is told for both",
            f"SELECT * FROM {{batch}} a WHERE source_topic = 'payments' AND {broken} AND NOT EXISTS "
            f"(FROM {{batch}} b WHERE b.rule = '{rule}' AND b.source_topic = a.source_topic "
            "AND b.source_partition = a.source_partition AND b.source_offset = a.source_offset)",
            why="The rules do not know of each other; a missing alert was lost on the way.",
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
        why="Other amounts are set aside; a fraction of a cent says that one went through a float.",
    ),
    never(
        "a profile is empty or whole",
        "SELECT * FROM {batch} WHERE payments < 0 OR (payments = 0) <> (total = 0) OR (payments = 0) <> (last_ms = 0) "
        "OR (payments = 0) <> (last_country IS NULL) OR total < 0.01 * payments",
        why="Count, sum and place change together, with one write; half of it would be a lost one.",
    ),
    never(
        "the profile has seen every payment that was counted by the minute",
        "SELECT * FROM {batch} WHERE in_five_minutes < 0 OR in_hour_before < 0 "
        "OR in_five_minutes + in_hour_before > payments + 1",
        why="Two stores count the same payments; they differ when one of them was restored to another batch.",
    ),
    never(
        "bursts come from the clock, everything else from a payment",
        "SELECT * FROM {batch} WHERE (rule = 'HIGH_VELOCITY') <> (source_topic = '') "
        "OR (rule = 'HIGH_VELOCITY') <> (source_offset < 0) OR (source_topic <> 'payments' AND source_topic <> '')",
        why="By its source an alert leads back to the record; a burst has none, being told for many.",
    ),
    never(
        "a user's sum grows with every payment",
        "SELECT * FROM (SELECT *, lag(payments) OVER told AS payments_before, lag(total) OVER told AS total_before, "
        "lag(timestamp) OVER told AS before FROM {batch} "
        "WINDOW told AS (PARTITION BY key ORDER BY timestamp, payments)) "
        "WHERE timestamp - before < INTERVAL 1 DAY AND payments > payments_before AND total <= total_before",
        why="Each payment adds to it; a sum that stands still or falls has lost one.",
    ),
    never(
        "two payments never find the same profile",
        "SELECT key, payments, total, last_ms FROM {batch} WHERE source_topic = 'payments' AND payments > 0 "
        "GROUP BY ALL HAVING count(DISTINCT source_offset) > 1",
        why="Every payment changes the profile of its user; whoever sees it unchanged has lost one.",
    ),
    never(
        "alerts of one payment say the same of it",
        "SELECT source_partition, source_offset FROM {batch} WHERE source_topic = 'payments' GROUP BY ALL "
        "HAVING count(DISTINCT (key, payment_id, amount, country, timestamp, payments, total, last_ms, "
        "in_five_minutes, in_hour_before)) > 1",
        why="It is judged once, by all rules; where they differ, one of them looked at something else.",
    ),
    never(
        "the payments of a user are in one partition",
        "SELECT key FROM {batch} WHERE source_topic = 'payments' GROUP BY key "
        "HAVING count(DISTINCT source_partition) > 1",
        why="Partitions follow from the user: an alert in two of them has the user of another payment.",
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
        why="Each kind of fraud happens; of fifty alerts some are of each rule, unless one has stopped to look.",
    ),
    never(
        "there are alerts as long as there are payments",
        "SELECT * FROM (SELECT max(timestamp) AS newest FROM {batch}) WHERE newest < "
        "(SELECT max(timestamp) FROM fraud_dead_letters WHERE operator = 'decode-payment') - INTERVAL 1 DAY",
        why="A day with bad payments and without a suspicious one is a watch that has stopped.",
    ),
]
fraud_dead_letters: Suite = [
    one_row_per("topic", "partition", "offset", why="A record is set aside once, by what refused it first."),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "error_class", "message", "operator"),
        why="Whoever repairs a record needs to know where it was and what was wrong with it.",
    ),
    never(
        "what is set aside fails where the pipeline can fail",
        "SELECT * FROM {batch} WHERE topic <> 'payments' OR operator NOT IN ('payments-source', 'decode-payment') "
        "OR error_class <> 'deltaworks.errors.SerializationError'",
        why="Any other error is a bug of the rules and no bad record.",
    ),
    never(
        "what has no readable key fails at the source, and nothing else does",
        "SELECT * FROM {batch} WHERE (operator = 'payments-source') <> (TRY(decode(key)) IS NULL)",
        why="A payment of a known user must not be lost with those of nobody.",
    ),
    never(
        "no good payment is set aside",
        "SELECT * FROM (SELECT *, TRY_CAST(TRY(decode(value)) AS JSON) AS payment FROM {batch}) "
        "WHERE operator = 'decode-payment' AND json_type(payment, ['$.payment_id', '$.country']) = "
        "['VARCHAR', 'VARCHAR'] AND json_type(payment, '$.amount') <> 'BOOLEAN' "
        "AND TRY_CAST(payment->>'$.amount' AS DECIMAL(18, 2)) BETWEEN 0.01 AND 999999.99",
        why="What is not watched can be stolen.",
    ),
    never(
        "a payment is judged or set aside",
        "SELECT * FROM {batch} d JOIN fraud_alerts a ON a.source_topic = d.topic "
        'AND a.source_partition = d."partition" AND a.source_offset = d."offset"',
        why="A payment that was judged and then failed would count in the profile and be repaired and count again.",
    ),
]
suites: dict[str, Suite] = {"fraud_alerts": fraud_alerts, "fraud_dead_letters": fraud_dead_letters}
