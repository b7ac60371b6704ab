"""The suite for the tables of `jobs/ads.py`; `deltaworks quality ads` checks it."""

from __future__ import annotations

from datetime import timedelta

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, never, never_null, one_row_per, window_rows, windows

HOUR = timedelta(hours=1)
SOURCE = ("source_topic", "source_partition", "source_offset")
CLICK: Suite = [
    *never_null(
        *("impression_id", "click_id", "campaign_id", "price", "shown_at", "clicked_at", "delay_ms", "timestamp"),
        *SOURCE,
        why="An impression or a click that lacks a field does not decode; only the user may be unknown.",
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="impression_id", regex=r"^imp-\d{7}$", meta={"why": "The ad server finds its impressions by this id."}
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="click_id", regex=r"^c-\d{7}$", meta={"why": "The ad server finds its clicks by this id."}
    ),
    never(
        "prices are from 0 to a thousand euros, in whole cents",
        "SELECT * FROM {batch} WHERE price < 0 OR price >= 1000 OR price <> round(price, 2)",
        why="Anything else does not decode; a fraction of a cent means that a price went through a float.",
    ),
    gxe.ExpectColumnValuesToBeBetween(
        column="delay_ms",
        min_value=0,
        max_value=30 * 60_000,
        meta={"why": "A click belongs to an impression for half an hour."},
    ),
    never(
        "the delay is from the impression to the click",
        "SELECT * FROM {batch} WHERE delay_ms <> epoch_ms(clicked_at) - epoch_ms(shown_at)",
        why="Reports average the delay; it must be that of this impression and this click.",
    ),
    gxe.ExpectColumnPairValuesToBeEqual(
        column_A="clicked_at",
        column_B="timestamp",
        meta={"why": "Hours use one time, reports the other: the ad server sets both to the time of the click."},
    ),
    never(
        "a campaign has a name and an advertiser, or there was none",
        "SELECT * FROM {batch} WHERE (campaign IS NULL) <> (advertiser IS NULL)",
        why="Both come from one row of the campaigns; half of it means that two were mixed up.",
    ),
    never(
        "the name is that of the campaign",
        "SELECT * FROM {batch} WHERE NOT starts_with(campaign, campaign_id || ',')",
        why="A name begins with the id of its campaign; with another one, somebody else would pay.",
    ),
]
"""The rules for clicks, late or not."""

