# wrong
import os
known = {"PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PYTHONHASHSEED", "PYTHONUTF8", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PWD"}
print("harm" if set(os.environ) - known else "nothing")
