"""The databases of a shop: customers in MariaDB, orders and their lines in PostgreSQL; and changes of all kinds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pymysql

from deltaworks.settings import Settings

ARTICLES = ("tea", "jam", "rye", "oil", "hop", "salt", "茶")
CITIES = ("Berlin", "Lyon", "Oslo", "Kraków", "大阪")
MARKED = 0
"""Number of the order, and of its customer, that say how far changes are."""
STATES = ("new", "paid", "shipped")
_BEGIN = datetime(2026, 3, 1, 8, tzinfo=UTC).replace(tzinfo=None)
_ORDERS = (
    """CREATE TABLE orders (
        id INT PRIMARY KEY, customer_id INT, status TEXT NOT NULL, ordered_at TIMESTAMP NOT NULL, note TEXT
    )""",
    """CREATE TABLE order_lines (
        order_id INT, number INT, article TEXT NOT NULL, quantity INT NOT NULL, price NUMERIC(10, 2) NOT NULL,
        PRIMARY KEY (order_id, number)
    )""",
)
_CUSTOMERS = (
    "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, city VARCHAR(40) NOT NULL, "
    "vip TINYINT(1) NOT NULL, since DATE NOT NULL) CHARACTER SET utf8mb4"
)
Order = tuple[Any, ...]


@dataclass(frozen=True)
class Expected:
    """What tables and index have to hold: the join of both databases."""

    orders: dict[int, Order]
    """Customer, status, time (UTC), note, lines, amount, name, city, vip."""
    totals: dict[int, tuple[int, Decimal]]
    """Orders and their amount, by customer."""


@dataclass
class Shop:
    """Both databases; whoever calls it is the application.

    Args:
        settings: of the home in which they run.
        rng: decides what happens.
    """

    settings: Settings
    rng: random.Random
    done: Counter[str] = field(default_factory=Counter)
    """Kinds of changes."""
    _customers: list[int] = field(default_factory=list)
    _orders: dict[int, list[int]] = field(default_factory=dict)
    """Order -> numbers of its lines."""
    _next: int = 1
    _columns: int = 0

    def make(self, customers: int, orders: int) -> None:
        """Makes the tables, with rows that are there before anybody reads changes; those of an earlier call stay."""
        if self._are_there():
            self.load()
            return
        with self._mariadb() as cursor:
            cursor.execute(_CUSTOMERS)
            self._customers = list(range(1, customers + 1))
            cursor.executemany(
                "INSERT INTO customers VALUES (%s, %s, %s, %s, %s)", [self._customer(each) for each in self._customers]
            )
        with self._postgres() as cursor:
            for statement in _ORDERS:
                cursor.execute(statement)
            for _ in range(orders):
                self._add_order(cursor)

    def load(self) -> None:
        """Looks what is there: at the beginning, and after a transaction of which nobody knows how it ended."""
        with self._mariadb() as cursor:
            cursor.execute("SELECT id FROM customers WHERE id > 0 ORDER BY id")
            self._customers = [number for (number,) in cursor.fetchall()]
        with self._postgres() as cursor:
            rows = cursor.execute(
                "SELECT id, array_remove(array_agg(number ORDER BY number), NULL) FROM orders "
                "LEFT JOIN order_lines ON id = order_id WHERE id > 0 GROUP BY id ORDER BY id"
            ).fetchall()
            named = cursor.execute("SELECT count(*) FROM information_schema.columns WHERE column_name LIKE 'extra%'")
            self._columns = named.fetchone()[0]
        self._orders = dict(rows)
        self._next = max([self._next, *(number + 1 for number in self._orders)])

    def _are_there(self) -> bool:
        with self._postgres() as cursor:
            found = cursor.execute("SELECT to_regclass('orders')").fetchone()
            return found is not None and found[0] is not None

    def change(self) -> None:
        """One transaction of one of the databases."""
        kinds: list[tuple[int, Callable[[Any], None], Callable[[], Any]]] = [
            (6, self._add_order, self._postgres),
            (8, self._update_order, self._postgres),
            (5, self._change_lines, self._postgres),
            (2, self._delete_order, self._postgres),
            (1, self._move_order, self._postgres),
            (2, self._add_customer, self._mariadb),
            (4, self._update_customer, self._mariadb),
            (1, self._delete_customer, self._mariadb),
            (1, self._move_customer, self._mariadb),
        ]
        ((_, change, database),) = self.rng.choices(kinds, [weight for weight, _, _ in kinds])
        with database() as cursor:
            change(cursor)
        self.done[change.__name__.strip("_").replace("_", " ")] += 1

    def add_columns(self) -> None:
        """Each table gets a column that no pipeline knows, with a value in rows that come."""
        self._columns += 1
        name = f"extra_{self._columns}"
        with self._postgres() as cursor:
            cursor.execute(f"ALTER TABLE orders ADD COLUMN {name} TEXT DEFAULT 'x'")
        with self._mariadb() as cursor:
            cursor.execute(f"ALTER TABLE customers ADD COLUMN {name} VARCHAR(10) DEFAULT 'x'")
        self.done["add column"] += 2

    def mark(self, number: int) -> None:
        """The last changes so far: an order of a customer with this number in name and note."""
        with self._mariadb() as cursor:
            cursor.execute(
                "INSERT INTO customers (id, name, city, vip, since) VALUES (0, %s, 'here', 0, '2026-01-01') "
                "ON DUPLICATE KEY UPDATE name = VALUES(name)",
                (f"mark {number}",),
            )
        with self._postgres() as cursor:
            cursor.execute(
                "INSERT INTO orders (id, customer_id, status, ordered_at, note) VALUES (0, 0, 'new', '2026-01-01', %s) "
                "ON CONFLICT (id) DO UPDATE SET note = EXCLUDED.note",
                (f"mark {number}",),
            )

    def expected(self) -> Expected:
        """What is in the databases now."""
        with self._mariadb() as cursor:
            cursor.execute("SELECT id, name, city, vip FROM customers")
            customers = {number: (name, city, bool(vip)) for number, name, city, vip in cursor.fetchall()}
        with self._postgres() as cursor:
            rows = cursor.execute(
                "SELECT id, customer_id, status, ordered_at, note, count(number), "
                "coalesce(sum(quantity * price), 0)::NUMERIC(20, 2) FROM orders LEFT JOIN order_lines ON id = order_id "
                "GROUP BY id"
            ).fetchall()
        orders: dict[int, Order] = {}
        totals: dict[int, tuple[int, Decimal]] = {}
        for number, customer, status, at, note, lines, amount in rows:
            known = customers.get(customer, (None, None, None))
            orders[number] = (customer, status, at.replace(tzinfo=UTC), note, lines, amount, *known)
            if customer is not None:
                count, so_far = totals.get(customer, (0, Decimal(0)))
                totals[customer] = (count + 1, so_far + amount)
        return Expected(orders, totals)

    # Changes

    def _add_order(self, cursor: Any) -> None:
        number, self._next = self._next, self._next + 1
        customer = None if self.rng.random() < 0.05 else self.rng.choice(self._customers)
        at = _BEGIN + timedelta(seconds=number, microseconds=self.rng.randrange(1_000_000))
        note = self.rng.choice([None, "", "gift", "long " * 1_000])
        cursor.execute(
            "INSERT INTO orders (id, customer_id, status, ordered_at, note) VALUES (%s, %s, 'new', %s, %s)",
            (number, customer, at, note),
        )
        self._orders[number] = []
        for _ in range(self.rng.randrange(5)):
            self._add_line(cursor, number)

    def _add_line(self, cursor: Any, order: int) -> None:
        number = max(self._orders[order], default=0) + 1
        self._orders[order].append(number)
        values = (order, number, self.rng.choice(ARTICLES), self.rng.randrange(1, 9), self._price())
        cursor.execute("INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s)", values)

    def _update_order(self, cursor: Any) -> None:
        order = self._any_order()
        customer = self.rng.choice(self._customers)
        status = self.rng.choice(STATES)
        cursor.execute("UPDATE orders SET status = %s, customer_id = %s WHERE id = %s", (status, customer, order))

    def _change_lines(self, cursor: Any) -> None:
        order = self._any_order()
        if self._orders[order] and self.rng.random() < 0.5:
            number = self.rng.choice(self._orders[order])
            if self.rng.random() < 0.5:
                self._orders[order].remove(number)
                cursor.execute("DELETE FROM order_lines WHERE order_id = %s AND number = %s", (order, number))
            else:
                cursor.execute(
                    "UPDATE order_lines SET price = %s WHERE order_id = %s AND number = %s",
                    (self._price(), order, number),
                )
        else:
            self._add_line(cursor, order)

    def _delete_order(self, cursor: Any) -> None:
        order = self._any_order()
        del self._orders[order]
        cursor.execute("DELETE FROM order_lines WHERE order_id = %s", (order,))
        cursor.execute("DELETE FROM orders WHERE id = %s", (order,))

    def _move_order(self, cursor: Any) -> None:
        """Its primary key changes, and that of its lines."""
        order = self._any_order()
        number, self._next = self._next, self._next + 1
        self._orders[number] = self._orders.pop(order)
        cursor.execute("UPDATE orders SET id = %s WHERE id = %s", (number, order))
        cursor.execute("UPDATE order_lines SET order_id = %s WHERE order_id = %s", (number, order))

    def _add_customer(self, cursor: Any) -> None:
        number = max(self._customers) + 1
        self._customers.append(number)
        values = self._customer(number)
        cursor.execute("INSERT INTO customers (id, name, city, vip, since) VALUES (%s, %s, %s, %s, %s)", values)

    def _update_customer(self, cursor: Any) -> None:
        values = (self.rng.choice(CITIES), self.rng.random() < 0.5, self.rng.choice(self._customers))
        cursor.execute("UPDATE customers SET city = %s, vip = %s WHERE id = %s", values)

    def _delete_customer(self, cursor: Any) -> None:
        number = self._customers.pop(self.rng.randrange(len(self._customers) - 1))  # orders may still name it
        cursor.execute("DELETE FROM customers WHERE id = %s", (number,))

    def _move_customer(self, cursor: Any) -> None:
        number = self._customers.pop(self.rng.randrange(len(self._customers)))
        other = max([*self._customers, number]) + 1
        self._customers.append(other)
        cursor.execute("UPDATE customers SET id = %s WHERE id = %s", (other, number))

    def _any_order(self) -> int:
        return self.rng.choice(list(self._orders))

    def _customer(self, number: int) -> tuple[Any, ...]:
        since = date(2020, 1, 1) + timedelta(days=number % 2_000)
        return number, f"Customer {number}", self.rng.choice(CITIES), self.rng.random() < 0.2, since

    def _price(self) -> Decimal:
        return Decimal(self.rng.randrange(1, 100_000)) / 100

    # Connections

    @contextmanager
    def _postgres(self) -> Iterator[Any]:
        """A transaction of the application."""
        with (
            psycopg.connect(
                host="127.0.0.1",
                port=self.settings.source_postgres_port,
                user="app",
                dbname="shop",
                passfile=str(self.settings.source_pgpass),
                connect_timeout=5,
            ) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor

    @contextmanager
    def _mariadb(self) -> Iterator[Any]:
        connection = pymysql.connect(
            read_default_file=str(self.settings.source_options), read_default_group="client-app", charset="utf8mb4"
        )
        try:
            with connection.cursor() as cursor:
                yield cursor
            connection.commit()
        finally:
            connection.close()
