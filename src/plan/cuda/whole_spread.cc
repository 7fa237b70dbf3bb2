// A product and the chain of small steps that needs whole rows of it, as one step of the product's blocks.
//
// Worked example. The last but one layer of an MLP, 128 x 1024, is computed in tiles, of which a block finishes 16 rows
// of 64 columns. What follows needs rows: 10 sums over all columns each, the loss and its gradient, and the gradient of
// each column. Every block adds up its 64 columns and tells the 15 others that have the same rows; then each computes
// the loss of all 16 rows, the same in all of them, and the gradient of its own columns. There is no grid barrier,
// and the tile never leaves the block's memory on the way.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "lane/cuda/cuda_stream.h"
#include "plan/cuda/whole_members.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kMostOfRow = 512;       // bytes of a row of what each block computes for itself
constexpr int64_t kMostBrought = 4096;    // bytes that all rows need
constexpr int64_t kShared = (227 << 10);  // of a block, where no GPU is known
constexpr size_t kMostEarly = 32;         // bits of `early`
constexpr int64_t kWarps = kStepThreads / 32;

int64_t size_of(const MemoryRange& at) { return at.end - at.begin; }

class Spread {
 public:
  Spread(const KernelPart& product, std::span<const KernelPart> chain)
      : product_(product), tile_(product.kernel->steps()[0]), share_(tile_.share) {
    for (const KernelPart& member : chain) members_.push_back(&member);
    possible_ = fits();
  }

  bool is_possible() const { return possible_; }
  int64_t message_bytes() const {
    return share_.height * (share_.width / share_.cols) * members_[sums_]->kernel->spread().few * 8;
  }

