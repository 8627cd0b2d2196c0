"""One side of a judgement, in a sandbox of its own: python3 harness.py answer FILE, or python3 harness.py tests SECONDS TOKEN.

The side `answer` runs a completion's program, and the side `tests` runs the tests on it. Lines of JSON carry calls and
plain values from one to the other, and nothing else connects them. So a program can't read a test, and can't change
what a test compares its values with. An object that is not plain data stays where it was made, and the other side has a
`Remote` for it.

The tests come as a line of JSON too. A side that asks waits for the answer, so there is one message at a time.
"""

import _collections_abc
import builtins
import collections
import itertools
import json
import math
import operator
import os
import sys
import types

# The longest message in bytes, the most values that are taken at once or that a global has, and the longest text of a
# report.
LONGEST = 64 << 20
MOST = 1000
REPORT = 300

# Plain data that JSON does not have: what it is written as, and how it is made from that again.
KINDS = {
    "builtins.tuple": (list, lambda kind, it: kind(it)),
    "builtins.set": (list, lambda kind, it: kind(it)),
    "builtins.frozenset": (list, lambda kind, it: kind(it)),
    "builtins.bytes": (bytes.hex, lambda kind, it: kind.fromhex(it)),
    "builtins.bytearray": (bytes.hex, lambda kind, it: kind.fromhex(it)),
    "builtins.complex": (lambda it: [it.real, it.imag], lambda kind, it: kind(*it)),
    "builtins.range": (lambda it: [it.start, it.stop, it.step], lambda kind, it: kind(*it)),
    "collections.Counter": (lambda it: list(it.items()), lambda kind, it: kind(dict(it))),
    "collections.deque": (list, lambda kind, it: kind(it)),
    "fractions.Fraction": (lambda it: [it.numerator, it.denominator], lambda kind, it: kind(*it)),
    "decimal.Decimal": (str, lambda kind, it: kind(it)),
    "datetime.datetime": (lambda it: it.isoformat(), lambda kind, it: kind.fromisoformat(it)),
    "datetime.date": (lambda it: it.isoformat(), lambda kind, it: kind.fromisoformat(it)),
    "datetime.time": (lambda it: it.isoformat(), lambda kind, it: kind.fromisoformat(it)),
    "datetime.timedelta": (lambda it: [it.days, it.seconds, it.microseconds], lambda kind, it: kind(*it)),
}


def main():
    # The messages have pipes of their own, so that nothing that is printed gets into them.
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    sys.meta_path.append(Installed)
    builtins.exit = builtins.quit = sys.exit
    side, sys.argv = sys.argv[1], sys.argv[2:]
    if side == "answer":
        answer(Wire(incoming, outgoing, ANSWERS), sys.argv[0])
    else:
        serve(incoming, outgoing, int(sys.argv[0]), sys.argv[1])
    os._exit(0)


class Installed:
    """Finds installed packages. Python was told not to look for any, because that takes longer than most programs."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        import importlib.machinery
        import site

        sys.meta_path.remove(Installed)
        site.main()
        return importlib.machinery.PathFinder.find_spec(name, path)


# ---- Messages


class Gone(BaseException):
    """The other side has ended, or sends nonsense. A test that expects an Exception does not get this one."""


class NoVerdict(BaseException):
    """The tests can't be used, whatever the program does."""


class Raw:
    """A value that is packed already."""

    def __init__(self, packed):
        self.packed = packed


