"""One run over many processes: shards hold the agents' part, and of some servers their parts; the driver all else."""
