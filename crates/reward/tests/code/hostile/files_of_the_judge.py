# wrong
import glob, os
found = glob.glob("/tmp/firebrick-code-*") + glob.glob("/dev/shm/*") + glob.glob("/var/tmp/*")
found += [os.path.join(folder, name) for folder, _, names in os.walk("/box") for name in names if name != "hostile.py"]
print("harm" if found else "nothing")
