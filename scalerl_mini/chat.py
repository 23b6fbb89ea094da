"""A prompt as the user's message of a conversation, in the model's own chat template, as token ids.

The template writes every special token itself, the one that begins a text included. So text and template become ids in
one call, in which the tokenizer adds nothing of its own: the template's text tokenised in a second call would begin twice.
No torch here.
"""

from __future__ import annotations

from typing import Any

from scalerl_mini.errors import UserError


def check_chat_template(tokenizer: Any, folder: object) -> None:
    """Raise UserError unless the tokenizer, which was loaded from `folder`, has a chat template."""
    if not tokenizer.chat_template:
        raise UserError(
            f"model.chat_template = true, but the tokenizer of {folder} has no chat template; set it to false, or choose "
            "a model that was trained for conversations"
        )


def chat_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a conversation in which the user has said `text` and the model's answer is about to begin.

    Raises UserError when the template does not take a conversation of one user message.
    """
    try:
        messages = [{"role": "user", "content": text}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    except Exception as error:  # the template is a program of the model's author
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(
            f"the prompt {text!r:.80} cannot be put into the model's chat template ({reason}); change the prompt, or set "
            "model.chat_template to false"
        ) from error
    return list(ids)
