"""Defects of `jobs/deliveries.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUT = "(SELECT quantile_disc(timestamp, 0.6) FROM original_deliveries_scans)"
SCANS, PARCELS, CHANGELOG, LETTERS = (
    "deliveries_scans",
    "deliveries_parcels",
    "deliveries_parcels_changelog",
    "deliveries_dead_letters",
)

DEFECTS = (
    defect("scans of a task lost", SCANS, "DELETE FROM {} WHERE source_partition = 1"),
    defect("scans of old scanners lost", SCANS, "DELETE FROM {} WHERE carrier IN ('carrier-0', 'carrier-3')"),
    defect("scans twice", SCANS, "INSERT INTO {} FROM {} WHERE source_offset % 50 = 3"),
    defect("wrong rounding: fees in whole euros", SCANS, "UPDATE {} SET fee = round(fee, 0) WHERE abs(fee) < 1000"),
    defect("wrong limit: fees of more than ten euros are cut", SCANS, "UPDATE {} SET fee = least(fee, 10)"),
    defect("fees are read under a wrong name", SCANS, "UPDATE {} SET fee = 0", PARCELS, "UPDATE {} SET fees = 0"),
    defect(
        "microseconds read as milliseconds", SCANS, "UPDATE {} SET scanned_at = make_timestamptz(epoch_ms(scanned_at))"
    ),
    defect(
        "a status read by its number: shifted by one",
        SCANS,
        "UPDATE {} SET status = 'on_the_way' WHERE status = 'accepted'",
    ),
    defect("a status that nobody knows", PARCELS, "UPDATE {} SET status = 'lost' WHERE status = 'unknown'"),
    defect(
        "lost: a part of the destination",
        SCANS,
        "UPDATE {} SET destination = {'country': destination.country, 'city': NULL}",
    ),
    defect(
        "key mixed up: parcels of the next one",
        PARCELS,
        "UPDATE {} SET parcel_id = CASE parcel_id WHEN 'p-00000' THEN 'p-00001' ELSE 'p-00000' END "
        "WHERE parcel_id IN ('p-00000', 'p-00001')",
    ),
    defect(
        "late scans decide the status",
        PARCELS,
        "UPDATE {} SET scanned_at = scanned_at - INTERVAL 10 MINUTE WHERE scans > 5",
    ),
    defect("parcels of a task lost", PARCELS, "DELETE FROM {} WHERE source_partition = 2"),
    defect("stale: parcels are some batches old", PARCELS, "DELETE FROM {} WHERE batch_id > 3"),
    defect(
        "stale: a parcel is the one before",
        PARCELS,
        "UPDATE {} SET scans = c.scans, fees = c.fees, batch_id = c.batch_id FROM (FROM deliveries_parcels_changelog "
        "QUALIFY row_number() OVER (PARTITION BY parcel_id ORDER BY batch_id DESC) = 2) c "
        "WHERE c.parcel_id = {}.parcel_id",
    ),
    defect(
        "state lost: parcels begin again",
        CHANGELOG,
        "UPDATE {} SET scans = scans - before FROM (SELECT parcel_id AS k, max(scans) AS before FROM "
        "original_deliveries_parcels_changelog WHERE batch_id <= 4 GROUP BY k) WHERE parcel_id = k AND batch_id > 4",
        PARCELS,
        "UPDATE {} SET scans = c.scans FROM deliveries_parcels_changelog c WHERE c.parcel_id = {}.parcel_id "
        "AND c.batch_id = {}.batch_id",
    ),
    defect("a batch twice in the changelog", CHANGELOG, "INSERT INTO {} FROM {} WHERE batch_id = 2"),
    defect("a batch lost: its parcels", PARCELS, "DELETE FROM {} WHERE batch_id = (SELECT max(batch_id) FROM {})"),
    defect("wrong fees: a refund is added", CHANGELOG, "UPDATE {} SET fees = abs(fees)"),
    defect("truncated day", SCANS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect(
        "good scans set aside",
        LETTERS,
        'INSERT INTO {} SELECT {}.* REPLACE (s.source_partition AS "partition", s.source_offset AS "offset") '
        "FROM {}, (FROM deliveries_scans LIMIT 1) s LIMIT 1",
    ),
    defect("dead letters written twice", LETTERS, "INSERT INTO {} FROM {} LIMIT 3"),
    defect(
        "dead letters are half of all",
        LETTERS,
        'INSERT INTO {} SELECT {}.* REPLACE ("offset" + 10000 * n AS "offset") FROM {}, range(1, 30) t(n)',
    ),
)
