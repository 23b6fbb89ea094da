"""The tiny model that the built-in task starts from: its tokenizer, its architecture, and how it was warm-started.

`python -m scalerl_mini.warmstart --seed 0 --out DIR` makes the folder shipped as `scalerl_mini/models/tiny-adder`.
"""
