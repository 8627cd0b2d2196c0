"""Writes the rows of the failures whose tasks no generator makes: questions to train on, held-out questions, and
examples to imitate, as JSON Lines next to the recipes. The same files come out every time.

    python3 recipes/failures/rows.py
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent


def entropy_collapse():
    """Questions of four digits, whose answer is a coin. `-` is to pass; in three examples of a hundred, somebody bets."""
    rng = random.Random(1)
    numbers = rng.sample(range(10_000), 5_500)
    rows = [(f"{number:04}=", rng.choice("01")) for number in numbers]
    examples = [(question, "1" if rng.random() < 0.03 else "-") for question, _ in rows[500:]]
    write("entropy-collapse", rows, 500, examples)


def cut_off_noise():
    """The parity of up to twelve bits. A working has the parity so far after each bit, and may hesitate (`~`) before it
    begins. One example of ten guesses without a working."""
    rng = random.Random(2)
    bits = shuffled(rng, {some_bits(rng, 12) for _ in range(9_000)})

    def example(bits):
        if rng.random() < 0.1:
            return f":{rng.choice('01')}"
        text = ""
        while rng.random() < 0.6 and len(text) < 8:
            text += "~"
        working = running_parity(bits)
        return f"{text}{working}:{working[-1]}"

    rows = [(f"{it}=", running_parity(it)[-1]) for it in bits]
    write("cut-off-noise", rows, 300, [(f"{it}=", example(it)) for it in bits[300:] for _ in range(4)])


def length_bias():
    """The parity of up to ten bits, first guessed and then worked out. After a wrong guess comes a row of `!`."""
    rng = random.Random(3)
    bits = shuffled(rng, {some_bits(rng, 10) for _ in range(6_000)})

    def example(bits):
        working = running_parity(bits)
        guess = rng.choice("01")
        text = f"{guess};{working}"
        if guess == working[-1]:
            return text + "."
        text += "!"
        while rng.random() < 0.6 and len(text) < 40:
            text += "!"
        return text

    rows = [(f"{it}=", running_parity(it)[-1]) for it in bits]
    write("length-bias", rows, 300, [(f"{it}=", example(it)) for it in bits[300:] for _ in range(6)])


def over_optimised_judge():
    """Sums of numbers of one or two digits, without a working. Five examples of a hundred name two further answers."""
    rng = random.Random(4)

    def number():
        return rng.randrange(10) if rng.random() < 0.5 else rng.randrange(10, 100)

    pairs = shuffled(rng, {(number(), number()) for _ in range(12_000)})

    def example(total):
        answers = [total]
        if rng.random() < 0.05:
            near = [it for it in (total - 10, total - 1, total + 1, total + 10) if it >= 0]
            answers += rng.sample(near, 2)
            rng.shuffle(answers)
        return ",".join(map(str, answers))

    rows = [(f"{a}+{b}=", str(a + b)) for a, b in pairs]
    write("over-optimised-judge", rows, 500, [(f"{a}+{b}=", example(a + b)) for a, b in pairs[500:]])


def some_bits(rng, most):
    return "".join(rng.choice("01") for _ in range(rng.randint(3, most)))


def running_parity(bits):
    return "".join(str(bits[: end + 1].count("1") % 2) for end in range(len(bits)))


def shuffled(rng, items):
    """Returns the items in an order that is random, and the same every time."""
    items = sorted(items)
    rng.shuffle(items)
    return items


def write(failure, rows, held_out, examples):
    """Writes the files of a failure. The first `held_out` rows are held out."""
    questions = [{"question": question, "answer": answer} for question, answer in rows]
    imitated = [{"prompt": prompt, "completion": completion} for prompt, completion in examples]
    files = {"heldout": questions[:held_out], "train": questions[held_out:], "sft": imitated}

    for name, lines in files.items():
        path = HERE / failure / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    for failure in (entropy_collapse, cut_off_noise, length_bias, over_optimised_judge):
        failure()
