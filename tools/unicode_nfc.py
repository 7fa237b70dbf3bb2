#!/usr/bin/env python3
"""Writes the tables of Unicode normalization form C from Python's unicodedata.

usage: tools/unicode_nfc.py src/data/text

Writes unicode_nfc.inc (decompositions) and unicode_combining.inc (canonical combining classes) into the folder. Hangul
syllables are not in the tables: they are computed.
"""

import sys
import unicodedata

HANGUL = range(0xAC00, 0xD7A4)


def write(path, comment, rows):
    """Writes rows as lines of at most 120 columns."""
    lines = [""]
    for row in rows:
        text = "{" + ", ".join(row) + "},"
        if lines[-1] and len(lines[-1]) + 1 + len(text) <= 120:
            lines[-1] += " " + text
        else:
            lines.append(text)
    with open(path, "w", encoding="ascii") as file:
        file.write(f"// Written by tools/unicode_nfc.py from Unicode {unicodedata.unidata_version}: {comment}")
        file.write("\n".join(lines) + "\n")


def main():
    decompositions, classes = [], []
    for code in range(0x110000):
        character = chr(code)
        combining = unicodedata.combining(character)
        if combining and classes and classes[-1][1] == code - 1 and classes[-1][2] == combining:
            classes[-1][1] = code
        elif combining:
            classes.append([code, code, combining])
        parts = unicodedata.decomposition(character).split()
        if not parts or parts[0].startswith("<") or code in HANGUL:
            continue
        values = [int(part, 16) for part in parts]
        composes = len(values) == 2 and unicodedata.normalize("NFC", "".join(map(chr, values))) == character
        values = [code, *values, *[0] * (2 - len(values))]
        decompositions.append([*(f"0x{value:x}" if value else "0" for value in values), "1" if composes else "0"])
    folder = sys.argv[1]
    write(f"{folder}/unicode_nfc.inc", "{code, first, second or 0, whether they compose}.", decompositions)
    write(
        f"{folder}/unicode_combining.inc",
        "{first, last, canonical combining class}.",
        [[f"0x{first:x}", f"0x{last:x}", str(value)] for first, last, value in classes],
    )


if __name__ == "__main__":
    main()
