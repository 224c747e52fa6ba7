"""Functions and models as policies: they keep the contract, send nothing, and see what agents in environments see."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from external_policies import Greedy

import fedbandit_envs as fb
from fedbandit_agents import from_callable, from_sb3, from_torchrl
from fedbandit_agents.external import OBSERVATIONS
from fedbandit_envs.cli.main import main

PROBLEM = {"num_agents": 5, "num_arms": 4, "dim": 3, "max_cycles": 40, "context_std": 0.2}
WEIGHTS = np.random.default_rng(0).normal(size=(4 * 3 + 9, 4)).astype(np.float32)


def softmax(rows):
    """A network of one layer, with the matrix product that rounds differently for batches of different sizes."""
    odds = np.exp(rows @ WEIGHTS[: rows.shape[1]])
    return odds / odds.sum(axis=1, keepdims=True)


def likeliest(rows):
    return softmax(rows).argmax(axis=1)


def first_arm(observations):
    rows = next(iter(observations.values())) if isinstance(observations, dict) else observations
    return np.zeros(len(rows), dtype=int)


def play(policy, **keywords):
    return fb.play(fb.make("fedbandit/Synthetic-v0", **PROBLEM), policy, seed=3, **keywords)


@pytest.mark.parametrize("function", [likeliest, softmax], ids=["arms", "probabilities"])
def test_a_function_of_observations_keeps_the_contract(function):
    problems = {"hidden contexts": fb.Synthetic(num_agents=5, num_arms=4, context_std=0.2)}
    told = fb.testing.check_policy(from_callable(function, name="Layer"), problems=problems, horizon=40)
    assert told == "Layer: no fault found on hidden contexts"


@pytest.mark.slow
def test_an_importable_policy_keeps_the_contract_on_every_problem():
    assert "no fault" in fb.testing.check_policy(Greedy())


@pytest.mark.parametrize("function", [likeliest, softmax], ids=["arms", "probabilities"])
def test_an_agent_decides_the_same_in_any_block(function):
    whole = play(from_callable(function))
    for blocks in ([[4, 2], [0], [3, 1]], [[n] for n in range(5)]):
        assert np.array_equal(play(from_callable(function), blocks=blocks).pulls, whole.pulls)


def rounds(**keywords):
    return fb.CommunicationRounds(fb.make("fedbandit/Synthetic-v0", **PROBLEM), from_callable(softmax, **keywords))


def test_a_run_can_be_stopped_and_resumed():
    first, second = rounds(version="1"), rounds(version="1")
    first.reset(seed=3)
    for _ in range(17):
        first.advance()
    second.restore(first.snapshot())
    while not second.done:
        second.advance()
    assert np.array_equal(second.history().pulls, play(from_callable(softmax)).pulls)


def test_a_function_without_a_version_does_not_go_on_with_the_run_of_another():
    first = rounds()
    first.reset(seed=3)
    with pytest.raises(ValueError, match=r"expected one of this run .*, got one of another run"):
        rounds().restore(first.snapshot())


def test_nothing_is_sent():
    ledger = play(from_callable(likeliest)).ledger
    assert (ledger.rounds, ledger.messages, ledger.scalars, ledger.bytes_up, ledger.bytes_down) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_a_function_is_shown_what_the_environment_shows(kind):
    """Stepwise, so that the rewards are those of the environment that is stepped beside it."""
    seen = []

    def function(observations):
        seen.append(observations)
        return np.full(5, len(seen) % 4)

    play(from_callable(function, observation=kind), stepwise=True)
    env = fb.make("fedbandit/Synthetic-v0", **PROBLEM)
    if kind in ("features", "statistics"):
        env = fb.ExpectedFeatures(env)
    if "statistics" in kind:
        env = fb.PullStatistics(env)
    shown, _ = env.reset(seed=3)
    assert len(seen) == PROBLEM["max_cycles"]
    for step, batch in enumerate(seen):
        for number, agent in enumerate(env.possible_agents):
            row = shown[agent]
            if isinstance(row, dict):
                assert row.keys() == batch.keys()
                assert all(np.array_equal(row[name], batch[name][number]) for name in row)
            else:
                assert row.dtype == batch.dtype
                assert np.array_equal(row, batch[number])
        shown = env.step(dict.fromkeys(env.possible_agents, (step + 1) % 4))[0]


def test_arms_are_drawn_with_the_probabilities_given():
    """Each of 4000 draws is arm 1 with probability 0.7: 5 standard deviations, a false alarm in 1.7 million."""
    policy = from_callable(lambda rows: np.tile([0.3, 0.7, 0.0, 0.0], (len(rows), 1)))
    env = fb.make("fedbandit/Synthetic-v0", **PROBLEM | {"num_agents": 100})
    pulls = fb.play(env, policy, seed=0).pulls[-1].sum(axis=0)
    assert pulls[2:].tolist() == [0, 0]
    assert abs(pulls[1] / 4000 - 0.7) < 5 * np.sqrt(0.21 / 4000)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros(5), r"Wrong: expected whole numbers of shape \(5,\).*got float64 of shape \(5,\)"),
        (np.zeros(4, dtype=int), r"got int64 of shape \(4,\)"),
        (np.full((5, 4), 0.5), "expected probabilities that sum to 1 in each row, got a smallest of 0.5 and sums"),
        (np.full((5, 4), np.nan), "expected probabilities that sum to 1"),
        (np.full(5, 4), "choose: expected arms from 0 to 3, got 4 to 4"),
    ],
    ids=["floats", "too few", "sums", "nan", "no such arm"],
)
def test_a_wrong_answer_is_named(answer, message):
    with pytest.raises(fb.ProtocolError, match=message):
        play(from_callable(lambda rows: answer, name="Wrong"))


def test_an_answer_that_is_no_array_is_told_with_the_step():
    with pytest.raises(ValueError, match="inhomogeneous") as caught:
        play(from_callable(lambda rows: [[0], [1, 2], 0, 0, 0], name="Ragged"))
    assert caught.value.__notes__ == ["Ragged was asked for the arms of step 0"]


def test_a_function_of_some_arms_is_played_on_as_many():
    """Five arms of two dimensions and four of three have statistics of the same length."""
    policy = from_callable(likeliest, name="Four", num_arms=4)
    assert play(policy).pulls[-1].sum() == 5 * 40
    with pytest.raises(ValueError, match="Four: expected a problem with 4 arms, as the model knows, got one with 5"):
        fb.play(fb.make("fedbandit/Synthetic-v0", **PROBLEM | {"num_arms": 5, "dim": 2}), policy, seed=0)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="function: expected a callable, got 3"):
        from_callable(3)
    with pytest.raises(ValueError, match=r"observation: expected one of 'features'.*got 'feature'"):
        from_callable(likeliest, observation="feature")
    with pytest.raises(ValueError, match=r"model: expected a model of Stable-Baselines3, got 'ppo\.zip'; load it"):
        from_sb3("ppo.zip")
    with pytest.raises(ValueError, match="model: expected a model of Stable-Baselines3, got <class"):
        from_sb3(type("PPO", (), {"predict": None}))
    joint = SimpleNamespace(predict=None, policy=None, action_space=gymnasium.spaces.MultiDiscrete([3, 3]))
    with pytest.raises(ValueError, match="communication that is not counted"):
        from_sb3(joint)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchrl", None)
    with pytest.raises(ImportError, match=r"^torchrl: expected torchrl.*pip install -e '\.\[torchrl\]'$"):
        from_torchrl(None)


def experiment(*policies):
    return fb.Experiment("fedbandit/Synthetic-v0", [*policies, "Uniform"], PROBLEM, trials=3)


def test_it_runs_in_experiments_comparisons_and_figures(tmp_path, capsys):
    fb.register_policy("Test-Layer", type(from_callable(likeliest, version="1")))
    result = fb.run(experiment("Test-Layer"), tmp_path, executor="serial")
    assert len(result.table("comparisons")["difference"]) == 1
    fb.plotting.regret(result).savefig(tmp_path / "regret.png")
    again = fb.run(experiment("Test-Layer"), tmp_path, executor="serial")
    assert again.experiment == result.experiment
    assert main(["compare", str(tmp_path)]) == 0
    assert "Test-Layer" in capsys.readouterr().out
    assert main(["plot", str(tmp_path), "--figure", "regret", "--format", "svg"]) == 0
    assert (tmp_path / "regret.svg").exists()


def test_results_of_another_model_are_never_continued(tmp_path):
    for version in (None, "2"):
        fb.register_policy("Test-Changed", type(from_callable(likeliest)))
        fb.run(experiment("Test-Changed"), tmp_path / str(version), executor="serial")
        fb.register_policy("Test-Changed", type(from_callable(softmax, version=version)))
        again = fb.run(experiment("Test-Changed"), tmp_path / str(version), executor="serial")
        assert again.notes == ["Test-Changed: 0 trials reused, 3 computed", "Uniform: 3 trials reused, 0 computed"]


def test_functions_and_classes_run_in_other_processes_as_they_do_here():
    fb.register_policy("Test-Here", type(from_callable(likeliest)))
    fb.register_policy("Test-Greedy", Greedy)
    parallel = fb.run(experiment("Test-Here", "Test-Greedy"), executor="processes:1")
    serial = fb.run(experiment("Test-Here", "Test-Greedy"), executor="serial")
    for label in serial.labels:
        assert np.array_equal(parallel.final(label), serial.final(label))


HIDDEN = {"hidden contexts": fb.Synthetic(num_agents=5, num_arms=4, dim=3, context_std=0.2)}


@pytest.mark.sb3
@pytest.mark.filterwarnings("default")  # theirs are not ours
@pytest.mark.parametrize("deterministic", [True, False], ids=["likeliest", "drawn"])
@pytest.mark.parametrize("observation", ["statistics", "distribution"])
def test_models_of_stable_baselines3_keep_the_contract(observation, deterministic):
    sb3 = pytest.importorskip("stable_baselines3")
    env = gymnasium.make("fedbandit_envs:fedbandit/Synthetic-Agent-v0", observation=observation, **PROBLEM)
    network = "MlpPolicy" if observation == "statistics" else "MultiInputPolicy"
    model = sb3.PPO(network, env, device="cpu", seed=0)
    policy = from_sb3(model, observation=observation, deterministic=deterministic)
    fb.testing.check_policy(policy, problems=HIDDEN, horizon=40)
    assert play(policy).ledger.messages == 0
    versions = [
        from_sb3(learner, observation=observation, deterministic=how).version
        for learner in (model, sb3.PPO(network, env, device="cpu", seed=1))
        for how in (True, False)
    ]
    assert versions.count(policy.version) == 1
    assert len(set(versions)) == 4


@pytest.mark.sb3
@pytest.mark.filterwarnings("default")
def test_models_of_stable_baselines3_that_can_not_be_policies_are_refused():
    sb3 = pytest.importorskip("stable_baselines3")
    one = gymnasium.make("fedbandit_envs:fedbandit/Synthetic-Agent-v0", observation="statistics", **PROBLEM)
    with pytest.raises(ValueError, match="expected True for DQN, which has no actor"):
        from_sb3(sb3.DQN("MlpPolicy", one, buffer_size=10), deterministic=False)
    joint = gymnasium.make("fedbandit_envs:fedbandit/Synthetic-v0", **PROBLEM)
    with pytest.raises(ValueError, match=r"got actions in MultiDiscrete.*not counted"):
        from_sb3(sb3.PPO("MlpPolicy", joint, device="cpu"))


@pytest.mark.sb3
@pytest.mark.filterwarnings("default")
def test_models_of_stable_baselines3_are_played_as_they_were_and_on_what_they_know():
    sb3 = pytest.importorskip("stable_baselines3")
    env = gymnasium.make("fedbandit_envs:fedbandit/Synthetic-Agent-v0", observation="statistics", **PROBLEM)
    model = sb3.PPO("MlpPolicy", env, device="cpu", seed=0, n_steps=64)
    policy = from_sb3(model, name="PPO")
    with pytest.raises(ValueError, match=r"expected shapes \{'': \(21,\)\}.*got \{'': \(17,\)\}") as caught:
        fb.play(fb.make("fedbandit/Synthetic-v0", **PROBLEM | {"dim": 2}), policy, seed=0)
    assert caught.value.__notes__ == ["PPO was asked for the arms of step 0"]
    with pytest.raises(ValueError, match=r"PPO: expected a problem with 4 arms.*got one with 5"):
        fb.play(fb.make("fedbandit/Synthetic-v0", **PROBLEM | {"num_arms": 5, "dim": 2}), policy, seed=0)
    with pytest.raises(ValueError, match="observation: expected what the model was trained on"):
        from_sb3(model, observation="distribution")
    model.learn(64)
    with pytest.raises(ValueError, match="PPO: expected the model as it was when it became a policy"):
        play(policy)
    play(from_sb3(model))
    normalised = sb3.common.vec_env.VecNormalize(sb3.common.vec_env.DummyVecEnv([lambda: env]))
    with pytest.raises(ValueError, match="normalised observations"):
        from_sb3(sb3.PPO("MlpPolicy", normalised, device="cpu"))


@pytest.mark.sb3
@pytest.mark.filterwarnings("default")
def test_the_example_of_the_page_runs_as_it_stands_there(tmp_path, monkeypatch):
    sb3 = pytest.importorskip("stable_baselines3")
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "rl-libraries.md").read_text()
    (block,) = re.findall(r"^```{code-block} python\n([^`]*from_sb3\(model\)[^`]*)^```", page, flags=re.MULTILINE)
    sizes = {"num_agents": 5, "num_arms": 4, "dim": 2}
    env = gymnasium.make("fedbandit_envs:fedbandit/Synthetic-Agent-v0", observation="statistics", **sizes)
    monkeypatch.chdir(tmp_path)
    exec(block, {"fb": fb, "model": sb3.PPO("MlpPolicy", env, device="cpu", seed=0)})
    assert (tmp_path / "ppo.png").stat().st_size > 5000


@pytest.mark.torchrl
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("group", [(), ("agents",)], ids=["alone", "group"])
def test_actors_of_torchrl_keep_the_contract(group, one_hot):
    modules = pytest.importorskip("torchrl.modules")
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("tensordict.nn")
    torch.manual_seed(0)
    scores = nn.TensorDictModule(torch.nn.Linear(21, 4), [(*group, "observation")], [(*group, "logits")])
    kind = modules.OneHotCategorical if one_hot else torch.distributions.Categorical
    actor = modules.ProbabilisticActor(scores, [(*group, "logits")], [(*group, "action")], distribution_class=kind)
    policy = from_torchrl(actor)
    fb.testing.check_policy(policy, problems=HIDDEN, horizon=40)
    assert play(policy).ledger.messages == 0
    with pytest.raises(ValueError, match="expected an out_key that ends in 'action'"):
        from_torchrl(scores)


@pytest.mark.torchrl
@pytest.mark.filterwarnings("default")
def test_actors_of_torchrl_may_give_arms_in_a_column_and_have_layers_for_training_only():
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("tensordict.nn")
    pytest.importorskip("torchrl")
    torch.manual_seed(0)

    class Actor(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(21, 4))

        def forward(self, rows):
            return self.scores(rows).argmax(-1, keepdim=True)

    actor = nn.TensorDictModule(Actor(), ["observation"], ["action"])
    first, second = (play(from_torchrl(actor)).pulls[-1] for _ in range(2))
    assert np.array_equal(first, second)
    assert (first.sum(axis=0)[1:] > 0).any()
    assert actor.training


@pytest.mark.torchrl
@pytest.mark.filterwarnings("default")
def test_actors_of_torchrl_that_do_not_fit_are_refused():
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("tensordict.nn")
    pytest.importorskip("torchrl")

    def one_hot(rows):
        return torch.nn.functional.one_hot(rows[:, :4].argmax(-1), 4)

    policy = from_torchrl(nn.TensorDictModule(one_hot, ["observation"], ["action"]))
    with pytest.raises(fb.ProtocolError, match=r"TorchRL: .*shape \(5, 5\), got float64 of shape \(5, 4\)"):
        fb.play(fb.make("fedbandit/Synthetic-v0", **PROBLEM | {"num_arms": 5, "dim": 2}), policy, seed=0)
    with pytest.raises(ValueError, match="expected in_keys that end in one of 'mean', 'std', got 'observation'"):
        play(from_torchrl(nn.TensorDictModule(one_hot, ["observation"], ["action"]), observation="distribution"))
    with pytest.raises(ValueError, match=r"expected one in_key.*got \['observation', 'memory'\]"):
        from_torchrl(nn.TensorDictModule(lambda rows, memory: rows, ["observation", "memory"], ["action"]))


@pytest.mark.torchrl
@pytest.mark.filterwarnings("default")
def test_actors_of_torchrl_read_named_observations():
    nn = pytest.importorskip("tensordict.nn")
    pytest.importorskip("torchrl")
    keys = [("agents", "observation", name) for name in ("pulls", "rewards")]
    actor = nn.TensorDictModule(lambda pulls, rewards: (rewards - pulls).argmax(-1), keys, [("agents", "action")])
    history = play(from_torchrl(actor, observation="distribution+statistics"))
    assert history.pulls[-1].sum() == 5 * 40
