"""One run over many processes: each shard holds the agents' part of some agents, the driver holds all else."""
