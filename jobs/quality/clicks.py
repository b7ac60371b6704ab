"""The suite for the tables of `jobs/clicks.py`; `deltaworks quality clicks` checks it."""

from __future__ import annotations

from datetime import timedelta

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, never, never_null, one_row_per, sessions, windows

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SOURCE = ("source_topic", "source_partition", "source_offset")
VISIT = ("clicks", "started", "ended", "first_page", "last_page", "duration_ms")

visits: Suite = [
    gxe.ExpectTableRowCountToBeBetween(min_value=1, meta={"why": "Every other rule holds in an empty table."}),
    *sessions(gap=30 * MINUTE, grace=30 * MINUTE, key="user_id", values=VISIT, longest=24 * HOUR),
    gxe.ExpectColumnValueLengthsToBeBetween(
        column="user_id", min_value=1, meta={"why": "Clicks without a user would make one endless visitor."}
    ),
    *(
        gxe.ExpectColumnPairValuesToBeEqual(
            column_A=ours,
            column_B=bound,
            meta={"why": "The topic of visits has only these two times: they must agree."},
        )
        for ours, bound in (("started", "window_start"), ("ended", "window_end"))
    ),
    never(
        "the duration is from the first click to the last",
        "SELECT * FROM {batch} WHERE duration_ms <> epoch_ms(window_end) - epoch_ms(window_start)",
        why="Reports average the duration; it must be that of the whole visit, however often the visit grew.",
    ),
    gxe.ExpectColumnValuesToBeBetween(
        column="clicks", min_value=1, meta={"why": "A visit begins with a click: without one there is no row."}
    ),
    never(
        "there are enough clicks for the duration",
        "SELECT * FROM {batch} WHERE duration_ms > (clicks - 1) * 1800000",
        why="Two clicks of a visit are at most 30 minutes apart: if there are too few, a click was lost.",
    ),
    never(
        "a visit of one click begins and ends on its page",
        "SELECT * FROM {batch} WHERE clicks = 1 AND first_page <> last_page",
        why="The only click is both the first and the last.",
    ),
    *(
        gxe.ExpectColumnValuesToMatchRegex(
            column=page, regex=r"^/\S*$", meta={"why": "Reports join pages by their path on the site."}
        )
        for page in ("first_page", "last_page")
    ),
    never(
        "visits and late clicks have the clicks that the pages have",
        "SELECT * FROM (SELECT (SELECT sum(clicks) FROM {batch}) + (SELECT count(*) FROM clicks_late) AS of_users, "
        "(SELECT sum(clicks) FROM clicks_pages) AS of_pages) "
        "WHERE of_pages >= 100 AND of_users NOT BETWEEN of_pages * 0.95 AND of_pages * 1.05",
        why="A click counts for its page, and for its user in a visit or as late. One in a hundred has no user, and "
        "few are too late for their page. Fewer than a hundred clicks say little.",
    ),
    never(
        "the clicks of each day are in its visits, or late",
        """
        SELECT p.day, of_pages, of_visits, late
        FROM (SELECT window_date AS day, sum(clicks) AS of_pages FROM clicks_pages GROUP BY ALL) p
        LEFT JOIN (SELECT day::DATE AS day, sum(clicks) AS of_visits FROM (
            SELECT clicks, unnest(generate_series(window_start::DATE, window_end::DATE, INTERVAL 1 DAY)) AS day
            FROM {batch}) GROUP BY ALL) v USING (day)
        LEFT JOIN (SELECT timestamp::DATE AS day, count(*) AS late FROM clicks_late GROUP BY ALL) l USING (day)
        WHERE of_pages >= 100 AND coalesce(of_visits, 0) + coalesce(late, 0) < of_pages * 0.95
        """,
        why="In the sum of all days, a day without its visits soon no longer shows.",
    ),
    never(
        "the newest visit is of the last hour",
        "SELECT * FROM (SELECT max(timestamp) AS newest FROM {batch}) "
        "WHERE newest < (SELECT max(timestamp) FROM clicks_pages) - INTERVAL 1 HOUR",
        why="Pages are counted before the exchange, visits after it: if visits lag for long, records get stuck.",
    ),
]
late: Suite = [
    one_row_per(
        "user_id", *SOURCE, why="Each click comes once through the exchange, however often its batch was repeated."
    ),
    *never_null(
        *("user_id", "request_id", "page", "at", "behind_ms", "timestamp", *SOURCE),
        why="To add late clicks to a report, people need to know the user, the page and the time.",
    ),
    gxe.ExpectColumnValuesToBeBetween(
        column="behind_ms", min_value=30 * 60_000, meta={"why": "A click less than half an hour late is in a visit."}
    ),
    gxe.ExpectColumnPairValuesToBeEqual(
        column_A="at", column_B="timestamp", meta={"why": "The time of a click is that of its record."}
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="request_id", regex=r"^r-\d{7}$", meta={"why": "The site finds its requests by this id."}
    ),
    never(
        "nothing is later than the newest visit says",
        "SELECT * FROM {batch} WHERE epoch_ms(timestamp) + behind_ms "
        "> (SELECT max(epoch_ms(ended)) FROM clicks_visits)",
        why="A click is late relative to another click, which is in a visit.",
    ),
]
pages: Suite = [
    *windows(HOUR, key="page", values=("clicks",), grace=30 * MINUTE),
    gxe.ExpectColumnValuesToBeBetween(
        column="clicks",
        min_value=1,
        meta={"why": "An hour of a page begins with a click: without one there is no row."},
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="page", regex=r"^/\S*$", meta={"why": "Reports join pages by their path on the site."}
    ),
]
dead_letters: Suite = [
    one_row_per(
        "topic", "partition", "offset", why="A click becomes a dead letter once, at the source that cannot read it."
    ),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "value", "error_class", "message", "operator"),
        why="To repair a click, people need its bytes, where it was and what was wrong with it.",
    ),
    never(
        "what is set aside does not decode",
        'SELECT topic, "partition", "offset", operator, error_class, message FROM {batch} WHERE operator <> \'clicks\' '
        "OR topic <> 'page-clicks' OR error_class <> 'deltaworks.errors.SerializationError'",
        why="Nothing else can be wrong with a click; any other error is a bug in the pipeline.",
    ),
    never(
        "dead letters are rare",
        "SELECT * FROM (SELECT (SELECT count(*) FROM {batch}) AS dead, "
        "(SELECT sum(clicks) FROM clicks_pages) AS clicks) WHERE dead > clicks / 8",
        why="One click in twenty is bad; one in eight means that a server writes something else.",
    ),
]
suites: dict[str, Suite] = {
    "clicks_visits": visits,
    "clicks_late": late,
    "clicks_pages": pages,
    "clicks_dead_letters": dead_letters,
}
