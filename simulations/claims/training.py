"""What paired runs of small language models say about the papers' statements on training.

Every statement names the scale it was measured at; none says anything about another one.  Contrasts that came out
undecided are no scopes: they stand in the figure and in ``scalevec experiment``.

Sources: arXiv 2605.26895 and arXiv 2601.04890.
"""

from __future__ import annotations

import math
from functools import partial

from scalevec_theory.claim import Claim
from simulations.lm.evidence import contrast_scope
from simulations.lm.mechanisms import PAPER_A, PAPER_B

FIGURES = ("training-effects",)
MECHANISMS = ("training-mechanisms",)
LARGER = "At width 64 and 4 layers, after 0.8 million bytes of program text"
AT_OUTPUT_SIZES = "DNP's scales starting at the output sizes it finds"
ADAMW = "AdamW at learning rate 0.003"
STARTED = f"under {ADAMW}, {AT_OUTPUT_SIZES}"
HALF = "At width 64 and 4 layers, after 0.4 million bytes of program text"
SIZES = "In batches of 2,048 bytes of program text, at 4 layers and width"
SHORT = "At width 32 and 2 layers, after 400 steps of 1,024 bytes of program text"
SHORT_STARTED = f"{SHORT}, {STARTED}"
SMALLER = "At width 32 and 2 layers, after 120 steps at learning rate 0.01"
WIDTHS = (
    "At widths 16 to 128 and 2 layers, after 120 steps of AdamW at learning rate 0.01 and weight decay 1, norm scales "
    "frozen, scalar multipliers that learn at 5 times the rate"
)
LOWERED = f"{SMALLER} and weight decay 4, √(η/λ) of the head lower by 1.5 decades"

_removal = partial(contrast_scope, holds=True)
_ladder = partial(contrast_scope, experiment="ladder")
_short_ladder = partial(contrast_scope, experiment="short-ladder")
_placement = partial(contrast_scope, experiment="placement")
_scaling = partial(contrast_scope, experiment="scaling")
_norms = partial(contrast_scope, experiment="norms", holds=False)
_width = partial(contrast_scope, experiment="width", holds=False)

removal = Claim(
    id="training-removal",
    title="Models with learned norm scales end at a lower loss",
    statement="Taking the learned scales out of all norms of a Llama-like model raises its final loss.",
    formula=r"L_{\gamma = 1} > L_{\gamma\ \text{learned}}",
    source=f"{PAPER_A}, removal of scale vectors",
    figures=(*FIGURES, "training-curves"),
    scopes=(
        _removal("shared-lr", f"{LARGER}, at learning rate 0.003.", "ladder", "removal"),
        _removal("short", f"{SHORT}, at learning rate 0.003.", "short-ladder", "removal"),
        _removal("own-lr", f"{SHORT}, at learning rate 0.006, the best for both.", "removal-own-lr", "own-lr"),
    ),
)

decay = Claim(
    id="training-decay",
    title="Decay of the scales of input norms does little in short training, and lowers the loss in long",
    statement="On a Gemma-like model weight decay of the scales of input norms, and of no other norm scale, changes "
    "the final loss of short runs by less than 0.005, and lowers that of long ones.",
    formula=r"|L_{\text{no scale decays}} - L_{\text{those of input norms decay}}| < 0.005",
    source=f"{PAPER_A}, individual weight decay, which at far longer training helps",
    figures=(*FIGURES, "training-curves"),
    scopes=(
        contrast_scope(
            "short",
            f"{SHORT}, at learning rate 0.003 and weight decay 0.1: by less than 0.005, the experiment's threshold.",
            "iwd-input",
            "input-decay",
            within=(-0.005, 0.005),
            holds=True,
        ),
        contrast_scope(
            "input-long",
            "At width 32 and one layer, weight decay 1 and 4,000 steps of 512 bytes of program text, which is 40 times "
            "1/(ηλ), with a learning rate that falls in the last fifth only: it lowers the final loss.",
            "long-horizon",
            "heavy-decay",
            holds=False,
        ),
    ),
)

