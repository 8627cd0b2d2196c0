# wrong or over_budget
import sys
sys.setrecursionlimit(10**9)
def f(n):
    return f(n + 1) + f(n + 2)
print("harm" if f(0) else "")
