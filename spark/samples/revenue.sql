-- The effect of an order: revenue per kind of payment.
--     CREATE TABLE revenue (payment TEXT PRIMARY KEY, orders BIGINT NOT NULL, amount NUMERIC NOT NULL);
INSERT INTO revenue (payment, orders, amount)
VALUES (:tags, 1, (convert_from(:body, 'UTF8')::jsonb ->> 'amount')::numeric)
ON CONFLICT (payment) DO UPDATE SET orders = revenue.orders + 1, amount = revenue.amount + EXCLUDED.amount;
