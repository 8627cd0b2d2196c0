"""Renders conversations with transformers, for the tests to compare with.

    python3 tests/chat/render.py FOLDER...
    python3 tests/chat/render.py --block FOLDER...

The first form renders conversations.json with our own templates, and with the published template of
each folder, and writes rendered.json beside it. Published templates are other people's text, and so
is what they render: of a text only its digest and length are kept, of its tokens and of a template's
complaint a digest. A folder without a tokenizer.json has chat_template.jinja, config.json and a
tokenizer_config.json with the special tokens; its tokens are not noted.

The second form writes the block `chat` of each folder's expected.json anew, with text and tokens,
for folders whose template is our own. Each entry names its conversation (`messages`,
`add_generation_prompt`, `kwargs`, and `now` where the template prints the date).
"""

import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
import tokenizers
import transformers
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def render(tokenizer, entry):
    """The text, or what was raised instead."""

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromisoformat(entry["now"])

    chat_template_utils.datetime = Clock
    try:
        return tokenizer.apply_chat_template(
            entry["messages"],
            tokenize=False,
            add_generation_prompt=entry["add_generation_prompt"],
            continue_final_message=entry.get("continue_final_message", False),
            **entry["kwargs"],
        )
    except Exception as error:
        return error


def is_complaint(error):
    """Whether the template itself raised it; subclasses are jinja's own."""
    return type(error) is jinja2.TemplateError


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


def in_full(tokenizer, entry):
    rendered = render(tokenizer, entry)
    if is_complaint(rendered):
        return {"raises": str(rendered)}
    if isinstance(rendered, Exception):
        raise rendered
    return {"text": rendered, "ids": encode(tokenizer, rendered)}


def in_short(tokenizer, entry):
    rendered = render(tokenizer, entry)
    if is_complaint(rendered):
        return {"raises": digest(str(rendered))}
    if isinstance(rendered, Exception):
        return {"fails": type(rendered).__name__}
    return {"text": digest(rendered), "characters": len(rendered)}


def with_ids(tokenizer, entry):
    short = in_short(tokenizer, entry)
    if "text" in short:
        ids = encode(tokenizer, render(tokenizer, entry))
        short["ids"] = digest(" ".join(map(str, ids)))
    return short


def without_vocabulary(template, bos_token="<s>", eos_token="</s>"):
    """A tokenizer that is there for its template alone."""
    words = tokenizers.models.WordLevel({"<s>": 0, "</s>": 1}, unk_token="</s>")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words),
        bos_token=bos_token,
        eos_token=eos_token,
        chat_template=template.read_text(encoding="utf-8"),
    )


def of_folder(folder):
    """Its tokenizer, and what of a rendering to keep."""
    if pathlib.Path(folder, "tokenizer.json").exists():
        return transformers.AutoTokenizer.from_pretrained(folder), with_ids
    config = read(folder, "tokenizer_config.json")
    special = {name: config[name] for name in ("bos_token", "eos_token")}
    return without_vocabulary(pathlib.Path(folder, "chat_template.jinja"), **special), in_short


def read(folder, name):
    return json.loads(pathlib.Path(folder, name).read_text(encoding="utf-8"))


def write_blocks(folders):
    for folder in folders:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        path = pathlib.Path(folder, "expected.json")
        expected = json.loads(path.read_text(encoding="utf-8"))
        for entry in expected["chat"]:
            for name in ("text", "ids", "raises"):
                entry.pop(name, None)
            entry.update(in_full(tokenizer, entry))
        path.write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


def write_digests(folders):
    text = (HERE / "conversations.json").read_text(encoding="utf-8")
    conversations = json.loads(text)["conversations"]
    templates = {}
    for path in sorted((HERE / "templates").iterdir()):
        tokenizer = without_vocabulary(path)
        templates[digest(tokenizer.chat_template)] = {
            "name": path.name,
            "rendered": {entry["name"]: in_short(tokenizer, entry) for entry in conversations},
        }
    for folder in folders:
        tokenizer, outcome = of_folder(folder)
        key = digest(tokenizer.chat_template)
        if key in templates:
            continue
        templates[key] = {"name": read(folder, "config.json")["model_type"]}
        if outcome is with_ids:
            # A folder with this template may have another vocabulary.
            file = pathlib.Path(folder, "tokenizer.json")
            templates[key]["tokenizer"] = hashlib.sha256(file.read_bytes()).hexdigest()
        rendered = {entry["name"]: outcome(tokenizer, entry) for entry in conversations}
        templates[key]["rendered"] = rendered
    written = {"transformers": transformers.__version__, "templates": templates}
    (HERE / "rendered.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--block"]:
        write_blocks(sys.argv[2:])
    else:
        write_digests(sys.argv[1:])
