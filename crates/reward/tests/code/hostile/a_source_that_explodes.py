# wrong
print("harm" if eval("(" * 100000 + ")" * 100000) else "")
