"""Federated phased elimination: Fed-PECD, its design, estimates and widths."""
