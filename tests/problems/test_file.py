"""A problem as a file gives the numbers of the arrays in it, and a file that is not one is refused in words."""

import contextlib
import os
import pickle
import zipfile
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.experiments.identity import run_identities
from fedbandit_envs.problems.generator import draw_instance

THETA = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])
MEAN = np.array([[0.8, 0.1], [0.2, 0.7], [0.5, 0.5], [0.9, 0.4]])
COVARIANCE = np.array([[0.02, 0.01], [0.01, 0.03]])
TABLES = np.repeat(MEAN, 3, axis=0).reshape(4, 6) + np.arange(6) / 10
DISTRIBUTIONS = {
    "points": (fb.PointMass(MEAN), fb.Identity(3, 2)),
    "scalar": (fb.Gaussian(MEAN, std=0.1), fb.Identity(3, 2)),
    "diagonal": (fb.Gaussian(MEAN, std=MEAN / 10), fb.Identity(3, 2)),
    "covariance": (fb.Gaussian(MEAN, covariance=COVARIANCE), fb.Identity(3, 2)),
    "covariances": (fb.Gaussian(MEAN, covariance=COVARIANCE * np.ones((4, 1, 1))), fb.Identity(3, 2)),
    "discrete": (fb.Discrete(np.stack([MEAN, 1 - MEAN], axis=1), np.full((4, 2), 0.5)), fb.Identity(3, 2)),
    "table": (fb.Gaussian(TABLES, std=0.05), fb.Table(3, 2)),
}
MU, PHI = DISTRIBUTIONS["scalar"]


def history(id, **keywords):
    return fb.play(fb.make(id, max_cycles=64, **keywords), fb.make_policy("Local-UCB"), seed=3)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.npz"
    fb.save_problem(path, theta=THETA, contexts=MU, feature_map=PHI, noise_std=0.3)
    return str(path)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("context", ["fixed", "resampled"])
def test_a_file_plays_as_its_arrays_do(tmp_path, kind, context):
    mu, phi = DISTRIBUTIONS[kind]
    arrays = {"theta": THETA, "contexts": mu, "feature_map": phi, "noise_std": 0.2}
    fb.save_problem(tmp_path / "mine.npz", **arrays)
    from_file = history("fedbandit/File-v0", path=str(tmp_path / "mine.npz"), context=context)
    from_arrays = history("fedbandit/Linear-v0", **arrays, context=context)
    assert np.array_equal(from_file.pulls, from_arrays.pulls)
    assert np.array_equal(from_file.mean_regret(), from_arrays.mean_regret())


def test_features_guarantees_and_true_contexts_are_kept(tmp_path):
    features = np.repeat(MEAN[:, None], 3, axis=1)
    fb.save_problem(tmp_path / "known.npz", theta=THETA, features=features, L=2.0, theta_bound=1.5, same_arms=False)
    instance = draw_instance(fb.File(path=str(tmp_path / "known.npz")), 0)
    assert np.array_equal(instance.phi, features)
    assert (instance.L, instance.theta_bound, instance.noise_std) == (2.0, 1.5, 1.0)

    shown = {"theta": THETA, "contexts": MU, "feature_map": PHI, "true_contexts": MEAN + 0.05}
    fb.save_problem(tmp_path / "true.npz", **shown)
    rng = np.random.default_rng(0)
    assert np.array_equal(fb.File(str(tmp_path / "true.npz")).instance(rng, rng).contexts, MEAN + 0.05)
    assert fb.File(str(tmp_path / "true.npz"), context="resampled").instance(rng, rng).contexts is None


def test_bernoulli_rewards_are_kept(tmp_path):
    fb.save_problem(tmp_path / "b.npz", theta=THETA, features=np.repeat(MEAN[:, None], 3, axis=1), rewards="bernoulli")
    rewards = gymnasium.make("fedbandit/File-Agent-v0", path=str(tmp_path / "b.npz"), max_cycles=50)
    rewards.reset(seed=0)
    assert {rewards.step(0)[1] for _ in range(50)} == {0.0, 1.0}  # each fails with probability below 1e-4


def test_equal_problems_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        fb.save_problem(tmp_path / name, feature_map=PHI, theta=THETA, contexts=MU)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_plain_numpy_writes_such_a_file_too(tmp_path):
    np.savez(tmp_path / "np.npz", theta=THETA, mean=MEAN, std=0.1, feature_map="identity", noise_std=0.3)
    fb.save_problem(tmp_path / "fb.npz", theta=THETA, contexts=MU, feature_map=PHI, noise_std=0.3)
    ours, theirs = (history("fedbandit/File-v0", path=str(tmp_path / name)) for name in ("fb.npz", "np.npz"))
    assert np.array_equal(ours.mean_regret(), theirs.mean_regret())


