# wrong or over_budget: ["assert list(f(3)) == [9]"]
import itertools
def f(n):
    return itertools.count()
