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

    def reset(self, seed=None, episode_id=None, secret=None, low=0, high=9):
        """Choose the secret: the one given, else a number from low to high."""
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
