// Opens image sets of the kinds that consist of files of images and labels. Safe from any thread.
#pragma once

#include <string>

#include "data/images/labelled_images.h"
#include "lockstep/data.h"

namespace lockstep::detail {

// A set in memory. `origins` are paths for messages.
ImageSet to_image_set(ImageDataset set, std::string name, const ImageFiles& origins = {});

// Two raw IDX files, of which the images stay on disk. Throws as load_idx_pair() does, and Error for .gz files.
ImageSet stream_idx_pair(const ImageFiles& files);

// Two .npy files: images uint8 (n, rows, cols) or (n, rows, cols, channels), and labels (n).
ImageSet open_npy_images(const std::string& images_path, const std::string& labels_path, const std::string& stream);

// Throws Error unless a second set has images like the first and no more classes. Then gives it the classes of the first.
void check_same_images(const ImageSet& train, ImageSet& other, const std::string& what);

}  // namespace lockstep::detail
