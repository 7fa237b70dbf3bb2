// Escaping of untrusted text (from files, variables and other hosts) for a terminal. Pure functions, safe from any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kPrintableBytes = 400;

// Returns the number of bytes of the UTF-8 character at the beginning of the text; 0 if it is not valid UTF-8. REQUIRES:
// the text is not empty.
size_t utf8_character_size(std::string_view text);

bool is_utf8(std::string_view text);

// Escapes a name or value for a terminal. Control characters (ESC, NUL, newline, DEL, U+0080 to U+009F), characters that
// change the direction of text, and bytes that are not UTF-8 become \xNN, one for each byte. A result longer than `most`
// bytes is truncated and ends with "...".
std::string printable(std::string_view text, size_t most = kPrintableBytes);

// Like printable(), but keeps newlines and tabs, and does not truncate.
std::string printable_lines(std::string_view text);

// Whether the text is a safe file name: not empty, "." or "..", without slashes and control characters, valid UTF-8, and
// at most 255 bytes.
bool is_plain_file_name(std::string_view name);

}  // namespace lockstep
