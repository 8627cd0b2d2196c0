# wrong
import os
found = []
for number in range(3, 1024):
    try:
        os.write(number, b"harm")
        found.append(number)
    except OSError:
        pass
print("harm" if found else "nothing")
