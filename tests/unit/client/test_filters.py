from __future__ import annotations

import pytest

from gantry.client.filters import Sql, subscription_to, subscriptions_of
from gantry.errors import ConfigError


def test_a_text_means_tags_and_sql_properties() -> None:
    tags, sql = subscriptions_of("g", {"T": "a || b", "U": Sql("n > 5")}, 7)
    assert (tags.expression_type, tags.expression, tags.tags, tags.version) == ("TAG", "a || b", ("a", "b"), 7)
    assert (sql.expression_type, sql.expression, sql.tags, sql.version) == ("SQL92", "n > 5", (), 7)


def test_nothing_means_all_messages() -> None:
    assert subscription_to("T", "").expression == "*"


@pytest.mark.parametrize("expression", ["", " \n"])
def test_empty_sql_is_a_configuration_error(expression: str) -> None:
    with pytest.raises(ConfigError, match="empty"):
        Sql(expression)
