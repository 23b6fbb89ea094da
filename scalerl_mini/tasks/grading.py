"""Finding the final answer in a completion: plain text comparison, nothing is ever evaluated.

The paper grades the text after the thinking part; so do we. A completion that never closes its thinking part has no
answer, even if the right digits stand somewhere inside it.
"""

from __future__ import annotations

END_OF_THINKING = "</think>"
END_OF_TEXT = "<eos>"


def final_answer(completion: str) -> str | None:
    """Text between the last `</think>` and the first `<eos>` (or the end); None if thinking was never closed."""
    text = completion.partition(END_OF_TEXT)[0]
    _, closed, answer = text.rpartition(END_OF_THINKING)
    return answer if closed else None


def exact_match(answer: str, completion: str) -> float:
    """1.0 iff the final answer is `answer` character for character (so "0838" and "838 " are not "838"), else 0.0."""
    return float(final_answer(completion) == answer)
