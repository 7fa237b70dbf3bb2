// The functions of NVRTC that lockstep uses, implemented with this machine's compiler. Kernels are compiled after
// device.h, and with the emulated machine.cuh instead of their own.
#include <dlfcn.h>
#include <nvrtc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "emulated/code.h"

namespace emulated {
namespace {

namespace fs = std::filesystem;

struct Program {
  std::string text;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string log;
  std::vector<char> code;
};

// A temporary folder, deleted with the object.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "lockstep_emulated_XXXXXX").string();
    if (::mkdtemp(name.data()))
      path = name;
    else
      std::fprintf(stderr, "emulated GPU: %s: %s\n", name.c_str(), std::strerror(errno));
  }
  ~Folder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Whether the header is replaced by one of this machine or of the emulator.
bool is_replaced(const std::string& header) {
  return header == "cstdint" || header == "type_traits" || header == "machine.cuh" || header == "warpgroup.cuh";
}

// Writes the text to a file of the folder, instead of compiling it. Its kernel does nothing.
void keep_text(const std::string& folder, Program& program) {
  std::ofstream(fs::path(folder) / (std::to_string(std::hash<std::string>()(program.text)) + ".cu")) << program.text;
  CodeHeader header{};
  std::memcpy(header.kind, kCodeKind, sizeof kCodeKind);
  program.code.resize(sizeof header);
  std::memcpy(program.code.data(), &header, sizeof header);
}

// The name of the kernel that a text defines: what precedes its parameters.
std::string kernel_of(const std::string& text) {
  static const std::regex kernel(R"(__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\()");
  std::smatch found;
  return std::regex_search(text, found, kernel) ? found[1].str() : "";
}

void compile(Program& program) {
  if (const char* const texts = std::getenv("LOCKSTEP_EMULATED_TEXTS")) return keep_text(texts, program);
  const Folder folder;
  if (folder.path.empty()) return;
  for (const auto& [name, text] : program.headers) {
    if (is_replaced(name)) continue;
    fs::create_directories((folder.path / name).parent_path());
    std::ofstream(folder.path / name) << text;
  }
  std::string text = program.text;
  constexpr std::string_view kAsked = "extern __shared__";
  for (size_t at = 0; (at = text.find(kAsked, at)) != text.npos;) text.replace(at, kAsked.size(), "extern __thread");
  std::ofstream(folder.path / "kernel.cc") << text << "\nEMULATED_KERNEL(" << kernel_of(text) << ")\n";
  if (const char* const keep = std::getenv("LOCKSTEP_EMULATED_KEEP"))
    fs::copy(folder.path, fs::path(keep) / folder.path.filename(), fs::copy_options::recursive);
  const std::string in = folder.path.string();
  // No fused multiply-add, as with NVRTC.
  const std::string command = "env -u LD_PRELOAD " EMULATED_CXX " " EMULATED_FLAGS " -shared -I" + in +
                              " -I" EMULATED_PRECOMPILED " -I" EMULATED_FOLDER " -include device.h -o " + in +
                              "/kernel.so " + in + "/kernel.cc 2> " + in + "/log";
  const int status = std::system(command.c_str());
  program.log = content(folder.path / "log");
  if (status != 0) return;
  const std::string library = content(folder.path / "kernel.so");
  CodeHeader header{};
  std::memcpy(header.kind, kCodeKind, sizeof kCodeKind);
  header.size = library.size();
  program.code.resize(sizeof header + library.size());
  std::memcpy(program.code.data(), &header, sizeof header);
  std::memcpy(program.code.data() + sizeof header, library.data(), library.size());
}

// Changes with the headers that kernels include and the flags, because compiled code is cached by version.
int version() {
  size_t all = std::hash<std::string>()(EMULATED_FLAGS);
  for (const char* name : {"/block.h", "/device.h", "/halves.h", "/machine.cuh", "/warpgroup.cuh"})
    all = all * 31 + std::hash<std::string>()(content(std::string(EMULATED_FOLDER) + name));
  return static_cast<int>(all % 1000000);
}

Program& of(nvrtcProgram program) { return *reinterpret_cast<Program*>(program); }

}  // namespace

void* load_code(const void* code) {
  CodeHeader header;
  std::memcpy(&header, code, sizeof header);
  if (std::memcmp(header.kind, kCodeKind, sizeof kCodeKind) != 0) return nullptr;
  if (header.size == 0) return ::dlopen(nullptr, RTLD_NOW);  // no kernel
  const Folder folder;
  if (folder.path.empty()) return nullptr;
  const std::string path = (folder.path / "kernel.so").string();
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(code) + sizeof header, static_cast<std::streamsize>(header.size));
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) std::fprintf(stderr, "emulated GPU: %s\n", ::dlerror());
  return handle;
}

}  // namespace emulated

using emulated::of;

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 0;  // not a version of CUDA
  *minor = emulated::version();
  return NVRTC_SUCCESS;
}
const char* nvrtcGetErrorString(nvrtcResult result) { return result == NVRTC_SUCCESS ? "done" : "compilation failed"; }
nvrtcResult nvrtcCreateProgram(nvrtcProgram* made, const char* text, const char*, int count, const char* const* headers,
                               const char* const* names) {
  auto* const program = new emulated::Program{text, {}, {}, {}};
  for (int i = 0; i < count; ++i) program->headers.emplace_back(names[i], headers[i]);
  *made = reinterpret_cast<nvrtcProgram>(program);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete &of(*program);
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  emulated::compile(of(program));
  return of(program).code.empty() ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  *size = of(program).code.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* code) {
  std::memcpy(code, of(program).code.data(), of(program).code.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  *size = of(program).log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::memcpy(log, of(program).log.c_str(), of(program).log.size() + 1);
  return NVRTC_SUCCESS;
}

}  // extern "C"
