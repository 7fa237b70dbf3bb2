// Every user error throws Error with the operation, the fact with its values, and a remedy.
#include <limits>
#include <thread>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

TEST(Errors, Elementwise) {
  EXPECT_ERROR(
      ones({2, 3}) + ones({4}),
      "add: shapes [2, 3] and [4] do not broadcast: dimension -1 is 3 in one and 4 in another; make them equal, or "
      "one of them 1");
  EXPECT_ERROR(where(ones({2}), ones({3}), 0.f), "where: ");
  EXPECT_ERROR(ones({2}) & ones({2}), "operands f32[2] and f32[2]; bitwise operations need integers or bools");
  EXPECT_ERROR(ones({2}) << 1, "shifts need integers: use astype(x, i32)");
  EXPECT_ERROR(broadcast_to(ones({3}), {2}), "broadcast_to: shape [3] does not broadcast to [2]");
}

TEST(Errors, Products) {
  EXPECT_ERROR(
      dot(ones({2, 3}), ones({4, 5})),
      "dot: shapes [2, 3] and [4, 5] do not fit: dimension 1 of the first is 3, dimension 0 of the second is 4");
  EXPECT_ERROR(matmul(ones({2, 2, 3}), ones({3, 3, 4})), "matmul: ");
  EXPECT_ERROR(matmul(1.f, ones({2})), "include a scalar; use * to scale");
  EXPECT_ERROR(einsum("ij,jk->ik", ones({2, 3}), ones({4, 5})),
               "einsum: 'j' of \"ij,jk->ik\" is 3 in [2, 3] and 4 in [4, 5]; the extents must agree");
  EXPECT_ERROR(einsum("ij,jk->iz", ones({2, 3}), ones({3, 5})), "einsum: 'z' in the result of \"ij,jk->iz\"");
  EXPECT_ERROR(einsum("ij,jk->ik", ones({2, 3})), "has 2 terms for 1 operands");
  EXPECT_ERROR(einsum("ijk->i", ones({2, 3})), "einsum: term \"ijk\"");
  EXPECT_ERROR(tensordot(ones({2, 3}), ones({4, 3})), "tensordot: ");
  EXPECT_ERROR(tensordot(ones(Shape(27, 1)), ones(Shape(26, 1)), 0), "have 53 dimensions together, more than 52");
}

TEST(Errors, Reductions) {
  EXPECT_ERROR(sum(ones({2, 3}), 2), "sum: axis 2 is out of range for [2, 3]; valid axes: -2 to 1");
  EXPECT_ERROR(mean(ones({2, 3}), {0, -2}), "mean: axis 0 of [2, 3] is given twice; give each axis once");
  EXPECT_ERROR(max(zeros({0, 3}), 0), "max: dimension 0 of [0, 3] is empty; reduce over a nonempty dimension");
  EXPECT_ERROR(argmax(ones({2}), -2), "argmax: axis -2 is out of range for [2]");
  EXPECT_ERROR(cumsum(Array(1.f), 0), "cumsum: axis 0 is out of range; a scalar has no axes");
}

