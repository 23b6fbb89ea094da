"""The tokenizer is exact in both directions and survives a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from scalerl_mini.warmstart.tokenizer import CHARACTERS, MARKS, VOCABULARY, build_tokenizer

TOKENIZER = build_tokenizer()
EXAMPLE = "<bos>684+154=<think>4+4=8 8+5=13 6+1+1=8</think>838<eos>"


def test_there_are_24_tokens_and_each_text_piece_is_one() -> None:
    assert len(VOCABULARY) == len(TOKENIZER) == 24
    assert len(TOKENIZER.encode(EXAMPLE)) == len(EXAMPLE) - len("bosthink/thinkeos") - 2 * 4 + 4


@given(st.lists(st.sampled_from([*MARKS, *CHARACTERS]), max_size=60))
def test_round_trip(pieces: list[str]) -> None:
    text = "".join(pieces)
    ids = TOKENIZER.encode(text)
    assert ids == [VOCABULARY[piece] for piece in pieces]
    assert TOKENIZER.decode(ids) == text


def test_spaces_are_neither_added_nor_cleaned_up() -> None:
    text = "  1 + 1  =2 , ) ( "
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_decoding_without_special_tokens_keeps_the_end_of_thinking() -> None:
    ids = TOKENIZER.encode(EXAMPLE)
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == "684+154=<think>4+4=8 8+5=13 6+1+1=8</think>838"


@pytest.mark.parametrize("text", ["a", "1\n2", "<unk>", "é"])
def test_characters_outside_the_alphabet_are_an_error(text: str) -> None:
    with pytest.raises(Exception, match="UNK"):
        TOKENIZER.encode(text)


def test_auto_tokenizer_loads_the_same_tokenizer(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == VOCABULARY
    assert loaded.encode(EXAMPLE) == TOKENIZER.encode(EXAMPLE)
    assert loaded.decode(loaded.encode(EXAMPLE)) == EXAMPLE
    assert (loaded.pad_token, loaded.bos_token, loaded.eos_token) == ("<pad>", "<bos>", "<eos>")
