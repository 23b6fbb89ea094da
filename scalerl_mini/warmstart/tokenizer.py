"""A tokenizer of 24 tokens for the built-in task: one character, one token, and five marks that are one token each.

Text is encoded and decoded exactly - nothing is stripped, added or cleaned up - and a character outside the alphabet
is an error instead of an unknown token, so that what was graded is what was sampled.
The thinking marks are ordinary tokens (as in Qwen3), so decoding without special tokens keeps them.
"""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

MARKS = ("<pad>", "<bos>", "<eos>", "<think>", "</think>")
CHARACTERS = "0123456789+-*=,; ()"
VOCABULARY = {token: index for index, token in enumerate((*MARKS, *CHARACTERS))}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, which `AutoTokenizer` loads again from a folder it was saved in."""
    core = Tokenizer(models.WordLevel(VOCABULARY))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    core.decoder = decoders.Fuse()
    core.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS[3:]])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )
