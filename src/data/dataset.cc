#include "data/dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/print_stderr.h"
#include "base/runtime_settings.h"
#include "data/idx.h"
#include "data/paths.h"

namespace lockstep {
namespace detail {
namespace {

void report(const DataOptions& options, const DataEvent& event) {
  if (options.progress) {
    options.progress(event);
  } else if (event.kind == DataEvent::Kind::note) {
    print_stderr("lockstep: {}\n", event.text);
  }
}

void note(const DataOptions& options, const std::string& text) {
  report(options, {.kind = DataEvent::Kind::note, .text = text});
}

std::string wrong_checksum(const std::string& actual, const FileSpec& file) {
  return fmt::format("its MD5 checksum is {}, but the published one is {}", actual, file.md5);
}

// "the file a", "the four files a, b, c, d", "the 233 files a, b, c, ..."
std::string list_files(const DatasetSpec& spec) {
  constexpr size_t kMostNames = 4;
  if (spec.files.size() == 1) return "the file " + spec.files[0].name;
  std::vector<std::string> names;
  for (const FileSpec& each : spec.files) names.push_back(names.size() < kMostNames ? each.name : "...");
  const std::string number = spec.files.size() == 4 ? "four" : std::to_string(spec.files.size());
  if (names.size() > kMostNames) names.resize(kMostNames + 1);
  return fmt::format("the {} files {}", number, fmt::join(names, ", "));
}

// Fetches files from the sources. A source that failed once is not tried again.
class Fetcher {
 public:
  Fetcher(DataEnvironment& env, const DataOptions& options)
      : env_(env), options_(options), failures_(env.sources.size()) {}

  struct Fetched {
    FileContents data;
    std::string source;
  };

  // Fetches the file with the correct checksum from the first source that has it. Throws IoError with the reasons of
  // all sources; `cache_reason` is why the cached file could not be used.
  Fetched fetch(const FileSpec& file, const std::string& cache_reason) {
    for (size_t i = 0; i < env_.sources.size(); ++i) {
      if (!failures_[i].empty()) continue;
      DataSource& source = *env_.sources[i];
      const std::string name = source.name();
      const auto receiving = [&](int64_t bytes, int64_t total) {
        report(options_,
               {.kind = DataEvent::Kind::receiving, .file = file.name, .source = name, .bytes = bytes, .total = total});
      };
      try {
        receiving(0, 0);
        FileContents data = source.fetch(file, receiving);
        if (const std::string sum = contents_md5(data, file); sum != file.md5)
          throw IoError(fmt::format("{}: {}", file.name, wrong_checksum(sum, file)));
        return {std::move(data), name};
      } catch (const IoError& error) {
        failures_[i] = error.what();
      } catch (const Error& error) {
        failures_[i] = error.what();
      }
      if (i + 1 < env_.sources.size())
        note(options_, fmt::format("{}: {}; trying the next source", name, failures_[i]));
    }
    throw IoError(failure_text(file, cache_reason));
  }

 private:
  std::string failure_text(const FileSpec& file, const std::string& cache_reason) const {
    const DatasetSpec& spec = env_.spec;
    std::string text = fmt::format("data: no source has {} of {}:", file.name, spec.name);
    text += "\n  " + cache_reason;
    for (size_t i = 0; i < failures_.size(); ++i)
      text += fmt::format("\n  {}: {}", env_.sources[i]->name(), failures_[i]);
    if (!options_.allow_download) text += "\n  downloads: disabled";
    return text +
           fmt::format(
               "\nrun `lockstep data fetch {} --dir D` on a machine with network access, or put {} (raw or .gz) in a "
               "folder D; then pass --data-dir D",
               spec.name, list_files(spec));
  }

