"""The suite for the tables of `jobs/deliveries.py`; `deltaworks quality deliveries` checks it."""

from __future__ import annotations

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, in_order, never, never_null, one_row_per

SOURCE = ("source_topic", "source_partition", "source_offset")
STATES = ["unknown", "accepted", "on_the_way", "delivered", "returned"]
PARCEL = ("status", "scanned_at", "destination", "scans", "fees")


def states() -> Suite:
    """The rules for the status in every table."""
    return [
        gxe.ExpectTableRowCountToBeBetween(min_value=1, meta={"why": "Every other rule holds in an empty table."}),
        gxe.ExpectColumnValuesToBeInSet(
            column="status", value_set=STATES, meta={"why": "Receivers of the topic of parcels know these five."}
        ),
        never(
            "a destination has both of its parts",
            "SELECT * FROM {batch} WHERE destination.country IS NULL OR destination.city IS NULL",
            why="A nested field that is null was lost on the way: both are in every version of the schema.",
        ),
    ]


scans: Suite = [
    *states(),
    one_row_per(*SOURCE, why="Each scan gives one row, however often its batch was repeated."),
    *never_null(
        *("scan_id", "carrier", "status", "scanned_at", "destination", "fee", "timestamp", *SOURCE),
        why="A scan that lacks a field does not decode, or gets the default of the schema.",
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="scan_id", regex=r"^s-\d{7}$", meta={"why": "Carriers find their scans by this number."}
    ),
    gxe.ExpectColumnPairValuesToBeEqual(
        column_A="scanned_at",
        column_B="timestamp",
        meta={"why": "A version has it in microseconds, another one in milliseconds: both are the record's time."},
    ),
    never(
        "most scans have a status that the job knows",
        "SELECT * FROM (SELECT count(*) FILTER (status = 'unknown') AS unknown, count(*) AS scans FROM {batch}) "
        "WHERE scans >= 100 AND unknown > scans / 10",
        why="A new status comes seldom at first; if it is one in ten, the job should learn it.",
    ),
    never(
        "fees are there",
        "SELECT * FROM (SELECT count(*) FILTER (fee <> 0) AS paid, count(*) AS scans FROM {batch}) "
        "WHERE scans >= 100 AND paid < scans / 2",
        why="A third of the scanners know no fee; if most have none, the field is read under a wrong name.",
    ),
]
changelog: Suite = [
    *states(),
    one_row_per("parcel_id", "batch_id", why="A commit forwards only the last update of a parcel."),
    *never_null(
        *("parcel_id", *PARCEL, "op", "timestamp", *SOURCE, "batch_id"), why="An update belongs to a parcel and a scan."
    ),
    gxe.ExpectColumnValuesToBeInSet(
        column="op", value_set=["upsert"], meta={"why": "A parcel that was scanned stays: nothing deletes it."}
    ),
    never(
        "each update is what its scans say",
        """
        WITH so_far AS (
            SELECT parcel_id, source_topic, source_partition, source_offset, count(*) OVER w AS n, sum(fee) OVER w AS f,
                max(scanned_at) OVER w AS newest
            FROM deliveries_scans
            WINDOW w AS (PARTITION BY parcel_id ORDER BY source_offset)
        ), by_time AS (
            SELECT parcel_id, source_topic, source_partition, source_offset, count(*) OVER w AS n, sum(fee) OVER w AS f,
                max(scanned_at) OVER w AS newest
            FROM deliveries_scans
            WINDOW w AS (PARTITION BY parcel_id ORDER BY timestamp, source_offset)
        )
        SELECT c.*, s.n, s.f, s.newest FROM {batch} c
        LEFT JOIN so_far s USING (parcel_id, source_topic, source_partition, source_offset)
        LEFT JOIN by_time t USING (parcel_id, source_topic, source_partition, source_offset)
        WHERE NOT """
        + in_order(
            "(scans, fees, c.scanned_at) IS NOT DISTINCT FROM (s.n, s.f, s.newest)",
            "(scans, fees, c.scanned_at) IS NOT DISTINCT FROM (t.n, t.f, t.newest)",
        ),
        why="All scans of a parcel are in one partition, so the table of scans says what each update has to be.",
    ),
    never(
        "status and destination are those of a scan at that time",
        "SELECT * FROM {batch} c ANTI JOIN deliveries_scans s ON c.parcel_id = s.parcel_id "
        "AND c.scanned_at = s.scanned_at AND c.status = s.status AND c.destination = s.destination",
        why="They come from one scan: a mixture of two was true at no time.",
    ),
]
parcels: Suite = [
    *states(),
    gxe.ExpectColumnValuesToBeUnique(
        column="parcel_id", meta={"why": "The snapshot has one row per parcel: the latest."}
    ),
    *never_null("parcel_id", *PARCEL, "timestamp", why="A parcel has all of them since its first scan."),
    never(
        "each parcel is as the changelog says",
        "SELECT p.* FROM {batch} p ANTI JOIN deliveries_parcels_changelog c "
        "USING (parcel_id, status, scanned_at, destination, scans, fees, timestamp, batch_id)",
        why="The snapshot is the changelog reduced to the last update per parcel.",
    ),
    never(
        "no parcel of the changelog is missing or behind",
        "SELECT l.*, p.scans AS found FROM (FROM deliveries_parcels_changelog "
        "QUALIFY row_number() OVER (PARTITION BY parcel_id ORDER BY batch_id DESC) = 1) l LEFT JOIN {batch} p "
        "USING (parcel_id) WHERE l.batch_id <= (SELECT max(batch_id) FROM {batch}) "
        "AND p.scans IS DISTINCT FROM l.scans",
        why="A missing or outdated parcel means that the snapshot was only half written.",
    ),
    never(
        "each parcel has all of its scans",
        "SELECT s.*, p.scans AS found FROM (SELECT parcel_id, count(*) AS scans FROM deliveries_scans "
        "WHERE parcel_id IS NOT NULL GROUP BY parcel_id) s LEFT JOIN {batch} p USING (parcel_id) "
        "WHERE p.scans IS DISTINCT FROM s.scans",
        why="Both tables get a scan with the same batch; a difference is a lost update, or lost state.",
    ),
]
dead_letters: Suite = [
    one_row_per(
        "topic", "partition", "offset", why="A scan becomes a dead letter once, at the source that cannot read it."
    ),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "value", "error_class", "message", "operator"),
        why="To repair a scan, people need its bytes, where it was and what was wrong with it.",
    ),
    never(
        "what is set aside does not decode",
        'SELECT topic, "partition", "offset", operator, error_class, message FROM {batch} WHERE operator <> \'scans\' '
        "OR topic <> 'deliveries-scans' OR error_class <> 'deltaworks.errors.SerializationError'",
        why="Nothing else can be wrong with a scan; any other error is a bug in the pipeline.",
    ),
    never(
        "a scan is set aside or in its table",
        "SELECT d.* FROM {batch} d JOIN deliveries_scans s ON d.topic = s.source_topic "
        'AND d."partition" = s.source_partition AND d."offset" = s.source_offset',
        why="Repaired dead letters are sent again; a scan that had gone through would count twice.",
    ),
    never(
        "dead letters are rare",
        "SELECT * FROM (SELECT (SELECT count(*) FROM {batch}) AS dead, (SELECT count(*) FROM deliveries_scans) AS "
        "scans) WHERE scans >= 100 AND dead > scans / 4",
        why="One scan in eight is bad; one in four means that a carrier has moved to a schema that cannot be read.",
    ),
]
suites: dict[str, Suite] = {
    "deliveries_scans": scans,
    "deliveries_parcels": parcels,
    "deliveries_parcels_changelog": changelog,
    "deliveries_dead_letters": dead_letters,
}