def test_fewer_agents_are_drawn_anew_for_each_instance(file):
    problem, rngs = fb.File(file, num_agents=2), [np.random.default_rng(seed) for seed in range(8)]
    drawn = [problem.instance(rng, rng) for rng in rngs]
    assert all(instance.num_agents == 2 and instance.population is None for instance in drawn)
    rows = {tuple(map(tuple, instance.distribution.mean)) for instance in drawn}
    assert len(rows) > 1
    assert all(row in {tuple(mean) for mean in MEAN} for pair in rows for row in pair)
    with pytest.raises(ValueError, match="num_agents: expected at most the 4 agents of"):
        fb.File(file, num_agents=5)


def test_noise_of_the_environment_replaces_that_of_the_file(file):
    rng = np.random.default_rng(0)
    assert fb.File(file).instance(rng, rng).noise_std == 0.3
    assert fb.File(file, noise_std=0.0).instance(rng, rng).noise_std == 0.0


def test_the_vector_view_has_a_row_for_each_agent_of_the_file(file):
    id = "fedbandit/File-Agent-v0"
    assert gymnasium.make_vec(id, path=file).num_envs == 4
    assert gymnasium.make_vec(id, num_envs=3, path=file).num_envs == 3
    assert gymnasium.make_vec(id, num_envs=3).num_envs == 3


@dataclass(frozen=True, eq=False)
class OwnGaussian(fb.Gaussian):
    pass


class OwnMap(fb.Identity):
    pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"contexts": OwnGaussian(MEAN, std=0.1)},
            "contexts: expected a PointMass, a Gaussian or a Discrete, got a Own",
        ),
        ({"feature_map": OwnMap(3, 2)}, "feature_map: expected a Table or an Identity, got a OwnMap"),
        ({"theta": THETA[0]}, r"theta: expected shape \(arms, dim\)"),
        ({"feature_map": fb.Table(3, 2)}, "feature_map: expected contexts of length 6"),
        ({"noise_std": -1.0}, "noise_std: expected a finite number of at least 0"),
        ({"noise": 1.0}, "save_problem: expected one of .* did you mean 'noise_std'"),
    ],
)
def test_what_can_not_be_saved_is_refused_and_nothing_is_written(tmp_path, change, words):
    arguments = {"theta": THETA, "contexts": MU, "feature_map": PHI} | change
    with pytest.raises(ValueError, match=words):
        fb.save_problem(tmp_path / "x.npz", **arguments)
    assert not list(tmp_path.iterdir())


GOOD = {"theta": THETA, "mean": MEAN, "std": np.array(0.1), "feature_map": np.array("identity")}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"theta": None}, "expected the member 'theta', got mean, std"),
        ({"std": None}, "expected as contexts one of points, mean and std.*got mean"),
        ({"points": MEAN}, "expected as contexts one of .* got points and mean and std"),
        ({"feature_map": None}, "expected the member 'feature_map' with contexts"),
        ({"feature_map": np.array("tabel")}, "feature_map: expected one of 'table', 'identity', got 'tabel'"),
        ({"means": MEAN}, "expected members among .*got 'means'; did you mean 'mean'"),
        ({"noise_std": np.ones(2)}, r"expected one value as noise_std, got an array of shape \(2,\)"),
        ({"noise_std": np.array("loud")}, "noise_std: expected a finite number"),
        ({"mean": MEAN[0]}, r"mean: expected shape \(agents, context\)"),
        ({"mean": MEAN * np.nan}, "mean: expected finite numbers"),
        ({"mean": MEAN * 1j}, "mean: expected an array of real numbers"),
        ({"theta": THETA[:, :1]}, "feature_map: expected contexts of length 1"),
        ({"theta": np.array(["a"])}, "theta: expected an array of real numbers"),
        ({"features": np.ones((4, 3, 2))}, r"expected either features \(M, K, d\) or contexts"),
        ({"mean": None, "std": None}, "got a feature_map alone"),
    ],
)
def test_a_file_with_other_members_is_refused_by_name(tmp_path, change, words):
    members = {name: member for name, member in (GOOD | change).items() if member is not None}
    np.savez(tmp_path / "x.npz", **members)
    with pytest.raises(ValueError, match=words) as refused:
        fb.File(str(tmp_path / "x.npz"))
    assert "x.npz: " in str(refused.value)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def test_pickles_compressed_files_and_lies_about_sizes_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("pickle.npz", theta=np.array([Bomb()], dtype=object))
    np.savez_compressed("small.npz", **GOOD)
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Bomb()))
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }"
    with zipfile.ZipFile("huge.npz", "w") as archive:
        archive.writestr("theta.npy", (header % 2**55).ljust(127) + b"\n" + b"\0" * 8)
    for name in ("pickle.npz", "small.npz", "bare.npz", "huge.npz"):
        with pytest.raises(ValueError, match=f"{name}: expected arrays of plain numbers and texts as numpy.savez"):
            fb.File(name)
    assert not (tmp_path / "unpickled").exists()


