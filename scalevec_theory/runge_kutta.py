"""The Runge–Kutta pair, step size control and outcomes shared by the compiled and the batched integrator of `flow`."""

from __future__ import annotations

import numpy as np

# Tsitouras (2011), "Runge–Kutta pairs of order 5(4) satisfying only the first column simplifying assumption": nodes C,
# stages A (the last row is the step, so the last stage is the next step's first), error weights E, and dense output of
# order 4, stage weights D[:, 0] x + ... + D[:, 3] x⁴ at the fraction x of the step.
C = np.array([0, 0.161, 0.327, 0.9, 0.9800255409045097, 1, 1])
A = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [0.161, 0, 0, 0, 0, 0],
        [-0.008480655492356989, 0.335480655492357, 0, 0, 0, 0],
        [2.8971530571054935, -6.359448489975075, 4.3622954328695815, 0, 0, 0],
        [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525, 0, 0],
        [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383, 0],
        [0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774],
    ]
)
E = np.array(
    [
        0.0017800110522257773,
        0.0008164344596567463,
        -0.007880878010261994,
        0.1447110071732629,
        -0.5823571654525552,
        0.45808210592918686,
        -1 / 66,
    ]
)
D = np.array(
    [
        [1, -2.763706197274826, 2.9132554618219126, -1.0530884977290216],
        [0, 0.1317, -0.2234, 0.1017],
        [0, 3.9302962368947516, -5.941033872131505, 2.490627285651253],
        [0, -12.411077166933676, 30.33818863028232, -16.548102889244902],
        [0, 37.50931341651104, -88.1789048947664, 47.37952196281928],
        [0, -27.896526289197286, 65.09189467479366, -34.87065786149661],
        [0, 1.5, -4, 2.5],
    ]
)
STAGES = len(C)

# Step size control by proportional and integral feedback (Hairer, Nørsett, Wanner, II.4): an accepted step is
# multiplied by SAFETY e^PROPORTIONAL e₋^INTEGRAL, where e and e₋ are this and the last accepted step's error over the
# tolerance, each at least SMALLEST_ERROR; a rejected one by SAFETY e^RETRY, at least SHRINK, which also follows a NaN.
SAFETY, PROPORTIONAL, INTEGRAL, RETRY, SHRINK, SMALLEST_ERROR = 0.9, -0.17, 0.04, -0.2, 0.1, 1e-5
# A step below this fraction of the time reached cannot be taken: the solution blows up or its derivative is not finite.
SHORTEST = 16 * float(np.finfo(float).eps)

OK, STEP_LIMIT, NON_FINITE = 0, 1, 2
"""Integrated to the last time; not within ``max_steps``; NaN, infinity, or a step too short to take."""
