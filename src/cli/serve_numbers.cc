#include "cli/serve_numbers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "base/json.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

class NumberReader final : public nlohmann::json_sax<json> {
 public:
  NumberReader(Numbers& out, size_t most, const NumberRange& range) : out_(out), most_(most), range_(range) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return add(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& text) override { unexpected(printable_json(json(text))); }
  bool binary(binary_t&) override { unexpected("bytes"); }
  bool start_object(std::size_t) override { unexpected("an object"); }
  bool end_object() override { return true; }
  bool key(string_t&) override { return true; }
  bool start_array(std::size_t) override {
    if (++depth_ > kMaxDepth) throw_error("the body: more than {} arrays are nested; remove some", kMaxDepth);
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    throw_error("the body: not JSON: {}", json_error_text(static_cast<const json::exception&>(error)));
  }

 private:
  static constexpr int kMaxDepth = 8;

  [[noreturn]] static void unexpected(const std::string& what) {
    throw_error("the body has {} where a number is expected", what);
  }

  bool add(double value) {
    if (!(value >= range_.low && value <= range_.high))
      throw_error("the body has {} where a number from {} to {} is expected", value, range_.low, range_.high);
    if (++out_.count <= most_) out_.values.push_back(static_cast<float>(value));
    return true;
  }

  Numbers& out_;
  const size_t most_;
  const NumberRange& range_;
  int depth_ = 0;
};

}  // namespace

Numbers read_numbers(std::string_view text, size_t most, const NumberRange& range) {
  Numbers out;
  out.values.reserve(std::min({most, text.size() / 2 + 1, size_t{4096}}));
  NumberReader reader(out, most, range);
  json::sax_parse(text.begin(), text.end(), &reader);
  return out;
}

}  // namespace lockstep::cli
