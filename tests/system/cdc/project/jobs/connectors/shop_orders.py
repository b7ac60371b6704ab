"""Orders and their lines, from PostgreSQL: changes with the row before and after."""

from datetime import timedelta

from deltaworks.connect import DebeziumPostgres
from deltaworks.settings import Settings

connector = DebeziumPostgres(
    name="shop_orders",
    hostname="127.0.0.1",
    port=Settings.from_environment().source_postgres_port,
    user="cdc",
    password={"env": "DELTAWORKS_CONNECT_SOURCE_POSTGRES_PASSWORD"},
    dbname="shop",
    publication="shop",
    topic_prefix="shop",
    tables=["public.orders", "public.order_lines"],
    decimals="string",
    topics="cdc.$1",
    plain_json=True,
    exactly_once=True,
    partitions=2,
    replication=1,
    heartbeat=timedelta(seconds=5),
    poll_interval=timedelta(milliseconds=100),
    config={"publication.autocreate.mode": "disabled", "retriable.restart.connector.wait.ms": 500},
)
