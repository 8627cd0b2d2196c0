"""Serves a model with SkyRL's JAX backend: serve.py MODEL PORT FOLDER run -- x

SkyRL looks for the words of `uv run` in its parent's command line, which are the last three here.
"""

import os
import subprocess
import sys

model, port, folder = sys.argv[1:4]
module = os.path.join(os.path.dirname(os.path.abspath(__file__)), "module.py")
command = [sys.executable, module, "skyrl.tinker.api", "--base-model", model, "--backend", "jax"]
command += ["--host", "127.0.0.1", "--port", port]
command += ["--checkpoints-base", f"{folder}/checkpoints", "--database-url", f"sqlite:///{folder}/tinker.db"]
command += ["--backend-config", '{"max_lora_adapters": 8, "max_lora_rank": 8}']
sys.exit(subprocess.call(command))
