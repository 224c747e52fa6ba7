"""A problem as a file: arrays in an .npz file, which experiments, sweeps and cluster runs take by its path.

The file is what `numpy.savez` writes, so other programs can write it too. Its members:

- `theta` (K, d);
- either `features` (M, K, d), or the arrays of one distribution, which are `points`, `mean` and `std`, `mean` and
  `covariance`, or `support` and `weights`, together with `feature_map`, the text "table" or "identity";
- where there is something to say: `true_contexts` (M, n), and the single values `noise_std`, `rewards`, `ell`, `L`,
  `shared_theta`, `same_arms`, `theta_bound` and `context_proxy`, which mean what they mean to `Linear`.
"""

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureMap, Identity, Table
from fedbandit_envs.contexts.finite import Discrete, PointMass
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.linear import Linear
from fedbandit_envs.storage import arrays_of, read_whole, write_whole
from fedbandit_envs.validation import nearest, one_of, real_array, whole_number

_DISTRIBUTIONS: dict[tuple[str, ...], type[Any]] = {
    ("points",): PointMass,
    ("mean", "std"): Gaussian,
    ("mean", "covariance"): Gaussian,
    ("support", "weights"): Discrete,
}
_MAPS: dict[str, type[Any]] = {"table": Table, "identity": Identity}
_ARRAYS = ("theta", "features", "true_contexts")
_VALUES = ("noise_std", "rewards", "ell", "L", "shared_theta", "same_arms", "theta_bound", "context_proxy")


def save_problem(
    path: str | os.PathLike[str],
    *,
    theta: FloatArray,
    features: FloatArray | None = None,
    contexts: ContextDistribution | None = None,
    feature_map: FeatureMap | None = None,
    true_contexts: FloatArray | None = None,
    **settings: Any,
) -> None:
    """Write a problem of your own to a file that `fedbandit/File-v0` plays; `path=` names it in any experiment.

    The arguments are those of `Linear`, and they are checked as `Linear` checks them before anything is written. Equal
    problems give equal bytes. An older file of that name is replaced.

    Args:
        path: The file, usually with the ending .npz. Its folder is made if it is not there.
        theta: (K, d) the parameters of the arms.
        features: (M, K, d) features that are known exactly. Give either these or `contexts`.
        contexts: mu, the distribution of the hidden contexts: a PointMass, a Gaussian or a Discrete.
        feature_map: phi, needed with `contexts`: a Table or an Identity.
        true_contexts: (M, n) the hidden contexts; None: each run draws them from the distribution.
        settings: `noise_std`, `rewards`, and the guarantees `ell`, `L`, `shared_theta`, `same_arms`, `theta_bound` and
            `context_proxy`.

    Raises:
        ValueError: This is no problem, or one that holds code of your own, which a file of arrays can't.
        OSError: The file can't be written.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> mu = Gaussian([[1.0, 0.2], [0.3, 0.9]], std=0.1)
    >>> save_problem(file, theta=np.eye(2), contexts=mu, feature_map=Identity(2, 2), noise_std=0.5)
    >>> File(str(file)).num_agents
    2
    """
    for name in settings:
        one_of("save_problem", name, _VALUES)
    problem = Linear(theta, features, contexts, feature_map, true_contexts, **settings)
    members: dict[str, Any] = {"theta": problem._parts[0]}
    if features is not None:
        members["features"] = real_array("features", features, ("agents", "arms", "dim"))
    else:
        members |= _saved_contexts(contexts, feature_map)
    if true_contexts is not None:
        members["true_contexts"] = real_array("true_contexts", true_contexts, ("agents", "context"))
    members |= {name: value for name, value in settings.items() if value is not None}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: np.asarray(members[name]) for name in sorted(members)})
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(Path(path), buffer.getvalue())


def _saved_contexts(contexts: ContextDistribution | None, feature_map: FeatureMap | None) -> dict[str, Any]:
    """The members of a distribution and a feature map."""
    maps = {kind: name for name, kind in _MAPS.items()}
    if type(feature_map) not in maps:
        raise ValueError(
            f"feature_map: expected a Table or an Identity, got a {type(feature_map).__name__}; a file holds arrays, "
            "no code, so make the environment by fb.make('fedbandit/Linear-v0', ...), or save the expected features"
        )
    for names, kind in _DISTRIBUTIONS.items():
        arrays = {name: getattr(contexts, name, None) for name in names}
        if type(contexts) is kind and not any(array is None for array in arrays.values()):
            return {**arrays, "feature_map": maps[type(feature_map)]}
    raise ValueError(
        f"contexts: expected a PointMass, a Gaussian or a Discrete, got a {type(contexts).__name__}; a file holds "
        "arrays, no code, so make the environment by fb.make('fedbandit/Linear-v0', ...), or save samples as a Discrete"
    )


