"""Every public name documents its arguments and results, and the examples in docstrings run as printed."""

import doctest
import importlib
import inspect
import pkgutil

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import sklearn_crf

MODULES = ["sklearn_crf"] + [
    module.name
    for module in pkgutil.walk_packages(sklearn_crf.__path__, "sklearn_crf.")
    if not module.name.startswith("sklearn_crf.kernels")
]

# GL08 no docstring; PR01 parameters left out; PR02 parameters that do not exist; PR03 another order;
# PR10 no space before the colon; RT01 nothing on what is returned; SS03 first sentence without a full stop.
NUMPYDOC_CODES = {"GL08", "PR01", "PR02", "PR03", "PR10", "RT01", "SS03"}


def public_objects():
    """Return every class and function in an `__all__` of the package, without duplicates."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        for name in getattr(module, "__all__", ()):
            obj = getattr(module, name)
            if inspect.isclass(obj) or inspect.isfunction(obj):
                found[f"{obj.__module__}.{obj.__qualname__}"] = obj
    return found


PUBLIC = public_objects()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_docstring_is_complete(name):
    obj = PUBLIC[name]
    errors = validate(name)["errors"]
    codes = NUMPYDOC_CODES
    if inspect.isclass(obj) and issubclass(obj, tuple):
        # results are read, not constructed: a named tuple documents attributes instead of parameters
        attributes = [attribute.name for attribute in NumpyDocString(inspect.getdoc(obj))["Attributes"]]
        assert attributes == list(obj._fields)
        codes = codes - {"PR01"}
    assert not [f"{code}: {message}" for code, message in errors if code in codes]


@pytest.mark.parametrize("name", sorted(name for name, obj in PUBLIC.items() if inspect.isclass(obj)))
def test_public_members_are_documented(name):
    # an inherited docstring counts: methods that implement a method of a base class need not repeat it
    members = inspect.getmembers(PUBLIC[name], lambda m: inspect.isfunction(m) or isinstance(m, property))
    public = [(member, obj) for member, obj in members if not member.startswith("_") and is_ours(obj)]
    assert not [member for member, obj in public if not inspect.getdoc(getattr(PUBLIC[name], member))]
    ours = [member for member, obj in public if obj.__doc__]
    errors = {member: validate(f"{name}.{member}")["errors"] for member in ours}
    assert not [
        f"{member}: {code} {message}" for member in ours for code, message in errors[member] if code in NUMPYDOC_CODES
    ]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_functions_are_annotated(name):
    obj = PUBLIC[name]
    functions = {name: obj}
    if inspect.isclass(obj):
        members = inspect.getmembers(obj, lambda m: inspect.isfunction(m) or isinstance(m, property))
        functions = {member: found for member, found in members if member[0] != "_" or member == "__init__"}
    assert not [member for member, found in functions.items() if is_ours(found) and not is_annotated(found)]


def is_annotated(member):
    """Return whether all arguments and, except for constructors, the result of a function or property are annotated."""
    function = member.fget if isinstance(member, property) else member
    signature = inspect.signature(function)
    arguments = [found for name, found in signature.parameters.items() if name not in ("self", "cls")]
    returns = signature.return_annotation is not signature.empty or function.__name__ == "__init__"
    return returns and all(found.annotation is not found.empty for found in arguments)


def is_ours(member):
    function = member.fget if isinstance(member, property) else member
    return function.__module__.startswith("sklearn_crf")


def has_example(name):
    return any(test.examples for test in doctest.DocTestFinder().find(importlib.import_module(name)))


@pytest.mark.parametrize("name", [name for name in MODULES if has_example(name)])
def test_examples_run(name):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(importlib.import_module(name), optionflags=options).failed == 0


def test_every_public_name_has_an_example():
    parser = doctest.DocTestParser()
    assert not [name for name, obj in sorted(PUBLIC.items()) if not parser.get_examples(obj.__doc__ or "")]
