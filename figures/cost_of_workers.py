"""Time of a sweep against the number of worker processes."""

from functools import partial

from figures import costs, style

draw = partial(costs.draw, "workers", "worker processes (eight runs)", -1.0)

if __name__ == "__main__":
    style.main(draw)
