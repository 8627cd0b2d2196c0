# wrong
data = bytearray(20 << 30)
print("harm")
