// Folders of images with a subfolder for each class. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/images/labelled_images.h"

namespace lockstep::detail {

// The image files of a folder FOLDER/CLASS/NAME, ordered by class and name.
struct ImageFolder {
  std::string folder;
  std::vector<std::string> classes;  // sorted; the position is the number of the class
  std::vector<std::string> paths;
  std::vector<int32_t> labels;
};

struct FolderOptions {
  std::vector<std::string> classes = {};  // the classes of the training set; empty: those of the folder
  int64_t rows = 0, cols = 0;             // scale and crop images to this size; 0: all must have one size
  int64_t channels = 0;                   // 1 or 3; 0: 1 if all images are gray
  std::string stream = "auto";
};

// Lists the files with names of images. Files with other names and names that begin with a dot are ignored. Throws Error
// when there are no classes, when a class has no images, or when a class is not among `classes`, unless that is empty.
ImageFolder scan_image_folder(const std::string& folder, const std::vector<std::string>& classes, FileSystem& files);

// Opens the images of a folder. All headers are read, in parallel. Throws Error when a file is damaged or images have
// different sizes, and IoError when a file cannot be read.
ImageSet open_image_folder(const std::string& folder, const FolderOptions& options,
                           FileSystem& files = FileSystem::real());

// Whether the path is a folder.
bool is_folder(const std::string& path);

}  // namespace lockstep::detail
