"""Asks a function of the user's file about each completion: python3 python.py FILE FUNCTION.

The function takes any of the request's keys by their names, and returns a number from 0 to 1, or such a number and the
text that it judged. What it prints goes with the answer, and to standard error, because standard output carries the
answers. It reads an empty standard input.
"""

import sys

# A module in the current folder must not come before the standard library's.
if sys.path and sys.path[0] == "":
    del sys.path[0]

import contextlib
import importlib.util
import inspect
import io
import json
import math
import os
import traceback

KEYS = ["question", "completion", "reference", "prompt", "finish"]
# What a call prints, and how many characters of it are told.
printed = io.StringIO()
MOST_PRINTED = 2000


def main():
    path, name = sys.argv[1:3]
    requests = os.fdopen(os.dup(0), encoding="utf-8", newline="\n")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # The function, and the programs that it starts, have neither the requests nor the answers.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # A module beside the file can be imported, and the function finds its file's arguments empty.
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path]
    sys.dont_write_bytecode = True

    function = load(path, name)
    wanted = arguments(function, path, name)
    for line in requests:
        request = json.loads(line)
        printed.seek(0)
        printed.truncate()
        try:
            with contextlib.redirect_stdout(printed):
                answer = function(**{key: request[key] for key in wanted})
            score, text = checked(answer, name)
        except BaseException as error:
            fail(described(error, path, f"for the completion {short(request['completion'])}"))
        told = written(printed.getvalue()[:MOST_PRINTED])
        json.dump({"id": request["id"], "score": score, "extracted": text, "printed": told}, answers)
        answers.write("\n")
        answers.flush()


def load(path, name):
    # A file that also runs on its own guards that part with __name__ == "__main__".
    module_name = os.path.splitext(os.path.basename(path))[0]
    try:
        spec = importlib.util.spec_from_file_location(module_name, path)
        module = importlib.util.module_from_spec(spec)
        # Pools of processes find the function by its module. A judge named json.py does not replace the library.
        sys.modules.setdefault(module_name, module)
        spec.loader.exec_module(module)
    except BaseException as error:
        fail(described(error, path, "when the file was read"))
    names = vars(module)
    function = names.get(name)
    if not callable(function):
        there = sorted(key for key, value in names.items() if inspect.isfunction(value))
        fail(f"{path} has no function `{name}`; its functions are: {', '.join(there) or 'none'}")
    return function


def arguments(function, path, name):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        fail(described(error, path, f"when the arguments of `{name}` were looked at"))
    if any(of.kind == of.VAR_KEYWORD for of in parameters):
        return KEYS
    required = [of.name for of in parameters if of.default is of.empty]
    unknown = [of for of in required if of not in KEYS]
    by_position = any(of.kind in (of.POSITIONAL_ONLY, of.VAR_POSITIONAL) for of in parameters)
    if unknown or by_position:
        wrong = "they are given by name" if by_position else f"{unknown[0]!r} is none of its arguments"
        fail(f"{path}: `{name}` is called with {', '.join(KEYS)}, or those of them that it has; {wrong}")
    return [of.name for of in parameters if of.name in KEYS]


def checked(answer, name):
    score, text = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
    try:
        number = math.nan if isinstance(score, (str, bytes, bytearray)) else float(score)
    except Exception:
        number = math.nan
    if not 0.0 <= number <= 1.0:
        returned = "nothing (does every path of it end with `return`?)" if score is None else short(score)
        fail(f"`{name}` returned {returned}, expected a number from 0 to 1")
    return number, written(str(text))


def written(text):
    # Half a character can't be written.
    return text.encode("utf-8", "replace").decode("utf-8")


def described(error, path, when):
    file = os.path.abspath(path)
    where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line, text = where[-1].lineno if where else None, str(error)
    if isinstance(error, SyntaxError) and error.filename == file:
        line, text = error.lineno, error.msg
    place = f"{path}, line {line}" if line else path
    return f"{place}: {type(error).__name__}: {text} ({when})"


def short(value):
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:39] + "…"


def fail(problem):
    sys.stderr.write(printed.getvalue()[-MOST_PRINTED:])
    print(problem, file=sys.stderr, flush=True)
    os._exit(1)


main()