ladder = Claim(
    id="training-ladder",
    title="Every step of the ladder of designs lowers the loss",
    statement="One scale vector per branch (HG), vectors on both sides (DP), with a norm between (DNP), reparametrised "
    "(OR) and with individual decay: the final loss falls step by step, and beyond that of a wider model.",
    formula=r"L_{\text{standard}} > L_{\text{HG}} > L_{\text{HG+DNP}} > L_{\text{unified}}",
    source=f"{PAPER_A}, heterogeneity, placement, reparameterisation and individual weight decay, step by step",
    figures=(*FIGURES, "training-curves"),
    scopes=(
        _short_ladder("hg", f"{SHORT} under {ADAMW}: HG lowers the final loss.", contrast="hg", holds=True),
        _short_ladder(
            "dp", f"{SHORT} under {ADAMW}: DP on top of HG lowers the final loss.", contrast="dp", holds=True
        ),
        _short_ladder("dnp", f"{SHORT_STARTED}: DNP on top of HG lowers the final loss.", contrast="dnp", holds=False),
        _short_ladder(
            "er", f"{SHORT_STARTED}: ER on top of HG and DNP lowers the final loss.", contrast="er", holds=True
        ),
        _short_ladder(
            "iwd",
            f"{SHORT_STARTED}: individual decay on top of HG, DNP and OR lowers the final loss.",
            contrast="iwd",
            holds=False,
        ),
        _ladder(
            "dnp-larger", f"{LARGER}, {STARTED}: DNP on top of HG lowers the final loss.", contrast="dnp", holds=False
        ),
        _ladder(
            "unified",
            f"{LARGER}, {STARTED}: HG, DNP, OR and individual decay together lower the final loss.",
            contrast="unified",
            holds=False,
        ),
        _ladder(
            "equal-parameters",
            f"{LARGER}, {STARTED}: HG, DNP, OR and individual decay together end below a wider standard model of as "
            "many parameters.",
            contrast="equal-parameters",
            holds=False,
        ),
    ),
)

placement = Claim(
    id="training-placement",
    title="DNP lowers the loss under AdamW at a smaller learning rate",
    statement="Norms between two scale vectors on every matrix (DNP) on top of HG lower the final loss under AdamW at "
    "a third of the learning rate at which they were found to cost loss.",
    formula=r"L_{\text{HG}}(\eta/3) > L_{\text{HG+DNP}}(\eta/3)",
    source=f"{PAPER_A}, dual-norm placement",
    figures=(*FIGURES, "training-curves"),
    scopes=(
        _placement(
            "third-lr",
            f"{HALF}, under AdamW at learning rate 0.001, {AT_OUTPUT_SIZES}: DNP on top of HG lowers the final loss.",
            contrast="third-lr",
            holds=False,
        ),
    ),
)

unified = Claim(
    id="training-unified",
    title="The unified design lowers the loss, whatever the optimizer",
    statement="HG, DNP, OR and individual decay together lower the final loss, dense or with experts, under Muon as "
    "under AdamW, with a cosine as with a WSD schedule.",
    formula=r"L_{\text{standard}} > L_{\text{unified}}",
    source=f"{PAPER_A}, unified strategy on dense and mixture-of-experts models, AdamW and Muon, cosine and WSD",
    figures=(*FIGURES, "training-curves"),
    scopes=tuple(
        contrast_scope(
            f"{kind}-{optimizer}-{schedule}",
            f"{SHORT}, {models}, under {name} at learning rate 0.003, {schedule.replace('wsd', 'WSD')}, "
            f"{AT_OUTPUT_SIZES}: the loss is lower.",
            experiment,
            f"{optimizer}-{schedule}",
            holds=optimizer == "muon",
        )
        for kind, models, experiment in (
            ("dense", "a dense model", "unified"),
            ("moe", "a mixture of experts", "unified-moe"),
        )
        for optimizer, name in (("muon", "Muon"), ("adamw", "AdamW"))
        for schedule in ("cosine", "wsd")
    ),
)

