#include "ops/contraction.h"

#include <map>

#include "base/check.h"

namespace lockstep {
namespace {

using Sizes = std::map<char, int64_t>;

bool has(const std::string& s, char c) { return s.find(c) != std::string::npos; }

int64_t extent_over(const Sizes& sizes, const std::string& letters) {
  int64_t n = 1;
  for (char c : letters) n *= sizes.at(c);
  return n;
}

// A term as a batch of matrices: the letters of the batch, the rows and the columns. One of the last two is innermost.
struct Layout {
  bool transposed = false;
  int64_t ld = 0;
  int64_t batch_stride = 0;
};

// Letters of extent 1 do not affect the layout.
std::string drop_ones(const Sizes& sizes, const std::string& letters) {
  std::string out;
  for (char c : letters)
    if (sizes.at(c) != 1) out += c;
  return out;
}

std::optional<Layout> find_layout(const Sizes& sizes, const std::string& full_term, const std::string& batch,
                                  const std::string& rows, const std::string& cols) {
  const std::string term = drop_ones(sizes, full_term);
  auto stride = [&](const std::string& full_group) -> std::optional<int64_t> {
    const std::string group = drop_ones(sizes, full_group);
    if (group.empty()) return 0;
    const size_t at = term.find(group);
    if (at == std::string::npos) return std::nullopt;
    return extent_over(sizes, term.substr(at + group.size()));
  };
  const auto b = stride(batch), r = stride(rows), c = stride(cols);
  if (!b || !r || !c) return std::nullopt;
  const int64_t row_count = extent_over(sizes, rows), col_count = extent_over(sizes, cols);
  Layout out;
  out.batch_stride = *b;
  if (col_count == 1 && row_count == 1) {
    out.ld = 1;
  } else if (col_count == 1 ? *r == 1 : *c == 1) {
    out.ld = col_count == 1 ? 1 : (row_count == 1 ? col_count : *r);
  } else if (row_count == 1 ? *c == 1 : *r == 1) {
    out.transposed = true;
    out.ld = row_count == 1 ? 1 : *c;
  } else {
    return std::nullopt;
  }
  return out;
}

std::vector<int64_t> permutation(const std::string& from, const std::string& to) {
  std::vector<int64_t> p;
  for (char c : to) p.push_back(static_cast<int64_t>(from.find(c)));
  return p;
}

}  // namespace

Contraction contraction(const std::string& spec, const Type& a_type, const Type& b_type) {
  const Rule rule = parse_rule(spec);
  std::string a = rule.in[0], b = rule.in[1];
  const std::string& out = rule.out[0];
  Sizes sizes;
  for (size_t d = 0; d < a.size(); ++d) sizes[a[d]] = a_type.shape[d];
  for (size_t d = 0; d < b.size(); ++d) sizes[b[d]] = b_type.shape[d];

  Contraction result;
  // The operand whose own letters come last in the result provides the columns.
  for (size_t d = out.size(); d-- > 0;) {
    if (sizes[out[d]] == 1 || (has(a, out[d]) && has(b, out[d]))) continue;
    result.swapped = !has(b, out[d]);
    break;
  }
  if (result.swapped) std::swap(a, b);
  std::string batch, m, n, k;
  for (char c : out) (has(a, c) ? has(b, c) ? batch : m : n) += c;
  for (char c : b)
    if (!has(out, c)) k += c;

  GemmSpec& g = result.gemm;
  g.dtype = a_type.dtype;
  g.m = extent_over(sizes, m);
  g.n = extent_over(sizes, n);
  g.k = extent_over(sizes, k);
  g.batch = extent_over(sizes, batch);

  auto place = [&](const std::string& term, const std::string& rows, const std::string& cols, bool& transposed,
                   int64_t& ld, int64_t& stride, std::optional<std::vector<int64_t>>& copy) {
    std::optional<Layout> layout = find_layout(sizes, term, batch, rows, cols);
    if (!layout) {
      copy = permutation(term, batch + rows + cols);
      layout = Layout{false, std::max<int64_t>(1, extent_over(sizes, cols)),
                      extent_over(sizes, rows) * extent_over(sizes, cols)};
    }
    transposed = layout->transposed;
    ld = layout->ld;
    stride = layout->batch_stride;
  };
  place(a, m, k, g.transpose_a, g.lda, g.stride_a, result.copy_a);
  place(b, k, n, g.transpose_b, g.ldb, g.stride_b, result.copy_b);
  // The product is written dense and in order, to the result or to a temporary: epilogues require that.
  g.ldc = std::max<int64_t>(1, g.n);
  g.stride_c = g.m * g.n;
  if (drop_ones(sizes, out) != drop_ones(sizes, batch + m + n)) {
    result.copy_c = permutation(batch + m + n, out);
    for (char c : batch + m + n) result.product.push_back(sizes.at(c));
  }
  return result;
}

}  // namespace lockstep
