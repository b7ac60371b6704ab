"""Defects of `jobs/ads.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUT = "(SELECT quantile_disc(timestamp, 0.6) FROM original_ads_clicks)"
CLICKS, LATE, BURSTS, HOURS, LETTERS = "ads_clicks", "ads_late", "ads_bursts", "ads_hours", "ads_dead_letters"
OF_HOURS = (
    "SELECT campaign_id AS k, time_bucket(INTERVAL 1 HOUR, timestamp) AS s, count(*) AS n, sum(price) AS a "
    "FROM original_ads_clicks GROUP BY ALL"
)

DEFECTS = (
    defect("clicks lost: one in forty", CLICKS, "DELETE FROM {} WHERE source_offset % 40 = 7"),
    defect("clicks written twice", CLICKS, "INSERT INTO {} FROM {} WHERE source_offset % 40 = 7"),
    defect("one bad partition", CLICKS, "DELETE FROM {} WHERE source_partition = 3"),
    defect(
        "clicks that come before their impression lost", CLICKS, "DELETE FROM {} WHERE source_topic <> 'ads-clicks'"
    ),
    defect("wrong join: no campaign is found", CLICKS, "UPDATE {} SET campaign = NULL, advertiser = NULL"),
    defect(
        "wrong join: the campaign of the click before",
        CLICKS,
        "UPDATE {} SET campaign = b.campaign, advertiser = b.advertiser FROM original_ads_clicks b WHERE "
        "b.source_topic = {}.source_topic AND b.source_partition = {}.source_partition "
        "AND b.source_offset = {}.source_offset - 1",
    ),
    defect(
        "wrong join: the impression of the click before",
        CLICKS,
        "UPDATE {} SET impression_id = b.impression_id, campaign_id = b.campaign_id, campaign = b.campaign, "
        "advertiser = b.advertiser, price = b.price, user_id = b.user_id FROM original_ads_clicks b WHERE "
        "b.source_topic = {}.source_topic AND b.source_partition = {}.source_partition "
        "AND b.source_offset = {}.source_offset - 1",
    ),
    defect(
        "wrong limit: a click belongs to its impression for a day",
        *(CLICKS, "UPDATE {} SET shown_at = shown_at - INTERVAL 9 HOUR, delay_ms = delay_ms + 32400000"),
    ),
    defect("wrong limit: clicks belong to later impressions", CLICKS, "UPDATE {} SET delay_ms = -delay_ms"),
    defect(
        "wrong rounding: prices in whole euros, and hours made of them",
        *(CLICKS, "UPDATE {} SET price = round(price)"),
        *(HOURS, "UPDATE {} SET spent = round(spent)"),
    ),
    defect("wrong rounding: a third of a cent", CLICKS, "UPDATE {} SET price = price * 2 / 3"),
    defect("key mixed up: clicks by click", CLICKS, "UPDATE {} SET impression_id = click_id"),
    defect("key mixed up: clicks of all campaigns are of one", CLICKS, "UPDATE {} SET campaign_id = 'spring-00'"),
    defect("truncated day: clicks end early", CLICKS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect("late clicks lost", LATE, "DELETE FROM {}"),
    defect("late clicks written twice", LATE, "INSERT INTO {} FROM {} LIMIT 2"),
    defect("late clicks are those of somebody else", LATE, "UPDATE {} SET impression_id = 'imp-0000001'"),
    defect(
        "late clicks counted twice: set aside and in their hour",
        HOURS,
        f"UPDATE {{}} SET clicks = n, spent = a FROM ({OF_HOURS}) WHERE k = campaign_id AND s = window_start",
    ),
    defect(
        "clicks on time are set aside as late",
        LATE,
        "INSERT INTO {} BY NAME SELECT * REPLACE ('ads-clicks-repartition' AS source_topic, "
        "source_offset + 1000000 AS source_offset) FROM ads_clicks LIMIT 5",
    ),
    defect("bursts lost", BURSTS, "DELETE FROM {}"),
    defect("bursts written twice", BURSTS, "INSERT INTO {} FROM {}"),
    defect("wrong limit: four clicks are a burst", BURSTS, "UPDATE {} SET clicks = 4 WHERE clicks = 5"),
    defect(
        "wrong limit: bursts of two minutes", BURSTS, "UPDATE {} SET window_start = window_start - INTERVAL 1 MINUTE"
    ),
    defect(
        "minutes shifted",
        BURSTS,
        "UPDATE {} SET window_start = window_start + INTERVAL 90 SECOND, window_end = window_end + INTERVAL 90 SECOND, "
        "timestamp = timestamp + INTERVAL 90 SECOND",
    ),
    defect("clicks of a burst counted twice", BURSTS, "UPDATE {} SET clicks = 2 * clicks"),
    defect("key mixed up: bursts of the next user", BURSTS, "UPDATE {} SET user_id = 'u-001'"),
    defect("premature: bursts are final at once", BURSTS, "UPDATE {} SET is_final = true"),
    defect("hours of a task lost", HOURS, "DELETE FROM {} WHERE hash(campaign_id) % 4 = 1"),
    defect("hours of a day lost", HOURS, "DELETE FROM {} WHERE window_date = (SELECT min(window_date) + 1 FROM {})"),
    defect("hours written twice", HOURS, "INSERT INTO {} FROM {} WHERE clicks = 3"),
    defect("hours counted twice", HOURS, "UPDATE {} SET clicks = 2 * clicks, spent = 2 * spent"),
    defect(
        "hours shifted by a whole one",
        HOURS,
        "UPDATE {} SET window_start = window_start + INTERVAL 1 HOUR, window_end = window_end + INTERVAL 1 HOUR, "
        "timestamp = timestamp + INTERVAL 1 HOUR, window_date = (window_start + INTERVAL 1 HOUR)::DATE",
    ),
    defect("impressions of a task lost", HOURS, "UPDATE {} SET impressions = 0 WHERE hash(campaign_id) % 4 <> 1"),
    defect("state lost: hours begin again", HOURS, "UPDATE {} SET clicks = 1, spent = 0.50 WHERE clicks > 1"),
    defect("truncated day: hours end early", HOURS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect("premature: hours are final at once", HOURS, "UPDATE {} SET is_final = true"),
    defect("never final", HOURS, "UPDATE {} SET is_final = false"),
    defect(
        "clicks are joined and set aside",
        LETTERS,
        'INSERT INTO {} SELECT l.* REPLACE (c.source_topic AS topic, c.source_partition AS "partition", '
        "c.source_offset AS \"offset\") FROM (FROM {} WHERE operator = 'clicks' LIMIT 1) l, (FROM ads_clicks "
        "WHERE source_topic = 'ads-clicks' LIMIT 1) c",
    ),
)
