// A contact sheet: the images of the worst mistakes with their labels and predictions. Used by the main thread only.
#pragma once

#include <string>
#include <vector>

#include "data/images/image_codec.h"
#include "lockstep/source.h"
#include "train/classification_report.h"

namespace lockstep {

// Whether the examples of a set have images that contact_sheet() can draw.
bool has_images(const Source& source);

// Draws the mistakes in rows, the worst first: the image, its label, the predicted class with its probability, and the
// number of the example. Throws Error when the data set has no images. REQUIRES: there is a mistake.
detail::DecodedImage contact_sheet(const Source& source, const std::vector<ClassificationReport::Mistake>& mistakes,
                                   const std::vector<std::string>& class_names);

}  // namespace lockstep