TEST(Errors, Rearranging) {
  EXPECT_ERROR(reshape(ones({2, 3}), {4, 2}),
               "reshape: [2, 3] has 6 elements, but [4, 2] has 8; the numbers must match");
  EXPECT_ERROR(reshape(ones({2, 3}), {4, -1}), "reshape: [2, 3] has 6 elements, not divisible into [4, -1]");
  EXPECT_ERROR(reshape(ones({2, 3}), {-1, -1}), "reshape: [-1, -1] has 2 extents of -1; only one can be inferred");
  EXPECT_ERROR(transpose(ones({2, 3}), {0}),
               "transpose: the permutation [0] has 1 axes, but [2, 3] has 2; list each axis once");
  EXPECT_ERROR(transpose(ones({2, 3}), {0, 0}), "transpose: axis 0 of [2, 3] is given twice");
  EXPECT_ERROR(slice(ones({4}), {0}, {4}, {0}), "slice: the stride of dimension 0 is 0; strides must be positive");
  EXPECT_ERROR(slice(ones({4}), {0, 0}, {4, 4}), "slice: 2 starts, 2 limits and 0 strides for [4]");
  EXPECT_ERROR(concatenate({ones({2, 3}), ones({2, 4})}, 0),
               "concatenate: shapes [2, 3] and [2, 4] along axis 0; all other dimensions must be equal");
  EXPECT_ERROR(concatenate({}), "concatenate: no arrays given; pass at least one");
  EXPECT_ERROR(stack({ones({2}), ones({3})}), "stack: shapes [2] and [3] differ; all arrays must have the same shape");
  EXPECT_ERROR(pad(ones({2, 2}), {{1, 1}}),
               "pad: 1 widths for [2, 2]; pass {before, after} for each of its 2 dimensions");
  EXPECT_ERROR(pad(ones({2}), {{1, 1}}, ones({2})), "pad: the value is f32[2]; it must be a scalar");
  EXPECT_ERROR(pad(ones({2}), {{-2, -1}}), "pad: ");
  EXPECT_ERROR(split(ones({5}), 2), "split: dimension 0 of [5] has extent 5, not divisible into 2 parts; use split_at");
  EXPECT_ERROR(squeeze(ones({2, 1}), 0),
               "squeeze: dimension 0 of [2, 1] has extent 2; only dimensions of extent 1 can be removed");
  EXPECT_ERROR(at(ones({3}), 3), "at: index 3 is out of range for dimension 0 of [3]; valid indices: -3 to 2");
  EXPECT_ERROR(dynamic_slice(ones({4}), {0}, {5}), "dynamic_slice: ");
  EXPECT_ERROR(dynamic_slice(ones({4}), {0, 0}, {2}),
               "dynamic_slice: 2 starts for [4]; pass one for each of its 1 dimensions");
  EXPECT_ERROR(dynamic_slice(ones({4}), {1.5f}, {2}), "dynamic_slice: the indices are f32[]; indices must be integers");
}

TEST(Errors, Indexing) {
  EXPECT_ERROR(take(ones({3}), ones({2})),
               "take: the indices are f32[2]; indices must be integers: use astype(indices, i32)");
  EXPECT_ERROR(take(ones({3}), array({0}), 1), "take: axis 1 is out of range for [3]");
  EXPECT_ERROR(take(zeros({0}), array({0})), "take: dimension 0 of [0] is empty; take needs at least one element");
  EXPECT_ERROR(scatter_add(ones({3}), array({0, 1}), ones({3})), "scatter_add: shape [3] does not broadcast to [2]");
  EXPECT_ERROR(take_along_axis(ones({2, 2}), array({0}), 0), "take_along_axis: indices [1] for x [2, 2]");
  EXPECT_ERROR(one_hot(ones({3}), 10), "one_hot: the labels are f32[3]; labels must be integers");
  EXPECT_ERROR(sort(ones({3}), 1), "sort: axis 1 is out of range for [3]");
  EXPECT_ERROR(top_k(ones({3}), 4), "top_k: k is 4, but the last dimension has 3 elements in [3]; valid k: 0 to 3");
}

TEST(Errors, Windows) {
  EXPECT_ERROR(conv2d(ones({2, 5, 5, 3}), ones({3, 3, 4, 8})),
               "conv2d: images [2, 5, 5, 3] do not fit filters [3, 3, 4, 8] with 1 groups: the images have 3 channels");
  EXPECT_ERROR(conv2d(ones({5, 5}), ones({3, 3, 1, 1})), "conv2d: the images are [5, 5]");
  EXPECT_ERROR(conv2d(ones({1, 5, 5, 1}), ones({3, 3})), "conv2d: the filters are [3, 3]");
  EXPECT_ERROR(conv2d(ones({1, 5, 5, 1}), ones({3, 3, 1, 1}), {.stride = 0}), "conv2d: ");
  EXPECT_ERROR(conv2d(ones({1, 2, 2, 1}), ones({3, 3, 1, 1}), {.padding = "VALID"}), "conv2d: ");
  EXPECT_ERROR(conv2d(ones({1, 5, 5, 1}), ones({3, 3, 1, 1}), {.padding = "FULL"}), "FULL");
  EXPECT_ERROR(max_pool(ones({5, 5})), "max_pool: the images are [5, 5]");
  EXPECT_ERROR(max_pool(ones({1, 2, 2, 1}), {.window = 3}), "max_pool: the window [3, 3] spans 3");
}

