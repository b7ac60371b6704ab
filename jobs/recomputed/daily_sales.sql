-- Recomputes daily_sales from the recomputed tables of orders and inventory, in plain DuckDB; shares no code with the job.
--
-- Given:  "expected enriched_orders", "expected inventory_customer_orders"            orders.sql, inventory.sql
-- Gives:  "expected daily_sales", the rows of all days

CREATE OR REPLACE VIEW "expected daily_sales" AS
SELECT (timestamp AT TIME ZONE 'UTC')::DATE AS day, channel, place, item, count(*) AS orders,
    count(DISTINCT customer) AS customers, sum(amount) AS revenue
FROM (
    SELECT DISTINCT 'web' AS channel, order_id, country AS place, item, user_key AS customer, amount, timestamp
    FROM "expected enriched_orders"
    UNION ALL
    SELECT DISTINCT 'store', order_id, shelf.store, shelf.item, customer_id, amount, timestamp
    FROM "expected inventory_customer_orders"
)
GROUP BY ALL;
