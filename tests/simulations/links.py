"""Links between the pages of a folder, for the tests of what is written as HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag


class _Page(HTMLParser):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        self.links += [found[name] for name in ("href", "src") if name in found]


def broken_links(folder: Path) -> list[str]:
    """Links of every page under ``folder`` to a file that is not there, or to a place that is not in it."""
    pages = {file.resolve(): _Page(file) for file in folder.rglob("*.html")}
    broken = []
    for file, page in pages.items():
        for link in page.links:
            if link.startswith(("http://", "https://", "data:", "mailto:", "javascript:")):
                continue
            path, place = urldefrag(unquote(link))
            target = (file.parent / path).resolve() if path else file
            if not target.is_file() or (place and target in pages and place not in pages[target].names):
                broken.append(f"{file.name}: {link}")
    return broken
