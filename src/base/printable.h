// Text from files, variables and other machines, made safe for a terminal. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kPrintableBytes = 400;

// The bytes of the valid UTF-8 character at the beginning of a text that is not empty; 0 where there is none.
size_t utf8_character_size(std::string_view text);

bool is_utf8(std::string_view text);

// A name or value for a terminal. Control characters (ESC, NUL, newline, DEL, U+0080 to U+009F), characters that change
// the direction of text, and bytes that are not UTF-8 become \xNN, one for each byte. A result that would be longer
// than `most` bytes is cut and ends with "...".
std::string printable(std::string_view text, size_t most = kPrintableBytes);

// As printable(), for a text of several lines: newlines and tabs stay, and nothing is cut.
std::string printable_lines(std::string_view text);

// Whether a file can have this name in a folder: not empty, "." or "..", no slash and no control character, valid
// UTF-8, and at most 255 bytes.
bool is_plain_file_name(std::string_view name);

}  // namespace lockstep
