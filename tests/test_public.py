"""The public names: each has one home, loads on first use, and is typed."""

import mcptally as mt


def test_every_public_name_loads_and_no_other_is_promised():
    assert sorted(mt.__all__) == sorted(mt._HOME)
    for name in mt.__all__:
        assert callable(getattr(mt, name))


def test_the_single_call_functions_answer_in_both_readings():
    context = {
        "tool": {"name": "delete_user"},
        "input": {"userId": "test-id"},
        "response": {"isError": True, "content": [{"type": "text", "text": "User not found"}]},
    }
    for rules in ("document", "inspector"):
        assert mt.is_business_error(context, rules=rules) is True
        assert mt.validate_response(context, rules=rules).classification == "fully_working"
