"""Reports of damaged and hostile run folders: a clear error or the right report. tests/hostile tries many more."""

import pytest

from tests.run_mutations import try_mutations, write_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"))


def test_damaged_files_are_refused_or_leave_the_report_unchanged(runs, tmp_path):
    outcomes, failures = try_mutations(runs, tmp_path, 30, seed=1, checksums=False)
    assert not failures
    assert outcomes["refused"] > 0


def test_wrong_values_with_right_checksums_never_raise_anything_else_than_our_errors(runs, tmp_path):
    outcomes, failures = try_mutations(runs, tmp_path, 30, seed=2, checksums=True)
    assert not failures
    assert outcomes["refused"] > 0
