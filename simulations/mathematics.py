"""Mathematics on web pages: LaTeX as MathML, the font it needs, and indices in running text."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from xml.etree import ElementTree

import ziamath
from fontTools.subset import Options, Subsetter, load_font, save_font
from latex2mathml.converter import convert
from markupsafe import Markup, escape

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
CHILDREN = {
    **dict.fromkeys(("mfrac", "mroot", "msub", "msup", "mover", "munder"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
ELEMENTS = {"math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mstyle", "msqrt", "mtable", "mtr", "mtd", *CHILDREN}
LIMITS = {"min", "max", "sup", "inf", "lim"}
RELATIONS = {"~": "∼", ":": ":"}
SIGNS = (range(0x20, 0x7F), range(0x1D434, 0x1D468), range(0x1D6E2, 0x1D71C), (0x210E, 0x221A))
"""Of the font, besides what formulas spell out: ASCII, the italics that browsers put in place of letters, the root."""


def mathml(formula: str, name: str) -> Markup:
    """The formula as a MathML element, to stand on lines of its own.

    Parameters
    ----------
    formula : LaTeX; of environments, ``split`` puts one statement under another.
    name : what the formula belongs to, for the message.

    Raises
    ------
    ValueError : the formula cannot be parsed.
    """
    try:
        root = ElementTree.fromstring(convert(formula, display="block"))
    except Exception as error:  # the converter raises whatever its walk over the tokens runs into
        reason = f"{type(error).__name__} {error}".strip()
        raise ValueError(f"formula of {name}: {formula!r} is not LaTeX that can be parsed ({reason})") from error
    for element in root.iter():
        tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
        text = element.text or ""
        # What the converter does not know it passes on as if it were a sign.
        if tag not in ELEMENTS or "\\" in text or text == "&" or len(element) != CHILDREN.get(tag, len(element)):
            raise ValueError(f"formula of {name}: {formula!r} has a part that cannot be set: {text or tag}")
        element.tag = tag
    for element in root.iter():
        for sign, after in zip_longest(element, element[1:]):
            _space(sign, after)
    root.set("xmlns", NAMESPACE)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _space(sign: ElementTree.Element, after: ElementTree.Element | None) -> None:
    """What browsers get wrong: bars of norms as high as the line, names of functions without space around them."""
    text = sign.text or ""
    if text in ("‖", "|") and "stretchy" not in sign.attrib:
        sign.attrib.update(stretchy="false", lspace="0", rspace="0")
    elif text in RELATIONS:
        sign.tag, sign.text = "mo", RELATIONS[text]
        sign.attrib.update(lspace="0.28em", rspace="0.28em")
    elif sign.tag in ("mi", "mo") and len(text) > 1 and text.isalpha() and text not in LIMITS:
        sign.tag = "mo"
        close = after is None or after.tag in ("mo", "mspace", "mrow")
        sign.attrib.update(lspace="0.17em", rspace="0" if close else "0.17em")


def with_indices(text: str) -> Markup:
    """Text as HTML, in which v_j and e^{−t} have their index below and their exponent above the line."""
    html = re.sub(r"(?<![A-Za-z])([^\W\d_])_([A-Za-z0-9]+)", r"\1<sub>\2</sub>", str(escape(text)))
    return Markup(re.sub(r"\^\{([^{}]*)\}", r"<sup>\1</sup>", html))


def font_face(family: str, formulas: Iterable[str]) -> str:
    """A CSS rule that holds the font STIX Two Math, cut down to the signs in some MathML elements.

    Without a mathematical font a browser draws roots and brackets in the wrong size, and Linux comes without one.
    """
    signs = {ord(sign) for formula in formulas for sign in formula}.union(*SIGNS)
    options = Options(flavor="woff", recalc_timestamp=False, layout_features=["*"])
    # The package that draws mathematics as pictures is here for the font that comes with it.
    font = load_font(str(Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"), options)
    cut = Subsetter(options)
    cut.populate(unicodes=signs)
    cut.subset(font)
    file = io.BytesIO()
    save_font(font, file, options)
    data = base64.b64encode(file.getvalue()).decode()
    return f'@font-face {{ font-family: "{family}"; src: url("data:font/woff;base64,{data}") format("woff"); }}\n'
