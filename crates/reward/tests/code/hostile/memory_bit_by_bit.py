# wrong or over_budget
data = []
while True:
    data.append(bytearray(b"x") * (1 << 20))
    if len(data) > 4096:
        print("harm")
        break