class Wire:
    """Asks the other side, and answers it meanwhile."""

    def __init__(self, incoming, outgoing, operations):
        self.incoming, self.outgoing, self.operations = incoming, outgoing, operations
        # The objects of this side that the other side knows, and the place of each by its id.
        self.own, self.places = [], {}
        # Classes that stand for the other side's own exceptions, by name.
        self.exceptions = {}
        self.gone = False

    def ask(self, operation, *arguments, **named):
        request = {"ask": operation, "of": [self.pack(it) for it in arguments]}
        self.send(dict(request, named={name: self.pack(it) for name, it in named.items()}))
        while "ask" in (message := self.receive()):
            self.answer(message)
        try:
            error = self.read_error(message)
            for place, changed in message.get("changed", []):
                put(arguments[place], self.unpack(changed))
            value = self.unpack(message.get("value"))
        except Exception:
            raise self.lost() from None
        if error:
            raise error
        return value

    def answer(self, message):
        """Does what a message asks for. Lists, sets and dictionaries that this changes are changed there too."""
        try:
            of = message["of"]
            arguments = [self.unpack(it) for it in of]
            named = {name: self.unpack(it) for name, it in message["named"].items()}
            value = self.operations[message["ask"]](self, *arguments, **named)
            changeable = [place for place, it in enumerate(arguments) if type(it) in (list, set, dict, collections.deque)]
            changed = [[place, self.pack(arguments[place])] for place in changeable]
            changed = [[place, it] for place, it in changed if it != of[place]]
            reply = json.dumps({"value": self.pack(value), "changed": changed})
        except Gone:
            raise
        except BaseException as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            reply = json.dumps({"raised": kinds, "text": described(error)})
        self.write(reply)

    def read_error(self, message):
        """Returns the error of the first class that both sides know."""
        if "raised" not in message:
            return None
        for name in message["raised"]:
            kind = self.exceptions.get(name) or getattr(builtins, str(name), None)
            if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError):
                return kind(str(message["text"]))
        return RuntimeError(str(message["text"]))

    def send(self, message):
        self.write(json.dumps(message))

    def write(self, text):
        try:
            self.outgoing.write(text.encode() + b"\n")
            self.outgoing.flush()
        except OSError:
            raise self.lost() from None

    def receive(self):
        try:
            line = self.incoming.readline(LONGEST)
            message = json.loads(line)
        except Exception:
            raise self.lost() from None
        if not isinstance(message, dict) or "gone" in message:
            raise self.lost()
        return message

    def lost(self):
        self.gone = True
        return Gone()

    def pack(self, value):
        if value is None or value is True or value is False:
            return value
        if isinstance(value, Raw):
            return value.packed
        if isinstance(value, Remote):
            return {"yours": object.__getattribute__(value, "_place")}
        if isinstance(value, int):
            value = int(value)
            return value if abs(value) < 1 << 53 else {"int": hex(value)}
        if isinstance(value, float):
            value = float(value)
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, list):
            return [self.pack(it) for it in value]
        kind = type(value)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return {"namedtuple": [kind.__name__, list(kind._fields), [self.pack(it) for it in value]]}
        for name in [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]:
            if name in KINDS:
                plain = KINDS[name][0](value)
                return {name: [self.pack(it) for it in plain] if isinstance(plain, list) else plain}
        if isinstance(value, dict):
            return {"dict": [[self.pack(key), self.pack(it)] for key, it in value.items()]}
        if isinstance(value, _collections_abc.Set):
            return {"builtins.set": [self.pack(it) for it in value]}
        if isinstance(value, _collections_abc.ValuesView):
            return [self.pack(it) for it in value]
        if kind.__module__ == "numpy":
            return self.pack(value.tolist())
        if id(value) not in self.places:
            self.places[id(value)] = len(self.own)
            self.own.append(value)
        return {"iterator" if hasattr(kind, "__next__") else "mine": self.places[id(value)]}

    def unpack(self, value):
        if isinstance(value, list):
            return [self.unpack(it) for it in value]
        if not isinstance(value, dict):
            return value
        [(kind, inside)] = value.items()
        if kind in ("mine", "iterator"):
            return (Remote if kind == "mine" else RemoteIterator)(self, int(inside))
        if kind == "yours":
            return self.own[inside]
        if kind == "exception":
            return value
        if kind == "int":
            return int(inside, 16)
        if kind == "float":
            return float(inside)
        inside = self.unpack(inside)
        if kind == "dict":
            return dict(inside)
        if kind == "namedtuple":
            return collections.namedtuple(inside[0], inside[1])(*inside[2])
        module, name = kind.rsplit(".", 1)
        return KINDS[kind][1](getattr(module_of(module), name), inside)


