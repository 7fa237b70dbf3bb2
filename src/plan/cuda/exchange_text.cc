// The text of a product and the tasks that need complete rows of it, computed by the thread blocks of the product
// (TaskForm::exchange).
//
// Worked example. The last but one layer of an MLP, 128 x 1024, is computed in tiles, of which a thread block finishes
// 16 rows of 64 columns. What follows needs rows: 10 sums over all columns each, the loss and its gradient, and the
// gradient of each column. Every thread block adds up its 64 columns and publishes the sums to the 15 others that have
// the same rows; then each computes the loss of all 16 rows, the same in all of them, and the gradient of its own
// columns. There is no grid barrier, and the tile stays in shared memory on the way.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/check.h"
#include "ops/cuda/cost_model.h"
#include "plan/cuda/lower.h"

namespace lockstep::detail {
namespace {

using namespace cost_model;
using Spread = TaskTraits::Spread;

class ExchangeWriter {
 public:
  // REQUIRES: the product is lowered; the others are rows.
  ExchangeWriter(const GpuTask& product, std::span<const GpuTask> others, const GpuTarget& target)
      : target_(target),
        product_(*product.step),
        share_(product_.share),
        product_operands_(operands(product)),
        product_results_(results(product)) {
    for (const GpuTask& other : others) {
      const GpuTask row = divided(other, TaskDivision::tiles, 0);
      members_.push_back({row, operands(row), results(row), traits_of(row, target)});
    }
  }

  // Divides the members and assigns shared memory. False: not possible, because there is not one product of the rows of
  // the tile, a member is neither of few columns nor of the tile's, or a thread block would write what another one
  // still reads.
  bool prepare() {
    if (share_.rows == 0 || product_results_.empty() || product_.partial || !find_sums()) return false;
    shared_bytes_ = up_to_16(product_.shared_bytes);
    if (!choose_tiles()) return false;
    for (size_t m = 0; m < members_.size(); ++m)
      if (!can_be_divided(m) || !choose_local_values(m)) return false;
    for (size_t m = 0; m < members_.size(); ++m)
      for (size_t i = 0; i < members_[m].operands.size(); ++i)
        if (!can_read(m, i)) return false;
    if (!lower_members()) return false;
    choose_prefetches();
    return shared_bytes_ <= target_.shared_bytes - kReservedSharedBytes;
  }

  // The members after the product, divided and lowered. REQUIRES: prepare().
  std::vector<GpuTask> rows() const {
    std::vector<GpuTask> out;
    for (const Member& member : members_) out.push_back(member.row);
    return out;
  }

