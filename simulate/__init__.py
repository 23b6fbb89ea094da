"""Synthetic curves with known truth, and the validation of the fitter on them. Imports scalerl_mini.scaling, never torch."""