def arrays(path):
    problem = fb.File(str(path))._linear
    return np.concatenate([problem.theta.ravel(), problem.contexts.mean.ravel(), [problem.noise_std]])


def test_a_file_that_is_cut_or_changed_never_gives_other_arrays(tmp_path, file):
    with open(file, "rb") as whole:
        content = whole.read()
    torn, expected = tmp_path / "torn.npz", arrays(file)
    for length in range(0, len(content), 37):
        torn.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"torn\.npz: expected"):
            arrays(torn)
    first = content.index(MEAN.tobytes())
    for place in (*range(0, len(content), 11), *range(first, first + MEAN.nbytes)):
        torn.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        if first <= place < first + MEAN.nbytes:
            with pytest.raises(ValueError, match=r"mean\.npy: expected the checksum|Bad CRC-32"):
                arrays(torn)
            continue
        with contextlib.suppress(ValueError):  # the archive's headers also hold fields without a meaning
            assert np.array_equal(arrays(torn), expected)


def test_only_files_that_are_there_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for name in ("pipe", ".", "/dev/zero"):
        with pytest.raises(ValueError, match="expected a file, got a folder, a pipe or a device"):
            fb.File(name)
    with pytest.raises(ValueError, match=r"path: expected a file that save_problem wrote, got 'no.npz' \(No such file"):
        fb.make("fedbandit/File-v0", path="no.npz")
    with pytest.raises(ValueError, match="path: expected the name of a file, got 3"):
        fb.make("fedbandit/File-v0", path=3)


def test_a_path_is_relative_to_the_current_folder(file, monkeypatch):
    monkeypatch.chdir(os.path.dirname(file))
    assert fb.File("mine.npz").num_agents == 4


def test_the_content_of_the_file_belongs_to_the_identity_of_an_experiment(tmp_path, file):
    experiment = fb.Experiment("fedbandit/File-v0", ["Uniform"], {"path": file, "max_cycles": 16}, trials=1)
    (before,) = run_identities(experiment)
    assert run_identities(experiment) == [before]
    resolved = experiment.resolved()
    assert len(resolved.arguments["sha256"]) == 64
    fb.save_problem(file, theta=THETA * 2, contexts=MU, feature_map=PHI, noise_std=0.3)
    assert run_identities(experiment) != [before]
    assert run_identities(resolved) == [before]  # it says which content it means
    with pytest.raises(ValueError, match="expected content of sha256"):
        resolved.check()


def test_experiments_go_over_files_and_over_numbers_of_agents(tmp_path, file):
    other = str(tmp_path / "other.npz")
    fb.save_problem(other, theta=THETA * 2, contexts=MU, feature_map=PHI, noise_std=0.3)
    experiment = fb.Experiment("fedbandit/File-v0", ["Uniform"], {"path": file, "max_cycles": 16}, trials=2)
    files = fb.run_all({path: experiment.with_argument("path", path) for path in (file, other)}, executor="serial")
    assert np.allclose(files[other].final("Uniform"), 2 * files[file].final("Uniform"))
    swept = {str(number): experiment.with_argument("num_agents", number) for number in (2, 4)}
    agents = fb.run_all(swept, executor="serial")
    assert {name: result.num_agents("Uniform") for name, result in agents.items()} == {"2": 2, "4": 4}


def test_results_say_which_content_they_were_computed_with(file):
    experiment = fb.Experiment("fedbandit/File-v0", ["Uniform"], {"path": file, "max_cycles": 16}, trials=1)
    result = fb.run(experiment, executor="serial")
    assert result.experiment.arguments == experiment.pinned().arguments
    assert result.experiment.arguments["path"] == file


def test_experiments_without_a_file_have_no_hash():
    assert "sha256" not in fb.Experiment("fedbandit/File-v0", ["Uniform"]).resolved().arguments
    with pytest.raises(ValueError, match="sha256: expected none without a path"):
        fb.File(sha256="0" * 64)
