#include "comm/shared/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

#include "base/check.h"
#include "lane/memory.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace lockstep::detail {

namespace {

// Processes would get SIGBUS if one of them made the file smaller.
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// 128 random bits, in hexadecimal.
std::string new_segment_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// Kernels before 6.3 do not know MFD_NOEXEC_SEAL, and some later ones are configured to require it.
Descriptor new_memory(const std::string& name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor file(::memfd_create(name.c_str(), kFlags | MFD_NOEXEC_SEAL));
  if (!file && errno == EINVAL) file = Descriptor(::memfd_create(name.c_str(), kFlags));
  return file;
}

// Memory that the kernel can allocate without swapping; machine_memory() where the kernel does not report it.
double available_memory() {
  std::ifstream in("/proc/meminfo");
  auto limit = static_cast<double>(machine_memory());
  for (std::string line; std::getline(in, line);)
    if (double kibibytes = 0; std::sscanf(line.c_str(), "MemAvailable: %lf kB", &kibibytes) == 1)
      limit = std::min(limit, kibibytes * 1024);
  return limit;
}

}  // namespace

std::string mebibytes(double bytes) { return fmt::format("{:.3g} MiB", bytes / (1 << 20)); }

Segment::Segment(std::string group, Descriptor memory, int64_t bytes)
    : group_(std::move(group)), memory_(std::move(memory)), bytes_(bytes) {}

std::shared_ptr<Segment> Segment::create(const std::string& group, const SegmentGeometry& geometry) {
  const std::string id = new_segment_id();
  Descriptor memory = new_memory("lockstep-" + id);
  if (!memory)
    throw IoError(
        fmt::format("shared memory: \"{}\" could not create an anonymous file (memfd_create): {}; use "
                    "--collectives tcp",
                    group, std::strerror(errno)));
  const std::shared_ptr<Segment> out(new Segment(group, std::move(memory), geometry.total_bytes()));
  out->allocate();
  (void)out->address();  // throws if others could not open it
  SegmentView(out->map_bytes(), out->bytes_, 0).initialize(geometry, id);
  return out;
}

std::shared_ptr<Segment> Segment::open(const std::string& group, const DescriptorAddress& address) {
  Descriptor memory = open_address(address, O_RDWR);
  if (!memory && errno == ENOENT) return nullptr;
  if (!memory)
    throw IoError(
        fmt::format("shared memory: \"{}\" could not open the memory of process {}: {}; run the processes of a host as "
                    "one user and in one container, or use --collectives tcp",
                    group, address.pid, std::strerror(errno)));
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  struct stat info = {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || ::fstat(memory.get(), &info) != 0 ||
      info.st_size < static_cast<off_t>(sizeof(SegmentHeader)))
    throw_error("shared memory: \"{}\" has the address {}, which is not a segment; use one that rank 0 created", group,
                to_text(address));
  return std::shared_ptr<Segment>(new Segment(group, std::move(memory), info.st_size));
}

// Allocates all pages now: a page that cannot be allocated later would raise SIGBUS in the middle of a copy.
void Segment::allocate() const {
  const auto wanted = static_cast<double>(bytes_);
  rlimit limit = {};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  if (limit.rlim_cur < static_cast<rlim_t>(bytes_))
    throw IoError(fmt::format("shared memory: \"{}\" needs {}, but the file size limit is {}; raise `ulimit -f`",
                              group_, mebibytes(wanted), mebibytes(static_cast<double>(limit.rlim_cur))));
  const double available = available_memory();
  int error = wanted > available ? ENOMEM : EINTR;
  while (error == EINTR) error = ::posix_fallocate(memory_.get(), 0, bytes_);
  if (error == ENOSPC || error == ENOMEM)
    throw IoError(
        fmt::format("shared memory: \"{}\" needs {}, but only {} of memory are available; free memory, raise the "
                    "memory limit of the container, or run fewer processes on this host",
                    group_, mebibytes(wanted), mebibytes(available)));
  if (error != 0)
    throw IoError(fmt::format("shared memory: \"{}\" could not allocate {}: {}", group_, mebibytes(wanted),
                              std::strerror(error)));
  ::fcntl(memory_.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL);
}

void* Segment::map_bytes() const {
  void* const memory =
      ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (memory == MAP_FAILED)
    throw OutOfMemory(fmt::format("shared memory: \"{}\" could not map {}: {}", group_,
                                  mebibytes(static_cast<double>(bytes_)), std::strerror(errno)));
  return memory;
}

std::shared_ptr<SegmentView> Segment::map(int rank) const {
  auto view = std::make_shared<SegmentView>(map_bytes(), bytes_, rank);
  const SegmentHeader& header = view->header();
  if (header.ready.load() != SegmentHeader::kReady || header.version != SegmentHeader::kVersion)
    throw_error("shared memory: \"{}\" was created by another version of lockstep; run the same version on all ranks",
                group_);
  view->load_geometry();
  return view;
}

}  // namespace lockstep::detail