TEST(Errors, Random) {
  EXPECT_ERROR(
      random::normal(ones({2}), {3}),
      "random::normal: the key is f32[2]; a key is u32[2], or u32[4] for philox: create one with random::key(seed)");
  EXPECT_ERROR(random::uniform(random::key(0), {3}, 0, 1, i32), "random::uniform: dtype i32 is not floating");
  EXPECT_ERROR(random::randint(random::key(0), {3}, 0.f, 1.f),
               "random::randint: bounds f32[] and f32[]; they must be integers");
  EXPECT_ERROR(random::bits(random::key(0), {-1}), "extent -1");
}

TEST(Errors, Creation) {
  EXPECT_ERROR(Array::from(std::vector<float>{1, 2, 3}, {2, 2}),
               "array: 3 values for shape [2, 2], which has 4 elements");
  EXPECT_ERROR(array({{1, 2}, {3}}), "array: ragged lists: one has 1 elements, another 2");
  EXPECT_ERROR(zeros({2, -1}), "shape: extent -1 in [2, -1] is negative");
  EXPECT_ERROR(zeros({int64_t{1} << 40, int64_t{1} << 40}), "has more than 2^58 elements");
  EXPECT_ERROR(arange(0, 5, 0), "arange: the step is 0");
  EXPECT_ERROR(array({1, 300}, u8), "array: 300 is out of range for u8 (0 to 255); use another number");
  EXPECT_ERROR(array({1.0, 1e20}, i64), "array: 1e+20 is out of range for i64 (-9223372036854775808 to ");
  EXPECT_ERROR(full({2}, -1, u32), "full: -1 is out of range for u32 (0 to 4294967295)");
  EXPECT_ERROR(full({2}, 3e9, i32), "full: 3000000000 is out of range for i32 (-2147483648 to 2147483647)");
  EXPECT_ERROR(full({2}, std::numeric_limits<double>::quiet_NaN(), i32), "full: nan is out of range for i32");
  EXPECT_ERROR(zeros({2}, u8) + 256, "add: 256 is out of range for u8");
  EXPECT_ERROR(Array(uint64_t{1} << 63),
               "array: 9223372036854775808 is more than 9223372036854775807, the largest i64");
}

TEST(Errors, OutOfMemoryReportsRequestedAndAvailable) {
  const bool gpu = platform() == Platform::cuda;
  EXPECT_THROWS(zeros({1 << 20, 1 << 20}), OutOfMemory, gpu ? "cuda: 4096.00 GiB requested" : "4398046511104 bytes");
  EXPECT_THROWS(zeros({1 << 20, 1 << 20}), OutOfMemory, gpu ? " are free; " : " in use, limit ");
  EXPECT_THROWS(jit([](Array x) {
                  return sum(broadcast_to(sin(x), {1 << 20, 1 << 20}), 0) + dot(ones({1 << 20, 1 << 20}), x);
                })(ones({1 << 20})),
                OutOfMemory, gpu ? "GiB requested" : "bytes requested");
  EXPECT_TEXT(zeros({2}) + 1.f, "f32[2] [1, 1]");
}

TEST(Errors, EmptyArrays) {
  const Array empty;
  EXPECT_FALSE(empty.defined());
  EXPECT_EQ(empty.to_string(), "(empty)");
  EXPECT_ERROR(empty.shape(), "array: the array is empty; assign it before use");
  EXPECT_ERROR(empty + 1, "empty");
  EXPECT_ERROR(empty.item<float>(), "item: the array is empty; assign it before use");
  EXPECT_ERROR(sum(empty), "empty");
  EXPECT_ERROR(reshape(empty, {1}), "empty");
  EXPECT_ERROR(concatenate({ones({1}), empty}), "empty");
  EXPECT_ERROR(jit([](Array x) { return x; })(empty), "empty");
  EXPECT_ERROR(jit([](Array) { return Array(); })(1), "jit: result 0 is an empty Array; assign it before returning it");
  EXPECT_ERROR(grad([](Array x) { return x; })(empty), "empty");
  EXPECT_ERROR(vmap([](Array x) { return x; })(empty), "empty");
  EXPECT_ERROR(scan([](Array c, Array x) { return std::pair{c, x}; }, empty, ones({2})), "empty");
}

