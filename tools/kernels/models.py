"""Writes the models whose launches are counted: python tools/kernels/models.py OUT

OUT gets folders such as 4B/2, each with a config.json and no weights, which a bench draws. The widths are those of
the published models. The layers are few, because each launches as much as any other one, and most of the folders have
a short vocabulary, which changes the size of launches and not their number. Thus weights are drawn in seconds.
"""

import json
import pathlib
import sys

PUBLISHED = pathlib.Path("crates/firebrick/src/published.json")
MODELS = {
    "0.5B": "Qwen/Qwen2.5-0.5B",
    "1.5B": "Qwen/Qwen2.5-1.5B",
    "4B": "Qwen/Qwen3-4B",
    "8B": "Qwen/Qwen3-8B",
}
# The folders of a model: how many layers it has, and whether it has its whole vocabulary.
FOLDERS = {"whole": (2, True), "2": (2, False), "3": (3, False)}
SHORT = 2048


def sizes():
    """The published sizes of each model."""
    models = json.loads(PUBLISHED.read_text())["models"]
    return {
        name: next(model["config"] for model in models if published in model["contexts"])
        for name, published in MODELS.items()
    }


def main(out):
    for name, config in sizes().items():
        # The head of the largest model is another matrix than its embedding. As one they take half of the memory, and
        # a step launches the same.
        config = {**config, "tie_word_embeddings": True}
        for folder, (layers, whole) in FOLDERS.items():
            own = {"num_hidden_layers": layers} | ({} if whole else {"vocab_size": SHORT})
            path = pathlib.Path(out, name, folder)
            path.mkdir(parents=True, exist_ok=True)
            (path / "config.json").write_text(json.dumps({**config, **own}))


if __name__ == "__main__":
    main(*sys.argv[1:])
