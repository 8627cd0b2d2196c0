"""Runs scripts of this folder one after the other in one process, which imports torch and transformers once.

    python3 tests/interop/session.py

Each line of the input is a list in JSON: the name of a script and its arguments. The answer to it is a line too: a list
with true and what the script printed, or with false and why it failed. Before the first answer stands a line "ready".
"""

import contextlib
import io
import json
import pathlib
import runpy
import sys
import traceback

import peft  # noqa: F401
import torch  # noqa: F401
import transformers  # noqa: F401

HERE = pathlib.Path(__file__).parent


def run(script, arguments):
    sys.argv = [script, *arguments]
    words = io.StringIO()
    try:
        with contextlib.redirect_stdout(words):
            runpy.run_path(str(HERE / script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            return [False, f"{words.getvalue()}{end.code}"]
    except Exception:
        return [False, words.getvalue() + traceback.format_exc()]
    return [True, words.getvalue()]


def answer(words):
    print(json.dumps(words), flush=True)


answer("ready")
for line in sys.stdin:
    script, *arguments = json.loads(line)
    answer(run(script, arguments))
