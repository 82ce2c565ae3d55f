"""What all tests share."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def scenes_are_drawn_into_a_folder_of_the_tests(tmp_path_factory):
    """Not into the user's cache; subprocesses see it, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGOP_CACHE", str(tmp_path_factory.mktemp("agop-cache")))
        yield


def pytest_terminal_summary(terminalreporter):
    """One line for what was left out because there is no browser."""
    told = {str(report.longrepr[-1]).removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])}
    for line in sorted(line for line in told if "tests skipped" in line):
        terminalreporter.write_line(line, yellow=True)
