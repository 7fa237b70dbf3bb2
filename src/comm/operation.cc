#include "comm/operation.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace lockstep {

namespace {

using Kind = Operation::Kind;

std::string text(std::span<const int64_t> counts) { return fmt::format("[{}]", fmt::join(counts, ", ")); }

std::string text(std::span<const Route> routes) {
  std::string all;
  for (const Route& route : routes)
    all += fmt::format("{}{}->{}", all.empty() ? "" : ", ", route.source, route.destination);
  return all.empty() ? "no routes" : all;
}

void check_counts(const Operation& operation, std::span<const int64_t> counts, int size) {
  if (counts.size() != static_cast<size_t>(size))
    throw_error("{}: got {} counts for {} ranks; give one per rank", name(operation.kind), counts.size(), size);
  for (const int64_t count : counts)
    if (count < 0)
      throw_error("{}: the counts {} include a negative one; counts must be 0 or more", name(operation.kind),
                  text(counts));
}

void check_count(const Operation& operation) {
  if (operation.count < 0)
    throw_error("{}: invalid count of {} elements; it must be 0 or more", name(operation.kind), operation.count);
}

void check_reduction(const Operation& operation) {
  if (operation.dtype == DType::boolean && operation.reduction == Reduction::sum)
    throw_error("{}: booleans have no sum; use max for \"any\", min for \"all\", or convert to i32 to count",
                name(operation.kind));
}

// Compares each pair of routes: lists are short, and operations must not allocate memory.
void check_routes(const Operation& operation, int size) {
  const std::span<const Route> routes = operation.routes;
  for (size_t i = 0; i < routes.size(); ++i) {
    const auto [source, destination] = routes[i];
    if (source < 0 || source >= size || destination < 0 || destination >= size)
      throw_error("permute: the route {}->{} is outside the group; its ranks are 0 to {}", source, destination,
                  size - 1);
    for (const Route& earlier : routes.first(i)) {
      if (earlier.source == source)
        throw_error("permute: rank {} is a source twice in {}; a rank may send once and receive once", source,
                    text(routes));
      if (earlier.destination == destination)
        throw_error("permute: rank {} is a destination twice in {}; a rank may send once and receive once", destination,
                    text(routes));
    }
  }
}

// Throws when `in` and `out` overlap, unless `in_place`: they refer to the same elements.
void check_overlap(const Operation& operation, int64_t in_count, int64_t out_count, bool in_place,
                   std::string_view remedy) {
  if (in_place || in_count == 0 || out_count == 0) return;
  const auto in = reinterpret_cast<uintptr_t>(operation.in), out = reinterpret_cast<uintptr_t>(operation.out);
  const auto size = static_cast<uintptr_t>(size_of(operation.dtype));
  if (in < out + static_cast<uintptr_t>(out_count) * size && out < in + static_cast<uintptr_t>(in_count) * size)
    throw_error("{}: the {} input elements and the {} output elements overlap; {}", name(operation.kind), in_count,
                out_count, remedy);
}

const void* element(const void* data, const Operation& operation, int64_t index) {
  return data ? static_cast<const std::byte*>(data) + index * size_of(operation.dtype) : nullptr;
}

}  // namespace

int64_t total_count(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t count_before(std::span<const int64_t> counts, int rank) {
  return total_count(counts.first(static_cast<size_t>(rank)));
}

std::string_view name(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::max:
      return "max";
    case Reduction::min:
      break;
  }
  return "min";
}

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::all_gather:
      return "all_gather";
    case Kind::all_to_all:
      return "all_to_all";
    case Kind::permute:
      return "permute";
    case Kind::broadcast:
      return "broadcast";
    case Kind::barrier:
      return "barrier";
    case Kind::split:
      break;
  }
  return "split";
}

std::string describe(const Operation& operation) {
  const std::string_view kind = name(operation.kind), dtype = name(operation.dtype);
  switch (operation.kind) {
    case Kind::all_reduce:
      return fmt::format("{} of {} {} ({})", kind, operation.count, dtype, name(operation.reduction));
    case Kind::reduce_scatter:
      return fmt::format("{} of {} {} ({})", kind, text(operation.counts), dtype, name(operation.reduction));
    case Kind::all_gather:
      return fmt::format("{} of {} {}", kind, text(operation.counts), dtype);
    case Kind::all_to_all:
      return fmt::format("{} of {} (sends {}, receives {})", kind, dtype, text(operation.counts),
                         text(operation.receive_counts));
    case Kind::permute:
      return fmt::format("{} of {} {} ({})", kind, operation.count, dtype, text(operation.routes));
    case Kind::broadcast:
      return fmt::format("{} of {} {} from rank {}", kind, operation.count, dtype, operation.root);
    case Kind::barrier:
    case Kind::split:
      break;
  }
  return std::string(kind);
}

