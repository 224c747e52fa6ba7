"""What all tests share."""

import gc

import pytest

try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:  # the environments of RL libraries are without it, and their tests too
    pass
else:
    # A busy machine is no mistake in what is tested: no example has a time limit.
    settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")


@pytest.fixture(scope="module", autouse=True)
def what_is_old_is_left_out_of_garbage_collection() -> None:
    """Before each file of tests, take everything that is there out of Python's garbage collection.

    The thousands of collected tests and what earlier tests left live to the end, and a full collection looks at each of
    them again: 0.15 s, and `check_policy` alone asks for one in every run with another truth.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def plain_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports with a line in place of each plot: drawing is most of the work, and many tests need the words only."""

    def line(figure: object, name: str, labels: list[str], caption: str) -> str:
        return f'<svg role="img" aria-label="{caption}"></svg>'

    monkeypatch.setattr("fedbandit_envs.reports.sections.inline_svg", line)
