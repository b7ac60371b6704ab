"""Defects of `jobs/fraud.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

ALERTS, LETTERS = "fraud_alerts", "fraud_dead_letters"
CUT = "(SELECT quantile_disc(timestamp, 0.5) FROM original_fraud_alerts)"
FIRST = "SELECT {} FROM fraud_alerts WHERE source_offset >= 0 ORDER BY source_partition, source_offset LIMIT 1"

DEFECTS = (
    defect("alerts written twice", ALERTS, "INSERT INTO {} FROM {} WHERE rule = 'HIGH_AMOUNT'"),
    defect(
        "alerts written twice, under new offsets",
        *(
            ALERTS,
            "INSERT INTO {} SELECT * REPLACE (source_offset + 1 AS source_offset) FROM {} WHERE source_offset >= 0",
        ),
    ),
    defect("bursts lost", ALERTS, "DELETE FROM {} WHERE rule = 'HIGH_VELOCITY'"),
    defect("alerts from abroad lost", ALERTS, "DELETE FROM {} WHERE rule = 'GEO_ANOMALY'"),
    defect("high amounts lost", ALERTS, "DELETE FROM {} WHERE rule = 'HIGH_AMOUNT'"),
    defect(
        "one bad partition: no alert of its payments",
        ALERTS,
        "DELETE FROM {} WHERE source_partition = (SELECT source_partition FROM original_fraud_alerts "
        "WHERE source_offset >= 0 GROUP BY ALL ORDER BY count(DISTINCT user_id) DESC LIMIT 1)",
    ),
    defect("truncated day: alerts end early", ALERTS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect(
        "wrong join: profiles of another user",
        ALERTS,
        "UPDATE {} SET payments = b.payments, total = b.total, "
        "last_ms = b.last_ms, last_country = b.last_country FROM (SELECT lag(payments) OVER w AS payments, "
        "lag(total) OVER w AS total, lag(last_ms) OVER w AS last_ms, lag(last_country) OVER w AS last_country, "
        "payment_id AS id, rule AS r FROM original_fraud_alerts WINDOW w AS (ORDER BY timestamp)) b "
        "WHERE b.id = payment_id AND b.r = rule AND b.payments IS NOT NULL",
    ),
    defect(
        "wrong limit: five payments in five minutes",
        ALERTS,
        "INSERT INTO {} SELECT * REPLACE ('HIGH_VELOCITY' AS rule, "
        "'' AS source_topic, -1 AS source_offset) FROM {} WHERE rule = 'GEO_ANOMALY'",
    ),
    defect(
        "wrong limit: twice the average is high",
        ALERTS,
        "INSERT INTO {} SELECT * REPLACE ('HIGH_AMOUNT' AS rule, "
        "amount / 2 AS amount) FROM {} WHERE rule = 'HIGH_AMOUNT' AND amount * payments < 5 * total",
    ),
    defect("wrong unit: an hour in seconds", ALERTS, "UPDATE {} SET last_ms = last_ms // 1000 WHERE last_ms > 0"),
    defect("wrong rounding: amounts through a float", ALERTS, "UPDATE {} SET amount = amount + 0.000000000000000007"),
    defect(
        "wrong rounding: sums without cents", ALERTS, "UPDATE {} SET total = trunc(total), amount = trunc(amount) + 1"
    ),
    defect(
        "state lost: profiles begin again",
        ALERTS,
        f"UPDATE {{}} SET payments = payments % 5, total = total / 10 WHERE timestamp > {CUT}",
    ),
    defect(
        "state lost: minutes are counted, profiles are not",
        ALERTS,
        "UPDATE {} SET payments = 0, total = 0, last_ms = 0, last_country = NULL WHERE rule = 'HIGH_VELOCITY'",
    ),
    defect(
        "key mixed up: alerts of another user",
        ALERTS,
        "UPDATE {} SET user_id = (SELECT max(user_id) FROM {}) WHERE rule = 'HIGH_AMOUNT'",
    ),
    defect(
        "stale: the profile is the one that the alert before has seen",
        ALERTS,
        "UPDATE {} SET payments = b.payments, total = b.total, last_ms = b.last_ms, last_country = b.last_country FROM "
        "(SELECT user_id AS k, source_offset AS o, lag(payments) OVER w AS payments, lag(total) OVER w AS total, "
        "lag(last_ms) OVER w AS last_ms, lag(last_country) OVER w AS last_country FROM original_fraud_alerts "
        "WHERE rule = 'HIGH_AMOUNT' WINDOW w AS (PARTITION BY user_id ORDER BY source_offset)) b "
        "WHERE k = user_id AND o = source_offset AND b.payments > 4 AND rule = 'HIGH_AMOUNT'",
    ),
    defect("countries in lower case", ALERTS, "UPDATE {} SET country = lower(country)"),
    defect("late payments counted twice", ALERTS, "UPDATE {} SET in_five_minutes = in_five_minutes + payments"),
    defect(
        "good payments set aside",
        LETTERS,
        """UPDATE {} SET message = '9 bytes are not json(Payment)', key = 'u-001'::BLOB,
           value = '{"payment_id":"p-1","amount":"12.50","country":"DE"}'::BLOB WHERE rowid < 3""",
    ),
    defect(
        "payments judged and set aside",
        LETTERS,
        f'INSERT INTO {{}} SELECT * REPLACE (({FIRST.format("source_offset")}) AS "offset", '
        f'({FIRST.format("source_partition")}) AS "partition") FROM {{}} LIMIT 1',
    ),
    defect("dead letters written twice", LETTERS, "INSERT INTO {} FROM {} LIMIT 2"),
)
