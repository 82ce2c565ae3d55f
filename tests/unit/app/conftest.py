import pytest

from agop.app import example
from agop.cli.app import load_session


@pytest.fixture(scope="package")
def session():
    """The session of the embedded example."""
    return load_session(**example.ARGUMENTS)
