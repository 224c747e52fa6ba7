"""Streams for linear policies, and what a recorded run says in the words of the slow oracle."""

import numpy as np
from reference_linear import Played, Problem

import fedbandit_envs as fb


def drawn(seed=0, M=3, K=4, d=2, T=60, std=0.3, shared=True):
    """Psi (T, M, K, d), theta (K, d), and the standard deviations of the features (T, M, K, d)."""
    rng = np.random.default_rng(seed)
    psi = rng.uniform(-1, 1, (T, M, K, d)) / np.sqrt(d)
    theta = rng.normal(size=(1 if shared else K, d))
    theta = np.broadcast_to(theta / np.linalg.norm(theta, axis=1, keepdims=True), (K, d))
    return psi, theta, std * rng.uniform(0.2, 1.8, psi.shape)


def stream(seed=0, *, std=0.3, shared=True, M=3, K=4, d=2, T=60, **more):
    """An environment whose psi is new at each step, and psi (T, M, K, d)."""
    psi, theta, spreads = drawn(seed, M, K, d, T, std, shared)
    mus = [fb.Gaussian(mean.reshape(M, -1), std=own.reshape(M, -1)) for mean, own in zip(psi, spreads, strict=True)]
    shown = {"contexts": mus, "feature_map": fb.Table(K, d)} if std else {"features": psi}
    more = {"noise_std": 0.3, "max_cycles": T, "context": "streaming", "shared_theta": shared, **more}
    return fb.make("fedbandit/Linear-v0", theta=theta, **shown, **more), psi


def recorded(env, policy, seed=1):
    """The run; its arms (T, M), and its rewards (T, M, K), which are NaN where nothing was pulled."""
    history = fb.play(env, policy, seed=seed, record=True)
    pulled = [exchange.feedback for exchange in history.exchanges if exchange.plan.length]
    arms = np.stack([feedback.arm for feedback in pulled])
    rewards = np.full((*arms.shape, history.constants.num_arms), np.nan)
    np.put_along_axis(rewards, arms[..., None], np.stack([feedback.played_sums for feedback in pulled])[..., None], 2)
    return history, arms, rewards


def as_problem(history, psi, arms, rewards):
    """What the oracle plays: psi, the features that came (where they were revealed), and the rewards."""
    phi = np.full(psi.shape, np.nan)
    pulled = [exchange.feedback for exchange in history.exchanges if exchange.plan.length]
    if pulled[0].features is not None:
        T, M = arms.shape
        phi[np.arange(T)[:, None], np.arange(M), arms] = np.stack([feedback.features for feedback in pulled])
    return Problem(psi, phi, rewards)


def talked(history, up="new", down=("sums", "missing")):
    """Who uploaded and who received numbers: pairs of a step, counted from 1, and an agent."""
    played = Played(np.empty((0, 0)))
    for exchange in history.exchanges:
        after = exchange.step + exchange.plan.length
        if exchange.up is not None and exchange.up.kind == up:
            played.uploads += [(after, agent) for agent in exchange.up.agents.tolist()]
        message = exchange.down
        if message is not None and message.kind in down:
            agents = np.arange(history.constants.num_agents) if message.agents is None else message.agents
            heard = message.present.get("gram", np.ones(len(agents), dtype=bool))
            played.downloads += [(exchange.step, agent) for agent in agents[heard].tolist()]
    return played


def before(pairs, T):
    """The pairs before the last step, after which nobody speaks."""
    return [pair for pair in pairs if pair[0] < T]
