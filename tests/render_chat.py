"""Fills the `chat` block of a checkpoint folder's expected.json with what transformers renders.

    python3 tests/render_chat.py tests/fixtures/qwen2-f32

Each entry of the block names its conversation (`messages`, `add_generation_prompt`, `kwargs`, and
`now` where the template prints the date); `text` and `ids`, or `raises`, are written anew.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import transformers
from transformers.utils import chat_template_utils


def render(tokenizer, entry):
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromisoformat(entry["now"])

    chat_template_utils.datetime = Clock
    try:
        text = tokenizer.apply_chat_template(
            entry["messages"],
            tokenize=False,
            add_generation_prompt=entry["add_generation_prompt"],
            **entry["kwargs"],
        )
    except jinja2.TemplateError as error:
        return {"raises": str(error)}
    return {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)}


def main(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    path = pathlib.Path(folder, "expected.json")
    expected = json.loads(path.read_text(encoding="utf-8"))
    for entry in expected["chat"]:
        for name in ("text", "ids", "raises"):
            entry.pop(name, None)
        entry.update(render(tokenizer, entry))
    path.write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