class Remote:
    """An object of the other side. What a test compares with it is never sent there: it would tell the value wanted."""

    def __init__(self, wire, place):
        object.__setattr__(self, "_wire", wire)
        object.__setattr__(self, "_place", place)

    def __getattr__(self, name):
        if name.startswith("_") and name not in ("__name__", "__doc__"):
            raise AttributeError(name)
        return ask(self, "get", name)

    def __setattr__(self, name, value):
        ask(self, "set", name, value)

    def __call__(self, *arguments, **named):
        return object.__getattribute__(self, "_wire").ask("call", self, *arguments, **named)

    def __getitem__(self, key):
        return ask(self, "item", key)

    def __setitem__(self, key, value):
        ask(self, "put", key, value)

    def __delitem__(self, key):
        ask(self, "delete", key)

    def __enter__(self):
        return ask(self, "enter")

    def __exit__(self, *error):
        return ask(self, "exit")

    def __hash__(self):
        return object.__getattribute__(self, "_place")

    def __instancecheck__(self, other):
        return isinstance(other, Remote) and bool(ask(self, "instance", other))


class RemoteIterator(Remote):
    """Takes the first values one by one, because there may be no end of them, and then many at a time."""

    def __init__(self, wire, place):
        super().__init__(wire, place)
        object.__setattr__(self, "_taken", itertools.count())
        object.__setattr__(self, "_values", collections.deque())

    def __iter__(self):
        return self

    def __next__(self):
        values = object.__getattribute__(self, "_values")
        if not values:
            many = next(object.__getattribute__(self, "_taken")) >= 20
            values.extend(ask(self, "take", MOST if many else 1))
        if not values:
            raise StopIteration
        return values.popleft()


def ask(remote, operation, *arguments):
    return object.__getattribute__(remote, "_wire").ask(operation, remote, *arguments)


def of_one(name):
    return lambda self: ask(self, name)


def of_two(name):
    """Asks about two objects of the other side. With anything else there is nothing in common."""
    return lambda self, other: ask(self, name, other) if isinstance(other, Remote) else NotImplemented


OF_ONE = {"len": len, "bool": bool, "iter": iter, "str": str, "repr": repr, "neg": operator.neg, "abs": abs}
OF_TWO = {name: getattr(operator, name) for name in (
    "eq", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor"
)}
for name in OF_ONE:
    setattr(Remote, f"__{name}__", of_one(name))
for name in OF_TWO:
    setattr(Remote, f"__{name.strip('_')}__", of_two(name))


def put(old, new):
    """Makes a list, set or dictionary equal to another of its kind."""
    if isinstance(old, list):
        old[:] = new
    elif isinstance(old, collections.deque):
        old.clear()
        old.extend(new)
    else:
        old.clear()
        old.update(new)


def module_of(name):
    __import__(name)
    return sys.modules[name]


def described(error):
    try:
        # The text of a KeyError is its key in quotes.
        only = error.args[0] if len(error.args) == 1 else None
        return (only if type(only) is str else str(error))[:REPORT]
    except BaseException:
        return ""


# ---- The side of the program


def answer(wire, file):
    wire.file = file
    try:
        while True:
            wire.answer(wire.receive())
    except Gone:
        pass


def names(wire):
    """Runs the program, and returns its public names with their values."""
    with open(wire.file, encoding="utf-8", newline="") as text:
        code = compile(text.read(), os.path.basename(wire.file), "exec")
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    exec(code, vars(module))
    found = []
    for name, value in list(vars(module).items()):
        if name.startswith("_"):
            continue
        of = library(name, value)
        try:
            # A table of a program is no part of what it offers.
            is_large = isinstance(value, _collections_abc.Sized) and not isinstance(value, type) and len(value) > MOST
            packed = None if of is not None or is_large else exception(value) or wire.pack(value)
        except Exception:
            continue
        if not is_large:
            found.append([name, of, packed])
    return Raw(found)


def exception(value):
    """Describes a class of exceptions, which tests may want to catch: by the first base that is Python's own."""
    if isinstance(value, type) and issubclass(value, Exception):
        base = next(kind for kind in value.__mro__ if getattr(builtins, kind.__name__, None) is kind)
        return {"exception": base.__name__}
    return None


def library(name, value):
    """Returns the module of the standard library that has the value under the same name, or is the value. Any other
    module has no name, and other values are the program's."""
    modules = getattr(sys, "stdlib_module_names", ())
    if isinstance(value, types.ModuleType):
        return name if value.__name__ == name and name in modules else ""
    module = getattr(value, "__module__", None)
    if isinstance(module, str) and module in modules and getattr(sys.modules.get(module), name, None) is value:
        return module
    return None


