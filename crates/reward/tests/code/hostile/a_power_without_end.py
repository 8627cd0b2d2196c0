# over_budget
print(9 ** 9 ** 9)
