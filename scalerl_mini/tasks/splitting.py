"""Training and held-out prompts from one list or two, with no prompt in both."""

from __future__ import annotations

import random

from scalerl_mini.errors import UserError
from scalerl_mini.tasks.base import Prompt

Split = tuple[list[Prompt], list[Prompt], int]


def drop_repeats(prompts: list[Prompt], known: set[str]) -> list[Prompt]:
    """The prompts whose text, spaces apart, is not in `known` and not met before; `known` grows by them."""
    kept = []
    for prompt in prompts:
        if (key := " ".join(prompt.text.split())) not in known:
            known.add(key)
            kept.append(prompt)
    return kept


def split_off(prompts: list[Prompt], held_out: int, seed: int) -> Split:
    """(train, held out, repeats dropped). Which prompts are held out depends on the seed and the prompts alone.

    Raises UserError when nothing is left to train on.
    """
    different = drop_repeats(prompts, set())
    if not 1 <= held_out < len(different):
        raise UserError(
            f"task.options.held_out_prompts = {held_out} of {len(different)} different prompts leaves no training set or "
            "no held-out set; set it in between, or name a held_out_path or held_out_split"
        )
    random.Random(f"held-out {seed}").shuffle(different)
    return different[held_out:], different[:held_out], len(prompts) - len(different)


def keep_apart(train: list[Prompt], held_out: list[Prompt]) -> Split:
    """Two lists of one's own: repeats are dropped, and training prompts that are held out leave the training set.

    Raises UserError when none of them stays; without any to begin with, there is nothing to train on and that is meant.
    """
    known: set[str] = set()
    kept_out = drop_repeats(held_out, known)
    kept = drop_repeats(train, known)
    if train and not kept:
        raise UserError("every training prompt is also held out; give task.options two different files or splits")
    return kept, kept_out, len(train) + len(held_out) - len(kept) - len(kept_out)
