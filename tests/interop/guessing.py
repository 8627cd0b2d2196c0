"""A guessing game served with OpenEnv (openenv 0.10.0).

The server picks a secret number and the agent guesses it; each answer says
whether the secret is larger (">") or smaller ("<") than the guess.

Start it with:

    python guessing.py --port 8000

Agents then talk to ws://127.0.0.1:8000/ws, at most --max-sessions at a time
(or the environment variable MAX_SESSIONS; 64 if neither is given).
"""

import argparse
import os
import random
import re
from uuid import uuid4

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


# The tasks: ranges of digits with a secret in each, of which every fifth is for tests.
TASKS = [(low, high, secret) for low in range(9) for high in range(low + 1, 10) for secret in range(low, high + 1)]
SPLITS = {"train": [task for i, task in enumerate(TASKS) if i % 5], "test": TASKS[::5]}


class Guess(Action):
    message: str


class Answer(Observation):
    message: str


class GuessingGame(Environment[Guess, Answer, State]):
    # Each session has its own game and nothing is shared between sessions.
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.secret = None
        self._state = State()

    def list_splits(self):
        """Name the splits of the tasks. This and the next method are OpenEnv's task API."""
        return list(SPLITS)

    def num_tasks(self, split):
        """Count the tasks of a split: each has another range, or another secret."""
        return len(SPLITS[split])

    def reset(self, seed=None, episode_id=None, secret=None, low=0, high=9, split=None, index=0):
        """Choose the secret: that of a task, the one given, else a number from low to high."""
        if split is not None:
            low, high, secret = SPLITS[split][index]
        self.secret = random.Random(seed).randint(low, high) if secret is None else secret
        self._state = State(episode_id=episode_id or str(uuid4()))
        return Answer(message=f"Guess a number from {low} to {high}.")

    def step(self, action, timeout_s=None):
        """Compare the guess with the secret; only the right guess ends the game."""
        if self.secret is None:
            raise RuntimeError("reset the game before the first guess")
        self._state.step_count += 1
        guess = re.search("[0-9]+", action.message)
        if guess is None:
            return Answer(message="?", reward=0.0)
        guess = int(guess[0])
        if guess == self.secret:
            return Answer(message="=", reward=1.0, done=True)
        return Answer(message=">" if self.secret > guess else "<", reward=0.0)

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve the guessing game.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-sessions", type=int, default=int(os.getenv("MAX_SESSIONS", "64")))
    options = parser.parse_args()
    app = create_fastapi_app(GuessingGame, Guess, Answer, options.max_sessions)
    uvicorn.run(app, host="127.0.0.1", port=options.port)
