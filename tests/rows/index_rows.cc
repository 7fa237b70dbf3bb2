// References and samples of the rows that move elements to or from positions given as data, and of random bits.
#include <numeric>

#include "rows/rows.h"

namespace lockstep {
namespace {

// The index in x [B..., pre..., N, post...] that belongs to index `at` of the slices [B..., pre..., I..., post...]. Its
// entry `axis` is the unclamped value from `indices`.
Dims index_in_x(const Dims& at, const RefArray& indices, const Attrs& attrs) {
  const int64_t axis = attrs.integer("axis"), batch_dims = attrs.integer("batch_dims");
  const int64_t places = indices.type.rank() - batch_dims;
  Dims which(at.begin(), at.begin() + batch_dims);
  which.insert(which.end(), at.begin() + axis, at.begin() + axis + places);
  Dims in_x(at.begin(), at.begin() + axis);
  in_x.push_back(static_cast<int64_t>(indices.at(which)));
  in_x.insert(in_x.end(), at.begin() + axis + places, at.end());
  return in_x;
}

void add_gathers(std::vector<Row>& out) {
  Row gather{&gather_op,
             [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
               const auto axis = static_cast<size_t>(attrs.integer("axis"));
               for_each_index(y[0].shape(), [&](const Dims& at, int64_t) {
                 Dims from = index_in_x(at, in[1], attrs);
                 from[axis] = std::clamp<int64_t>(from[axis], 0, in[0].shape()[axis] - 1);
                 y[0].at(at) = in[0].at(from);
               });
             },
             {},
             true};
  Row scatter{&scatter_add_op,
              [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
                const auto axis = static_cast<size_t>(attrs.integer("axis"));
                y[0].data = in[0].data;
                for_each_index(in[2].shape(), [&](const Dims& at, int64_t i) {
                  const Dims to = index_in_x(at, in[1], attrs);
                  if (to[axis] >= 0 && to[axis] < in[0].shape()[axis])
                    y[0].at(to) += in[2].data[static_cast<size_t>(i)];
                });
              },
              {}};
  auto add = [&](DType t, const Shape& x, const Type& indices, int64_t axis, int64_t batch_dims) {
    const auto n = static_cast<double>(x[static_cast<size_t>(axis)]);
    const Attrs attrs{{"axis", axis}, {"batch_dims", batch_dims}};
    const SampleOperand index{indices, {Domain::real, -1, n}};
    Shape slices(x.begin(), x.begin() + axis);
    slices.insert(slices.end(), indices.shape.begin() + batch_dims, indices.shape.end());
    slices.insert(slices.end(), x.begin() + axis + 1, x.end());
    if (n > 0) gather.samples.push_back({{{{t, x}}, index}, attrs});
    if (t != boolean) scatter.samples.push_back({{{{t, x}}, index, {{t, slices}}}, attrs});
  };
  add(f32, {5}, {i32, {3}}, 0, 0);
  add(f32, {4, 3}, {i32, {6}}, 0, 0);
  add(f32, {4, 3}, {i64, {2, 2}}, 1, 0);
  add(f64, {2, 4, 3}, {u32, {2, 5}}, 1, 1);
  add(f32, {2, 3, 4, 2}, {i32, {2}}, 2, 0);
  add(f64, {2, 3, 4}, {i32, {2, 5}}, 2, 1);
  add(bf16, {6, 2}, {i32, {}}, 0, 0);
  add(f16, {2, 3}, {i32, {2, 3}}, 1, 1);
  add(i32, {7}, {i32, {20}}, 0, 0);
  add(i64, {3, 2}, {i32, {4}}, 0, 0);
  add(u8, {5}, {i32, {0}}, 0, 0);
  add(boolean, {4, 0}, {i32, {3}}, 0, 0);
  add(u32, {0, 2}, {i32, {3}}, 0, 0);
  add(f32, {12, 2, 5, 4}, {i32, {12, 4}}, 2, 1);
  add(f32, {300, 40}, {i32, {500}}, 0, 0);
  // GPUs sort the indices: with few updates of each row, and with long runs.
  add(f32, {1100, 40}, {i32, {1000}}, 0, 0);
  add(bf16, {200, 72}, {u32, {2400}}, 0, 0);
  add(f64, {2, 2, 160, 15}, {i64, {2, 3600}}, 2, 1);
  out.push_back(std::move(gather));
  out.push_back(std::move(scatter));
}

Real scattered(const std::string& how, Real x, Real update) {
  if (how == "set") return update;
  if (how == "multiply") return x * update;
  if (std::isnan(x) || std::isnan(update)) return std::isnan(x) ? x : update;
  return how == "min" ? std::min(x, update) : std::max(x, update);
}

void add_scatter_row(std::vector<Row>& out) {
  Row scatter{&scatter_op,
              [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
                const auto axis = static_cast<size_t>(attrs.integer("axis"));
                y[0].data = in[0].data;
                for_each_index(in[2].shape(), [&](const Dims& at, int64_t i) {
                  const Dims to = index_in_x(at, in[1], attrs);
                  if (to[axis] < 0 || to[axis] >= in[0].shape()[axis]) return;
                  Real& x = y[0].at(to);
                  x = scattered(attrs.get<std::string>("how"), x, in[2].data[static_cast<size_t>(i)]);
                });
              },
              {},
              true};
  auto add = [&](const char* how, DType t, const Shape& x, const Type& indices, int64_t axis, int64_t batch_dims,
                 Domain domain = {}, int64_t most = -1) {
    const Domain places{Domain::real, -1, static_cast<double>(most < 0 ? x[static_cast<size_t>(axis)] : most)};
    const Attrs attrs{{"axis", axis}, {"batch_dims", batch_dims}, {"how", std::string(how)}, {"unique", false}};
    Shape slices(x.begin(), x.begin() + axis);
    slices.insert(slices.end(), indices.shape.begin() + batch_dims, indices.shape.end());
    slices.insert(slices.end(), x.begin() + axis + 1, x.end());
    scatter.samples.push_back({{{{t, x}, domain}, {indices, places}, {{t, slices}, domain}}, attrs});
  };
  for (const char* how : {"set", "multiply", "min", "max"}) {
    add(how, f32, {5}, {i32, {3}}, 0, 0);
    add(how, f64, {4, 3}, {i64, {2, 4}}, 1, 0);
    add(how, f64, {2, 4, 3}, {u32, {2, 5}}, 1, 1);
    add(how, f32, {2, 3, 4, 2}, {i32, {2}}, 2, 0);
    add(how, f16, {2, 3}, {i32, {2, 3}}, 1, 1);
    add(how, bf16, {6, 2}, {i32, {}}, 0, 0);
    add(how, i32, {7}, {i32, {20}}, 0, 0);
    add(how, u8, {5}, {i32, {0}}, 0, 0);
    add(how, u32, {0, 2}, {i32, {3}}, 0, 0);
    add(how, f32, {12, 2, 5, 4}, {i32, {12, 4}}, 2, 1);
    // GPUs sort the indices: with few updates of each row, and with long runs. Factors are near 1.
    const Domain factors{Domain::real, 0.9, 1.1};
    add(how, f32, {1100, 40}, {i32, {1000}}, 0, 0, factors);
    add(how, f64, {200, 72}, {u32, {2400}}, 0, 0, factors, 30);
    add(how, f32, {2, 2, 160, 15}, {i64, {2, 3600}}, 2, 1, factors);
  }
  add("set", boolean, {4, 2}, {i32, {9}}, 0, 0);
  add("max", boolean, {4}, {i32, {6}}, 0, 0);
  add("min", boolean, {4}, {i32, {6}}, 0, 0);
  out.push_back(std::move(scatter));
}

// Positions along a line in the order of `key`, stable, NaN greatest.
std::vector<size_t> sorted_order(const std::vector<Real>& key, bool descending) {
  std::vector<size_t> order(key.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (std::isnan(key[a]) || std::isnan(key[b]))
      return std::isnan(key[descending ? a : b]) && !std::isnan(key[descending ? b : a]);
    return descending ? key[a] > key[b] : key[a] < key[b];
  });
  return order;
}

void add_sort_row(std::vector<Row>& out) {
  Row sort{&sort_op,
           [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
             const auto axis = static_cast<size_t>(attrs.integer("axis"));
             Shape lines = in[0].shape();
             const int64_t n = lines[axis];
             lines[axis] = 1;
             if (n == 0) return;
             for_each_index(lines, [&](Dims at, int64_t) {
               std::vector<Real> key;
               for (at[axis] = 0; at[axis] < n; ++at[axis]) key.push_back(in[0].at(at));
               const std::vector<size_t> order = sorted_order(key, attrs.get<bool>("descending"));
               for (size_t k = 0; k < in.size(); ++k)
                 for (int64_t i = 0; i < n; ++i) {
                   Dims from = at;
                   from[axis] = static_cast<int64_t>(order[static_cast<size_t>(i)]);
                   at[axis] = i;
                   y[k].at(at) = in[k].at(from);
                 }
             });
           },
           {},
           true};
  auto add_sort = [&](std::vector<SampleOperand> in, int64_t axis, bool descending, bool smooth = true) {
    sort.samples.push_back({std::move(in), {{"axis", axis}, {"descending", descending}}, smooth});
  };
  const Domain distinct{Domain::distinct}, ties{Domain::ties}, special{Domain::special};
  add_sort({{{f32, {7}}, distinct}}, 0, false);
  add_sort({{{f32, {3, 5}}, distinct}, {{f32, {3, 5}}}}, 1, true);
  add_sort({{{f64, {4, 2, 3}}, distinct}, {{i32, {4, 2, 3}}}, {{f32, {4, 2, 3}}}}, 0, false);
  for (DType t : kAllDTypes) add_sort({{{t, {2, 9}}, ties}, {{i32, {2, 9}}, distinct}}, 1, t == i32, false);
  add_sort({{{i64, {9}}, special}}, 0, true, false);
  add_sort({{{u32, {9}}, special}}, 0, false, false);
  add_sort({{{f32, {2, 0}}}}, 1, false);
  add_sort({{{f32, {0, 2}}}}, 1, false);
  add_sort({{{bf16, {6, 1}}, distinct}}, 0, true);
  add_sort({{{f32, {12, 3, 4}}, distinct}, {{i32, {12, 3, 4}}}}, 1, false);
  add_sort({{{f32, {30, 700}}}}, 1, false);
  add_sort({{{f32, {2, 5000}}, ties}, {{i32, {2, 5000}}}}, 1, true, false);
  add_sort({{{i64, {9000, 1}}}, {{u8, {9000, 1}}}}, 0, false, false);
  add_sort({{{f16, {2500, 3}}}}, 0, false, false);
  out.push_back(std::move(sort));
}

void add_top_k_row(std::vector<Row>& out) {
  Row top{&top_k_op,
          [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
            const int64_t k = attrs.integer("k"), n = in[0].shape().back();
            const size_t lines = n == 0 ? 0 : in[0].data.size() / static_cast<size_t>(n);
            for (size_t line = 0; line < lines; ++line) {
              const auto from = in[0].data.begin() + static_cast<std::ptrdiff_t>(line * static_cast<size_t>(n));
              const std::vector<Real> key(from, from + n);
              const std::vector<size_t> order = sorted_order(key, true);
              for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
                y[0].data[line * static_cast<size_t>(k) + i] = key[order[i]];
                y[1].data[line * static_cast<size_t>(k) + i] = static_cast<Real>(order[i]);
              }
            }
          },
          {},
          true};
  const Domain distinct{Domain::distinct}, ties{Domain::ties};
  auto add_top = [&](Type t, int64_t k, Domain domain, bool smooth) {
    top.samples.push_back({{{std::move(t), domain}}, {{"k", k}}, smooth});
  };
  add_top({f32, {8}}, 3, distinct, true);
  add_top({f64, {2, 3, 6}}, 6, distinct, true);
  add_top({i32, {3, 10}}, 4, ties, false);
  add_top({bf16, {3, 5}}, 1, ties, false);
  add_top({f16, {4}}, 0, distinct, true);
  add_top({u8, {0, 4}}, 2, ties, false);
  add_top({f32, {12, 4, 5}}, 2, distinct, true);
  add_top({f32, {40, 500}}, 20, {}, true);
  add_top({f32, {3, 7000}}, 5, {}, false);
  add_top({bf16, {2, 5000}}, 3000, ties, false);
  add_top({f64, {4100}}, 4100, {}, false);
  out.push_back(std::move(top));
}

