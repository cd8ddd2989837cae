"""The check of refusals must be able to fail: with another message's data, another class, or no refusal."""

import pytest
from _pytest.outcomes import Failed

from tests.refusals import lacking, refused
from utils.errors import UnknownName, UserError, wrong_value


def refusal() -> UserError:
    return wrong_value("gamma", "-13", "an integer of 0 or more, as in 3.5, '' or a/r.csv.")


@pytest.mark.parametrize("datum", ["gamma", -13, "'-13'", 0, 3.5, "", "r.csv", "a/r.csv"])
def test_what_a_message_quotes_is_found(datum: object) -> None:
    with refused(datum) as caught:
        raise refusal()
    assert str(caught.value) == str(refusal())


@pytest.mark.parametrize("datum", ["gam", "egag_gamma", 13, 3, 1, "-1", 5, "r", "a/r", "csv", "'13'", "/r", "--gamma"])
def test_what_it_does_not_quote_is_missed(datum: object) -> None:
    assert lacking(str(refusal()), "gamma", datum) == [str(datum)]
    with pytest.raises(AssertionError), refused("gamma", datum):
        raise refusal()


def test_other_errors_are_no_refusals() -> None:
    with pytest.raises(KeyError), refused("gamma"):
        raise KeyError("gamma")
    with pytest.raises(UserError), refused("gamma", error=UnknownName):
        raise refusal()
    with pytest.raises(Failed), refused("gamma"):
        pass
    with pytest.raises(TypeError), refused():
        raise refusal()
