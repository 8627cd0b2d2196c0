# wrong
import ctypes
ctypes.string_at(0)
print("harm")
