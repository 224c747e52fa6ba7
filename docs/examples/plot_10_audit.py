"""
Audit a run
===========

What does theory promise of a run, and does the run keep it? An audit recomputes everything from the messages.
"""

import fedbandit_envs as fb

env = fb.make("fedbandit/Synthetic-v0", num_agents=20, max_cycles=2**13, observe="context", error="classical")
history = fb.play(env, fb.make_policy("Fed-PE"), seed=0, record=True)
print(fb.audit(history))

# %%
# With hidden and fixed contexts nothing is promised, and the audit says so.

env = fb.make("fedbandit/Synthetic-v0", num_agents=20, max_cycles=2**13, error="classical")
hidden = fb.play(env, fb.make_policy("Fed-PECD"), seed=0, record=True)
print(fb.audit(hidden))

# %%
# The number of arms that agents still consider, in both runs.

from matplotlib import pyplot  # noqa: E402

figure, axes = pyplot.subplots(figsize=(7, 3.2), layout="constrained")
for label, run in {"exact (Fed-PE)": history, "hidden (Fed-PECD)": hidden}.items():
    axes.plot(run.steps, run.active.mean(axis=1), drawstyle="steps-post", label=label)
axes.set_xlabel("step")
axes.set_ylabel("active arms per agent")
legend = axes.legend(frameon=False)