  CudaStep step() const {
    CudaStep out = product_;
    out.share = {};
    out.cooperative = out.counted = true;
    out.shared_bytes = shared_bytes_;
    out.prelude = "#include \"spread.cuh\"\nusing namespace lockstep;\n" + product_.prelude;
    out.parameters += ", uint64_t* messages";
    out.arguments.push_back({CudaStep::Argument::workspace, out.workspaces.size()});
    out.workspaces.push_back(message_bytes());
    const std::string members = write_members(out);
    const Spread& sums = members_[sums_].traits.spread;
    const std::string place = fmt::format(
        "  const {} tile(block);\n  const uint32_t row0 = tile.first_row(), col = tile.col, place = col / {}u;\n",
        share_.place, share_.cols);
    const std::string copies = write_prefetches(out, place);
    const auto [both, instead] = tile_texts();
    out.body =
        place + fmt::format(
                    R"(  {{
{both}  const auto while_waiting = [&] {{
{copies}  commit();
  }};
  {{
{instead}{body}  }}
  }}
  wait_for<0>();
  __syncthreads();
  for (uint32_t row = row0 + threadIdx.x / 32u; row < row0 + {rows}u; row += {warps}u)
    {publish}(row, (const {t}*)(shared + {at}) + (row - row0) * {cols}u, (const {of}*)({by}));
  for (uint32_t row = row0 + threadIdx.x / 32u; row < row0 + {rows}u; row += {warps}u) {{
{members}  }}
)",
                    fmt::arg("t", sums.row_type), fmt::arg("of", sums.by_type), fmt::arg("cols", share_.cols),
                    fmt::arg("both", both), fmt::arg("copies", copies), fmt::arg("instead", instead),
                    fmt::arg("rows", share_.rows), fmt::arg("at", tile_of(product_results_[summed_result_])->offset),
                    fmt::arg("body", product_.body), fmt::arg("warps", kWarps),
                    fmt::arg("publish", members_[sums_].row.step->publish),
                    fmt::arg("by", operand_text(sums_, sums.by, "")), fmt::arg("members", members));
    return out;
  }

 private:
  struct Member {
    GpuTask row;
    std::vector<TaskValue> operands, results;
    TaskTraits traits;
  };
  // A result of the product that members read: the thread block's rows and columns of it, in shared memory. It is
  // parameter out{result}.
  struct Tile {
    size_t result = 0;
    std::string element;
    int64_t offset = 0;
  };
  // A result that every thread block computes for itself: its rows, in shared memory. A value that is written in its
  // place has the same shared memory.
  struct LocalValue {
    TaskValue value;
    int64_t offset = 0, row_bytes = 0;
    size_t first_write = 0, last_write = 0;
  };
  // An operand that is copied to shared memory while the product is computed, or before: that of the thread block's
  // rows, of its columns, or all of it. It is parameter p{number}.
  struct Prefetch {
    TaskValue value;
    enum Part : uint8_t { rows, cols, all } part;
    int64_t bytes = 0, each = 0;  // in all, and of one row or column
    int64_t offset = 0;
    size_t number = 0, operand = 0;
  };

  Spread::Kind kind(size_t m) const {
    const Spread& spread = members_[m].traits.spread;
    if (m == sums_) return Spread::sums;
    return spread.kind == Spread::columns && spread.width == share_.width ? Spread::columns : Spread::none;
  }
  int64_t all_rows() const { return share_.height; }
  int64_t message_bytes() const {
    return share_.height * (share_.width / share_.cols) * members_[sums_].traits.spread.few * 8;
  }

  // Finds the only product of the rows that thread blocks have columns of.
  bool find_sums() {
    bool found = false;
    for (size_t m = 0; m < members_.size(); ++m) {
      const Spread& spread = members_[m].traits.spread;
      if (spread.kind != Spread::sums) continue;
      const auto result = std::find_if(product_results_.begin(), product_results_.end(), [&](const TaskValue& each) {
        return each.id == members_[m].operands[spread.rows].id;
      });
      if (result == product_results_.end()) continue;
      if (found || spread.width != share_.width) return false;
      sums_ = m;
      summed_result_ = static_cast<size_t>(result - product_results_.begin());
      found = true;
    }
    return found;
  }

  // False if the operand of the sums is not a result of elements of their type, one for each of the product's.
  bool choose_tiles() {
    const int64_t elements = share_.height * share_.width;
    for (size_t k = 0; k < product_results_.size(); ++k) {
      const TaskValue& result = product_results_[k];
      if (std::none_of(members_.begin(), members_.end(),
                       [&](const Member& member) { return contains_memory(member.operands, result); }))
        continue;
      const size_t before = tiles_.size();
      for (const auto& [type, name] : parameters_of(product_))
        if (name == fmt::format("out{}", k)) tiles_.push_back({k, type.substr(0, type.size() - 1), shared_bytes_});
      if (tiles_.size() == before) continue;
      if (result.bytes() % elements != 0) return false;
      shared_bytes_ += up_to_16(share_.rows * share_.cols * (result.bytes() / elements));
    }
    const Tile* sums = tile_of(product_results_[summed_result_]);
    return sums && sums->element == members_[sums_].traits.spread.row_type;
  }
  const Tile* tile_of(const TaskValue& value) const {
    const auto found = std::find_if(tiles_.begin(), tiles_.end(), [&](const Tile& each) {
      return same_memory(product_results_[each.result], value);
    });
    return found == tiles_.end() ? nullptr : &*found;
  }

  bool can_be_divided(size_t m) const {
    const TaskTraits::Ranges& ranges = members_[m].traits.ranges;
    return ranges.most == all_rows() && (kind(m) != Spread::none || ranges.by_warp);
  }

  // Of a member's results: columns of each thread block, or rows that every thread block has. False if that is not
  // possible.
  bool choose_local_values(size_t m) {
    for (const TaskValue& value : members_[m].results) {
      if (contains_memory(product_operands_, value) || contains_memory(product_results_, value)) return false;
      if (kind(m) == Spread::columns) {
        for (const Member& other : members_)
          if (contains_memory(other.operands, value) ||
              (&other != &members_[m] && contains_memory(other.results, value)))
            return false;
        continue;
      }
      const int64_t row_bytes = value.bytes() / all_rows();
      if (value.bytes() % all_rows() != 0 || row_bytes > kMostRowBytes) return false;
      const auto same = std::find_if(local_values_.begin(), local_values_.end(),
                                     [&](const LocalValue& each) { return same_memory(each.value, value); });
      if (same != local_values_.end()) {
        same->last_write = m;
        continue;
      }
      local_values_.push_back({value, shared_bytes_, row_bytes, m, m});
      shared_bytes_ += up_to_16(row_bytes * share_.rows);
    }
    return true;
  }

  bool can_read(size_t m, size_t i) const {
    const TaskValue& value = members_[m].operands[i];
    const Spread& spread = members_[m].traits.spread;
    // Of the tile, products by columns need the same element, and sums the rows; a thread block has no more of it.
    const bool in_place = std::find(spread.in_place.begin(), spread.in_place.end(), i) != spread.in_place.end();
    if (contains_memory(product_results_, value)) {
      if (!tile_of(value)) return false;  // other thread blocks write it
      const bool is_summed = m == sums_ && i == spread.rows;
      if (!is_summed && (kind(m) != Spread::columns || !in_place || i == spread.by || i == spread.rows)) return false;
    }
    // What was in the memory before a member writes it has been copied to shared memory by then: of the thread block's
    // own rows, and before it publishes its sums, without which no other thread block gets that far. (A load that has
    // completed does not see what is written later, whatever the order in which others see it.)
    if (const LocalValue* local = local_value(value)) {
      if (!members_[m].traits.ranges.owns(i)) return false;
      if (m <= local->first_write && (local->last_write < sums_ || !prefetch_as(m, i))) return false;
    }
    if (kind(m) != Spread::none && i == spread.by) return value.bytes() % share_.width == 0;
    return true;
  }

  const LocalValue* local_value(const TaskValue& value) const {
    const auto found = std::find_if(local_values_.begin(), local_values_.end(),
                                    [&](const LocalValue& each) { return same_memory(each.value, value); });
    return found == local_values_.end() ? nullptr : &*found;
  }
  // If a member before m has written it.
  const LocalValue* local_value_before(size_t m, const TaskValue& value) const {
    const LocalValue* local = local_value(value);
    return local && m > local->first_write ? local : nullptr;
  }

  bool lower_members() {
    for (size_t m = 0; m < members_.size(); ++m) {
      GpuTask& row = members_[m].row;
      row = kind(m) != Spread::none ? divided(row, TaskDivision::columns, share_.cols)
                                    : divided(row, TaskDivision::warps, all_rows());
      if (!lower_row(row, target_)) return false;
    }
    return true;
  }

  // How operand i of a member would be prefetched, if it is.
  std::optional<Prefetch> prefetch_as(size_t m, size_t i) const {
    const TaskValue& value = members_[m].operands[i];
    const TaskTraits& traits = members_[m].traits;
    if (contains_memory(product_results_, value) || local_value_before(m, value)) return {};
    const int64_t bytes = value.bytes();
    if (kind(m) != Spread::none && i == traits.spread.by) {
      const int64_t each = bytes / share_.width;
      return Prefetch{value, Prefetch::cols, each * share_.cols, each};
    }
    if (!traits.ranges.owns(i))
      return bytes <= kMostCopiedBytes ? std::optional(Prefetch{value, Prefetch::all, bytes, 0}) : std::nullopt;
    if (kind(m) == Spread::columns && i != traits.spread.rows) return {};
    const int64_t each = bytes / all_rows();
    if (bytes % all_rows() != 0 || each > kMostRowBytes) return {};
    return Prefetch{value, Prefetch::rows, each * share_.rows, each};
  }

  const Prefetch* prefetch_of(size_t m, size_t i) const {
    const std::optional<Prefetch> wanted = prefetch_as(m, i);
    const auto found = std::find_if(prefetches_.begin(), prefetches_.end(), [&](const Prefetch& each) {
      return wanted && same_memory(each.value, wanted->value) && each.part == wanted->part;
    });
    return found == prefetches_.end() ? nullptr : &*found;
  }

  void choose_prefetches() {
    size_t next_number = 0, first = product_operands_.size();
    for (size_t m = 0; m < members_.size(); first += members_[m++].operands.size())
      for (const CudaStep::Argument& argument : members_[m].row.step->arguments) {
        const size_t number = next_number++;
        if (argument.kind != CudaStep::Argument::operand || prefetch_of(m, argument.index)) continue;
        std::optional<Prefetch> each = prefetch_as(m, argument.index);
        if (!each) continue;
        each->number = number;
        each->operand = first + argument.index;
        each->offset = shared_bytes_;
        shared_bytes_ += up_to_16(each->bytes);
        prefetches_.push_back(*each);
      }
  }

  // Adds prefetches, as far as `prefetched` has bits. Returns the text that copies what was not prefetched, while the partial
  // sums of the product are exchanged.
  std::string write_prefetches(CudaStep& out, const std::string& place) const {
    std::string copies;
    for (const Prefetch& each : prefetches_) {
      const std::string begin =
          each.part == Prefetch::all
              ? std::string()
              : fmt::format(" + uint64_t({}) * {}u", each.part == Prefetch::rows ? "row0" : "col", each.each);
      const std::string copy = copy_to_shared_text(each.bytes, fmt::format("shared + {}", each.offset),
                                                   fmt::format("p{}{}", each.number, begin));
      if (out.prefetches.size() == kMostPrefetches) {
        copies += copy;
        continue;
      }
      copies += fmt::format("  if (!(prefetched & {}u)) {{\n{}  }}\n", 1u << out.prefetches.size(), copy);
      out.prefetches.push_back({{each.operand}, place + copy + "  commit();\n"});
    }
    return copies;
  }

  // Definitions by which the product writes a tile to shared memory as well, and their use instead of its parameters.
  std::pair<std::string, std::string> tile_texts() const {
    std::string both, instead;
    for (const Tile& each : tiles_) {
      both += fmt::format(
          "  const SharedAndGlobal<{t}, {width}, {cols}> both{k}{{out{k}, ({t}*)(shared + {at}), row0, col}};\n",
          fmt::arg("t", each.element), fmt::arg("width", share_.width), fmt::arg("cols", share_.cols),
          fmt::arg("k", each.result), fmt::arg("at", each.offset));
      instead += fmt::format("  const auto& out{0} = both{0};\n", each.result);
    }
    return {both, instead};
  }

  // Where a member reads an operand; `name`: the parameter with the operand in global memory.
  std::string operand_text(size_t m, size_t i, const std::string& name) const {
    const TaskValue& value = members_[m].operands[i];
    if (const Tile* tile = tile_of(value)) return fmt::format("shared + {}", tile->offset);
    if (const LocalValue* local = local_value_before(m, value)) return rows_text(local->offset, local->row_bytes);
    const Prefetch* prefetch = prefetch_of(m, i);
    if (!prefetch) return name;
    return prefetch->part == Prefetch::rows ? rows_text(prefetch->offset, prefetch->each)
                                            : fmt::format("shared + {}", prefetch->offset);
  }
  // The pointer to a value of which the thread block's rows are at this offset.
  static std::string rows_text(int64_t offset, int64_t row_bytes) {
    return fmt::format("shared + {} - uint64_t(row0) * {}u", offset, row_bytes);
  }

  // The members' texts for one row, with their parameters added to the step's.
  std::string write_members(CudaStep& out) const {
    std::string text;
    size_t first_operand = product_operands_.size(), first_result = product_results_.size(), number = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      text += write_member(out, m, first_operand, first_result, number);
      first_operand += members_[m].operands.size();
      first_result += members_[m].results.size();
      number += members_[m].row.step->arguments.size();
    }
    return text;
  }

  std::string write_member(CudaStep& out, size_t m, size_t first_operand, size_t first_result, size_t number) const {
    const Member& member = members_[m];
    const CudaStep& step = *member.row.step;
    if (out.prelude.find(step.prelude) == std::string::npos) out.prelude += step.prelude;
    out.name += " " + step.name;
    std::string arguments, copies, types;
    const auto parameters = parameters_of(step);
    for (size_t a = 0; a < step.arguments.size(); ++a) {
      const CudaStep::Argument& argument = step.arguments[a];
      const bool is_operand = argument.kind == CudaStep::Argument::operand;
      LOCKSTEP_CHECK(is_operand || argument.kind == CudaStep::Argument::result, "a row has no workspace");
      const std::string name = fmt::format("p{}", number + a);
      out.parameters += fmt::format(", {} {}", is_operand ? "const char*" : "char*", name);
      out.arguments.push_back({argument.kind, argument.index + (is_operand ? first_operand : first_result)});
      const auto& [type, parameter] = parameters[a];
      const Tile* tile = is_operand && kind(m) == Spread::columns ? tile_of(member.operands[argument.index]) : nullptr;
      if (tile)
        types += fmt::format("  const SharedView<{}, {}, {}> {}{{({})q{}, row0, col}};\n", tile->element, share_.width,
                             share_.cols, parameter, type, a);
      else
        types += fmt::format("  {0} const {1} = ({0})q{2};\n", type, parameter, a);
      if (is_operand) {
        arguments += ", " + operand_text(m, argument.index, name);
        continue;
      }
      const LocalValue* local = local_value(member.results[argument.index]);
      arguments += ", " + (local ? rows_text(local->offset, local->row_bytes) : name);
      if (local && m == local->last_write) copies += copy_text(*local, name);
    }
    return fmt::format("  [&](const uint32_t block{}) {{\n{}{}  }}(row{});\n  __syncwarp();\n{}",
                       untyped_parameters(step), types, step.body, arguments, copies);
  }

  // Copies to global memory for other readers. Of the thread blocks that computed the same rows, the first does it.
  static std::string copy_text(const LocalValue& local, const std::string& to) {
    const char* word = local.row_bytes % 4 == 0 ? "uint32_t" : "uint8_t";
    return fmt::format(
        "  if (place == 0u)\n  for (uint32_t i = threadIdx.x % 32u; i < {n}u; i += 32u)\n    (({word}*)({to} + "
        "uint64_t(row) * {bytes}u))[i] = (({word}*)(shared + {at} + (row - row0) * {bytes}u))[i];\n",
        fmt::arg("n", local.row_bytes % 4 == 0 ? local.row_bytes / 4 : local.row_bytes), fmt::arg("word", word),
        fmt::arg("to", to), fmt::arg("bytes", local.row_bytes), fmt::arg("at", local.offset));
  }

  const GpuTarget& target_;
  const CudaStep& product_;
  const CudaStep::Share& share_;
  std::vector<TaskValue> product_operands_, product_results_;
  std::vector<Member> members_;          // without the product
  size_t sums_ = 0, summed_result_ = 0;  // the member, and the product's result that it reads
  int64_t shared_bytes_ = 0;
  std::vector<Tile> tiles_;
  std::vector<LocalValue> local_values_;
  std::vector<Prefetch> prefetches_;
};

}  // namespace

bool lower_exchange(GpuTask& task, const GpuTarget& target) {
  const auto is_row = [](const GpuTask& member) { return member.form == TaskForm::row; };
  if (task.members.size() < 2 || !std::all_of(task.members.begin(), task.members.end(), is_row)) return false;
  GpuTask product = task.members[0];
  if (!lower_row(product, target)) return false;
  // Its thread blocks wait for each other: all must be resident.
  if (product.step->blocks > (product.processors > 0 ? product.processors : target.processors)) return false;
  ExchangeWriter writer(product, std::span(task.members).subspan(1), target);
  if (!writer.prepare()) return false;
  task.step = std::make_shared<const CudaStep>(writer.step());
  std::vector<GpuTask> rows = writer.rows();
  rows.insert(rows.begin(), std::move(product));
  task.members = std::move(rows);
  return true;
}

}  // namespace lockstep::detail
