"""Customers, from MariaDB: rows as they are after each change."""

from datetime import timedelta

from deltaworks.connect import DebeziumMariaDb
from deltaworks.settings import Settings

settings = Settings.from_environment()
connector = DebeziumMariaDb(
    name="shop_customers",
    hostname="127.0.0.1",
    port=settings.source_mariadb_port,
    user="cdc",
    password={"env": "DELTAWORKS_CONNECT_SOURCE_MARIADB_PASSWORD"},
    server_id=5001,
    bootstrap=settings.bootstrap,
    databases=["shop"],
    topic_prefix="shop_mariadb",
    tables=["shop.customers"],
    decimals="string",
    unwrap=True,
    topics="cdc.$1",
    plain_json=True,
    exactly_once=True,
    partitions=2,
    replication=1,
    poll_interval=timedelta(milliseconds=100),
    config={"connect.keep.alive.interval.ms": 1000},
)
