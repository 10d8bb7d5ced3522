// Where images are read from: files of CIFAR-10's binary format, its directory, the digits.
#include "examples/resnet/image_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::images::image_data_test {

using namespace test;
using Labels = std::vector<int32_t>;

/// Black images of these classes.
std::string of(const std::vector<int>& labels) {
  std::string bytes;
  for (int label : labels) bytes += char(label) + std::string(record_bytes - 1, '\0');
  return bytes;
}

Labels labels_of(const Images& images) {
  std::vector<int64_t> all(size_t(images.count()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = int64_t(i);
  return images.batch(all).target.to_host<int32_t>();
}

TEST(ImageData, HoldsOutTheLastPartOfAFile) {
  TemporaryDirectory dir;
  write_bytes(dir / "ten", of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  ImageData data = read({.data = dir / "ten"});
  EXPECT_EQ(labels_of(*data.train), (Labels{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(labels_of(*data.held_out), (Labels{8, 9}));
  parallel::Task task = data.task();
  EXPECT_EQ(task.samples, data.train);
  EXPECT_EQ(task.held_out, data.held_out);
  EXPECT_EQ(task.unit, "images");
  EXPECT_EQ(task.description,
            dir / "ten" + ": 8 training images, 2 held out, augmentation crop-flip\n");
  EXPECT_EQ(read({.data = dir / "ten", .val_fraction = 0}).held_out, nullptr);
  EXPECT_EQ(read({.data = dir / "ten", .val_fraction = 0}).train->count(), 10);
}

TEST(ImageData, ReadsTheBatchesOfADirectoryInOrder) {
  TemporaryDirectory dir;
  write_bytes(dir / "data_batch_2.bin", of({3, 4}));
  write_bytes(dir / "data_batch_1.bin", of({1, 2}));
  write_bytes(dir / "test_batch.bin", of({5, 6, 7}));
  write_bytes(dir / "batches.meta.txt", "airplane\n");
  std::filesystem::create_directory_symlink(dir.path(), dir / "link");
  for (const std::string& path : {dir.path(), dir / "link"}) {
    ImageData data = read({.data = path, .val_fraction = 0});
    EXPECT_EQ(labels_of(*data.train), (Labels{1, 2, 3, 4}));
    ASSERT_NE(data.held_out, nullptr);
    EXPECT_EQ(labels_of(*data.held_out), (Labels{5, 6, 7}));
  }
}

TEST(ImageData, AugmentsAsAsked) {
  TemporaryDirectory dir;
  write_bytes(dir / "ten", of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  auto identity = [&](const std::string& augment) {
    return read({.data = dir / "ten", .augment = augment}).train->identity();
  };
  auto holds = [](const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
  };
  EXPECT_TRUE(holds(identity(""), "padding 4, flip true"));
  EXPECT_TRUE(holds(identity("crop-flip"), "padding 4, flip true"));
  EXPECT_TRUE(holds(identity("crop"), "padding 4, flip false"));
  EXPECT_TRUE(holds(identity("off"), "padding 0, flip false"));
  DataOptions o;
  EXPECT_EQ(o.augment, "");
  for (auto& setting : image_settings(o))
    if (setting.name == "augment")
      expect_error(
          [&] {
            parallel::assign(setting, "rotate", {Exit::usage, "--augment"});
          },
          {"one of: crop-flip, crop, off"}, Exit::usage);
}

TEST(ImageData, SaysWhichFilesAreMissing) {
  TemporaryDirectory dir;
  EXPECT_EQ(
      error_of([&] { read({.data = dir / "absent"}); }, Exit::not_found),
      "data: " + dir / "absent" +
          " is not there\n"
          "  Expected: a file of CIFAR-10's binary format, or a directory with data_batch_1.bin "
          "to data_batch_5.bin and test_batch.bin.\n"
          "  These are the \"CIFAR-10 binary version\" of "
          "https://www.cs.toronto.edu/~kriz/cifar.html, unpacked: cifar-10-batches-bin.");
  expect_error([&] { read({.data = dir.path()}); },
               {"data: " + dir.path() + " has no data_batch_*.bin\n", "cifar-10-batches-bin"},
               Exit::not_found);
  write_bytes(dir / "data_batch_1.bin", of({1}));
  expect_error([&] { read({.data = dir.path()}); },
               {"data: " + dir / "test_batch.bin" + " is not there\n", "cifar-10-batches-bin"},
               Exit::not_found);
  write_bytes(dir / "data_batch_3.bin", of({1}));
  expect_error([&] { read({.data = dir.path()}); },
               {dir.path() + " has 2 files data_batch_*.bin, and no data_batch_2.bin\n"},
               Exit::not_found);
}

TEST(ImageData, RefusesFilesOfAnotherFormat) {
  TemporaryDirectory dir;
  write_bytes(dir / "empty", "");
  write_bytes(dir / "longer", of({1, 2}) + "x");
  write_bytes(dir / "label", of({1, 9, 10}));
  write_bytes(dir / "negative", of({255}));
  EXPECT_EQ(error_of([&] { read({.data = dir / "longer"}); }, Exit::data),
            "data: " + dir / "longer" +
                " has 6147 bytes; expected a multiple of 3073: records of one byte, the label, and "
                "3072 of an image of 32 x 32 pixels");
  expect_data_error([&] { read({.data = dir / "empty"}); },
                    {dir / "empty" + " has 0 bytes; expected"});
  EXPECT_EQ(error_of([&] { read({.data = dir / "label"}); }, Exit::data),
            "data: " + dir / "label" + ": record 2 has label 10; expected 0 to 9");
  expect_data_error([&] { read({.data = dir / "negative"}); }, {"record 0 has label 255"});
  EXPECT_EQ(read({.data = dir / "label", .val_fraction = 0, .classes = 11}).train->count(), 3);
}

TEST(ImageData, SaysThatTooFewImagesAreHeldOut) {
  TemporaryDirectory dir;
  write_bytes(dir / "four", of({1, 2, 3, 4}));
  EXPECT_EQ(error_of([&] { read({.data = dir / "four"}); }, Exit::data),
            "data: " + dir / "four" +
                ": 0 of its 4 images are held out; expected at least 1, and 1 to train on; or "
                "--val-fraction 0");
}

TEST(ImageData, TheDigitsAreTheDefault) {
  ImageData data = read({});
  EXPECT_EQ(data.train->count(), 1797 - 359);
  EXPECT_EQ(data.augment, "crop");
  Labels held_out = labels_of(*data.held_out), train = labels_of(*data.train);
  EXPECT_EQ(held_out.size(), 359u);
  for (int digit = 0; digit < 10; ++digit) {
    EXPECT_GE(std::ranges::count(held_out, digit), 25) << digit;
    EXPECT_GE(std::ranges::count(train, digit), 125) << digit;
  }
}

}  // namespace triax::images::image_data_test
