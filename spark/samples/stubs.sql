-- Messages of a producer for the group packing, and what it has seen of them; times are milliseconds since the sample's noon.
INSERT INTO guarantee_stub
    (message_id, topic, body, message_keys, tags, properties, status, groups_expected, created_at_ms, changed_at_ms, changed_by)
VALUES
    ('lost',      'Orders', '{"order": 1}', '2026-0201', '', '{"shop": "north"}', 'open', 1, 0, 0, 'shop'),
    ('arrived',   'Orders', '{"order": 2}', '2026-0202', '', '{}',                'open', 1, 0, 0, 'shop'),
    ('confirmed', 'Orders', '{"order": 3}', '2026-0203', '', '{}',                'open', 1, 0, 0, 'shop'),
    ('not due',   'Orders', '{"order": 4}', '2026-0204', '', '{}',                'open', 1, 0, 0, 'shop'),
    ('backlog',   'Orders', '{"order": 5}', '2026-0205', '', '{}',                'open', 1, 0, 0, 'shop'),
    ('exhausted', 'Orders', '{"order": 6}', '2026-0206', '', '{}',                'open', 1, 0, 0, 'shop'),
    ('unplaced',  'Orders', '{"order": 7}', '2026-0207', '', '{}',                'open', 1, 0, 0, 'shop');
INSERT INTO guarantee_delivery
    (message_id, consumer_group, state, resend_by, resends, next_resend_at_ms, copy_topic, broker, queue_id, queue_offset, created_at_ms, changed_at_ms, changed_by)
VALUES
    ('lost',      'packing', 'open',      'topic', 0,  1000, 'Orders', 'broker-a', 0, 10, 0, 0, 'shop'),
    ('arrived',   'packing', 'open',      'topic', 0,  1000, 'Orders', 'broker-a', 0, 11, 0, 0, 'shop'),
    ('confirmed', 'packing', 'confirmed', 'topic', 0,  1000, 'Orders', 'broker-a', 0, 12, 0, 0, 'shop'),
    ('not due',   'packing', 'open',      'topic', 1, 90000, 'Orders', 'broker-a', 0, 13, 0, 0, 'shop'),
    ('backlog',   'packing', 'open',      'topic', 0,  1000, 'Orders', 'broker-a', 0, 21, 0, 0, 'shop'),
    ('exhausted', 'packing', 'open',      'topic', 5,  1000, 'Orders', 'broker-a', 0, 14, 0, 0, 'shop'),
    ('unplaced',  'packing', 'open',      'topic', 0,  1000, NULL, NULL, NULL, NULL, 0, 0, 'shop');
INSERT INTO guarantee_log (consumer_group, message_id, topic, broker, queue_id, queue_offset, received_at_ms)
VALUES ('packing', 'arrived', 'Orders', 'broker-a', 0, 11, 500), ('packing', 'another', 'Orders', 'broker-a', 0, 20, 800);