uint32_t word(Real x) { return static_cast<uint32_t>(x); }

void add_random(std::vector<Row>& out) {
  const Domain words{Domain::real, 0, 4294967295.0};
  Row bits{&random_bits_op,
           [](const RefArrays& in, const Attrs&, RefArrays& y) {
             const auto key_words = static_cast<size_t>(in[0].shape().back());  // of a key
             const size_t keys = in[0].data.size() / key_words;
             const size_t each = keys == 0 ? 0 : y[0].data.size() / keys;
             for (size_t k = 0; k < keys; ++k)
               for (size_t i = 0; i < each; ++i) {
                 const auto key_word = [&](size_t w) { return word(in[0].data[key_words * k + w]); };
                 Real& bits_of_i = y[0].data[k * each + i];
                 if (key_words == 4) {
                   bits_of_i = philox_block({key_word(0), key_word(1)},
                                            {static_cast<uint32_t>(i / 4), 0, key_word(2), key_word(3)})[i % 4];
                   continue;
                 }
                 const auto [a, b] = threefry_block(key_word(0), key_word(1), 0, static_cast<uint32_t>(i));
                 bits_of_i = a ^ b;
               }
           },
           {},
           true};
  auto add_bits = [&](Shape keys, Shape shape) {
    bits.samples.push_back({{{{u32, std::move(keys)}, words}}, {{"shape", std::move(shape)}}});
  };
  add_bits({2}, {5});
  add_bits({2}, {});
  add_bits({3, 2}, {4, 3});
  add_bits({2}, {0, 3});
  add_bits({0, 2}, {3});
  add_bits({12, 4, 2}, {3});
  add_bits({2}, {150, 200});
  add_bits({4}, {5});
  add_bits({4}, {});
  add_bits({3, 4}, {4, 3});
  add_bits({4}, {7, 6});
  add_bits({4}, {3, 5, 4});
  add_bits({4}, {8, 3, 8});
  add_bits({4}, {0, 3});
  add_bits({0, 4}, {3});
  add_bits({5, 4}, {8});
  add_bits({12, 4, 4}, {3});
  add_bits({4}, {151, 201});
  out.push_back(std::move(bits));

  Row cipher{&threefry_op,
             [](const RefArrays& in, const Attrs&, RefArrays& y) {
               const size_t n = in[1].data.size(), keys = in[0].data.size() / 2;
               for (size_t i = 0; i < n; ++i) {
                 const size_t k = i / (n / keys);
                 const auto [a, b] = threefry_block(word(in[0].data[2 * k]), word(in[0].data[2 * k + 1]),
                                                    word(in[1].data[i]), word(in[2].data[i]));
                 y[0].data[i] = a;
                 y[1].data[i] = b;
               }
             },
             {},
             true};
  auto add_cipher = [&](const Shape& keys, const Shape& counters) {
    cipher.samples.push_back({{{{u32, keys}, words}, {{u32, counters}, words}, {{u32, counters}, words}}, {}});
  };
  add_cipher({2}, {7});
  add_cipher({2}, {});
  add_cipher({3, 2}, {3, 4});
  add_cipher({2}, {0});
  add_cipher({12, 2}, {12, 4, 6});
  add_cipher({2}, {40, 500});
  out.push_back(std::move(cipher));
}

}  // namespace

