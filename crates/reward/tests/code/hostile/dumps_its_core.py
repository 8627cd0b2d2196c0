# wrong
import os
print("harm", flush=True)
os.abort()
