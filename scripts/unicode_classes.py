#!/usr/bin/env python3
"""Writes examples/text/unicode_classes.h: which characters are letters, numbers and white space.

    pip install unicodedata2==16.0.0 && scripts/unicode_classes.py

Unicode 16.0 is what `tokenizers` 0.23 knows; Python's own unicodedata has the version of its Python."""

import pathlib

from unicodedata2 import category, unidata_version

OTHER, LETTER, NUMBER, SPACE = range(4)
# The property White_Space, which is no category.
SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def class_of(code):
    if code in SPACES:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(category(chr(code))[0], OTHER)


def changes():
    """First code point of every run of one class, times four, plus the class."""
    last, found = None, []
    for code in range(0x110000):
        if class_of(code) != last:
            last = class_of(code)
            found.append(code << 2 | last)
    return found


def lines(numbers):
    line = "   "
    for number in numbers:
        word = f" {number:#x},"
        if len(line) + len(word) > 100:
            yield line
            line = "   "
        line += word
    yield line


values = changes()
page = f"""// Made by scripts/unicode_classes.py from Unicode {unidata_version}; do not edit.
#pragma once
#include <cstdint>

namespace triax::text {{

/// Where the class of characters changes: code point << 2 | class of it and those that follow, as in
/// CharacterClass. Ascending.
// clang-format off
inline constexpr uint32_t class_changes[] = {{
""" + "\n".join(lines(values)) + """
};
// clang-format on

}  // namespace triax::text
"""
root = pathlib.Path(__file__).resolve().parent.parent
(root / "examples/text/unicode_classes.h").write_text(page)
print(f"{len(values)} runs of characters, Unicode {unidata_version}")
