"""Commands and the app accept or reject a damaged file; no other exception leaves them. tests/hostile tries more."""

import pytest

from tests.mutated_calls import APP_CALLS, CALLS, outcome, prepare, quiet_session, try_all


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    prepare(folder)
    return folder


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mutated_files_are_accepted_or_rejected(folder):
    """Each valid file is accepted, so the mutations are what is rejected."""
    session = quiet_session()
    for call in CALLS + APP_CALLS:
        assert outcome(call, folder, (folder / call.file).read_bytes(), session) == "accepted", call.name
    outcomes, leaks = try_all(folder, 2 * len(CALLS + APP_CALLS))
    assert leaks == {}
    assert sum(count for (_, result), count in outcomes.items() if result == "rejected") > 10
