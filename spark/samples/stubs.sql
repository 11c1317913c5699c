-- Stubs of a producer, and what the group packing has seen of them; times are milliseconds since the sample's noon.
INSERT INTO message_stub
    (message_id, topic, body, message_keys, properties, status, resends, next_resend_at_ms, broker, queue_id, queue_offset, created_at_ms)
VALUES
    ('lost',      'Orders', '{"order": 1}', '2026-0201', '{"shop": "north"}', 'unconfirmed', 0,  1000, 'broker-a', 0, 10, 0),
    ('arrived',   'Orders', '{"order": 2}', '2026-0202', '{}',                'unconfirmed', 0,  1000, 'broker-a', 0, 11, 0),
    ('confirmed', 'Orders', '{"order": 3}', '2026-0203', '{}',                'confirmed',   0,  1000, 'broker-a', 0, 12, 0),
    ('not due',   'Orders', '{"order": 4}', '2026-0204', '{}',                'unconfirmed', 1, 90000, 'broker-a', 0, 13, 0),
    ('backlog',   'Orders', '{"order": 5}', '2026-0205', '{}',                'unconfirmed', 0,  1000, 'broker-a', 0, 21, 0),
    ('exhausted', 'Orders', '{"order": 6}', '2026-0206', '{}',                'unconfirmed', 5,  1000, 'broker-a', 0, 14, 0),
    ('unplaced',  'Orders', '{"order": 7}', '2026-0207', '{}',                'unconfirmed', 0,  1000, NULL, NULL, NULL, 0);
INSERT INTO message_log (consumer_group, message_id, topic, broker, queue_id, queue_offset, received_at_ms)
VALUES ('packing', 'arrived', 'Orders', 'broker-a', 0, 11, 500), ('packing', 'another', 'Orders', 'broker-a', 0, 20, 800);