@dataclass(frozen=True, eq=False)
class File:
    """A problem that `save_problem`, `from_ratings` or `from_classification` wrote; without a path, a small example.

    It is the environment `fedbandit/File-v0`, so experiments and commands can use a problem of your own by its path. An
    experiment keeps the hash of the file: results are never mixed with those of another content.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> save_problem(file, theta=np.eye(2), features=np.ones((5, 2, 2)))
    >>> rng = np.random.default_rng(0)
    >>> File(str(file), num_agents=3).instance(rng, rng).means.shape
    (3, 2)
    """

    path: str | os.PathLike[str] | None = None  #: the file; a relative path starts at the current folder
    sha256: str | None = None  #: the hash that the file's content must have; None: any
    #: how many of the file's agents play, drawn anew for each instance; None: all of them, in their order
    num_agents: int | None = None
    context: str = "fixed"  #: "fixed" or "resampled" at each pull
    noise_std: float | None = None  #: standard deviation of the noise of Gaussian rewards; None: that of the file
    _linear: Linear = field(init=False, repr=False)

    def __post_init__(self) -> None:
        settings: dict[str, Any] = {"context": one_of("context", self.context, ("fixed", "resampled"))}
        if self.noise_std is not None:
            settings["noise_std"] = self.noise_std
        if self.path is None:
            if self.sha256 is not None:
                raise ValueError("sha256: expected none without a path, got one; it is the hash of a file's content")
            linear = Linear(num_agents=self.num_agents, **settings)
        else:
            linear = self._read(self.path, settings)
        object.__setattr__(self, "_linear", linear)
        if self.num_agents is None:
            object.__setattr__(self, "num_agents", linear.num_agents)

    def _read(self, path: str | os.PathLike[str], settings: dict[str, Any]) -> Linear:
        """The problem in the file, with these settings instead of its own."""
        content = _content(path)
        if self.sha256 is not None and (got := _sha256(content)) != self.sha256:
            raise ValueError(
                f"{path}: expected content of sha256 {self.sha256}, got {got}; the file is not the one that this "
                "experiment was made with: restore it, or leave out sha256"
            )
        arguments = {**_arguments(arrays_of(content, str(path)), str(path)), **settings}
        if self.context == "resampled":
            arguments.pop("true_contexts", None)
        try:
            linear = Linear(**arguments)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        assert linear.num_agents is not None  # Linear counts its rows
        if self.num_agents is not None and whole_number("num_agents", self.num_agents, at_least=1) > linear.num_agents:
            raise ValueError(
                f"num_agents: expected at most the {linear.num_agents} agents of {path}, got {self.num_agents}"
            )
        return linear

    @staticmethod
    def pinned(arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of an experiment, with the hash of the file's content if there is a file.

        So the content belongs to the identity of an experiment, and a changed file is refused when it goes on.
        """
        if arguments.get("path") is None or arguments.get("sha256") is not None:
            return dict(arguments)
        return {**arguments, "sha256": _sha256(_content(arguments["path"]))}

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """Draw the agents, if not all take part, and their hidden contexts, if the file does not hold them."""
        if self.num_agents == self._linear.num_agents:
            return self._linear.instance(rng, context_rng)
        whole = self._linear.num_agents
        assert whole is not None  # Linear counts its rows
        return self._linear.part(rng.permutation(whole)[: self.num_agents], context_rng)


def _content(path: object) -> bytes:
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"path: expected the name of a file, got {path!r}")
    try:
        return read_whole(Path(path))
    except OSError as error:
        raise ValueError(
            f"path: expected a file that save_problem wrote, got {os.fspath(path)!r} ({error.strerror}); a relative "
            f"path starts at the current folder, {Path.cwd()}"
        ) from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _arguments(members: Mapping[str, NDArray[Any]], source: str) -> dict[str, Any]:
    """The arguments of `Linear` that a file holds; `Linear` itself checks their shapes."""
    known = [*_ARRAYS, *{name: None for names in _DISTRIBUTIONS for name in names}, "feature_map", *_VALUES]
    for name in members:
        if name not in known:
            raise ValueError(f"{source}: expected members among {', '.join(known)}, got {name!r}{nearest(name, known)}")
    if "theta" not in members:
        raise ValueError(f"{source}: expected the member 'theta', got {', '.join(members) or 'none'}")
    arguments: dict[str, Any] = {name: members[name] for name in _ARRAYS if name in members}
    arguments |= {name: _value(name, members[name], source) for name in _VALUES if name in members}
    of_contexts = tuple(name for name in known if name in members and name not in (*_ARRAYS, *_VALUES, "feature_map"))
    if not of_contexts and "feature_map" not in members:
        return arguments
    if of_contexts not in _DISTRIBUTIONS:
        choices = ", ".join(" and ".join(names) for names in _DISTRIBUTIONS)
        raise ValueError(
            f"{source}: expected as contexts one of {choices}, got {' and '.join(of_contexts) or 'a feature_map alone'}"
        )
    if "feature_map" not in members:
        raise ValueError(f"{source}: expected the member 'feature_map' with contexts, got none")
    map_kind = _MAPS[one_of(f"{source}: feature_map", _value("feature_map", members["feature_map"], source), _MAPS)]
    theta = real_array(f"{source}: theta", members["theta"], ("arms", "dim"))
    try:
        arguments["contexts"] = _DISTRIBUTIONS[of_contexts](**{name: members[name] for name in of_contexts})
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    return {**arguments, "feature_map": map_kind(*theta.shape)}


def _value(name: str, member: NDArray[Any], source: str) -> Any:
    if member.ndim:
        raise ValueError(f"{source}: expected one value as {name}, got an array of shape {member.shape}")
    return member.item()
