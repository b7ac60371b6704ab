"""The defects of each job, as the tables would show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.data_defects import Defect
from tests.system.data_defects.defects import (
    ads,
    clicks,
    customers,
    deliveries,
    enrichment,
    fraud,
    inventory,
    invoices,
    orders,
    wordcount,
)

DEFECTS: Mapping[str, Sequence[Defect]] = {
    "wordcount": wordcount.DEFECTS,
    "clicks": clicks.DEFECTS,
    "enrichment": enrichment.DEFECTS,
    "customers": customers.DEFECTS,
    "deliveries": deliveries.DEFECTS,
    "invoices": invoices.DEFECTS,
    "inventory": inventory.DEFECTS,
    "fraud": fraud.DEFECTS,
    "orders": orders.DEFECTS,
    "ads": ads.DEFECTS,
}
