"""The ablation lab: variants x seeds of one recipe, run under equal conditions, then compared by ceiling and efficiency.

    variants.py   what is changed: leave-one-out, the five recipes, a grid of any key, or settings under a name
    study.py      which runs there are, and the record by which a study is picked up again
    running.py    the runs that have not ended, one after another or side by side
    ranking.py    the comparison of `scaling` at equal compute, as a table
    diagnosis.py  what the logs of the runs say beside their curves: clipping, truncation, entropy, mismatch, lag
    figures.py    curves with ceilings and exponents, and the paper's linearised efficiency

No torch here: every run is a `scalerl-mini train` process of its own.
"""