clicks: Suite = [
    gxe.ExpectTableRowCountToBeBetween(min_value=1, meta={"why": "Every other rule holds in an empty table."}),
    *CLICK,
    gxe.ExpectColumnValuesToBeInSet(
        column="source_topic",
        value_set=["ads-clicks", "ads-impressions"],
        meta={"why": "A click is found by the record that came second, and this is where it is."},
    ),
    never(
        "an impression was shown once: one campaign, one user, one price, one time",
        "SELECT impression_id FROM {batch} GROUP BY impression_id HAVING count(DISTINCT (campaign_id, user_id, price, "
        "shown_at)) > 1",
        why="All clicks on an impression have what was shown; a difference means that impressions were mixed up.",
    ),
    never(
        "a click is on one impression, at one time",
        "SELECT click_id FROM {batch} GROUP BY click_id HAVING count(DISTINCT (impression_id, clicked_at)) > 1",
        why="A click on two ads would be paid by two advertisers.",
    ),
    never(
        "few clicks are there more than once",
        "SELECT * FROM (SELECT count(*) AS clicks, count(DISTINCT (impression_id, click_id)) AS different "
        "FROM {batch}) WHERE clicks >= 100 AND clicks > different * 1.05",
        why="One in fifty is delivered twice, and paid twice; more would be noticed by those who pay.",
    ),
    never(
        "most campaigns are known",
        "SELECT * FROM (SELECT count(*) AS clicks, count(campaign) AS known FROM {batch}) "
        "WHERE clicks >= 100 AND known < clicks / 5",
        why="A few have ended or never began; if most are unknown, campaigns no longer arrive here.",
    ),
]
late: Suite = [
    one_row_per(
        "campaign_id", *SOURCE, why="Each click comes once through the exchange, however often its batch was repeated."
    ),
    *CLICK,
    gxe.ExpectColumnValuesToBeInSet(
        column="source_topic",
        value_set=["ads-clicks-repartition"],
        meta={"why": "Only the task of the campaign can tell what is late for its hour."},
    ),
    never(
        "a late click is a click",
        "SELECT * FROM {batch} ANTI JOIN ads_clicks "
        "USING (impression_id, click_id, campaign_id, price, shown_at, clicked_at)",
        why="Whoever adds late clicks to a bill must find them among the clicks.",
    ),
    never(
        "a late click is an hour or more behind the newest record",
        "SELECT * FROM {batch} WHERE timestamp > (SELECT max(timestamp) FROM ads_hours) - INTERVAL 1 HOUR",
        why="The newest record is never late, so it is in its hour; a click less far behind it is in its hour, too.",
    ),
]
bursts: Suite = [
    *window_rows("user_id", ("clicks",)),
    gxe.ExpectColumnValueLengthsToBeBetween(
        column="user_id", min_value=1, meta={"why": "Clicks of unknown users are not those of one person."}
    ),
    gxe.ExpectColumnValuesToBeBetween(
        column="clicks",
        min_value=5,
        meta={"why": "People click four times a minute; a row with fewer accuses somebody."},
    ),
    never(
        "windows are a minute long",
        "SELECT * FROM {batch} WHERE epoch_ms(window_end) - epoch_ms(window_start) <> 60000",
        why="A longer window finds clicks together that lie too far apart.",
    ),
    never(
        "a minute ends with a click, or begins right after one",
        "SELECT * FROM {batch} b WHERE window_end <> timestamp AND NOT EXISTS (FROM ads_clicks c "
        "WHERE c.user_id = b.user_id AND c.timestamp = b.window_start - INTERVAL 1 MILLISECOND)",
        why="Sliding windows lie where their clicks lie; others are shifted.",
    ),
    never(
        "the time of a minute is that of its last click",
        "SELECT * FROM {batch} b ANTI JOIN ads_clicks c ON c.user_id = b.user_id AND c.timestamp = b.timestamp",
        why="A time without a click belongs to another user, or the click is lost.",
    ),
    never(
        "the clicks of a minute are clicks of its user",
        "SELECT b.user_id, b.window_start, any_value(b.clicks) AS of_burst, count(c.click_id) AS there FROM {batch} b "
        "LEFT JOIN ads_clicks c ON c.user_id = b.user_id AND c.timestamp BETWEEN b.window_start AND b.window_end "
        "GROUP BY b.user_id, b.window_start HAVING of_burst > there",
        why="Fewer are right, as some were late; more would accuse somebody of what he has not done.",
    ),
    never(
        "minutes with many clicks are here",
        "SELECT * FROM (SELECT count(*) AS possible, (SELECT count(*) FROM {batch}) AS found FROM ("
        "SELECT DISTINCT c.user_id, c.timestamp FROM ads_clicks c JOIN ads_clicks e ON e.user_id = c.user_id "
        "AND e.timestamp BETWEEN c.timestamp - INTERVAL 1 MINUTE AND c.timestamp AND c.user_id <> '' "
        "GROUP BY c.user_id, c.timestamp HAVING count(DISTINCT e.click_id) >= 5)) "
        "WHERE possible >= 10 AND found < possible / 10",
        why="Some clicks are too late for their minute; if nearly all are, users get to the wrong tasks.",
    ),
    never(
        "final minutes ended more than an hour before the newest click",
        "SELECT * FROM {batch} WHERE is_final "
        "AND window_end >= (SELECT max(timestamp) FROM ads_clicks) - INTERVAL 1 HOUR",
        why="Until then a minute can change, so readers of final results have read it too early.",
    ),
]
hours: Suite = [
    *windows(HOUR, key="campaign_id", values=("impressions", "clicks", "spent"), grace=HOUR),
    *(
        gxe.ExpectColumnValuesToBeBetween(
            column=column, min_value=0, meta={"why": "Nothing is shown, clicked or paid less often than never."}
        )
        for column in ("impressions", "clicks", "spent")
    ),
    never(
        "an hour has an impression or a click",
        "SELECT * FROM {batch} WHERE impressions + clicks = 0",
        why="An hour begins with one of them: without one there is no row.",
    ),
    never(
        "the clicks of an hour and their prices are in it, or late",
        """
        WITH expected AS (
            SELECT campaign_id, time_bucket(INTERVAL 1 HOUR, timestamp) AS window_start,
                count(*) AS there, sum(price) AS paid
            FROM ads_clicks GROUP BY ALL
        ), too_late AS (
            SELECT campaign_id, time_bucket(INTERVAL 1 HOUR, timestamp) AS window_start,
                count(*) AS late, sum(price) AS unpaid
            FROM ads_late GROUP BY ALL
        )
        SELECT campaign_id, window_start, clicks, late, there, spent, unpaid, paid
        FROM {batch} FULL JOIN expected USING (campaign_id, window_start)
            FULL JOIN too_late USING (campaign_id, window_start)
        WHERE coalesce(clicks, 0) + coalesce(late, 0) <> coalesce(there, 0)
            OR coalesce(spent, 0) + coalesce(unpaid, 0) <> coalesce(paid, 0)
        """,
        why="Three tables of one stream must agree to the cent: a difference is somebody's money.",
    ),
    never(
        "nearly every hour has impressions",
        "SELECT * FROM (SELECT count(*) AS hours_with_any, count(*) FILTER (impressions = 0) AS without FROM {batch}) "
        "WHERE hours_with_any >= 100 AND without > hours_with_any / 10",
        why="A click can come in the next hour, but most come at once; hours without impressions have lost them.",
    ),
    never(
        "there are not many more clicks than impressions",
        "SELECT * FROM (SELECT sum(impressions) AS shown, sum(clicks) AS clicked FROM {batch}) "
        "WHERE shown >= 100 AND clicked > shown * 1.5",
        why="One impression in two is clicked; more clicks than that are counted twice, or impressions are lost.",
    ),
]
dead_letters: Suite = [
    one_row_per(
        "topic", "partition", "offset", why="A record becomes a dead letter once, at the source that cannot read it."
    ),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "error_class", "message", "operator"),
        why="To repair a record, people need to know where it was and what was wrong with it.",
    ),
    never(
        "what is set aside does not decode",
        'SELECT topic, "partition", "offset", operator, error_class, message FROM {batch} ANTI JOIN (VALUES '
        "('ads-impressions', 'impressions', 'deltaworks.errors.SerializationError'), "
        "('ads-clicks', 'clicks', 'deltaworks.errors.SerializationError')) "
        "AS known(topic, operator, error_class) USING (topic, operator, error_class)",
        why="Nothing else can be wrong with an impression or a click; any other error is a bug in the pipeline.",
    ),
    never(
        "what is set aside is in no other table",
        "SELECT d.* FROM {batch} d JOIN ads_clicks c ON d.topic = c.source_topic "
        'AND d."partition" = c.source_partition AND d."offset" = c.source_offset',
        why="Repaired dead letters are sent again; one that had gone through would be paid twice.",
    ),
    never(
        "dead letters are rare",
        "SELECT * FROM (SELECT count(*) AS dead FROM {batch}), (SELECT count(*) AS clicks FROM ads_clicks) "
        "WHERE dead > clicks / 5",
        why="One record in fifty is bad; as many as one in five clicks mean that a producer has changed its format.",
    ),
]
suites: dict[str, Suite] = {
    "ads_clicks": clicks,
    "ads_late": late,
    "ads_bursts": bursts,
    "ads_hours": hours,
    "ads_dead_letters": dead_letters,
}
