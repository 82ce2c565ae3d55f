"""Fixtures and hooks for all tests."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory):
    """Keep drawn scenes out of the user's cache, also in subprocesses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGOP_CACHE", str(tmp_path_factory.mktemp("agop-cache")))
        yield


def pytest_terminal_summary(terminalreporter):
    """Print once why browser tests were skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {str(report.longrepr[-1]).removeprefix("Skipped: ") for report in skipped}
    for reason in sorted(reasons):
        if reason.startswith("browser tests"):
            terminalreporter.write_line(reason, yellow=True)
