"""Asks a function of the user's file about each completion: python3 python.py FILE FUNCTION.

The function takes any of the request's keys by their names, and returns a number from 0 to 1, or such a number and the
text that it judged. Whatever it prints goes to standard error, because standard output carries the answers.
"""

import inspect
import json
import math
import os
import runpy
import sys
import traceback

KEYS = ["question", "completion", "reference", "prompt", "finish"]


def main():
    path, name = sys.argv[1:3]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # A module beside the file can be imported, and the function finds its file's arguments empty.
    sys.path[0], sys.argv = os.path.dirname(os.path.abspath(path)), [path]

    function = load(path, name)
    wanted = arguments(function, path, name)
    requests = os.fdopen(0, encoding="utf-8", newline="\n", closefd=False)
    for line in requests:
        request = json.loads(line)
        try:
            answer = function(**{key: request[key] for key in wanted})
        except BaseException as error:
            fail(described(error, path, f"for the completion {short(request['completion'])}"))
        score, text = checked(answer, name)
        json.dump({"id": request["id"], "score": score, "extracted": text}, answers)
        answers.write("\n")
        answers.flush()


def load(path, name):
    try:
        # A file that also runs on its own guards that part with __name__ == "__main__".
        names = runpy.run_path(path, run_name=os.path.splitext(os.path.basename(path))[0])
    except BaseException as error:
        fail(described(error, path, "when the file was read"))
    function = names.get(name)
    if not callable(function):
        there = sorted(key for key, value in names.items() if inspect.isfunction(value))
        fail(f"{path} has no function `{name}`; its functions are: {', '.join(there) or 'none'}")
    return function


def arguments(function, path, name):
    parameters = inspect.signature(function).parameters.values()
    if any(of.kind == of.VAR_KEYWORD for of in parameters):
        return KEYS
    required = [of.name for of in parameters if of.default is of.empty and of.kind != of.VAR_POSITIONAL]
    unknown = [of for of in required if of not in KEYS]
    if unknown or any(of.kind == of.POSITIONAL_ONLY for of in parameters):
        wrong = f"{unknown[0]!r} is none of its arguments" if unknown else "they are given by name"
        fail(f"{path}: `{name}` is called with {', '.join(KEYS)}, or those of them that it has; {wrong}")
    return [of.name for of in parameters if of.name in KEYS]


def checked(answer, name):
    score, text = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
    try:
        number = float(score) if not isinstance(score, str) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 <= number <= 1.0:
        returned = "nothing (does every path of it end with `return`?)" if score is None else short(score)
        fail(f"`{name}` returned {returned}, expected a number from 0 to 1")
    return number, str(text)


def described(error, path, when):
    where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else where and where[-1].lineno
    place = f"{path}, line {line}" if line else path
    return f"{place}: {type(error).__name__}: {error} ({when})"


def short(value):
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def fail(problem):
    print(problem, file=sys.stderr, flush=True)
    os._exit(1)


main()