void check(const Operation& operation, int rank, int size) {
  const auto& [kind, dtype, reduction, root, in, out, count, counts, receive_counts, routes] = operation;
  switch (kind) {
    case Kind::all_reduce:
      check_count(operation);
      check_reduction(operation);
      return check_overlap(operation, count, count, in == out,
                           "use the same memory for both, or memory that does not overlap");
    case Kind::reduce_scatter:
      check_counts(operation, counts, size);
      check_reduction(operation);
      return check_overlap(operation, total_count(counts), counts[static_cast<size_t>(rank)],
                           out == element(in, operation, count_before(counts, rank)),
                           "write to this rank's own piece of the input, or to other memory");
    case Kind::all_gather:
      check_counts(operation, counts, size);
      return check_overlap(operation, counts[static_cast<size_t>(rank)], total_count(counts),
                           in == element(out, operation, count_before(counts, rank)),
                           "read from this rank's own piece of the output, or from other memory");
    case Kind::all_to_all:
      check_counts(operation, counts, size);
      check_counts(operation, receive_counts, size);
      if (counts[static_cast<size_t>(rank)] != receive_counts[static_cast<size_t>(rank)])
        throw_error("all_to_all: rank {} sends {} elements to itself and receives {}; make them equal", rank,
                    counts[static_cast<size_t>(rank)], receive_counts[static_cast<size_t>(rank)]);
      return check_overlap(operation, total_count(counts), total_count(receive_counts), false,
                           "this operation cannot be done in place");
    case Kind::permute:
      check_count(operation);
      check_routes(operation, size);
      return check_overlap(operation, count, count, false, "this operation cannot be done in place");
    case Kind::broadcast:
      check_count(operation);
      if (root < 0 || root >= size)
        throw_error("broadcast: the root {} is not in the group; its ranks are 0 to {}", root, size - 1);
      return;
    case Kind::barrier:
    case Kind::split:
      return;
  }
}

bool is_valid(const RequestHeader& header, int size) {
  const auto in_range = [](int64_t value, auto last) { return value >= 0 && value <= static_cast<int64_t>(last); };
  if (!in_range(header.kind, Kind::split) || !in_range(header.dtype, kDTypeCount - 1) ||
      !in_range(header.reduction, Reduction::min))
    return false;
  const auto kind = static_cast<Kind>(header.kind);
  if (kind <= Kind::reduce_scatter && is_float8(static_cast<DType>(header.dtype))) return false;  // only moved
  const auto list = [&](int64_t count) { return count == 0 || count == size; };
  if (!list(header.counts) || !list(header.receive_counts) || !in_range(header.routes, size)) return false;
  return kind != Kind::all_to_all || (header.counts == size && header.receive_counts == size);
}

bool agree(const Operation& of_a, int a, const Operation& of_b, int b) {
  if (of_a.kind != of_b.kind) return false;
  if (of_a.kind == Kind::barrier || of_a.kind == Kind::split) return true;
  if (of_a.dtype != of_b.dtype) return false;
  switch (of_a.kind) {
    case Kind::all_reduce:
      return of_a.count == of_b.count && of_a.reduction == of_b.reduction;
    case Kind::reduce_scatter:
      return std::ranges::equal(of_a.counts, of_b.counts) && of_a.reduction == of_b.reduction;
    case Kind::all_gather:
      return std::ranges::equal(of_a.counts, of_b.counts);
    case Kind::all_to_all:
      return of_a.counts[static_cast<size_t>(b)] == of_b.receive_counts[static_cast<size_t>(a)] &&
             of_b.counts[static_cast<size_t>(a)] == of_a.receive_counts[static_cast<size_t>(b)];
    case Kind::permute:
      return of_a.count == of_b.count && std::ranges::equal(of_a.routes, of_b.routes);
    default:
      return of_a.count == of_b.count && of_a.root == of_b.root;
  }
}

}  // namespace lockstep
