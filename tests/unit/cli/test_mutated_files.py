"""Commands and the app accept or reject a damaged file; no other exception leaves them. tests/hostile tries more."""

import pytest

from tests.mutated_calls import CALLS, outcome, prepare, quiet_session, try_all


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mutated_files_are_accepted_or_rejected(tmp_path):
    """Each valid file is accepted, so the mutations are what is rejected."""
    prepare(tmp_path)
    session = quiet_session()
    for call in CALLS:
        assert outcome(call, tmp_path, (tmp_path / call.file).read_bytes(), session) == "accepted", call.name
    outcomes, leaks = try_all(tmp_path, 2 * len(CALLS))
    assert leaks == {}
    assert outcomes["rejected"] > 10
