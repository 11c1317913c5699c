"""What a register says, as texts; nothing hostile becomes a record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.replication.members import Member
from gantry.replication.record import Holder, MemberDisk, Phase, RegisterRecord, from_fields, parse_stores, to_fields
from testkit.registers import ACTIVE

SEALED = replace(ACTIVE, phase=Phase.SEALED, holder=None)


@pytest.mark.parametrize(
    "record",
    [ACTIVE, SEALED, RegisterRecord("u", 1, Phase.BOOTSTRAPPING), replace(SEALED, stores=((3, MemberDisk("", 5)),))],
)
def test_a_record_is_read_as_it_was_written(record: RegisterRecord) -> None:
    assert from_fields(to_fields(record)) == record


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("epoch", "0"), ("epoch", "-1"), ("epoch", "2147483648"), ("epoch", "x"), ("epoch", ""), ("epoch", "٣"),
        ("phase", "active"), ("holder", ""), ("holder", "0.0"), ("holder", "0.0/"), ("holder", "0.1/2c41"),
        ("holder", "0.0/a b"), ("sync-set", "1.0"), ("sync-set", "0.0,0.1"), ("sync-set", "nonsense"),
        ("stores", "0=8f1c"), ("stores", "0=a:0,0=b:0"), ("stores", "64=a:0"), ("stores", "0=a:9999999"),
        ("confirm-floor", "9223372036854775808"), ("lease-duration", "0"), ("cluster-uid", ""), ("cluster-uid", "a/b"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_record_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_fields({**to_fields(ACTIVE), name: text})


@pytest.mark.parametrize("name", sorted(to_fields(ACTIVE)))
def test_a_field_that_is_missing_or_no_text_is_refused(name: str) -> None:
    fields: dict[str, object] = dict(to_fields(ACTIVE))
    for value in (None, 7, ["x"]):
        with pytest.raises(ValueError, match=name):
            from_fields({**fields, name: value})


@given(st.dictionaries(st.sampled_from(sorted(to_fields(ACTIVE))), st.text(max_size=30)))
def test_any_other_texts_are_a_record_or_a_value_error(changes: dict[str, str]) -> None:
    try:
        found = from_fields({**to_fields(ACTIVE), **changes})
        assert from_fields(to_fields(found)) == found
    except ValueError:
        pass


def test_a_removed_store_leaves_its_number() -> None:
    record = replace(SEALED, stores=parse_stores("2=:5,1=b:0"))
    assert record.store(2) is None and record.store(1) == MemberDisk("b", 0)
    assert record.stores == ((1, MemberDisk("b", 0)), (2, MemberDisk("", 5)))


def test_nobody_leads_a_sealed_group_and_somebody_an_active_one() -> None:
    with pytest.raises(ValueError, match="with the holder"):
        replace(ACTIVE, holder=None)
    with pytest.raises(ValueError, match="with the holder"):
        replace(SEALED, holder=Holder(Member(0, 0), "p"))