TEST(Errors, Access) {
  EXPECT_ERROR(ones({2}).item<float>(), "item: the array is f32[2], with 2 elements; item() needs exactly one");
  const Array two = ones({2});
  EXPECT_ERROR(two.data<int>(), "data: the array is f32[2], not i32; use to_vector(), which converts");
  EXPECT_ERROR(ones({2, 3}).shape(2), "shape: axis 2 is out of range for [2, 3]; valid axes: -2 to 1");
  EXPECT_ERROR(static_cast<bool>(ones({2})), "bool: branch on the array f32[2], with 2 elements; use any() or all()");
}

TEST(Errors, GradOfNonDifferentiableValues) {
  EXPECT_ERROR(
      grad([](Array x) { return x * x; })(ones({3})),
      "grad: the function returned f32[3]; a gradient needs a scalar: reduce it with mean() or sum(), or use vjp");
  EXPECT_ERROR(grad([](Array x) { return sum(x > 0.f); })(ones({3})),
               "grad: the function returned i32[]; a gradient needs a floating result");
  EXPECT_ERROR(grad([](Array x) { return sum(x * 1.f); })(array({1, 2})),
               "grad: argument 0 is i32[2], which has no gradient; convert it to a floating type, or differentiate "
               "with respect to "
               "other arguments: grad<1>(f)");
  struct Params {
    std::vector<Array> layers;
  };
  EXPECT_ERROR(grad<1>([](Array x, Params) { return x; })(1.f, Params{{ones({1}), array({1})}}),
               "grad: argument 1, layers/1 is i32[1]");
}

TEST(Errors, DonatedArrays) {
  const auto f = jit([](Array x) { return x + 1.f; }, {.donate = {0}});
  const Array x = ones({2});
  f(x);
  const char* message = "the array f32[2] was donated to a compiled function, whose result reuses its memory";
  EXPECT_ERROR(x + 1.f, message);
  EXPECT_ERROR(x.to_vector<float>(), message);
  EXPECT_ERROR(x.data<float>(), message);
  EXPECT_ERROR(f(x), message);
  EXPECT_ERROR(jit([&x](Array y) { return x + y; })(1.f), message);
  EXPECT_ERROR(grad([](Array y) { return sum(y); })(x), message);
}

TEST(Errors, ArraysThatEscapeTheirTrace) {
  Array escaped;
  jit([&escaped](Array x) { return escaped = x * 2.f; })(ones({2}));
  EXPECT_TRUE(escaped.is_traced());
  EXPECT_EQ(escaped.to_string(), "f32[2] (traced)");
  const char* message =
      "the array f32[2] was created while another function was traced, and that trace has ended; return it from the "
      "function";
  EXPECT_ERROR(escaped + 1.f, message);
  EXPECT_ERROR(jit([&escaped](Array x) { return x + escaped; })(ones({2})), message);
  EXPECT_ERROR(grad([&escaped](Array x) { return sum(x * escaped); })(ones({2})), message);
  EXPECT_ERROR(jit([&escaped](Array) { return escaped; })(1), message);
  EXPECT_ERROR(jit([](Array x) { return x; })(escaped), message);
  EXPECT_ERROR(grad([](Array x) { return sum(x); })(escaped), message);
  EXPECT_ERROR(escaped.to_vector<float>(), message);
  Array from_grad;
  jit([&](Array x) {
    grad([&](Array y) { return from_grad = y * y; })(x);
    return x;
  })(2.f);
  EXPECT_ERROR(from_grad + 1.f, "f32[] was created while another function was traced");
}

TEST(Errors, TracedArraysBelongToTheirThread) {
  std::string add, item;
  jit([&](Array x) {
    std::thread([&] {
      const auto message_of = [](const auto& f) -> std::string {
        try {
          f();
        } catch (const Error& error) {
          return error.what();
        }
        return "";
      };
      add = message_of([&] { x + 1; });
      item = message_of([&] { x.item<float>(); });
    }).join();
    return x;
  })(ones({2}));
  const char* message =
      "the array f32[2] belongs to a function that another thread is tracing; use it on that thread, or return it from "
      "the "
      "function and share the result";
  EXPECT_NE(add.find(std::string("add: ") + message), add.npos) << add;
  EXPECT_NE(item.find(std::string("item: ") + message), item.npos) << item;
}

