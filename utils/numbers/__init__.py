"""Pure functions of numbers: random ones, the best of many, intervals, tests."""
