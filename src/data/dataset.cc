#include "data/dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/say.h"
#include "data/idx.h"
#include "data/paths.h"

namespace lockstep {
namespace detail {
namespace {

void report(const DataOptions& options, const DataEvent& event) {
  if (options.progress) {
    options.progress(event);
  } else if (event.kind == DataEvent::Kind::note) {
    say("lockstep: {}\n", event.text);
  }
}

void note(const DataOptions& options, const std::string& text) {
  report(options, {.kind = DataEvent::Kind::note, .text = text});
}

std::string wrong_sum(const std::string& got, const FileSpec& file) {
  return fmt::format("its MD5 sum is {}, the published one is {}", got, file.md5);
}

// Asks the sources of one fetch for file after file, and remembers why each was struck off.
class Fetcher {
 public:
  Fetcher(DataWorld& world, const DataOptions& options)
      : world_(world), options_(options), failures_(world.sources.size()) {}

  struct Fetched {
    IdxData data;
    std::string source;
  };

  // The file with the right sum from the first source that has it. The place is where it was looked for before, and why
  // it was no use there.
  Fetched fetch(const FileSpec& file, const std::string& place) {
    for (size_t i = 0; i < world_.sources.size(); ++i) {
      if (!failures_[i].empty()) continue;
      Source& source = *world_.sources[i];
      const std::string name = source.name();
      const auto receiving = [&](int64_t bytes, int64_t total) {
        report(options_,
               {.kind = DataEvent::Kind::receiving, .file = file.name, .source = name, .bytes = bytes, .total = total});
      };
      try {
        receiving(0, 0);
        IdxData data = source.fetch(file, receiving);
        if (const std::string sum = idx_md5(data); sum != file.md5)
          throw IoError(fmt::format("{}: {}", file.name, wrong_sum(sum, file)));
        return {std::move(data), name};
      } catch (const IoError& error) {
        failures_[i] = error.what();
      } catch (const Error& error) {
        failures_[i] = error.what();
      }
      if (i + 1 < world_.sources.size())
        note(options_, fmt::format("{}: {}; trying the next source", name, failures_[i]));
    }
    throw IoError(all_failed(file, place));
  }

 private:
  std::string all_failed(const FileSpec& file, const std::string& place) const {
    const DatasetSpec& spec = world_.spec;
    std::string text = fmt::format("data: no source has {} of {}:", file.name, spec.name);
    text += "\n  " + place;
    for (size_t i = 0; i < failures_.size(); ++i)
      text += fmt::format("\n  {}: {}", world_.sources[i]->name(), failures_[i]);
    if (!options_.allow_download) text += "\n  downloads: switched off";
    std::vector<std::string> names;
    for (const FileSpec& each : spec.files) names.push_back(each.name);
    return text +
           fmt::format(
               "\nrun `lockstep data fetch {} --dir D` where there is a network, or put the four files {} (raw or .gz) "
               "in a folder D; then pass --data-dir D",
               spec.name, fmt::join(names, ", "));
  }

