// References and samples of matrices in 8-bit floats and their products.
#include <algorithm>
#include <cmath>

#include "rows/rows.h"

namespace lockstep {
namespace {

constexpr Domain kScales{Domain::real, 0.25, 4};

void add_quantize_row(std::vector<Row>& out) {
  Row row{&quantize_op,
          [](const RefArrays& in, const Attrs&, RefArrays& y) {
            const int64_t m = in[0].shape()[0], k = in[0].shape()[1];
            const Real most = y[0].type.dtype == f8_e4m3 ? Float8E4M3::kMax : Float8E5M2::kMax;
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < k; ++j) {
                const Real x = in[0].at({i, j});
                y[0].at({i, j}) = y[1].at({j, i}) = std::clamp(x / in[1].data[0], -most, most);
                if (!std::isnan(y[2].data[0]) && !(std::abs(x) <= y[2].data[0]))
                  y[2].data[0] = std::abs(x);  // NaN stays
              }
          },
          {}};
  const auto add = [&](DType from, Shape shape, DType to, Domain domain = {}) {
    row.samples.push_back({{{{from, std::move(shape)}, domain}, {{f32, {}}, kScales}}, {{"dtype", to}}});
  };
  add(f32, {12, 12}, f8_e4m3);
  add(bf16, {5, 7}, f8_e5m2);
  add(f16, {64, 16}, f8_e4m3);
  add(bf16, {130, 300}, f8_e4m3, {Domain::real, -500, 500});
  add(f32, {1, 1}, f8_e5m2, {Domain::real, -1e-4, 1e-4});
  add(f32, {0, 3}, f8_e4m3);
  add(bf16, {3, 0}, f8_e4m3);
  out.push_back(std::move(row));
}

void add_product_row(std::vector<Row>& out) {
  Row row{&scaled_product_op,
          [](const RefArrays& in, const Attrs&, RefArrays& y) {
            const int64_t m = in[0].shape()[0], n = in[1].shape()[0], k = in[0].shape()[1];
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                Real sum = 0;
                for (int64_t p = 0; p < k; ++p) sum += in[0].at({i, p}) * in[1].at({j, p});
                y[0].at({i, j}) = sum * in[2].data[0] * in[3].data[0];
              }
          },
          {}};
  const auto add = [&](DType a, DType b, int64_t m, int64_t n, int64_t k, DType to) {
    row.samples.push_back(
        {{{{a, {m, k}}}, {{b, {n, k}}}, {{f32, {}}, kScales}, {{f32, {}}, kScales}}, {{"dtype", to}}});
  };
  add(f8_e4m3, f8_e4m3, 12, 12, 12, f32);
  add(f8_e4m3, f8_e4m3, 32, 48, 64, bf16);
  add(f8_e5m2, f8_e4m3, 5, 7, 9, bf16);
  add(f8_e4m3, f8_e5m2, 16, 16, 32, f16);
  add(f8_e4m3, f8_e4m3, 130, 70, 200, f32);
  add(f8_e4m3, f8_e4m3, 3, 4, 0, f32);
  add(f8_e4m3, f8_e4m3, 0, 4, 2, f32);
  out.push_back(std::move(row));
}

}  // namespace

void add_float8_rows(std::vector<Row>& out) {
  add_quantize_row(out);
  add_product_row(out);
}

}  // namespace lockstep