scaling = Claim(
    id="training-scaling",
    title="The unified design is worth compute at every size, and the more the larger",
    statement="Under AdamW the unified design lowers the final loss at every size, and by more at larger sizes and in "
    "longer training.",
    formula=r"L_{\text{standard}}(C) > L_{\text{unified}}(C), \qquad "
    r"\frac{d}{dC} \left( L_{\text{standard}} - L_{\text{unified}} \right) > 0",
    source=f"{PAPER_A}, scaling law and compute multiplier (1.22 dense)",
    figures=(*FIGURES, "scaling-law"),
    scopes=(
        _scaling("narrow", f"{SIZES} 32, 56 steps, {STARTED}: the loss is lower.", contrast="width-32", holds=True),
        _scaling("wide", f"{SIZES} 96, 428 steps, {STARTED}: the loss is lower.", contrast="width-96", holds=False),
        _scaling(
            "grows",
            f"From width 32 and 56 steps to width 96 and 428, {STARTED}: the difference grows.",
            contrast="grows",
            holds=False,
        ),
    ),
)

norms = Claim(
    id="training-norms",
    title="Matrices have the norms that noise and weight decay alone give them",
    statement="The rms of hidden matrices is within 5% of its noise–decay prediction, and alike for branches alike.",
    formula=r"\left| \log \frac{\mathrm{rms}(W)}{\mathrm{rms}_{\text{noise}}} \right| < 0.05",
    source=f"{PAPER_B}, noise–weight-decay equilibrium; {PAPER_A}, heterogeneity",
    figures=(*MECHANISMS, "measured-norms"),
    scopes=(
        _norms("heavy-decay", f"{SMALLER}, under AdamW with weight decay 5.", contrast="size-heavy-decay"),
        _norms("muon", f"{SMALLER}, under Muon with weight decay 1.", contrast="size-muon"),
        _norms(
            "norm-scales",
            f"{SMALLER}, under AdamW with weight decay 1: learned norm scales move as far as noise would move them, "
            "within 5%.",
            contrast="scales-moved",
        ),
        _norms(
            "query-value",
            f"{SMALLER}, under AdamW with weight decay 1: query and value are of one size.",
            contrast="query-value",
        ),
        _norms(
            "key-value",
            f"{SMALLER}, under AdamW with weight decay 1: key and value are of one size.",
            contrast="key-value",
        ),
    ),
)

curvature = Claim(
    id="training-curvature",
    title="Decay of norm scales lets gradient descent take larger steps",
    statement="In a model whose norm scales decayed in training, the largest step at which gradient descent is stable "
    "is larger than in one whose scales did not.",
    formula=r"\eta_{\max}(\text{scales decay}) > \eta_{\max}(\text{scales do not})",
    source=f"{PAPER_A}, curvature bounded by weight decay on scale vectors",
    figures=(*MECHANISMS, "curvature-training"),
    scopes=(
        contrast_scope(
            "step",
            f"{SMALLER}, under AdamW with weight decay 1, of all scales or none: stable if 20 steps of gradient "
            "descent on one batch end no higher than they began.",
            "curvature",
            "step",
            holds=True,
        ),
    ),
)

crossover = Claim(
    id="training-crossover",
    title="Signal-to-noise tells which parameters leave their noise equilibrium",
    statement="A parameter moves as far as at its crossover ρ*, or further, if and only if its gradient's "
    "signal-to-noise ρ is ρ* or more; and it moves as far as a constant signal of that ρ would move it.",
    formula=r"\mathrm{rms}(\Delta w) \ge \sqrt{\tfrac{2}{1 + \rho^{*2}}}\, \mathrm{rms}_{\text{noise}} "
    r"\iff \rho \ge \rho^*",
    source=f"{PAPER_B} leaves the question open; the crossover is ours, see noise-crossover",
    figures=(*MECHANISMS, "measured-crossover"),
    scopes=(
        _norms(
            "tells",
            f"{SMALLER}, under AdamW with weight decay 1, row and column multipliers: true of nine in ten of all "
            "parameters, by ρ at the end of training.",
            contrast="crossover-tells",
        ),
        _norms(
            "constant",
            "The same: on geometric average they moved as far as by a constant signal, within 15%.",
            contrast="crossover-moved",
        ),
    ),
)

