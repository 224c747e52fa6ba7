"""Agents in processes of their own: the unchanged sides of a policy as the client and server apps of Flower.

`wire`, `client`, `coordinator` and `sources` do not need Flower. `flower` connects them to it, and `local` runs a whole
federation on this machine.
"""