  DataEnvironment& env_;
  const DataOptions& options_;
  std::vector<std::string> failures_;  // one per source; empty: no failure
};

// A file from the folder of fetched files, or why it has to be fetched.
struct CachedFile {
  bool usable = false;
  FileContents data = {};
  std::string reason = {};
};

// Reads a fetched file. A file under the name that store() uses was verified when it was written, so its checksum is
// verified again only on request. Compressed or renamed files were put there by the user and are always verified.
CachedFile read_cached(DataEnvironment& env, const DataOptions& options, const FileSpec& file,
                       const std::string& folder, bool verify_checksum) {
  if (folder.empty())
    return {.reason = "cache: none, because $HOME, $XDG_CACHE_HOME and $LOCKSTEP_CACHE_DIR are not set"};
  CachedFile cached;
  try {
    const std::string path = find_in_folder(folder, file, env.files);
    if (path.empty()) return {.reason = fmt::format("folder {}: {} is missing", folder, file.name)};
    cached.data = read_contents(path, env.files, file);
    if (!verify_checksum && path == folder + "/" + file.name) return {.usable = true, .data = std::move(cached.data)};
    const std::string sum = contents_md5(cached.data, file);
    if (sum == file.md5) return {.usable = true, .data = std::move(cached.data)};
    cached.reason = fmt::format("{}: {}", path, wrong_checksum(sum, file));
  } catch (const Error& error) {
    cached.reason = error.what();
  } catch (const IoError& error) {
    cached.reason = error.what();
  }
  note(options, cached.reason + "; replacing it");
  return cached;
}

void store(DataEnvironment& env, const DataOptions& options, const FileSpec& file, const std::string& folder,
           const Fetcher::Fetched& fetched) {
  env.files.make_dirs(folder);
  const std::vector<uint8_t> raw = encode_contents(fetched.data, file);
  env.files.write_atomic(folder + "/" + file.name, raw);
  report(options, {.kind = DataEvent::Kind::stored,
                   .file = file.name,
                   .source = fetched.source,
                   .bytes = static_cast<int64_t>(raw.size()),
                   .total = static_cast<int64_t>(raw.size())});
}

// The path of a file in the user's folder, where nothing is fetched.
std::string path_in_folder(DataEnvironment& env, const FileSpec& file, const std::string& folder) {
  std::string path = find_in_folder(folder, file, env.files);
  if (path.empty())
    throw_error(
        "data: {} has no {} (raw or .gz); put the file there, run `lockstep data fetch {} --dir {}`, or remove the "
        "folder setting to use the cache",
        folder, file.name, env.spec.name, folder);
  return path;
}

FileContents read_from_folder(DataEnvironment& env, const FileSpec& file, const std::string& folder) {
  const std::string path = path_in_folder(env, file, folder);
  FileContents data = read_contents(path, env.files, file);
  if (const std::string sum = contents_md5(data, file); sum != file.md5)
    throw_error("data: {} is not the {} of {}: {}; replace it, or read {}", path, file.name, env.spec.name,
                wrong_checksum(sum, file),
                env.spec.kind == DatasetKind::text ? "your own text with text:FILE"
                                                   : "a data set of your own with load_idx_pair");
  return data;
}

FileContents read_from_cache(DataEnvironment& env, const DataOptions& options, const FileSpec& file,
                             const std::string& folder, Fetcher& fetcher) {
  CachedFile cached = read_cached(env, options, file, folder, options.verify);
  if (cached.usable) return std::move(cached.data);
  Fetcher::Fetched fetched = fetcher.fetch(file, cached.reason);
  try {
    if (!folder.empty()) store(env, options, file, folder, fetched);
  } catch (const IoError& error) {  // the data can be used, but the next run has to fetch it again
    note(options, fmt::format("{} was fetched, but could not be cached: {}", file.name, error.what()));
  }
  return std::move(fetched.data);
}

// Throws Error unless the data set has images in IDX files.
void check_images(const DatasetSpec& spec) {
  if (spec.kind != DatasetKind::images)
    throw_error("data: {} is text, not images; train a language model on it: --model gpt", spec.name);
}

// Whether the name consists of file paths. Throws Error if a folder is given as well.
bool are_paths(std::string_view name, const DataOptions& options) {
  if (name.find(',') == std::string_view::npos) return false;
  if (!options.dir.empty())
    throw_error("data: the data set {} is given by paths, so the folder {} has no effect; remove the folder setting",
                name, options.dir);
  return true;
}

ImageDataset join(IdxData images, IdxData labels, int64_t classes, const std::string& labels_name) {
  for (size_t i = 0; i < labels.bytes.size(); ++i)
    if (labels.bytes[i] >= classes)
      throw_error("data: {} has label {} at position {}, but labels are 0 to {}; fetch the file again", labels_name,
                  labels.bytes[i], i, classes - 1);
  return {.images = std::move(images.bytes),
          .labels = std::move(labels.bytes),
          .count = images.shape[0],
          .rows = images.shape[1],
          .cols = images.shape[2],
          .channels = images.shape.size() == 4 ? images.shape[3] : 1,
          .classes = classes};
}

}  // namespace

std::vector<FileContents> read_files(DataEnvironment& env, const DataOptions& options) {
  const std::string cache = cache_folder(env.spec.name, options);
  Fetcher fetcher(env, options);
  std::vector<FileContents> data;
  for (const FileSpec& file : env.spec.files)
    data.push_back(options.dir.empty() ? read_from_cache(env, options, file, cache, fetcher)
                                       : read_from_folder(env, file, options.dir));
  return data;
}

Dataset load(DataEnvironment& env, const DataOptions& options) {
  check_images(env.spec);
  std::vector<FileContents> data = read_files(env, options);
  return {.train = join(std::move(data[0]), std::move(data[1]), env.spec.classes, env.spec.files[1].name),
          .test = join(std::move(data[2]), std::move(data[3]), env.spec.classes, env.spec.files[3].name)};
}

std::string fetch(DataEnvironment& env, const DataOptions& options) {
  const std::string folder = options.dir.empty() ? cache_folder(env.spec.name, options) : options.dir;
  if (folder.empty())
    throw_error("data: no folder to store {} in: $HOME is not set; give one with --dir", env.spec.name);
  env.files.make_dirs(folder);  // fails before the download if the folder is not writable
  Fetcher fetcher(env, options);
  for (const FileSpec& file : env.spec.files) {
    const CachedFile cached = read_cached(env, options, file, folder, true);
    if (cached.usable) {
      report(options, {.kind = DataEvent::Kind::present,
                       .file = file.name,
                       .source = folder,
                       .bytes = file_size(file),
                       .total = file_size(file)});
    } else {
      store(env, options, file, folder, fetcher.fetch(file, cached.reason));
    }
  }
  return folder;
}

DatasetFiles locate(DataEnvironment& env, const DataOptions& options) {
  check_images(env.spec);
  const std::string folder = options.dir.empty() ? fetch(env, options) : options.dir;
  std::array<std::string, 4> paths;
  for (size_t i = 0; i < paths.size(); ++i) {
    const FileSpec& file = env.spec.files[i];
    paths[i] = path_in_folder(env, file, folder);
    read_idx_header(paths[i], env.files);  // throws if the file is compressed
    if (!options.dir.empty()) read_from_folder(env, file, folder);
  }
  return {{paths[0], paths[1]}, {paths[2], paths[3]}};
}

std::vector<DataCheck> verify(DataEnvironment& env, const DataOptions& options) {
  const std::string folder = options.dir.empty() ? cache_folder(env.spec.name, options) : options.dir;
  std::vector<DataCheck> checks;
  for (const FileSpec& file : env.spec.files) {
    DataCheck check = {.file = file.name, .path = "", .md5 = "", .expected_md5 = file.md5, .problem = ""};
    try {
      check.path = folder.empty() ? "" : find_in_folder(folder, file, env.files);
      if (check.path.empty()) {
        check.problem = "missing";
      } else {
        check.md5 = contents_md5(read_contents(check.path, env.files, file), file);
        if (check.md5 != file.md5) check.problem = wrong_checksum(check.md5, file);
      }
    } catch (const Error& error) {
      check.problem = error.what();
    } catch (const IoError& error) {
      check.problem = error.what();
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

void check_pair(std::string_view op, const std::string& images_path, const Shape& images,
                const std::string& labels_path, const Shape& labels) {
  if (images.size() != 3 && images.size() != 4)
    throw_error("{}: {} has shape {}; images have three dimensions (count, rows, columns) or four with channels", op,
                images_path, to_string(images));
  if (labels.size() != 1)
    throw_error("{}: {} has shape {}; labels have one dimension", op, labels_path, to_string(labels));
  if (images[0] != labels[0])
    throw_error("{}: {} has {} images, but {} has {} labels; each image needs one label", op, images_path, images[0],
                labels_path, labels[0]);
  if (count(images) == 0)
    throw_error("{}: {} has no pixels: its shape is {}; give a file with images", op, images_path, to_string(images));
}

std::string cache_folder(const std::string& dataset, const DataOptions& options) {
  const std::string root = options.cache_dir.empty() ? cache_root() : options.cache_dir;
  return root.empty() ? "" : root + "/" + dataset;
}

}  // namespace detail

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const detail::DatasetSpec& spec : detail::catalog()) names.push_back(spec.name);
  return names;
}

std::vector<DatasetInfo> list_datasets(const DataOptions& options) {
  std::vector<DatasetInfo> out;
  for (const detail::DatasetSpec& spec : detail::catalog()) {
    DatasetInfo info{.name = spec.name,
                     .kind = spec.kind == detail::DatasetKind::text ? "text" : "images",
                     .files = std::ssize(spec.files)};
    for (const detail::FileSpec& file : spec.files) info.bytes += detail::file_size(file);
    std::vector<std::string> folders = spec.folders;
    folders.insert(folders.begin(), detail::cache_folder(spec.name, options));
    if (!options.dir.empty()) folders = {options.dir};
    const auto has_all = [&](const std::string& folder) {
      return !folder.empty() && std::ranges::all_of(spec.files, [&](const detail::FileSpec& file) {
        return !detail::find_in_folder(folder, file, FileSystem::real()).empty();
      });
    };
    const auto found = std::ranges::find_if(folders, has_all);
    if (found != folders.end()) info.folder = *found;
    out.push_back(std::move(info));
  }
  return out;
}

Dataset load_dataset(std::string_view name, const DataOptions& options) {
  if (name == "synthetic") {
    if (!options.dir.empty())
      throw_error("data: synthetic data is generated, so the folder {} has no effect; remove the folder setting",
                  options.dir);
    return synthetic_digits(6000, 1000);
  }
  if (detail::are_paths(name, options)) return detail::load_paths(name);
  const detail::DatasetSpec& spec = detail::find_dataset(name);
  detail::DataEnvironment env{spec, detail::default_sources(spec, options.allow_download)};
  return detail::load(env, options);
}

std::string fetch_dataset(std::string_view name, const DataOptions& options) {
  const detail::DatasetSpec& spec = detail::find_dataset(name);
  detail::DataEnvironment env{spec, detail::default_sources(spec, options.allow_download)};
  return detail::fetch(env, options);
}

DatasetFiles dataset_files(std::string_view name, const DataOptions& options) {
  if (name == "synthetic")
    throw_error("data: \"synthetic\" is generated in memory and has no files; choose another data set");
  if (detail::are_paths(name, options)) return detail::split_paths(name);
  const detail::DatasetSpec& spec = detail::find_dataset(name);
  detail::DataEnvironment env{spec, detail::default_sources(spec, options.allow_download)};
  return detail::locate(env, options);
}

std::vector<DataCheck> verify_dataset(std::string_view name, const DataOptions& options) {
  detail::DataEnvironment env{detail::find_dataset(name), {}};
  return detail::verify(env, options);
}

ImageDataset load_idx_pair(const std::string& images_path, const std::string& labels_path) {
  IdxData images = read_idx(images_path), labels = read_idx(labels_path);
  detail::check_pair("load_idx_pair", images_path, images.shape, labels_path, labels.shape);
  const int64_t classes = *std::max_element(labels.bytes.begin(), labels.bytes.end()) + 1;
  return detail::join(std::move(images), std::move(labels), classes, labels_path);
}

}  // namespace lockstep
