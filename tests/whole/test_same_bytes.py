"""Same seed, same run: what small runs of every policy pull and send is what it was when their table was made.

Runs are also the same on every CPU, which test_kernels shows; this test shows that they stay so from change to change.
"""

import pytest
import stored_runs


@pytest.mark.parametrize("name", stored_runs.POLICIES)
def test_runs_are_what_they_were(name: str) -> None:
    found, before = stored_runs.played(name), stored_runs.stored()[name]
    differing = [problem for problem in found | before if found.get(problem) != before.get(problem)]
    assert not differing, (
        f"{name} plays other runs than before on: {', '.join(differing)}; if that is meant, say why in CHANGELOG.md, "
        "and make the table anew: python tests/helpers/stored_runs.py"
    )


def test_the_table_has_no_other_policies() -> None:
    assert sorted(stored_runs.stored()) == stored_runs.POLICIES
