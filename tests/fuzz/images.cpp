// A file of images in CIFAR-10's binary format.
#include "examples/resnet/image_data.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  static test::FileOf file("images.bin");
  file.set(data, size);
  return test::accept_or_refuse([&] { (void)images::read({.data = file.path()}); });
}
