"""What kind of file some bytes are: text, an image, a PDF, or something no model reads."""

from __future__ import annotations

import re

__all__ = ["BINARY", "PDF", "SVG", "is_text_type", "sniffed_type", "stored_type"]

BINARY = "application/octet-stream"
PDF = "application/pdf"
SVG = "image/svg+xml"

# tools, read: the part of a file that is looked at, and the share of undecodable characters that is still text.
SAMPLE_BYTES = 4096
UNDECODABLE_SHARE_MAX = 0.01
# Where an SVG's first tag must begin; XML headers and comments come before it.
SVG_HEAD_BYTES = 512

_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"%PDF-"), PDF),
)
_TEXT_TYPES = frozenset(f"application/{kind}" for kind in ("json", "javascript", "typescript", "xml", "x-javascript"))
_UNKNOWN = frozenset({"", BINARY, "binary/octet-stream"})


def stored_type(stored: str) -> str | None:
    """The media type that a file was stored with; None if it says nothing."""
    named = stored.partition(";")[0].strip().lower()
    return None if named in _UNKNOWN else named


def sniffed_type(data: bytes) -> str:
    """The media type that the bytes of a whole file look like."""
    for signature, media_type in _SIGNATURES:
        if signature.match(data):
            return media_type
    if not _looks_like_text(data):
        return BINARY
    return SVG if b"<svg" in data[:SVG_HEAD_BYTES].lower() else "text/plain"


def is_text_type(media_type: str) -> bool:
    """Whether a file of this type is shown as lines."""
    if media_type == SVG:
        return False
    return media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith(("+json", "+xml"))


def _looks_like_text(data: bytes) -> bool:
    if b"\x00" in data:
        return False
    sample = data[:SAMPLE_BYTES].decode(errors="replace")
    return sample.count("\ufffd") <= UNDECODABLE_SHARE_MAX * len(sample) or not sample
