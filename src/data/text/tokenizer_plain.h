// The tokenizers of bytes and of characters as JSON of Lockstep. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/tokenizer.h"

namespace lockstep::detail {

// Whether the text is JSON that plain_tokenizer_from_json() reads.
bool is_plain_tokenizer(std::string_view json);

// Reads what to_json() of these tokenizers writes. Throws Error; `name` names the text in messages.
TokenizerPtr plain_tokenizer_from_json(std::string_view json, const std::string& name);

}  // namespace lockstep::detail
