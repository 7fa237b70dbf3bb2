// A process of a job that combines arrays of all processes with every public function and checks the results.
// Exits with code 1 and the line of a failed check. Argument: the group of checks.
#include <lockstep/lockstep.h>

#include <cstdio>
#include <cstring>
#include <numeric>

using namespace lockstep;

namespace {

#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #condition); \
  } while (false)

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

Array counting(int64_t first, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(count(shape)));
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  return Array::from(values, shape);
}

std::vector<float> floats(const Array& x) { return x.to_vector<float>(); }

void check_helpers() {
  const int p = process_index(), n = process_count();
  const Array own = counting(10 * p, {3});
  CHECK((floats(distributed::broadcast_one_to_all(own)) == std::vector<float>{0, 1, 2}));
  std::vector<float> all;
  for (int q = 0; q < n; ++q)
    for (int i = 0; i < 3; ++i) all.push_back(static_cast<float>(10 * q + i));
  const Array stacked = distributed::process_allgather(own), joined = distributed::process_allgather(own, true);
  CHECK((stacked.shape() == Shape{n, 3}));
  CHECK((joined.shape() == Shape{3 * n}));
  CHECK(floats(stacked) == all);
  CHECK(floats(joined) == all);
  CHECK(distributed::process_allgather(Array(p)).to_vector<int32_t>().back() == n - 1);
  CHECK(has(message_of([] { distributed::process_allgather(Array(1), true); }),
            "process_allgather: cannot concatenate scalars; call it with tiled = false"));

  distributed::sync("here");
  distributed::sync("here");
  distributed::assert_equal(Array(7), "seven");
  const std::string message = message_of([&] { distributed::assert_equal(Array(p == n - 1 ? 8 : 7), "the number"); });
  const std::string wanted = "assert_equal: the number of process " + std::to_string(n - 1) +
                             " differs from that of process 0; process " + std::to_string(p) + " has ";
  CHECK(has(message, wanted));
  // Also another type; later calls still work.
  CHECK(has(message_of([&] { distributed::assert_equal(p == 0 ? Array(1) : Array(1.f)); }), "of process 1 differs"));
  distributed::assert_equal(counting(0, {5}));
}

// An array with counted elements, sharded along its rows; each process passed its part.
struct RowSharded {
  const Mesh mesh = make_mesh({"data"});
  const Shape shape{2 * device_count(), 3};
  const int64_t rows = 2 * local_device_count();  // of this process
  const Array local = counting(process_index() * rows * 3, {rows, 3});
  const Array x = make_array_from_process_local_data({mesh, P("data")}, local, shape);
};

void check_shards(const RowSharded& a) {
  CHECK(a.x.shape() == a.shape);
  CHECK(floats(process_local_data(a.x)) == floats(a.local));
  const int64_t own = local_device_count();
  const std::vector<Shard> shards = addressable_shards(a.x);
  CHECK(static_cast<int64_t>(shards.size()) == own);
  for (int64_t d = 0; d < own; ++d) {
    const Shard& shard = shards[static_cast<size_t>(d)];
    const int64_t row = process_index() * a.rows + 2 * d;
    CHECK(shard.device == local_devices()[static_cast<size_t>(d)]);
    CHECK((shard.index == IndexBox{{row, row + 2}, {0, 3}}));
    CHECK(floats(shard.data) == floats(counting(row * 3, {2, 3})));
  }
  CHECK(floats(distributed::process_allgather(a.x)) == floats(counting(0, a.shape)));
}

// Compiled functions accept the array; eager operations on it are an error.
void check_computations(const RowSharded& a) {
  const auto same =
      jit([](const Array& x) { return 2.f * x + x; }, {.out_shardings = {NamedSharding(a.mesh, P("data"))}});
  CHECK(floats(process_local_data(same(a.x))) == floats(a.local * 3.f));
  const auto total = jit([](const Array& x) { return sum(x); });
  const auto column_sums =
      jit([](const Array& x) { return sum(x, 0); }, {.out_shardings = {NamedSharding(a.mesh, P())}});
  const float size = static_cast<float>(count(a.shape));
  CHECK(total(a.x).item<float>() == size * (size - 1) / 2);
  CHECK(floats(column_sums(a.x)) == floats(sum(counting(0, a.shape), 0)));
  for (const std::string& message :
       {message_of([&] { (a.x + a.x).to_vector<float>(); }), message_of([&] { sum(a.x).item<float>(); }),
        message_of([&] { a.x.to_vector<float>(); })}) {
    CHECK(has(message, "is sharded over several processes by P('data'), and none holds all of it; "));
    CHECK(has(message, "distributed::process_allgather"));
  }
}

// Sharded along the second dimension, and replicated.
void check_other_shardings(const Mesh& mesh) {
  const int64_t p = process_index(), devices = device_count(), own = local_device_count();
  const Shape wide{2, devices};
  std::vector<float> columns;
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t c = 0; c < own; ++c) columns.push_back(static_cast<float>(r * devices + p * own + c));
  const Array y = make_array_from_process_local_data({mesh, P({}, "data")}, Array::from(columns, {2, own}), wide);
  CHECK(floats(distributed::process_allgather(y)) == floats(counting(0, wide)));
  CHECK(floats(process_local_data(y)) == columns);
  const Array whole = make_array_from_process_local_data({mesh, P()}, counting(0, {4}), {4});
  CHECK(floats(process_local_data(whole)) == floats(counting(0, {4})));
  CHECK(static_cast<int64_t>(addressable_shards(whole).size()) == own);
}

void check_rows_that_do_not_divide(const Mesh& mesh) {
  const NamedSharding sharding(mesh, P("data"));
  const int64_t odd = device_count() + 1;
  const Range range = process_range(sharding, odd);
  const Array z = make_array_from_process_local_data(sharding, counting(range.begin, {range.size()}), {odd});
  CHECK(floats(distributed::process_allgather(z)) == floats(counting(0, {odd})));
  const auto total = jit([](const Array& x) { return sum(x); });
  CHECK(total(z).item<float>() == static_cast<float>(odd * (odd - 1) / 2));
}

void check_wrong_data(const RowSharded& a) {
  const std::string message = message_of([&] {
    make_array_from_process_local_data({a.mesh, P("data")}, counting(0, {a.rows + 1, 3}), a.shape);
  });
  CHECK(has(message, "make_array_from_process_local_data: the data is f32[" + std::to_string(a.rows + 1) +
                         ",3], but process " + std::to_string(process_index()) + " holds "));
  CHECK(has(message, "; pass that part"));
}

void check_pieces() {
  const RowSharded a;
  check_shards(a);
  check_computations(a);
  check_other_shardings(a.mesh);
  check_rows_that_do_not_divide(a.mesh);
  check_wrong_data(a);
}

void check_names() {
  const std::string message = message_of([] { distributed::sync(process_index() == 1 ? "there" : "here"); });
  CHECK(message.rfind("agree \"sync 0\": process 0 (host ", 0) == 0);
  CHECK(has(message, "differ at name 1:\n  process 0: here\n  process 1: there\n"));
  distributed::sync("and so on");  // later calls still work
}

}  // namespace

int main(int, char** argv) try {
  distributed::Options options;
  options.shutdown_timeout = options.first_collective_timeout = std::chrono::seconds(20);
  distributed::initialize(options);
  const std::string part = argv[1];
  if (part == "helpers")
    check_helpers();
  else if (part == "pieces")
    check_pieces();
  else if (part == "names")
    check_names();
  else
    return 2;
  distributed::shutdown();
  std::printf("fine\n");
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  distributed::report_failure(error.what());
  return 1;
}
