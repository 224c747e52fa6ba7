"""MovieLens-100K: ratings, learnt factors, and the problems made from them."""