  CudaStep step() const {
    CudaStep out = tile_;
    out.share = {};
    out.cooperative = out.counted = true;
    out.shared_bytes = shared_bytes_;
    out.prelude = "#include \"spread.cuh\"\nusing namespace lockstep;\n" + tile_.prelude;
    out.parameters += ", uint64_t* told";
    out.arguments.push_back({CudaStep::Argument::own, product_.kernel->memory().size()});
    const std::string members = add_members(out);
    const CudaSpread& sums = members_[sums_]->kernel->spread();
    std::string body = fmt::format(
        "  const {} tile(block);\n  const uint32_t row0 = tile.first_row(), col = tile.col, place = col / {}u;\n",
        share_.place, share_.cols);
    // What is not brought early comes while the product's sums are on their way.
    std::string copies;
    for (const Brought& each : brought_) {
      const std::string copy = copy_to_shared_text(each.bytes, fmt::format("shared + {}", each.offset),
                                                   fmt::format("p{}{}", each.number, begin_of(each)));
      if (out.early.size() == kMostEarly) {
        copies += copy;
        continue;
      }
      copies += fmt::format("  if (!(early & {}u)) {{\n{}  }}\n", 1u << out.early.size(), copy);
      out.early.push_back({{each.operand}, body + copy + "  commit();\n"});
    }
    std::string both, instead;
    for (const Tile& each : tiles_) {
      both += fmt::format("  const Both<{t}, {width}, {cols}> both{k}{{out{k}, ({t}*)(shared + {at}), row0, col}};\n",
                          fmt::arg("t", each.element), fmt::arg("width", share_.width), fmt::arg("cols", share_.cols),
                          fmt::arg("k", each.result), fmt::arg("at", each.offset));
      instead += fmt::format("  const auto& out{0} = both{0};\n", each.result);
    }
    body += fmt::format(
        R"(  {{
{both}  const auto meanwhile = [&] {{
{copies}  commit();
  }};
  {{
{instead}{body}  }}
  }}
  wait_for<0>();
  __syncthreads();
  for (uint32_t row = row0 + threadIdx.x / 32u; row < row0 + {rows}u; row += {warps}u)
    {give}(row, (const {t}*)(shared + {at}) + (row - row0) * {cols}u, (const {of}*)({by}));
  for (uint32_t row = row0 + threadIdx.x / 32u; row < row0 + {rows}u; row += {warps}u) {{
{members}  }}
)",
        fmt::arg("t", sums.row_type), fmt::arg("of", sums.by_type), fmt::arg("cols", share_.cols),
        fmt::arg("both", both), fmt::arg("copies", copies), fmt::arg("instead", instead), fmt::arg("rows", share_.rows),
        fmt::arg("at", tile_of(product_.out[result_])->offset), fmt::arg("body", tile_.body), fmt::arg("warps", kWarps),
        fmt::arg("give", sums.publish(share_.cols)), fmt::arg("by", place_of(sums_, sums.by, "")),
        fmt::arg("members", members));
    out.body = body;
    return out;
  }

 private:
  // A result of the product that members read: the block's rows and columns of it. Parameter out{result}.
  struct Tile {
    size_t result = 0;
    std::string element;
    int64_t offset = 0;
  };
  // What a member writes that every block computes for itself: the rows it has of that.
  struct Kept {
    MemoryRange at;
    int64_t offset = 0, row_bytes = 0;
    size_t first_write = 0, last_write = 0;
  };
  // What members read that was there before: of the block's rows, of its columns, or all of it. Parameter p{number}.
  struct Brought {
    MemoryRange at;
    enum How : uint8_t { rows, cols, all } how;
    int64_t bytes = 0, each = 0;  // in all, and of one row or column
    int64_t offset = 0;
    size_t number = 0, operand = 0;  // of all
  };

  CudaSpread::Kind kind(size_t m) const {
    return m == sums_ ? CudaSpread::sums : is_columns(m) ? CudaSpread::columns : CudaSpread::none;
  }
  bool is_columns(size_t m) const {
    const CudaSpread& spread = members_[m]->kernel->spread();
    return spread.kind == CudaSpread::columns && spread.width == share_.width;
  }
  int64_t all_rows() const { return share_.height; }

  // Is there one product of the rows, is all else of few columns or of the same as the tile, and does no block write
  // what another one still reads?
  bool fits() {
    if (share_.rows == 0 || product_.out.empty() || product_.kernel->steps().size() != 1) return false;
    bool found = false;
    for (size_t m = 0; m < members_.size(); ++m) {
      const CudaSpread& spread = members_[m]->kernel->spread();
      if (spread.kind != CudaSpread::sums) continue;
      const auto result = std::find(product_.out.begin(), product_.out.end(), members_[m]->in[spread.rows]);
      if (result == product_.out.end()) continue;
      if (found || spread.width != share_.width) return false;
      sums_ = m;
      result_ = static_cast<size_t>(result - product_.out.begin());
      found = true;
    }
    if (!found) return false;
    shared_bytes_ = up_to_16(tile_.shared_bytes);
    if (!keep_tiles()) return false;
    for (size_t m = 0; m < members_.size(); ++m)
      if (!can_be_spread(m) || !keep(m)) return false;
    for (size_t m = 0; m < members_.size(); ++m)
      for (size_t i = 0; i < members_[m]->in.size(); ++i)
        if (!can_read(m, i)) return false;
    bring();
    const CudaStream* lane = product_.kernel->lane();
    return shared_bytes_ <= (lane ? lane->info().shared : kShared) - kReservedSharedBytes;
  }

  // False where what the sums are made of is no result of elements of their type, one for each of the product's.
  bool keep_tiles() {
    const int64_t elements = share_.height * share_.width;
    for (size_t k = 0; k < product_.out.size(); ++k) {
      const auto reads = [&](const KernelPart* member) {
        return std::find(member->in.begin(), member->in.end(), product_.out[k]) != member->in.end();
      };
      if (std::none_of(members_.begin(), members_.end(), reads)) continue;
      const size_t before = tiles_.size();
      for (const auto& [type, name] : parameters_of(tile_))
        if (name == fmt::format("out{}", k)) tiles_.push_back({k, type.substr(0, type.size() - 1), shared_bytes_});
      if (tiles_.size() == before) continue;
      if (size_of(product_.out[k]) % elements != 0) return false;
      shared_bytes_ += up_to_16(share_.rows * share_.cols * (size_of(product_.out[k]) / elements));
    }
    const Tile* sums = tile_of(product_.out[result_]);
    return sums && sums->element == members_[sums_]->kernel->spread().row_type;
  }
  const Tile* tile_of(const MemoryRange& at) const {
    const auto found =
        std::find_if(tiles_.begin(), tiles_.end(), [&](const Tile& each) { return product_.out[each.result] == at; });
    return found == tiles_.end() ? nullptr : &*found;
  }

  bool can_be_spread(size_t m) const {
    const CudaRanges& ranges = members_[m]->kernel->ranges();
    return ranges.most == all_rows() && (kind(m) != CudaSpread::none || ranges.by_warp);
  }

  // What it writes: columns of a block's own, or rows that every block has.
  bool keep(size_t m) {
    for (const MemoryRange& at : members_[m]->out) {
      if (any_overlap(product_.in, at) || any_overlap(product_.out, at)) return false;
      if (kind(m) == CudaSpread::columns) {
        for (const KernelPart* other : members_)
          if (any_overlap(other->in, at) || (other != members_[m] && any_overlap(other->out, at))) return false;
        continue;
      }
      if (size_of(at) % all_rows() != 0 || size_of(at) / all_rows() > kMostOfRow) return false;
      const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& each) { return each.at == at; });
      if (same != kept_.end()) {
        same->last_write = m;
        continue;
      }
      if (std::any_of(kept_.begin(), kept_.end(), [&](const Kept& each) { return each.at.overlaps(at); })) return false;
      const int64_t row_bytes = size_of(at) / all_rows();
      kept_.push_back({at, shared_bytes_, row_bytes, m, m});
      shared_bytes_ += up_to_16(row_bytes * share_.rows);
    }
    return true;
  }

  bool can_read(size_t m, size_t i) const {
    const MemoryRange& at = members_[m]->in[i];
    const CudaSpread& spread = members_[m]->kernel->spread();
    // Of the tile, columns need what is in the same place, and sums the rows; a block has no more of it.
    const bool in_place = std::find(spread.in_place.begin(), spread.in_place.end(), i) != spread.in_place.end();
    for (const MemoryRange& tile : product_.out) {
      if (!tile.overlaps(at)) continue;
      if (!tile_of(at)) return false;  // other blocks write it
      if (m == sums_ && i == spread.rows) continue;
      if (kind(m) != CudaSpread::columns || tile != at || !in_place || i == spread.by || i == spread.rows) return false;
    }
    // What was there before a member writes it is in the block's memory by then: of its own rows, and before it has
    // told its part, without which no block gets that far. (A read that has ended does not see what is written later,
    // whatever the order in which others see it.)
    for (const Kept& each : kept_) {
      if (!each.at.overlaps(at)) continue;
      if (each.at != at || !owns(*members_[m], i)) return false;
      if (m <= each.first_write && (each.last_write < sums_ || !brought_as(m, i))) return false;
    }
    if (kind(m) != CudaSpread::none && i == spread.by) return size_of(at) % share_.width == 0;
    return true;
  }

  const Kept* kept_of(const MemoryRange& at) const {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& each) { return each.at == at; });
    return found == kept_.end() ? nullptr : &*found;
  }
  // That a member before m has written.
  const Kept* kept_before(size_t m, const MemoryRange& at) const {
    const Kept* kept = kept_of(at);
    return kept && m > kept->first_write ? kept : nullptr;
  }

  // How operand i of a member is brought, if it is.
  std::optional<Brought> brought_as(size_t m, size_t i) const {
    const MemoryRange& at = members_[m]->in[i];
    if (any_overlap(product_.out, at) || kept_before(m, at)) return {};
    const int64_t size = size_of(at);
    if (kind(m) != CudaSpread::none && i == members_[m]->kernel->spread().by) {
      const int64_t each = size / share_.width;
      return Brought{at, Brought::cols, each * share_.cols, each};
    }
    if (!owns(*members_[m], i))
      return size <= kMostBrought ? std::optional(Brought{at, Brought::all, size, 0}) : std::nullopt;
    if (kind(m) == CudaSpread::columns && i != members_[m]->kernel->spread().rows) return {};
    const int64_t each = size / all_rows();
    if (size % all_rows() != 0 || each > kMostOfRow) return {};
    return Brought{at, Brought::rows, each * share_.rows, each};
  }

  const Brought* brought_of(size_t m, size_t i) const {
    const std::optional<Brought> wanted = brought_as(m, i);
    const auto found = std::find_if(brought_.begin(), brought_.end(), [&](const Brought& each) {
      return wanted && each.at == wanted->at && each.how == wanted->how;
    });
    return found == brought_.end() ? nullptr : &*found;
  }

  void bring() {
    size_t number = 0, first = product_.in.size();
    for (size_t m = 0; m < members_.size(); first += members_[m++]->in.size())
      for (const CudaStep::Argument& argument : step_of(m).arguments) {
        const size_t own_number = number++;
        if (argument.kind != CudaStep::Argument::operand || brought_of(m, argument.index)) continue;
        std::optional<Brought> each = brought_as(m, argument.index);
        if (!each) continue;
        each->number = own_number;
        each->operand = first + argument.index;
        each->offset = shared_bytes_;
        shared_bytes_ += up_to_16(each->bytes);
        brought_.push_back(*each);
      }
  }

  CudaStep step_of(size_t m) const {
    return kind(m) != CudaSpread::none ? members_[m]->kernel->spread().step(share_.cols)
                                       : members_[m]->kernel->ranges().by_warp(all_rows());
  }

  static std::string begin_of(const Brought& each) {
    return each.how == Brought::all
               ? std::string()
               : fmt::format(" + uint64_t({}) * {}u", each.how == Brought::rows ? "row0" : "col", each.each);
  }

  // Where a member finds its operand; `name`: the parameter, where that is in the GPU's memory.
  std::string place_of(size_t m, size_t i, const std::string& name) const {
    const MemoryRange& at = members_[m]->in[i];
    if (const Tile* tile = tile_of(at)) return fmt::format("shared + {}", tile->offset);
    if (const Kept* kept = kept_before(m, at)) return in_rows(*kept);
    const Brought* near = brought_of(m, i);
    if (!near) return name;
    return near->how == Brought::rows ? fmt::format("shared + {} - uint64_t(row0) * {}u", near->offset, near->each)
                                      : fmt::format("shared + {}", near->offset);
  }
  static std::string in_rows(const Kept& kept) {
    return fmt::format("shared + {} - uint64_t(row0) * {}u", kept.offset, kept.row_bytes);
  }

  // The members' texts for one row, with their parameters added to the step's.
  std::string add_members(CudaStep& out) const {
    std::string text;
    size_t in = product_.in.size(), results = product_.out.size(), number = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      const CudaStep step = step_of(m);
      if (out.prelude.find(step.prelude) == std::string::npos) out.prelude += step.prelude;
      out.name += " " + step.name;
      std::string arguments, copies, types;
      const auto parameters = parameters_of(step);
      for (size_t a = 0; a < step.arguments.size(); ++a) {
        const CudaStep::Argument& argument = step.arguments[a];
        const bool operand = argument.kind == CudaStep::Argument::operand;
        LOCKSTEP_CHECK(operand || argument.kind == CudaStep::Argument::result, "a row has no memory of its own");
        const std::string name = fmt::format("p{}", number++);
        out.parameters += fmt::format(", {} {}", operand ? "const char*" : "char*", name);
        out.arguments.push_back({argument.kind, argument.index + (operand ? in : results)});
        const auto& [type, of] = parameters[a];
        const Tile* tile =
            operand && kind(m) == CudaSpread::columns ? tile_of(members_[m]->in[argument.index]) : nullptr;
        if (tile)
          types += fmt::format("  const Near<{}, {}, {}> {}{{({})q{}, row0, col}};\n", tile->element, share_.width,
                               share_.cols, of, type, a);
        else
          types += fmt::format("  {0} const {1} = ({0})q{2};\n", type, of, a);
        const Kept* kept = operand ? nullptr : kept_of(members_[m]->out[argument.index]);
        arguments += ", " + (operand ? place_of(m, argument.index, name) : kept ? in_rows(*kept) : name);
        if (kept && m == kept->last_write) copies += copy_text(*kept, name);
      }
      text += fmt::format("  [&](const uint32_t block{}) {{\n{}{}  }}(row{});\n  __syncwarp();\n{}",
                          untyped_parameters(step), types, step.body, arguments, copies);
      in += members_[m]->in.size();
      results += members_[m]->out.size();
    }
    return text;
  }

  // For whoever else reads it: by the first of the blocks that all computed the same.
  std::string copy_text(const Kept& kept, const std::string& to) const {
    const char* word = kept.row_bytes % 4 == 0 ? "uint32_t" : "uint8_t";
    return fmt::format(
        "  if (place == 0u)\n  for (uint32_t i = threadIdx.x % 32u; i < {n}u; i += 32u)\n    (({word}*)({to} + "
        "uint64_t(row) * {bytes}u))[i] = (({word}*)(shared + {at} + (row - row0) * {bytes}u))[i];\n",
        fmt::arg("n", kept.row_bytes % 4 == 0 ? kept.row_bytes / 4 : kept.row_bytes), fmt::arg("word", word),
        fmt::arg("to", to), fmt::arg("bytes", kept.row_bytes), fmt::arg("at", kept.offset));
  }

  const KernelPart& product_;
  const CudaStep& tile_;
  const CudaStep::Share& share_;
  std::vector<const KernelPart*> members_;
  bool possible_ = false;
  size_t sums_ = 0, result_ = 0;  // the member, and the product's result it reads
  int64_t shared_bytes_ = 0;
  std::vector<Tile> tiles_;
  std::vector<Kept> kept_;
  std::vector<Brought> brought_;
};