multipliers = Claim(
    id="training-multipliers",
    title="Learned multipliers lower the loss",
    statement="Scalar as well as vector multipliers lower the final loss, under AdamW and with Muon on the matrices.",
    formula=r"L_{\text{none}} > L_{\text{scalar}}, L_{\text{vector}}",
    source=f"{PAPER_B}, gains of multipliers under AdamW and under Muon",
    figures=(*FIGURES, "training-curves"),
    scopes=tuple(
        contrast_scope(
            f"{optimizer}-{kind}",
            f"{SHORT}, under {name} at learning rate 0.003: {words}.",
            experiment,
            kind,
            holds=True,
        )
        for optimizer, name, experiment in (("adamw", "AdamW", "multipliers"), ("muon", "Muon", "multipliers-muon"))
        for kind, words in (("scalar", "a scalar for each matrix"), ("vector", "rows and columns"))
    ),
)

projector = Claim(
    id="training-projector",
    title="A multiplier frees the head from the norm that the optimizer gives it",
    statement="Forcing the head's equilibrium norm far down costs loss, and a multiplier saves that cost.",
    formula=r"\Delta L_{\text{none}} > \Delta L_{\text{scalar}}, \Delta L_{\text{vector}}",
    source=f"{PAPER_B}, projector experiment",
    figures=(*FIGURES, "size-sweeps"),
    scopes=(
        contrast_scope(
            "scalar-saves",
            f"{LOWERED}: a scalar multiplier that learns at 30 times the rate saves loss.",
            "projector",
            "scalar-saves-low",
            holds=True,
        ),
        contrast_scope(
            "vector-saves",
            f"{LOWERED}: norm scales that learn at 30 times the rate, the final norm's among them, save loss.",
            "projector",
            "vector-saves-low",
            holds=True,
        ),
        contrast_scope(
            "no-cost",
            f"{LOWERED}: without a multiplier it costs less than 0.02.",
            "projector",
            "none-low",
            holds=False,
        ),
        contrast_scope(
            "all-saved",
            f"{LOWERED}: with a scalar multiplier that learns at 30 times the rate less than 0.02 of the cost is left.",
            "projector",
            "scalar-low",
            holds=False,
        ),
    ),
)

start = Claim(
    id="training-start",
    title="Learned scalar multipliers lower the loss, wherever they start",
    statement="Models with learned scalar multipliers end below those with none, and those whose multipliers start at "
    "1 within 0.02 of those whose start by a rule like µP's.",
    formula=r"|L_{1} - L_{\mu P}| < 0.02, \qquad L_{\text{fixed}} > L_{1}",
    source=f"{PAPER_B}, multipliers in place of µP's",
    figures=FIGURES,
    scopes=(
        contrast_scope(
            "learned",
            f"{SMALLER} and weight decay 1, norm scales frozen, a scalar on every matrix that learns at 5 times the "
            "rate and starts at 1: lower than without.",
            "start",
            "learned",
            holds=True,
        ),
        contrast_scope(
            "alike",
            f"{SMALLER} and weight decay 1, norm scales frozen, a scalar on every matrix that learns at 5 times the "
            "rate: the two starts end within 0.02.",
            "start",
            "start",
            holds=False,
        ),
    ),
)

head = Claim(
    id="training-head",
    title="A row multiplier on the language-model head does harm",
    statement="With a row multiplier on the head as on all other matrices the final loss is higher than with one on "
    "all others only.",
    formula=r"L_{\text{with}} > L_{\text{without}}",
    source=f"{PAPER_B}, multipliers left off the head",
    figures=FIGURES,
    scopes=(contrast_scope("row", f"{SHORT} under {ADAMW}.", "head", "row", holds=False),),
)

width = Claim(
    id="training-width",
    title="Learned multipliers take over µP's powers of the width",
    statement="Learned scalar multipliers go as d⁻¹ on the head and as d⁻² on the product of queries and keys; the rms "
    "of the matrices without them does not depend on the width.",
    formula=r"s_{\text{head}} \propto d^{-1}, \qquad s_q s_k \propto d^{-2}",
    source=f"{PAPER_B}, width scaling, which finds shallower slopes itself",
    figures=(*MECHANISMS, "width-scaling"),
    scopes=(
        _width("head", f"{WIDTHS}: the head's slope is −1 within 0.2.", contrast="head"),
        _width("query-key", f"{WIDTHS}: the slope of q and k is −2 within 0.4.", contrast="query-key"),
        _width("matrices", f"{WIDTHS}: the slope of matrices' rms is 0 within 0.05.", contrast="matrices"),
    ),
)