def known(wire, wanted):
    """Returns the program's names as the tests know them. What is of the standard library comes from their own, and
    names of Python's own keep their meaning, unless one is that of the function that is `wanted`."""
    library = getattr(sys, "stdlib_module_names", ())
    found = {}
    for name, module, value in wire.ask("names"):
        if name.startswith("_") or module == "" or hasattr(builtins, name) and name != wanted:
            continue
        if isinstance(value, dict) and "exception" in value:
            if not issubclass(getattr(builtins, value["exception"]), Exception):
                raise wire.lost()
            found[name] = wire.exceptions[name] = type(name, (getattr(builtins, value["exception"]),), {})
        elif module in library:
            found[name] = module_of(module) if module == name else getattr(module_of(module), name)
        elif name in library:
            # A test that says `math.isclose` does not mean the program's `math`.
            if isinstance(value, Remote):
                found[name] = lambda *arguments, it=value, **named: it(*arguments, **named)
        elif module is None:
            found[name] = value
    return found


# What a program is asked for. The first argument of most is an object of its own.
ANSWERS = {
    "names": names,
    "call": lambda wire, it, *arguments, **named: it(*arguments, **named),
    "get": lambda wire, it, name: getattr(it, name),
    "set": lambda wire, it, name, value: setattr(it, name, value),
    "item": lambda wire, it, key: it[key],
    "put": lambda wire, it, key, value: operator.setitem(it, key, value),
    "delete": lambda wire, it, key: operator.delitem(it, key),
    "enter": lambda wire, it: it.__enter__(),
    "exit": lambda wire, it: it.__exit__(None, None, None),
    "take": lambda wire, it, count: list(itertools.islice(it, count)),
    "instance": lambda wire, it, other: isinstance(other, it),
}
for name, function in {**OF_ONE, **OF_TWO}.items():
    ANSWERS[name] = lambda wire, *arguments, function=function: function(*arguments)


def of_tests(operation):
    """Lets a program use what a test has passed to it: public attributes of objects whose classes are the test's."""
    def allowed(wire, it, name, *value):
        if type(it).__module__ != "tests" or str(name).startswith("_"):
            raise AttributeError(name)
        return operation(it, name, *value)

    return allowed


# A program may also call the functions that a test has passed to it, and that is all.
CALLBACKS = {"call": ANSWERS["call"], "take": ANSWERS["take"], "get": of_tests(getattr), "set": of_tests(setattr)}


# ---- The side of the tests


def serve(incoming, outgoing, seconds, token):
    """Runs the tests of each line in a copy of this process, so that no test changes another's variables. Jobs and reports
    begin with the token, which no program knows: what a program says can't be taken for either."""
    import ast  # The copies need it.
    import resource
    import signal

    token = token.encode()

    def send(report):
        outgoing.write(token + json.dumps(report).encode() + b"\n")
        outgoing.flush()

    while (line := incoming.readline()).startswith(token):
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            try:
                job = json.loads(line[len(token):])
                tests = functions(job) if "function" in job else statements(job)
            except BaseException as error:
                send({"problem": told(error)})
            else:
                send(judged(Wire(incoming, outgoing, CALLBACKS), job, tests))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status != 0:
            # The program's values were too much for the tests. What it says next is no job.
            late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
            why = "the tests took too long" if late else "it has broken the tests off"
            outgoing.write(b"\n")
            send({"passed": 0, "tests": 1, "why": why, "late": late, "broken": True})
            return


def judged(wire, job, tests):
    """Returns how many tests the program has passed, how many there are, and why it has not passed the first other."""
    passed, why = 0, ""
    try:
        world = {"__name__": "tests", **known(wire, job.get("function") or job.get("entry"))}
    except (Gone, Exception) as error:
        return {"passed": 0, "tests": count(tests), "why": told(error), "gone": wire.gone}
    solution = types.ModuleType("solution")
    vars(solution).update(world)
    sys.modules["solution"] = solution
    for name, counts, test in tests:
        try:
            test(world)
            if wire.gone:
                raise Gone
            passed += counts
        except NoVerdict as error:
            return {"problem": str(error)}
        except BaseException as error:
            why = why or f"{name}: {told(error)}"[:REPORT]
            # What is not a test is needed by all that follows.
            if not counts or not job["all"] or wire.gone:
                break
    # A statement that fails and is no test is one more that was not passed.
    return {"passed": passed, "tests": max(count(tests), passed + bool(why)), "why": why, "gone": wire.gone}


def count(tests):
    return sum(counts for _, counts, _ in tests)


