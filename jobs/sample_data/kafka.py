"""What the sample data of all jobs shares."""

PARTITIONS = 4
"""Number of partitions of every input topic."""
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