std::pair<uint32_t, uint32_t> threefry_block(uint32_t k0, uint32_t k1, uint32_t a, uint32_t b) {
  const uint32_t key[3] = {k0, k1, k0 ^ k1 ^ 0x1bd11bdau};
  const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  a += key[0];
  b += key[1];
  for (uint32_t round = 0; round < 20; ++round) {
    const int r = rotations[round % 8];
    a += b;
    b = (b << r) | (b >> (32 - r));
    b ^= a;
    if (round % 4 != 3) continue;
    const uint32_t s = round / 4 + 1;
    a += key[s % 3];
    b += key[(s + 1) % 3] + s;
  }
  return {a, b};
}

std::array<uint32_t, 4> philox_block(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{counter[0]} * 0xD2511F53, right = uint64_t{counter[2]} * 0xCD9E8D57;
    counter = {static_cast<uint32_t>(right >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(right),
               static_cast<uint32_t>(left >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(left)};
    key[0] += 0x9E3779B9;  // the golden ratio
    key[1] += 0xBB67AE85;  // the square root of 3, less 1
  }
  return counter;
}

void add_index_rows(std::vector<Row>& out) {
  add_gathers(out);
  add_scatter_row(out);
  add_sort_row(out);
  add_top_k_row(out);
  add_random(out);
}

}  // namespace lockstep
