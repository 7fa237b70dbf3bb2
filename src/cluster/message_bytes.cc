#include "cluster/message_bytes.h"

#include <tuple>
#include <type_traits>

#include "base/check.h"
#include "base/printable.h"
#include "lockstep/version.h"

namespace lockstep {

namespace {

// A message begins with a prefix, which is the same in all versions: kMagic, the protocol as a number, and the version as
// a string. The fields of the message follow.
constexpr std::string_view kMagic = "lockstep";
constexpr size_t kMaxVersionBytes = 100;

// Does not compile if kFields of a message does not list all of its members.
template <class T>
void check_fields(const T& x) {
  constexpr size_t kCount = std::tuple_size_v<decltype(T::kFields)>;
  if constexpr (kCount == 0) {
    static_assert(std::is_empty_v<T>);
  } else if constexpr (kCount == 1) {
    [[maybe_unused]] const auto& [a] = x;
  } else if constexpr (kCount == 2) {
    [[maybe_unused]] const auto& [a, b] = x;
  } else if constexpr (kCount == 3) {
    [[maybe_unused]] const auto& [a, b, c] = x;
  } else if constexpr (kCount == 4) {
    [[maybe_unused]] const auto& [a, b, c, d] = x;
  } else if constexpr (kCount == 5) {
    [[maybe_unused]] const auto& [a, b, c, d, e] = x;
  } else if constexpr (kCount == 6) {
    [[maybe_unused]] const auto& [a, b, c, d, e, f] = x;
  } else if constexpr (kCount == 7) {
    [[maybe_unused]] const auto& [a, b, c, d, e, f, g] = x;
  } else {
    [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h] = x;
  }
}

// Numbers are eight bytes, little endian. Strings and vectors are preceded by their size.
struct Writer {
  std::string out = {};

  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void add(const T& value) {
    for (auto rest = static_cast<uint64_t>(value); const int shift : {0, 8, 16, 24, 32, 40, 48, 56})
      out.push_back(static_cast<char>(rest >> shift & 0xff));
  }
  void add(std::chrono::nanoseconds value) { add(value.count()); }
  void add(const std::string& value) {
    add(value.size());
    out += value;
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  template <class A, class B>
  void add(const std::pair<A, B>& value) {
    add(value.first);
    add(value.second);
  }
  template <class T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  template <class... Ts>
  void add(const std::variant<Ts...>& value) {
    add(value.index());
    std::visit([&](const auto& each) { add(each); }, value);
  }
  template <class T>
  requires requires { T::kFields; }
  void add(const T& value) {
    check_fields(value);
    std::apply([&](auto... member) { (add(value.*member), ...); }, T::kFields);
  }
};

struct Reader {
  std::string_view in;

  [[noreturn]] static void throw_malformed() {
    throw CommError("control plane: received a malformed message; run the same version of lockstep in all processes");
  }

  uint64_t number() {
    if (in.size() < 8) throw_malformed();
    uint64_t value = 0;
    for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(in[i]);
    in.remove_prefix(8);
    return value;
  }
  // Reads the size of a sequence whose elements take at least `least` bytes each.
  size_t size(size_t least) {
    const uint64_t value = number();
    if (value > in.size() / least) throw_malformed();
    return static_cast<size_t>(value);
  }

  template <class T>
  requires(std::is_integral_v<T>) void take(T& value) {
    const uint64_t n = number();
    value = static_cast<T>(n);
    if (static_cast<uint64_t>(value) != n) throw_malformed();  // it does not fit
  }
  void take(Outcome& value) {
    const uint64_t n = number();
    if (n > static_cast<uint64_t>(kLastOutcome)) throw_malformed();
    value = static_cast<Outcome>(n);
  }
  void take(std::chrono::nanoseconds& value) {
    value = std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(number()));
  }
  void take(std::string& value) {
    const size_t n = size(1);
    value = in.substr(0, n);
    in.remove_prefix(n);
  }
  template <class T>
  void take(std::vector<T>& values) {
    // Grows element by element: a value in memory may be much larger than its bytes in the message.
    const size_t n = size(8);
    for (size_t i = 0; i < n; ++i) take(values.emplace_back());
  }
  template <class A, class B>
  void take(std::pair<A, B>& value) {
    take(value.first);
    take(value.second);
  }
  template <class T>
  void take(std::optional<T>& value) {
    bool there = false;
    take(there);
    if (there) take(value.emplace());
  }
  template <class... Ts>
  void take(std::variant<Ts...>& value) {
    const uint64_t index = number();
    if (index >= sizeof...(Ts)) throw_malformed();
    uint64_t i = 0;
    ((i++ == index ? take(value.template emplace<Ts>()) : void()), ...);
  }
  template <class T>
  requires requires { T::kFields; }
  void take(T& value) {
    std::apply([&](auto... member) { (take(value.*member), ...); }, T::kFields);
  }
};

// Where a message comes from.
struct SenderVersion {
  uint64_t protocol = kControlProtocol;
  std::string version = LOCKSTEP_VERSION;

  bool operator==(const SenderVersion&) const = default;
  std::string text() const { return fmt::format("lockstep {} (protocol {})", printable(version), protocol); }
};

// Reads the prefix of a message.
SenderVersion take_prefix(Reader& reader) {
  if (!reader.in.starts_with(kMagic)) Reader::throw_malformed();
  reader.in.remove_prefix(kMagic.size());
  SenderVersion sender;
  reader.take(sender.protocol);
  reader.take(sender.version);
  if (sender.version.size() > kMaxVersionBytes) Reader::throw_malformed();
  return sender;
}

template <class T>
std::string serialize(const T& value) {
  Writer writer{message_prefix()};
  writer.add(value);
  return std::move(writer.out);
}

// Deserializes what follows the prefix.
template <class T>
T deserialize(Reader& reader) {
  T value;
  reader.take(value);
  if (!reader.in.empty()) Reader::throw_malformed();
  return value;
}

[[noreturn]] void throw_versions(const SenderVersion& process, const SenderVersion& coordinator) {
  throw CommError(fmt::format("this is {}, the coordinator is {}; use the same version everywhere", process.text(),
                              coordinator.text()));
}

}  // namespace

std::string message_prefix() {
  Writer writer{std::string(kMagic)};
  writer.add(kControlProtocol);
  writer.add(std::string(LOCKSTEP_VERSION));
  return std::move(writer.out);
}

std::string to_bytes(const Request& request) { return serialize(request); }
std::string to_bytes(const Answer& answer) { return serialize(answer); }

Request request_from(std::string_view bytes) {
  Reader reader{bytes};
  const SenderVersion sender = take_prefix(reader), own;
  if (sender != own) throw_versions(sender, own);
  return deserialize<Request>(reader);
}

Answer answer_from(std::string_view bytes) {
  Reader reader{bytes};
  const SenderVersion sender = take_prefix(reader), own;
  if (sender != own) throw_versions(own, sender);
  return deserialize<Answer>(reader);
}

}  // namespace lockstep
