#pragma once
#include <memory>
#include <string>

#include "examples/resnet/images.h"
#include "triax/parallel/settings/setting.h"
#include "triax/parallel/train/model/task.h"

namespace triax::images {

/// Reads records of CIFAR-10's binary format from a file. Throws Error 66 if it is not there, 65 if
/// its size is no multiple of a record's or a label is not in [0, classes).
std::string read_records(const std::string& path, int64_t classes);

/// The images that a program trains on.
struct DataOptions {
  std::string data = {};      ///< empty: ../share/triax/digits.bin beside the program
  double val_fraction = 0.2;  ///< the part of a single file held out, at its end; in [0, 1)
  std::string augment = {};   ///< `crop-flip`, `crop`, `off`; empty: as the data allows
  int64_t classes = 10;       ///< labels are in [0, classes)
};
/// Returns `--data`, `--val-fraction`, `--augment`.
parallel::Settings image_settings(DataOptions& o);

/// Images read for training.
struct ImageData {
  std::shared_ptr<const Images> train;
  std::shared_ptr<const Images> held_out;  ///< none: nothing is held out
  std::string name;                        ///< the file or directory, for messages
  std::string augment;                     ///< the augmentation of training images
  /// Returns a task without its model: samples, unit, description.
  parallel::Task task() const;
};
/// Reads a directory with data_batch_*.bin, to train on, and test_batch.bin, held out; or a file
/// whose last part is held out. Throws Error 78 if no data is given and there are no digits, 66 if
/// a file is not there, 65 if a part has too few images, and what read_records throws.
ImageData read(const DataOptions& o);

}  // namespace triax::images