alignment = Claim(
    id="training-alignment",
    title="Features align with weights as far as the width lets them",
    statement="The rms of Wx over rms(W) rms(x) √d grows as √d, as if features lay along rows of W.",
    formula=r"\frac{\mathrm{rms}(Wx)}{\mathrm{rms}(W)\, \mathrm{rms}(x) \sqrt{d}} \propto \sqrt{d}",
    source=f"{PAPER_B}, which takes a decay of the alignment for the reason of shallow slopes",
    figures=(*MECHANISMS, "width-scaling"),
    scopes=tuple(
        contrast_scope(
            name,
            f"{WIDTHS}, {of}: the slope is 1/2 within 0.1.",
            "width",
            f"alignment-{name}",
            holds=True,
        )
        for name, of in (("head", "the head"), ("hidden", "hidden matrices on geometric average"))
    ),
)

diversity = Claim(
    id="training-diversity",
    title="Vector multipliers spread the norms of rows",
    statement="With row and column multipliers the norms of rows of hidden matrices differ more than without.",
    formula=r"\mathrm{sd}_i \log |w_i^{\text{vector}}| > \mathrm{sd}_i \log |w_i^{\text{none}}|",
    source=f"{PAPER_B}, diversity of rows",
    figures=MECHANISMS,
    scopes=(
        contrast_scope(
            "rows",
            "At width 32 and 4 layers, after 120 steps of AdamW at learning rate 0.01 and weight decay 1.",
            "diversity",
            "rows-vector",
            holds=True,
        ),
    ),
)

clipping = Claim(
    id="training-clipping",
    title="Multipliers dominate the gradient norm early in training",
    statement="Multipliers have a large share of the squared norm at which gradients are clipped, early in training.",
    formula=r"\lVert g_s \rVert^2 / \lVert g \rVert^2 > 0.1",
    source=f"{PAPER_B}, multipliers left out of clipping",
    figures=MECHANISMS,
    scopes=(
        contrast_scope(
            "early", f"{SMALLER}: after 6 steps the share is above 10%.", "clipping", "share-early", holds=False
        ),
        contrast_scope("late", f"{SMALLER}: at the end it is below 10%.", "clipping", "share-late", holds=True),
    ),
)

symmetry = Claim(
    id="training-symmetry",
    title="Weight decay shrinks multipliers along a symmetry",
    statement="Multipliers that the function does not depend on are smaller under strong decay than without any.",
    formula=r"f(\sigma a, b / \sigma) = f(a, b)",
    source=f"{PAPER_B}, light decay of multipliers",
    figures=MECHANISMS,
    scopes=(
        contrast_scope(
            "decay",
            "Row multipliers before a q-norm, at width 32: decay 0.5 makes them smaller than none.",
            "symmetry",
            "long-run-decay",
            holds=True,
        ),
        contrast_scope(
            "no-drift",
            "Between up- and down-projection of a gated block, both starting at 1: AdamW moves both alike.",
            "symmetry",
            "product",
            holds=True,
        ),
    ),
)

conservation = Claim(
    id="training-conservation",
    title="AdamW breaks the conservation law more than SGD does",
    statement="v_j² − Σ ‖w_j‖² of norm scales and their consumers, without decay, changes more under AdamW than SGD.",
    formula=r"\frac{|\Delta Q|}{|\Delta v^2|}_{\text{AdamW}} > \frac{|\Delta Q|}{|\Delta v^2|}_{\text{SGD}}",
    source=f"{PAPER_A}, conservation law, in real training",
    figures=(*MECHANISMS, "conserved-drift"),
    scopes=(
        contrast_scope("adamw-more", "At width 32, relative to the change of v².", "conserved", "adamw", holds=True),
        contrast_scope(
            "adamw-keeps",
            "At width 32 under AdamW: Q changes by less than a tenth of what v² changes by.",
            "conserved",
            "adamw-share",
            within=(-math.inf, math.log(0.1)),
            holds=False,
        ),
    ),
)
