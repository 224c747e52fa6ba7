"""A state belongs to one run, and every other run refuses it with words."""

from typing import Any

import pytest
from federation_loop import SEVERAL, Loop, coordinator_of, federated, settings

from fedbandit_envs.federation.settings import Settings

ANOTHER_RUN = "state: expected one of this run .* got one of another run .* must be the same"


def others(of: Settings) -> list[Settings]:
    """Runs that differ in one setting each."""
    more_noise = {**of.arguments, "noise_std": 2.0}
    return [
        settings("Fed-PE"),
        settings(seed=4),
        settings(max_cycles=301),
        Settings(of.policy, {"delta": 0.2}, of.constants, of.environment, of.arguments, of.seed),
        Settings(of.policy, {}, of.constants, of.environment, more_noise, of.seed),
    ]


@pytest.mark.parametrize("other", range(5))
def test_a_server_refuses_the_state_of_another_run(other: int) -> None:
    of = settings()
    state = federated(Loop(of, SEVERAL)).snapshot()
    new = others(of)[other]
    server = coordinator_of(Loop(new, SEVERAL))
    with pytest.raises(ValueError, match=ANOTHER_RUN):
        server.restore(state)
    assert not server.done


@pytest.mark.parametrize("other", range(3))
def test_a_client_refuses_its_state_of_another_run_and_nothing_old_is_reported(other: int) -> None:
    of = settings()
    old = Loop(of, SEVERAL)
    federated(old)
    new = Loop(others(of)[other], SEVERAL)
    new.states = dict(old.states)  # the same folders
    with pytest.raises(ValueError, match=ANOTHER_RUN):
        federated(new)
    assert new.answered == []


def test_a_state_without_an_identity_is_refused() -> None:
    of = settings()
    loop = Loop(of, SEVERAL)
    state: dict[str, Any] = federated(loop).snapshot()
    del state["run"]
    with pytest.raises(ValueError, match=ANOTHER_RUN):
        coordinator_of(loop).restore(state)


def test_the_identity_is_the_same_in_every_process_and_for_equal_settings() -> None:
    of = settings()
    assert of.run == settings().run == Settings.of(of.config()).run
    assert len({of.run, *(other.run for other in others(of))}) == 6
