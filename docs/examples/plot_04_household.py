"""
Household accounts
==================

A MovieLens account is shared by two to four people. The agent knows who they are, but not who sits before the screen.
"""

import fedbandit_envs as fb

problem = {"num_agents": 50, "max_cycles": 2**13}
policies = ["Fed-CI", "Federated-Thompson", "Local-Thompson"]
experiment = fb.Experiment("fedbandit/Household-v0", policies, problem, trials=5)
result = fb.run(experiment, executor="serial")
figure = fb.plotting.regret(result)

# %%
# What an agent sees: the people of its account as possible contexts, and the probability of each.

env = fb.make("fedbandit/Household-v0", num_agents=2)
observations, _ = env.reset(seed=0)
print(observations["agent_0"])
