"""Defects of `jobs/clicks.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUT = "(SELECT quantile_disc(timestamp, 0.6) FROM original_clicks_pages)"
VISITS, LATE, PAGES, LETTERS = "clicks_visits", "clicks_late", "clicks_pages", "clicks_dead_letters"

DEFECTS = (
    defect("visits of a task lost", VISITS, "DELETE FROM {} WHERE hash(user_id) % 4 = 1"),
    defect("visits of a day lost", VISITS, "DELETE FROM {} WHERE window_date = (SELECT min(window_date) + 1 FROM {})"),
    defect("visits written twice", VISITS, "INSERT INTO {} FROM {} WHERE clicks = 3"),
    defect("clicks of a visit counted twice", VISITS, "UPDATE {} SET clicks = 2 * clicks"),
    defect(
        "visits not merged: an earlier form of one is left",
        VISITS,
        "INSERT INTO {} SELECT * REPLACE (started + INTERVAL 1 SECOND AS started, window_start + INTERVAL 1 SECOND AS "
        "window_start, duration_ms - 1000 AS duration_ms) FROM {} WHERE duration_ms > 60000",
    ),
    defect(
        "visits split at a pause that is too short",
        VISITS,
        "INSERT INTO {} SELECT * REPLACE (window_end + INTERVAL 10 MINUTE AS window_start, window_end + INTERVAL 10 "
        "MINUTE AS window_end, ended + INTERVAL 10 MINUTE AS started, ended + INTERVAL 10 MINUTE AS ended, 1 AS "
        "clicks, 0 AS duration_ms, timestamp + INTERVAL 10 MINUTE AS timestamp, last_page AS first_page, "
        "(window_end + INTERVAL 10 MINUTE)::DATE AS window_date) FROM {} WHERE NOT is_final",
    ),
    defect(
        "a bot has one visit for days",
        VISITS,
        "DELETE FROM {} WHERE user_id = 'bot' "
        "AND window_start > (SELECT min(window_start) FROM {} WHERE user_id = 'bot')",
        VISITS,
        "UPDATE {} SET window_end = e, ended = e, timestamp = e, duration_ms = epoch_ms(e) - epoch_ms(window_start), "
        "clicks = n FROM (SELECT max(window_end) AS e, sum(clicks) AS n FROM original_clicks_visits "
        "WHERE user_id = 'bot') WHERE user_id = 'bot'",
    ),
    defect("key mixed up: visits of the next user", VISITS, "UPDATE {} SET user_id = 'u-001' WHERE user_id > 'u-001'"),
    defect("first and last page mixed up", VISITS, "UPDATE {} SET last_page = '/x' || first_page WHERE clicks = 1"),
    defect("late clicks lost", LATE, "DELETE FROM {}"),
    defect("late clicks written twice", LATE, "INSERT INTO {} FROM {} LIMIT 2"),
    defect(
        "clicks on time are set aside as late",
        *(LATE, "UPDATE {} SET behind_ms = behind_ms - 1800000"),
    ),
    defect(
        "late clicks counted twice: set aside and in a visit",
        VISITS,
        "UPDATE {} SET clicks = clicks + n FROM (SELECT user_id AS k, count(*) AS n FROM clicks_late GROUP BY k) "
        "WHERE user_id = k",
    ),
    defect(
        "hours of pages shifted",
        PAGES,
        "UPDATE {} SET window_start = window_start + INTERVAL 30 MINUTE, window_end = window_end + INTERVAL 30 MINUTE",
    ),
    defect(
        "hours of pages shifted by a whole one",
        PAGES,
        "UPDATE {} SET window_start = window_start - INTERVAL 1 HOUR, window_end = window_end - INTERVAL 1 HOUR, "
        "window_date = (window_start - INTERVAL 1 HOUR)::DATE",
    ),
    defect("pages of a task lost", PAGES, "DELETE FROM {} WHERE hash(page) % 4 = 2"),
    defect("pages counted twice", PAGES, "UPDATE {} SET clicks = 2 * clicks"),
    defect("truncated day: visits", VISITS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect("truncated day: pages", PAGES, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect("premature: visits are final while they go on", VISITS, "UPDATE {} SET is_final = true"),
    defect("never final", PAGES, "UPDATE {} SET is_final = false"),
    defect(
        "dead letters are half of all",
        LETTERS,
        'INSERT INTO {} SELECT {}.* REPLACE ("offset" + 10000 * n AS "offset") FROM {}, range(1, 30) t(n)',
    ),
)
