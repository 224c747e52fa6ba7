"""Where trials are computed: here, in worker processes, on Ray or on Dask."""
