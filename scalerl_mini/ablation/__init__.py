"""The ablation lab: variants x seeds of one recipe, run under equal conditions, then compared by ceiling and efficiency.

    variants.py   what is changed: leave-one-out, the five recipes, or a grid of any key
    study.py      which runs there are, which are done, and running the rest
    ranking.py    the comparison of `scaling`, as a table and a figure

No torch here: every run is a `scalerl-mini train` process of its own.
"""
