"""Time of gradient flow against the number of problems solved at once."""

from functools import partial

from figures import costs, style

draw = partial(costs.draw, "problems", "problems (c = 4, d = 8, one thread)", 1.0)

if __name__ == "__main__":
    style.main(draw)
