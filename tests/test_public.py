"""The public names: each has one home, loads on first use, and is typed."""

import ast
import inspect
from pathlib import Path

import pytest

import mcptally as mt

TYPED_USE = ast.parse(Path(__file__).with_name("typing").joinpath("api.py").read_text("utf-8"))
FUNCTIONS = {name: getattr(mt, name) for name in mt.__all__ if name[0].islower()}
METHODS = {
    name: member
    for name, member in vars(mt.Store).items()
    if inspect.isfunction(member) and not name.startswith("_")
}


def test_every_public_name_loads_and_no_other_is_promised():
    assert sorted(mt.__all__) == sorted(mt._HOME)
    for name in mt.__all__:
        assert callable(getattr(mt, name))


def typed_keywords(name):
    """The keywords of all calls in tests/typing/api.py of `name` or `object.name`."""
    calls = [
        node
        for node in ast.walk(TYPED_USE)
        if isinstance(node, ast.Call)
        and name in {getattr(node.func, "attr", None), getattr(node.func, "id", None)}
    ]
    assert calls, f"tests/typing/api.py does not call {name}"
    return {keyword.arg for call in calls for keyword in call.keywords}


@pytest.mark.parametrize(("name", "function"), [*FUNCTIONS.items(), *METHODS.items()])
def test_the_typed_use_of_the_api_passes_every_option(name, function):
    parameters = inspect.signature(function).parameters.values()
    options = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert typed_keywords(name) >= options


@pytest.mark.parametrize("name", [name for name in mt.__all__ if name[0].isupper()])
def test_the_typed_use_of_the_api_states_the_type_of_every_public_class(name):
    stated = {node.id for node in ast.walk(TYPED_USE) if isinstance(node, ast.Name)}
    assert name in stated
