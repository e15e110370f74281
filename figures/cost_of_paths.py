"""Time of stochastic gradient flow against the number of paths."""

from functools import partial

from figures import costs, style

draw = partial(costs.draw, "paths", "paths (1,000 steps, c = 4, d = 8, one thread)", 1.0)

if __name__ == "__main__":
    style.main(draw)
