"""Time of gradient flow against the number of inputs."""

from functools import partial

from figures import costs, style

draw = partial(costs.draw, "dimensions", "inputs d (64 problems, c = 4, one thread)", 2.0)

if __name__ == "__main__":
    style.main(draw)