TEST(Errors, TracedArraysHaveNoValues) {
  const Array x = ones({2});
  EXPECT_ERROR(
      jit([](Array y) { return sum(y) > 0.f ? y : -y; })(x),
      "bool: branch on the traced array bool[], which has no value while the function is traced; use where() to "
      "select elements, cond() to choose a computation");
  EXPECT_ERROR(
      jit([](Array y) { return Array(sum(y).item<float>()); })(x),
      "item: the array f32[] is traced: it has no value while jit, grad or vmap trace the function; return it");
  EXPECT_ERROR(grad([](Array y) { return Array(y.data<float>()[0]); })(x), "data: the array f32[2] is traced");
  EXPECT_ERROR(vmap([](Array y) { return Array(y.to_vector<float>()[0]); })(x), "to_vector: the array f32[] is traced");
}

TEST(Errors, Vmap) {
  const auto f = [](Array x, Array y) { return x + y; };
  EXPECT_ERROR(
      vmap(f)(ones({2}), ones({3})),
      "vmap: argument 1 is f32[3], 3 along axis 0, but an earlier argument has 2; mapped axes must have equal extents");
  EXPECT_ERROR(vmap(f)(ones({2}), 1.f),
               "vmap: argument 1 is f32[] and has no axis 0; set its in_axes to std::nullopt to share it");
  EXPECT_ERROR(vmap(f, {.in_axes = {-2, 0}})(ones({2}), ones({2})), "vmap: argument 0 is f32[2] and has no axis -2");
  EXPECT_ERROR(vmap(f, {.in_axes = {0, 0, 0}})(ones({2}), ones({2})), "vmap: in_axes has 3 entries for 2 arguments");
  EXPECT_ERROR(vmap(f, {.in_axes = {std::nullopt, std::nullopt}})(1.f, 2.f), "vmap: no argument is mapped");
  EXPECT_ERROR(vmap(f, {.out_axes = 1})(ones({2}), ones({2})),
               "vmap: a batched result is f32[2], for which out_axes 1 is out of range");
  EXPECT_ERROR(vmap(f, {.out_axes = -2})(ones({2}), ones({2})), "out_axes -2 is out of range");
  struct Params {
    std::vector<Array> layers;
  };
  EXPECT_ERROR(vmap([](Params p) { return p; })(Params{{ones({2}), ones({3})}}),
               "vmap: argument 0, layers/1 is f32[3]");
}

TEST(Errors, Scan) {
  EXPECT_ERROR(scan(
                   [](Array c, Array x) {
                     return std::pair{c + x, x};
                   },
                   zeros({}, i32), ones({2})),
               "scan: the body receives array 0 of the carry as i32[] and returns f32[]; it must keep the type");
  EXPECT_ERROR(scan(
                   [](std::vector<Array> c, Array) {
                     return std::pair{std::vector<Array>{c[0], c[0]}, Nothing{}};
                   },
                   std::vector<Array>{1}, ones({2})),
               "scan: the body receives a carry of 1 arrays and returns one of 2");
  const auto keep = [](Array c, auto x) { return std::pair{c, x}; };
  EXPECT_ERROR(scan(keep, Array(0), Array(1.f)), "scan: an array of xs is f32[], a scalar");
  EXPECT_ERROR(scan(keep, Array(0), std::pair{ones({2}), ones({3})}),
               "scan: an array of xs is f32[3], but the length is 2");
  EXPECT_ERROR(scan(keep, Array(0), ones({2}), {.length = 3}), "scan: an array of xs is f32[2], but the length is 3");
  EXPECT_ERROR(scan(keep, Array(0), Nothing{}), "scan: neither xs nor a length is given; pass {.length = n}");
}

struct Counted {
  Array x;
  int rounds = 0;
  float rate = 1;
};
using Named = std::map<std::string, Array>;