// Of a product and a chain.
std::optional<SteppedKernel> made_of(const std::shared_ptr<const OwnParts>& own, int processors) {
  const KernelPart& product = own->parts[0];
  if (product.kernel->steps()[0].blocks > processors) return {};  // they wait for each other
  const Spread spread(product, std::span(own->parts).subspan(1));
  if (!spread.is_possible()) return {};
  std::vector<BufferPtr> memory = product.kernel->memory();
  if (CudaStream* lane = product.kernel->lane()) {
    memory.push_back(lane->allocate(spread.message_bytes()));
    lane->clear(memory.back()->data(), spread.message_bytes());
  }
  const auto again = [own, processors](int fewer) {
    const SteppedKernel smaller = own->parts[0].kernel->on(fewer);
    std::vector<KernelPart> parts = own->parts;
    parts[0].kernel = &smaller;
    const auto other = std::make_shared<const OwnParts>(parts);
    std::optional<SteppedKernel> made = made_of(other, fewer);
    return made ? *std::move(made) : *made_of(own, processors);
  };
  return SteppedKernel(product.kernel->lane(), {spread.step()}, std::move(memory), {.remake = again});
}

}  // namespace

std::optional<KernelPart> spread_rows(const KernelPart& product, std::span<const KernelPart> chain, int processors,
                                      std::deque<SteppedKernel>& made) {
  std::vector<KernelPart> parts{product};
  parts.insert(parts.end(), chain.begin(), chain.end());
  std::optional<SteppedKernel> with_exchange;
  for (const KernelPart& member : chain)
    if (const CudaSpread& how = member.kernel->spread(); how.kind == CudaSpread::sums && !with_exchange)
      with_exchange = product.kernel->with_exchange(how.few);
  if (with_exchange) parts[0].kernel = &*with_exchange;
  std::optional<SteppedKernel> kernel = made_of(std::make_shared<const OwnParts>(parts), processors);
  if (!kernel) return {};
  std::vector<const KernelPart*> all;
  for (const KernelPart& part : parts) all.push_back(&part);
  KernelPart out = side_by_side(all);
  out.kernel = &made.emplace_back(*std::move(kernel));
  return out;
}

}  // namespace lockstep::detail
