"""Fits that move single weights: the scratch network, statistics that follow, steps in noise units, the guard."""