// Static values cannot depend on arrays, and trees are never matched by position alone.
TEST(Errors, StaticValuesThatChange) {
  EXPECT_ERROR(fori_loop(
                   0, 3,
                   [](Array, Counted c) {
                     return Counted{c.x * c.rate, c.rounds + 1, c.rate};
                   },
                   Counted{1.f}),
               "scan: at rounds: 0 in the initial carry and 1 in the returned carry; a value that changes between "
               "iterations must be an Array");
  EXPECT_ERROR(fori_loop(
                   0, 3,
                   [](Array, Counted c) {
                     return Counted{c.x, c.rounds, c.rate * .5f};
                   },
                   Counted{1.f}),
               "scan: at rate: 1 in the initial carry and 0.5 in");
  EXPECT_NO_THROW(fori_loop(
      0, 3,
      [](Array, Counted c) {
        return Counted{c.x * 2.f, c.rounds, c.rate};
      },
      Counted{1.f, 4}));
  EXPECT_ERROR(
      cond(
          false,
          [](Array x) {
            return std::pair{x, 1};
          },
          [](Array x) {
            return std::pair{x, 2};
          },
          ones({2})),
      "cond: at 1: 1 in one branch's result and 2 in the other's; a value that depends on the predicate must be "
      "an Array");
}

TEST(Errors, TreesWithDifferentKeys) {
  const auto add = [](Array x, Array y) { return x + y; };
  EXPECT_ERROR(tree_map(add, Named{{"a", 1}}, Named{{"zzz", 2}}),
               "tree_map: key \"a\" in one tree and key \"zzz\" in another; the trees must have the same");
  using Two = std::pair<std::vector<Array>, std::vector<Array>>;
  EXPECT_ERROR(tree_map(add, Two{{1}, {2, 3}}, Two{{1, 2}, {3}}),
               "tree_map: at 0: 1 element in one tree and 2 elements in another");
  EXPECT_ERROR(cond(
                   true,
                   [](Array x) {
                     return Named{{"a", x}};
                   },
                   [](Array x) {
                     return Named{{"b", x}};
                   },
                   ones({2})),
               "cond: key \"a\" in one branch's result and key \"b\" in the other's");
  EXPECT_ERROR(scan(
                   [](Named, Array x) {
                     return std::pair{Named{{"b", x}}, x};
                   },
                   Named{{"a", 1.f}}, ones({2})),
               "scan: key \"a\" in the initial carry and key \"b\" in");
  const auto named = vjp([](Array x) { return Named{{"a", x}}; }, ones({2}));
  EXPECT_ERROR(named.second(Named{{"x", ones({2})}}), "vjp: key \"a\" in one tree and key \"x\" in another");
  // Trees of different types are matched leaf by leaf.
  EXPECT_EQ(tree_map(add, std::pair{Array(1), Array(2)}, std::vector<Array>{3, 4}).second.item<int>(), 6);
}

TEST(Errors, Cond) {
  const auto same = [](Array x) { return x; };
  EXPECT_ERROR(cond(
                   true, same, [](Array x) { return astype(x, i32); }, ones({2})),
               "cond: result 0 is f32[2] in one branch and i32[2] in the other; the branches must agree");
  EXPECT_ERROR(cond(ones({2}) > 0.f, same, same, ones({2})),
               "cond: the predicate is bool[2]; it must be a bool scalar");
  EXPECT_ERROR(cond(1.f, same, same, ones({2})), "cond: the predicate is f32[]; it must be a bool scalar");
  EXPECT_ERROR(
      cond(
          true, [](Array x) { return std::vector<Array>{x}; }, [](Array) { return std::vector<Array>{}; }, ones({2})),
      "cond: one branch returns 1 arrays, the other 0");
}

TEST(Errors, Vjp) {
  const auto [y, pullback] = vjp([](Array x) { return x * x; }, ones({2}));
  EXPECT_ERROR(pullback(ones({3})),
               "vjp: cotangent 0 is f32[3], but the result is f32[2]; a cotangent has its result's type");
  EXPECT_ERROR(pullback(ones({2}, f64)), "vjp: cotangent 0 is f64[2], but the result is f32[2]");
  const auto [ys, pull] = vjp([](Array x) { return std::vector<Array>{x}; }, ones({2}));
  EXPECT_ERROR(pull({ones({2}), ones({2})}), "vjp: one tree has 1 arrays, another 2");
}

}  // namespace
}  // namespace lockstep
