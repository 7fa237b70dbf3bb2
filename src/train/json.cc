#include "train/json.h"

#include <set>
#include <vector>

#include "base/check.h"

namespace lockstep::detail {

Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const Json::parser_callback_t check = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second)
      throw_error("json: {} stands twice; each name may stand once", printable(value));
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& error) {
    throw_error("json: {}; correct the text", error.what());
  }
}

std::string printable(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 100) text = text.substr(0, 97) + "...";
  return text;
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace lockstep::detail
