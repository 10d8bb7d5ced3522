#include "examples/resnet/image_data.h"

#include <algorithm>
#include <filesystem>

#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::images {
namespace {

constexpr uint64_t largest_file = uint64_t{2} << 30;
constexpr auto where_from =
    "\n  Expected: a file of CIFAR-10's binary format, or a directory with data_batch_1.bin to "
    "data_batch_5.bin and test_batch.bin.\n"
    "  These are the \"CIFAR-10 binary version\" of https://www.cs.toronto.edu/~kriz/cifar.html, "
    "unpacked: cifar-10-batches-bin.";

struct Split {
  std::string records;
  int64_t train = 0;  // the first so many are to train on, the others held out
};

Split read_directory(const std::string& path, int64_t classes) {
  auto names = disk().list(path);
  auto count = std::ranges::count_if(names, [](const std::string& name) {
    return name.starts_with("data_batch_") && name.ends_with(".bin");
  });
  check_input(count > 0, Exit::not_found, "data: {} has no data_batch_*.bin{}", path, where_from);
  Split split;
  for (int64_t i = 1; i <= count; ++i) {
    std::string name = fmt::format("data_batch_{}.bin", i);
    check_input(std::ranges::count(names, name) > 0, Exit::not_found,
                "data: {} has {} files data_batch_*.bin, and no {}{}", path, count, name,
                where_from);
    split.records += read_records(path + "/" + name, classes);
  }
  split.train = std::ssize(split.records) / record_bytes;
  split.records += read_records(path + "/test_batch.bin", classes);
  return split;
}

Split read_file(const std::string& path, const DataOptions& o) {
  std::string records = read_records(path, o.classes);
  int64_t count = std::ssize(records) / record_bytes;
  auto held_out = int64_t(double(count) * o.val_fraction);
  check_input(held_out < count && (held_out > 0 || o.val_fraction == 0), Exit::data,
              "data: {}: {} of its {} images are held out; expected at least 1, and 1 to train on; "
              "or --val-fraction 0",
              path, held_out, count);
  return {std::move(records), count - held_out};
}

}  // namespace

std::string read_records(const std::string& path, int64_t classes) {
  std::error_code ignored;  // other reasons show when it is read
  bool missing =
      std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found;
  check_input(!missing, Exit::not_found, "data: {} is not there{}", path, where_from);
  std::string records = disk().read(path, largest_file);
  check_input(!records.empty() && std::ssize(records) % record_bytes == 0, Exit::data,
              "data: {} has {} bytes; expected a multiple of {}: records of one byte, the label, "
              "and {} of an image of 32 x 32 pixels",
              path, records.size(), record_bytes, record_bytes - 1);
  for (int64_t i = 0; i < std::ssize(records) / record_bytes; ++i) {
    auto label = uint8_t(records[size_t(i * record_bytes)]);
    check_input(label < classes, Exit::data, "data: {}: record {} has label {}; expected 0 to {}",
                path, i, label, classes - 1);
  }
  return records;
}

parallel::Settings image_settings(DataOptions& o) {
  using parallel::OnResume;
  return parallel::SettingGroup("Data")
      .add("data|dataset|data-path|data-dir", "PATH",
           "images: a file of CIFAR-10's binary format, or the directory of its files", &o.data,
           {.shown = "the digits that come with triax",
            .on_resume = OnResume::free,
            .derived = true})
      .add("val-fraction", "X", "last part of a single file, held out for validation",
           &o.val_fraction, {.range = {0, 1, true}})
      .add("augment", "NAME", "random changes of training images: crops, and mirrored images",
           &o.augment,
           {.choices = {"crop-flip", "crop", "off"},
            .shown = "crop-flip; of the digits that come with triax, crop",
            .derived = true});
}

ImageData read(const DataOptions& o) {
  std::string path = o.data.empty() ? shipped_file("digits.bin") : o.data;
  check_input(!path.empty(), Exit::config,
              "data is not given\n  There is no ../share/triax/digits.bin beside this program. Add "
              "--data PATH.{}",
              where_from);
  Split split = disk().is_directory(path) ? read_directory(path, o.classes) : read_file(path, o);
  int64_t count = std::ssize(split.records) / record_bytes;
  auto records = std::make_shared<const std::string>(std::move(split.records));
  std::string augment = o.augment;  // digits are not mirrored: a 2 would look like a 5
  if (augment.empty()) augment = o.data.empty() ? "crop" : "crop-flip";
  ImageOptions options{.padding = augment == "off" ? 0 : 4, .flip = augment == "crop-flip"};
  auto range = [&](int64_t begin, int64_t end) {
    return std::make_shared<Images>(records, Images::Range{begin, end}, options);
  };
  return {range(0, split.train), split.train < count ? range(split.train, count) : nullptr, path,
          augment};
}

parallel::Task ImageData::task() const {
  return {.samples = train,
          .held_out = held_out,
          .unit = "images",
          .description = fmt::format("{}: {} training images, {} held out, augmentation {}\n", name,
                                     train->count(), held_out ? held_out->count() : 0, augment)};
}

}  // namespace triax::images
