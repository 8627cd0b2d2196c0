"""What verl's rule for programs, `prime_code`, says of programs whose verdicts are known, and how long it takes.

    pip install numpy && pip download --no-deps verl==0.9.1 && unzip -d verl verl-*.whl
    python3 benches/peers/code.py verl

The programs are those of `crates/reward/tests/code`: the tasks with inputs and outputs, and the programs that cheat, each
with the same test of a function. The time is that of 64 right programs with four tests each, on all cores, as in
`cargo bench -p firebrick-benches --bench code`.
"""

import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import sys
import time
import tomllib

sys.path.insert(0, os.path.join(sys.argv[1], "verl", "utils", "reward_score"))
import prime_code  # noqa: E402

FOLDER = pathlib.Path(__file__).parents[2] / "crates" / "reward" / "tests" / "code"


def is_right(tests, program):
    """verl's own call, with its own settings."""
    silence = io.StringIO()
    with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        return prime_code.compute_score(program, tests, continuous=True)[0] in (True, 1.0)


def as_verl_has_them(tests):
    """Returns the tests in verl's form; nothing for tests in Python, which it does not have."""
    if not tests.strip().startswith(("{", "[")):
        return None
    tests = json.loads(tests)
    if isinstance(tests, list) and isinstance(tests[0], dict):
        columns = {"inputs": [it["input"] for it in tests], "outputs": [it["output"] for it in tests]}
        return json.dumps({**columns, **({"fn_name": tests[0]["fn_name"]} if "fn_name" in tests[0] else {})})
    if "inputs" not in tests:
        return None
    if "fn_name" in tests:
        tests["inputs"] = ["\n".join(map(json.dumps, it)) for it in tests["inputs"]]
        tests["outputs"] = [json.dumps(it) for it in tests["outputs"]]
    return json.dumps(tests)


def main():
    count, paid, refused = 0, 0, 0
    for task in tomllib.loads((FOLDER / "programs.toml").read_text())["task"]:
        tests = as_verl_has_them(task["tests"])
        if tests:
            count += len(task["right"]) + len(task["wrong"])
            refused += sum(not is_right(tests, program) for program in task["right"])
            paid += sum(is_right(tests, program) for program in task["wrong"])
    print(f"{count} programs: {paid} wrong ones judged right, {refused} right ones judged wrong")

    square = '{"inputs": ["3"], "outputs": ["9"], "fn_name": "f"}'
    # Two of them are about other tests.
    cheats = [it for it in FOLDER.glob("hostile/cheat_*.py") if "remembers" not in it.name and "callback" not in it.name]
    won = sorted(it.stem for it in cheats if is_right(square, it.read_text()))
    print(f"{len(cheats)} cheats: {len(won)} judged right: {', '.join(won)}")

    tests = '{"inputs": ["0", "1", "2", "5"], "outputs": ["1", "3", "5", "11"], "fn_name": "f"}'
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for _ in range(3):
            begin = time.perf_counter()
            assert all(pool.map(is_right, [tests] * 64, ["def f(x): return 2*x+1"] * 64))
            print(f"{64 / (time.perf_counter() - begin):.0f} programs a second")


if __name__ == "__main__":
    main()
