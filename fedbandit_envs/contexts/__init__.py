"""Context distributions mu_i and feature maps phi."""
