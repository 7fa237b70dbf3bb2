#include "conformance/suite.h"

#include <zlib.h>

#include <algorithm>
#include <stdexcept>

#include "lockstep/random.h"

namespace lockstep::conformance {
namespace {

// The lines of a gzip file.
std::vector<std::string> lines_of(const std::string& path) {
  const gzFile file = ::gzopen(path.c_str(), "rb");
  if (!file) throw std::runtime_error("cannot read " + path);
  std::string all;
  std::vector<char> part(1 << 20);
  for (int got; (got = ::gzread(file, part.data(), static_cast<unsigned>(part.size()))) > 0;)
    all.append(part.data(), static_cast<size_t>(got));
  ::gzclose(file);
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = all.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(all.substr(at, end - at));
  return lines;
}

std::vector<unsigned char> from_base64(std::string_view text) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string::npos) break;  // the padding
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held >= 8) bytes.push_back(static_cast<unsigned char>(bits >> (held -= 8)));
  }
  return bytes;
}

// The array, or an undefined one if its type does not exist here.
Array array_of(const Json& json) {
  const auto dtype = dtype_from_name(json.at("d").get<std::string>());
  if (!dtype) return {};
  const auto bytes = from_base64(json.at("x").get_ref<const std::string&>());
  return detail::from_bytes(bytes.data(), Type{*dtype, json.at("s").get<Shape>()});
}

template <class T>
void read(const Json& attrs, const char* name, T& to) {
  const auto found = attrs.find(name);
  if (found == attrs.end() || found->is_null()) return;
  if constexpr (std::is_same_v<T, std::string>) {
    if (found->is_string()) to = found->get<T>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (found->is_boolean()) to = found->get<T>();
  } else {
    if (found->is_number()) to = found->get<T>();
  }
}

}  // namespace

std::string Case::to_string() const {
  std::string text = function + "(";
  for (const std::string& key : inputs) text += (text.back() == '(' ? "" : ", ") + key;
  return text + ")" + (attrs.empty() ? "" : " " + attrs.dump());
}

// A key is the type, the shape in brackets, the domain, and a number.
bool has_domain(const Case& c, const char* domain) {
  return std::any_of(c.inputs.begin(), c.inputs.end(), [&](const std::string& key) {
    const std::string rest = key.substr(key.find(']') + 1);
    return rest.substr(0, rest.find_first_of("0123456789")) == domain;
  });
}

bool has_type(const Case& c, const char* type) {
  return std::any_of(c.inputs.begin(), c.inputs.end(),
                     [&](const std::string& key) { return key.substr(0, key.find('[')) == type; });
}

Call::Call(const Case& c, Arrays operands) : xs(std::move(operands)), attrs(c.attrs) {
  Array* first[] = {&x, &y, &z, &w};
  for (size_t i = 0; i < std::min<size_t>(xs.size(), 4); ++i) *first[i] = xs[i];
  for (const auto& [name, into] : std::initializer_list<std::pair<const char*, int64_t*>>{
           {"axis", &axis},         {"n", &n},
           {"m", &m},               {"k", &k},
           {"a", &a},               {"b", &b},
           {"ddof", &ddof},         {"decimals", &decimals},
           {"shift", &shift},       {"repeats", &repeats},
           {"d", &d},               {"start", &start},
           {"stop", &stop},         {"step", &step},
           {"size", &count},        {"groups", &groups},
           {"low", &low},           {"high", &high},
           {"length", &length},     {"num_segments", &num_segments},
           {"bins", &bins},         {"trans", &trans}})
    read(attrs, name, *into);
  read(attrs, "q", q);
  read(attrs, "dx", dx);
  read(attrs, "start", from);
  read(attrs, "stop", to);
  read(attrs, "d", spacing);
  for (const auto& [name, into] : std::initializer_list<std::pair<const char*, bool*>>{{"keepdims", &keepdims},
                                                                                     {"reverse", &reverse},
                                                                                     {"descending", &descending},
                                                                                     {"lower", &lower},
                                                                                     {"unit_diagonal", &unit_diagonal},
                                                                                     {"increasing", &increasing},
                                                                                     {"endpoint", &endpoint},
                                                                                     {"antialias", &antialias},
                                                                                     {"approximate", &approximate}})
    read(attrs, name, *into);
  for (const auto& [name, into] : std::initializer_list<std::pair<const char*, std::string*>>{
           {"method", &method}, {"mode", &mode}, {"side", &side}, {"text", &text}, {"norm", &norm}, {"indexing", &indexing}})
    read(attrs, name, *into);
  if (const auto found = attrs.find("axis"); found != attrs.end() && !found->is_null()) {
    if (found->is_array())
      axes = Axes(found->get<std::vector<int64_t>>());
    else
      axes = Axes(maybe_axis.emplace(axis));
  }
  if (const auto found = attrs.find("shape"); found != attrs.end()) shape = found->get<Shape>();
  std::string name;
  read(attrs, "dtype", name);
  if (const auto found = dtype_from_name(name)) dtype = *found;
  if (attrs.contains("seed")) key = random::key(attrs["seed"].get<uint64_t>());
}

std::vector<std::pair<int64_t, int64_t>> Call::pairs(const char* name) const {
  return attrs.at(name).get<std::vector<std::pair<int64_t, int64_t>>>();
}

Array Call::number(const char* name) const {
  const Json& value = attrs.at(name);
  if (value.is_null()) return {};
  if (value.is_boolean()) return Array(value.get<bool>());
  if (value.is_number_integer()) return Array(value.get<int64_t>());
  return Array(value.get<double>());
}

const std::map<std::string, std::vector<Case>>& all_cases() {
  static const auto cases = [] {
    std::map<std::string, Array> pool;
    std::map<std::string, std::vector<Case>> found;
    for (const std::string& line : lines_of(LOCKSTEP_TEST_DATA "/jax_cases.jsonl.gz")) {
      const Json json = Json::parse(line);
      if (json.contains("array")) {
        pool[json["array"]] = array_of(json);
      } else if (json.contains("f")) {
        Case c{json["f"], json["a"], json["in"], json["tol"], {}, {}, {}};
        for (const std::string& key : c.inputs) c.in.push_back(pool.at(key));
        for (const Json& out : json["out"]) c.out.push_back(array_of(out));
        if (json.contains("grad"))
          for (const Json& gradient : (c.gradients.emplace(), json["grad"])) c.gradients->push_back(array_of(gradient));
        found[c.function].push_back(std::move(c));
      }
    }
    return found;
  }();
  return cases;
}

const std::map<std::string, Function>& all_functions() {
  static const auto functions = [] {
    std::map<std::string, Function> all;
    for (const auto& family : {math_functions(), reduce_functions(), shape_functions(), linear_functions(), window_functions(),
                               random_functions(), arrange_functions()})
      for (const Function& f : family)
        if (!all.emplace(f.jax, f).second) throw std::runtime_error(f.jax + " is listed twice");
    return all;
  }();
  return functions;
}

}  // namespace lockstep::conformance
