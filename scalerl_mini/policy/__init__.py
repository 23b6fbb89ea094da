"""The language model: loading and saving, the fp32 head, token log-probabilities, and attention over ragged tokens.

Both sides run the unmodified `transformers` body on a flat row of tokens of many sequences, [1, N], without padding:
only attention must know where sequences begin (`ragged_attention`). The head is ours (`head_logits`,
`token_logprobs`), so that generator and trainer compute the same number from the same hidden state.
"""

from scalerl_mini.policy.head import head_logits, token_logprobs
from scalerl_mini.policy.model import Policy

__all__ = ["Policy", "head_logits", "token_logprobs"]
