"""What two pages need beyond their text: the changelog comes from CHANGELOG.md, and the paper's tables come last."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    if page.file.src_uri == "paper.md":
        page.meta["search"] = {"boost": 0.2}  # its hundreds of numbers match nearly every word
    if page.file.src_uri != "changelog.md":
        return markdown
    text = (Path(config.config_file_path).parent / "CHANGELOG.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](")  # links as seen from docs/
