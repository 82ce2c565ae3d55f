"""Importing agop.integrations.LIBRARY where the library isn't installed."""

import sys
from importlib import import_module

import pytest

import agop
from agop.errors import AGOPError, MissingExtraError

PACKAGES = {
    "captum": ["captum"],
    "lightning": ["lightning", "pytorch_lightning"],
    "transformers": ["transformers"],
}


@pytest.fixture(params=PACKAGES)
def library(request, monkeypatch):
    """The name of a library that can't be imported."""
    for name in list(sys.modules):
        if name.split(".")[0] in PACKAGES[request.param]:
            monkeypatch.setitem(sys.modules, name, None)
        elif name.startswith(f"agop.integrations.{request.param}"):
            monkeypatch.delitem(sys.modules, name)
    for package in PACKAGES[request.param]:
        monkeypatch.setitem(sys.modules, package, None)  # Python's mark for a module that doesn't exist
    return request.param


def test_missing_extra_raises_with_the_command_that_installs_it(library):
    with pytest.raises(MissingExtraError) as raised:
        import_module(f"agop.integrations.{library}")
    assert str(raised.value) == f"agop.integrations.{library} needs {library}: pip install 'agop[{library}]'"
    assert isinstance(raised.value, ImportError)
    assert isinstance(raised.value, AGOPError)


@pytest.mark.parametrize("library", ["captum"], indirect=True)
def test_method_of_a_missing_library_raises_the_same_error(library):
    with pytest.raises(MissingExtraError, match=r"pip install 'agop\[captum\]'"):
        agop.methods.get("captum:DeepLift")
