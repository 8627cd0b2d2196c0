# over_budget
while True:
    pass
