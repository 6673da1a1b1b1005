"""Messages name the value, the nearest choice and the remedy."""

import pytest

from quietnn.errors import InvalidConfig, QuietnnError, check_function, check_is, suggest, unknown_choice


def test_an_argument_of_another_kind_is_named_and_a_class_is_told_from_an_instance() -> None:
    check_is(True, (int, str), "flag", "give a flag")
    with pytest.raises(InvalidConfig, match=r"^path is a int; give a path$"):
        check_is(3, str, "path", "give a path")
    with pytest.raises(QuietnnError, match="model is the class dict; "):
        check_is(dict, str, "model", "make one")


def test_only_a_near_name_is_suggested() -> None:
    assert suggest("mmsepb", ["ml", "mmse_pb"]).startswith("did you mean 'mmse_pb'? choose one of ml, mmse_pb")
    assert suggest("zzz", ["ml", "mmse_pb"]) == "choose one of ml, mmse_pb"
    assert str(unknown_choice("method", 3, ["ml"])) == "method is 3; choose one of ml"


def test_a_function_is_refused_before_it_is_called() -> None:
    check_function("score", None, "network")
    check_function("score", len, "network")
    for function, words in ((3, "score is a int"), (dict, "the class dict"), (lambda: 0, "too many positional")):
        with pytest.raises(InvalidConfig, match=rf"{words}.*; give a function: score=lambda network: \.\.\."):
            check_function("score", function, "network")