def told(error):
    if isinstance(error, Gone):
        return "the program has ended"
    if isinstance(error, NoVerdict):
        return str(error)
    text = described(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def functions(job):
    """Tests of a function by arguments and the value that is wanted."""
    # Published data often wraps the values: then each of them is a list of one.
    wrapped = all(isinstance(call["value"], list) and len(call["value"]) == 1 for call in job["calls"])

    def test(call, world):
        function = world.get(job["function"])
        if function is None:
            function = getattr(world["Solution"](), job["function"])
        value = function(*call["arguments"])
        wanted = [call["value"]] + (call["value"] if wrapped else [])
        if not any(same(value, it, job["tolerance"]) for it in wanted):
            raise AssertionError(f"expected {call['value']!r}, got {value!r}")

    def named(place, call):
        arguments = ", ".join(map(repr, call["arguments"]))
        return f"test {place + 1}, {job['function']}({arguments})"[:REPORT // 2]

    return [
        (named(place, call), 1, lambda world, call=call: test(call, world)) for place, call in enumerate(job["calls"])
    ]


def same(value, wanted, tolerance):
    """Compares a value with JSON, which has no tuples, and only texts as keys."""
    if isinstance(wanted, float):
        numbers = isinstance(value, (int, float))
        return numbers and math.isclose(value, wanted, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(value, (list, tuple, collections.deque)) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(same(one, two, tolerance) for one, two in zip(value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        value = {key if isinstance(key, str) else json.dumps(key, default=repr): it for key, it in value.items()}
        return value.keys() == wanted.keys() and all(same(value[key], wanted[key], tolerance) for key in wanted)
    return not isinstance(value, Remote) and value == wanted


def statements(job):
    """Tests in Python: each statement at the left margin with an `assert` or `raise`, each function `test_…`, each method
    of a test case, and `check` with the function that the data names."""
    import ast

    def run(code, world, needed):
        try:
            exec(code, world)
        except ModuleNotFoundError as error:
            # What the tests need is not there, and no program could change that.
            raise NoVerdict(told(error)) if needed and error.name != "solution" else error

    tests = []
    for text in job["asserts"]:
        later, lines = [], text.splitlines()
        for statement in ast.parse(text).body:
            # All names of the program are known, and those of the tests come before them.
            if isinstance(statement, ast.ImportFrom) and statement.module == "solution" and statement.names[0].name == "*":
                continue
            code = compile(ast.Module([statement], []), "tests", "exec")
            source = " ".join(" ".join(lines[statement.lineno - 1:statement.end_lineno]).split())[:REPORT // 2]
            definition = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            tested = not definition and any(isinstance(it, (ast.Assert, ast.Raise)) for it in ast.walk(statement))
            function = getattr(getattr(statement, "value", None), "func", None)
            called = isinstance(statement, ast.Expr) and getattr(function, "id", "").startswith(("test", "check"))
            imports = isinstance(statement, (ast.Import, ast.ImportFrom))
            tests.append((source, int(tested or called), lambda world, it=code, needed=imports: run(it, world, needed)))
            name = getattr(statement, "name", "")
            if isinstance(statement, ast.FunctionDef) and name.startswith("test_"):
                later.append((name, 1, lambda world, name=name: world[name]()))
            if isinstance(statement, ast.FunctionDef) and name == "check" and job["entry"]:
                later.append((name, 1, lambda world: world["check"](eval(job["entry"], world))))
            if isinstance(statement, ast.ClassDef):
                methods = [it.name for it in statement.body if isinstance(it, ast.FunctionDef)]
                for method in [it for it in methods if it.startswith("test")]:
                    later.append((f"{name}.{method}", 1, of_case(name, method)))
        tests += later
    if not count(tests):
        raise NoVerdict("there is no test")
    return tests


def of_case(kind, method):
    """Runs a method of a test case, which may be one of `unittest`, or a class without a base."""
    def test(world):
        case = world[kind]
        if not hasattr(case, "assertEqual"):
            instance = case()
            for step in ("setup_method", method, "teardown_method"):
                getattr(instance, step, lambda: None)()
            return
        case.setUpClass()
        instance = case(method)
        result = instance.defaultTestResult()
        instance.run(result)
        for _, text in result.errors + result.failures:
            raise AssertionError(text.strip().splitlines()[-1])

    return test


main()
