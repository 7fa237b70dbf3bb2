#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "base/printable.h"
#include "data/tables/npy.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr int64_t kMaxNpyHeader = 1 << 20;

struct NpyElementInfo {
  NpyElement element;
  std::string_view code;  // in a header, without the byte order
  int64_t size;
  std::string_view name;
  DType dtype;
};

constexpr NpyElementInfo kNpyElements[] = {
    {NpyElement::b1, "b1", 1, "bool", boolean},  {NpyElement::u1, "u1", 1, "uint8", u8},
    {NpyElement::i1, "i1", 1, "int8", i8},       {NpyElement::u2, "u2", 2, "uint16", u16},
    {NpyElement::i2, "i2", 2, "int16", i16},     {NpyElement::u4, "u4", 4, "uint32", u32},
    {NpyElement::i4, "i4", 4, "int32", i32},     {NpyElement::u8, "u8", 8, "uint64", u64},
    {NpyElement::i8, "i8", 8, "int64", i64},     {NpyElement::f2, "f2", 2, "float16", f16},
    {NpyElement::f4, "f4", 4, "float32", f32},   {NpyElement::f8, "f8", 8, "float64", f64},
    {NpyElement::c8, "c8", 8, "complex64", c64}, {NpyElement::c16, "c16", 16, "complex128", c128},
};

const NpyElementInfo& npy_info(NpyElement element) {
  for (const NpyElementInfo& each : kNpyElements)
    if (each.element == element) return each;
  LOCKSTEP_CHECK(false, "an unknown element type of .npy files");
}

// Parses {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, with the keys in any order.
class NpyDictionary {
 public:
  NpyDictionary(std::string_view text, const std::string& where) : text_(text), where_(where) { parse(); }

  std::string descr;
  bool fortran = false;
  Shape shape;

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw_error("read {}: the header is \"{}\", with no {} at position {}; write the file again with numpy.save",
                where_, printable(text_, 120), expected, at_);
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}'", c));
  }
  std::string text() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') fail("text");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) fail("end of the text");
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  bool boolean_value() {
    skip_spaces();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    fail("True or False");
  }
  Shape shape_value() {
    constexpr size_t kMaxDims = 32;
    Shape out;
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      int64_t extent = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) fail("extent");
      at_ = static_cast<size_t>(end - text_.data());
      accept('L');  // written by Python 2
      out.push_back(extent);
      if (out.size() > kMaxDims) fail("shape of at most 32 dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }
  void parse_value(const std::string& key) {
    skip_spaces();
    if (key == "descr") {
      if (at_ < text_.size() && text_[at_] == '[')
        throw_error("read {}: it has structured elements {}; save one array per field", where_,
                    printable(text_.substr(at_), 80));
      descr = text();
    } else if (key == "fortran_order") {
      fortran = boolean_value();
    } else if (key == "shape") {
      shape = shape_value();
    } else {
      fail("key descr, fortran_order or shape");
    }
  }
  void parse() {
    std::vector<std::string> seen;
    expect('{');
    while (!accept('}')) {
      const std::string key = text();
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) fail("single key " + printable(key));
      seen.push_back(key);
      expect(':');
      parse_value(key);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) fail("end of the header");
    if (seen.size() != 3) fail("complete list of descr, fortran_order and shape");
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

NpyElement element_of(const std::string& descr, const std::string& where) {
  const char order = descr.empty() ? ' ' : descr[0];
  const std::string_view code = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  for (const NpyElementInfo& each : kNpyElements) {
    if (each.code != code) continue;
    if (each.size == 1 || order == '<') return each.element;
    if (order == '>')
      throw_error("read {}: its elements ({}) are big-endian; save x.astype(x.dtype.newbyteorder('<'))", where,
                  printable(descr));
  }
  throw_error(
      "read {}: its elements are \"{}\"; supported are bool, int8, int16, int32, int64, uint8, uint16, uint32, "
      "uint64, float16, float32, float64, complex64 and complex128: convert it with astype",
      where, printable(descr));
}

// The number of bytes of the elements. Throws Error unless that is what the file has.
void check_npy_size(const NpyHeader& header, int64_t file_size, const std::string& where) {
  const int64_t present = file_size - header.begin;
  int64_t declared = npy_size_of(header.element);
  for (const int64_t extent : header.shape) {
    if (extent != 0 && declared > std::numeric_limits<int64_t>::max() / extent)
      throw_error("read {}: it declares shape {}, which is more than a file can have; it is corrupt", where,
                  to_string(header.shape));
    declared *= extent;
  }
  if (declared != present)
    throw_error("read {}: shape {} of {} needs {} bytes, but {} follow the header; {}", where, to_string(header.shape),
                npy_name(header.element), declared, present,
                declared > present ? "the file is truncated: copy it again" : "write the file again with numpy.save");
}

}  // namespace

int64_t npy_size_of(NpyElement element) { return npy_info(element).size; }
std::string npy_name(NpyElement element) { return std::string(npy_info(element).name); }
DType npy_dtype(NpyElement element) { return npy_info(element).dtype; }

NpyHeader read_npy_header(const std::string& path, FileSystem& files) {
  const int64_t file_size = files.size(path);
  const std::unique_ptr<OpenFile> file = files.open(path);
  std::array<uint8_t, 12> start = {};  // magic number, version, length of the header in 2 or 4 bytes
  const size_t got = file->read(0, start);
  if (got < 10 || !std::equal(kNpyMagic.begin(), kNpyMagic.end(), reinterpret_cast<const char*>(start.data())))
    throw_error("read {}: it does not start with the magic number of NumPy; it is not a .npy file", path);
  const int version = start[6];
  if (version < 1 || version > 3)
    throw_error("read {}: .npy format version {}.{}; versions 1 to 3 are supported", path, version, start[7]);
  const int64_t length_size = version == 1 ? 2 : 4, begin = 8 + length_size;
  int64_t length = 0;
  for (int64_t i = length_size; i-- > 0;) length = length << 8 | start[static_cast<size_t>(8 + i)];
  if (length > kMaxNpyHeader || begin + length > file_size)
    throw_error(
        "read {}: a header of {} bytes in a file of {}; at most {} are allowed: the file is truncated or corrupt", path,
        length, file_size, kMaxNpyHeader);
  std::string text(static_cast<size_t>(length), '\0');
  text.resize(file->read(begin, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  const NpyDictionary dictionary(text, path);
  if (dictionary.fortran && dictionary.shape.size() > 1)
    throw_error("read {}: it is in Fortran order; save numpy.ascontiguousarray(x)", path);
  NpyHeader header{element_of(dictionary.descr, path), dictionary.shape, begin + length};
  check_npy_size(header, file_size, path);
  return header;
}

}  // namespace lockstep::detail
