"""Evaluation of a finished model or a checkpoint: `scalerl-mini eval`.

    name ─► Subject (which weights, which configuration) ─► questions (tasks and limits) ─► running ─► Measures ─► report

Sampling and grading are those of the held-out evaluations of a run (`rollout.evaluation`), seeds included. Here is only
what a run does not need: finding the model, pass@k, and standard errors for new prompts instead of the same ones.
"""