  DataWorld& world_;
  const DataOptions& options_;
  std::vector<std::string> failures_;  // one per source; empty: none yet
};

// A file in the folder of fetched files, or why it has to be fetched.
struct Kept {
  bool usable = false;
  IdxData data = {};
  std::string reason = {};
};

// What is spelt as we write it was checked when written; its sum is computed only when asked for.
Kept read_kept(DataWorld& world, const DataOptions& options, const FileSpec& file, const std::string& folder,
               bool check_sum) {
  if (folder.empty())
    return {.reason = "cache: there is none, for $HOME, $XDG_CACHE_HOME and $LOCKSTEP_CACHE_DIR are not set"};
  Kept kept;
  try {
    const std::string path = find_in_folder(folder, file, world.files);
    if (path.empty()) return {.reason = fmt::format("folder {}: {} is not there", folder, file.name)};
    kept.data = read_idx(path, world.files, &file.shape);
    if (!check_sum && path == folder + "/" + file.name) return {.usable = true, .data = std::move(kept.data)};
    const std::string sum = idx_md5(kept.data);
    if (sum == file.md5) return {.usable = true, .data = std::move(kept.data)};
    kept.reason = fmt::format("{}: {}", path, wrong_sum(sum, file));
  } catch (const Error& error) {
    kept.reason = error.what();
  } catch (const IoError& error) {
    kept.reason = error.what();
  }
  note(options, kept.reason + "; it is being replaced");
  return kept;
}

void store(DataWorld& world, const DataOptions& options, const FileSpec& file, const std::string& folder,
           const Fetcher::Fetched& fetched) {
  world.files.make_dirs(folder);
  const std::vector<uint8_t> raw = encode_idx(fetched.data);
  world.files.write_atomic(folder + "/" + file.name, raw);
  report(options, {.kind = DataEvent::Kind::stored,
                   .file = file.name,
                   .source = fetched.source,
                   .bytes = static_cast<int64_t>(raw.size()),
                   .total = static_cast<int64_t>(raw.size())});
}

// From the user's folder: nothing is fetched and nothing is forgiven.
std::string path_in_folder(DataWorld& world, const FileSpec& file, const std::string& folder) {
  std::string path = find_in_folder(folder, file, world.files);
  if (path.empty())
    throw_error(
        "data: {} has no {} (raw or .gz); put the file there, run `lockstep data fetch {} --dir {}`, or leave the "
        "folder "
        "out to use the cache",
        folder, file.name, world.spec.name, folder);
  return path;
}

IdxData read_from_folder(DataWorld& world, const FileSpec& file, const std::string& folder) {
  const std::string path = path_in_folder(world, file, folder);
  IdxData data = read_idx(path, world.files, &file.shape);
  if (const std::string sum = idx_md5(data); sum != file.md5)
    throw_error("data: {} is not the {} of {}: {}; replace it, or read a data set of your own with load_idx_pair", path,
                file.name, world.spec.name, wrong_sum(sum, file));
  return data;
}

IdxData read_from_cache(DataWorld& world, const DataOptions& options, const FileSpec& file, const std::string& folder,
                        Fetcher& fetcher) {
  Kept kept = read_kept(world, options, file, folder, options.verify);
  if (kept.usable) return std::move(kept.data);
  Fetcher::Fetched fetched = fetcher.fetch(file, kept.reason);
  try {
    if (!folder.empty()) store(world, options, file, folder, fetched);
  } catch (const IoError& error) {  // the data is here; only the next run will have to fetch it again
    note(options, fmt::format("{} was fetched and is used, but not kept: {}", file.name, error.what()));
  }
  return std::move(fetched.data);
}

// Whether the name is one of paths, which are not looked for in a folder.
bool are_paths(std::string_view name, const DataOptions& options) {
  if (name.find(',') == std::string_view::npos) return false;
  if (!options.dir.empty())
    throw_error("data: the files {} are named by their paths and not looked for in {}; leave the folder out", name,
                options.dir);
  return true;
}

ImageDataset join(IdxData images, IdxData labels, int64_t classes, const std::string& labels_name) {
  for (size_t i = 0; i < labels.bytes.size(); ++i)
    if (labels.bytes[i] >= classes)
      throw_error("data: {} has label {} at position {}; labels are 0 to {}: fetch the file again", labels_name,
                  labels.bytes[i], i, classes - 1);
  return {.images = std::move(images.bytes),
          .labels = std::move(labels.bytes),
          .count = images.shape[0],
          .rows = images.shape[1],
          .cols = images.shape[2],
          .classes = classes};
}

}  // namespace

Dataset load(DataWorld& world, const DataOptions& options) {
  const std::string cache = cache_folder(world.spec.name, options);
  Fetcher fetcher(world, options);
  std::array<IdxData, 4> data;
  for (size_t i = 0; i < data.size(); ++i) {
    const FileSpec& file = world.spec.files[i];
    data[i] = options.dir.empty() ? read_from_cache(world, options, file, cache, fetcher)
                                  : read_from_folder(world, file, options.dir);
  }
  const auto& [train_images, train_labels, test_images, test_labels] = world.spec.files;
  return {.train = join(std::move(data[0]), std::move(data[1]), world.spec.classes, train_labels.name),
          .test = join(std::move(data[2]), std::move(data[3]), world.spec.classes, test_labels.name)};
}

std::string fetch(DataWorld& world, const DataOptions& options) {
  const std::string folder = options.dir.empty() ? cache_folder(world.spec.name, options) : options.dir;
  if (folder.empty())
    throw_error("data: no folder to keep {} in: $HOME is not set; name one with --dir", world.spec.name);
  world.files.make_dirs(folder);  // a folder that cannot be written is better known before the download
  Fetcher fetcher(world, options);
  for (const FileSpec& file : world.spec.files) {
    const Kept kept = read_kept(world, options, file, folder, true);
    if (kept.usable) {
      report(options, {.kind = DataEvent::Kind::present,
                       .file = file.name,
                       .source = folder,
                       .bytes = file_size(file),
                       .total = file_size(file)});
    } else {
      store(world, options, file, folder, fetcher.fetch(file, kept.reason));
    }
  }
  return folder;
}

DatasetFiles locate(DataWorld& world, const DataOptions& options) {
  const std::string folder = options.dir.empty() ? fetch(world, options) : options.dir;
  std::array<std::string, 4> paths;
  for (size_t i = 0; i < paths.size(); ++i) {
    const FileSpec& file = world.spec.files[i];
    paths[i] = path_in_folder(world, file, folder);
    read_idx_header(paths[i], world.files);  // refuses what is compressed
    if (!options.dir.empty()) read_from_folder(world, file, folder);
  }
  return {{paths[0], paths[1]}, {paths[2], paths[3]}};
}

std::vector<DataCheck> verify(DataWorld& world, const DataOptions& options) {
  const std::string folder = options.dir.empty() ? cache_folder(world.spec.name, options) : options.dir;
  std::vector<DataCheck> checks;
  for (const FileSpec& file : world.spec.files) {
    DataCheck check = {.file = file.name, .path = "", .md5 = "", .expected_md5 = file.md5, .problem = ""};
    try {
      check.path = folder.empty() ? "" : find_in_folder(folder, file, world.files);
      if (check.path.empty()) {
        check.problem = "missing";
      } else {
        check.md5 = idx_md5(read_idx(check.path, world.files, &file.shape));
        if (check.md5 != file.md5) check.problem = wrong_sum(check.md5, file);
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
  if (images.size() != 3)
    throw_error("{}: {} has shape {}; images have three dimensions (count, rows, columns)", op, images_path,
                to_string(images));
  if (labels.size() != 1)
    throw_error("{}: {} has shape {}; labels have one dimension", op, labels_path, to_string(labels));
  if (images[0] != labels[0])
    throw_error("{}: {} has {} images and {} has {} labels; each image needs one label", op, images_path, images[0],
                labels_path, labels[0]);
  if (count(images) == 0) throw_error("{}: {} holds no pixels: its shape is {}", op, images_path, to_string(images));
}

std::string cache_folder(const std::string& dataset, const DataOptions& options) {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  std::string root = options.cache_dir;
  if (root.empty()) root = variable("LOCKSTEP_CACHE_DIR");
  if (root.empty()) {
    const std::string xdg = variable("XDG_CACHE_HOME"), home = variable("HOME");
    if (xdg.starts_with('/')) {  // the XDG specification says to ignore relative paths
      root = xdg + "/lockstep";
    } else if (!home.empty()) {
      root = home + "/.cache/lockstep";
    }
  }
  return root.empty() ? "" : root + "/" + dataset;
}

}  // namespace detail

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const detail::DatasetSpec& spec : detail::catalog()) names.push_back(spec.name);
  return names;
}

Dataset load_dataset(std::string_view name, const DataOptions& options) {
  if (name == "synthetic") {
    if (!options.dir.empty())
      throw_error("data: synthetic is made on the spot and is not in {}; leave the folder out", options.dir);
    return synthetic_digits(6000, 1000);
  }
  if (detail::are_paths(name, options)) return detail::load_paths(name);
  const detail::DatasetSpec& spec = detail::find_dataset(name);
  detail::DataWorld world{spec, detail::default_sources(spec, options.allow_download)};
  return detail::load(world, options);
}

std::string fetch_dataset(std::string_view name, const DataOptions& options) {
  const detail::DatasetSpec& spec = detail::find_dataset(name);
  detail::DataWorld world{spec, detail::default_sources(spec, options.allow_download)};
  return detail::fetch(world, options);
}

DatasetFiles dataset_files(std::string_view name, const DataOptions& options) {
  if (name == "synthetic")
    throw_error("data: the images of \"synthetic\" are made in memory; there is no file to read");
  if (detail::are_paths(name, options)) return detail::split_paths(name);
  const detail::DatasetSpec& spec = detail::find_dataset(name);
  detail::DataWorld world{spec, detail::default_sources(spec, options.allow_download)};
  return detail::locate(world, options);
}

std::vector<DataCheck> verify_dataset(std::string_view name, const DataOptions& options) {
  detail::DataWorld world{detail::find_dataset(name), {}};
  return detail::verify(world, options);
}

ImageDataset load_idx_pair(const std::string& images_path, const std::string& labels_path) {
  IdxData images = read_idx(images_path), labels = read_idx(labels_path);
  detail::check_pair("load_idx_pair", images_path, images.shape, labels_path, labels.shape);
  const int64_t classes = *std::max_element(labels.bytes.begin(), labels.bytes.end()) + 1;
  return detail::join(std::move(images), std::move(labels), classes, labels_path);
}

}  // namespace lockstep
